"""The views that a run's method will see, by role."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tta_bench.errors import PluginError, UnknownName, UsageError

if TYPE_CHECKING:
    from tta_bench.interfaces import Method, ViewRecipe
    from tta_bench.runs.spec import RunSpec

TAKEN = ("image", "reward")  # `x.pixels("image")` is the original, `x["reward"]` what the second backbone sees
REWARDED = "views"  # the role that the second backbone sees, too


def recipes_of(method: Method, spec: RunSpec) -> dict[str, ViewRecipe]:
    """The method's views, with what the preset and the user put in their place."""
    from tta_bench.views import parse_recipe

    refuse_odd_roles(method)
    recipes = dict(method.recipes)
    for role, recipe in {**method.preset_recipes.get(spec.preset or "", {}), **spec.recipes}.items():
        if role not in recipes:
            hint = f"It has: {', '.join(recipes) or 'none'}."
            raise UnknownName(f"view role of {method.name}", role, recipes, hint)
        if isinstance(recipe, type):
            name = recipe.__name__
            raise UsageError(f"recipe {role}={name}: it is a class, make one of it: {name}()")
        if not isinstance(recipe, str) and not hasattr(recipe, "render"):
            raise UsageError(f"recipe {role}={recipe!r}: a recipe's name is wanted, such as plain63, or a ViewRecipe")
        recipes[role] = parse_recipe(recipe) if isinstance(recipe, str) else recipe
    return recipes


def refuse_odd_roles(method: Method) -> None:
    """Roles that something else would take the place of, and a second backbone without its views."""
    roles = list(method.recipes)
    for role in TAKEN:
        if role in roles:
            raise PluginError(
                f"method '{method.name}' calls views '{role}', which every observation may have: choose another role"
            )
    if REWARDED not in roles and method.second_backbone() is not None:
        raise PluginError(f"method '{method.name}' has a second backbone and no views of the role '{REWARDED}' for it")
