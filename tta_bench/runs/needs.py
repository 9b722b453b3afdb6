"""Which features a run asks the store for, told without loading a backbone or opening a dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tta_bench.errors import TTABenchError
from tta_bench.runs.roles import REWARDED
from tta_bench.system.code import blamed

if TYPE_CHECKING:
    from tta_bench.interfaces import ViewRecipe
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.spec import RunSpec


class Need(NamedTuple):
    """The views of one recipe, as one backbone sees them."""

    dataset: str
    backbone: str
    encoder: str  # precision, weights and prompt tuning: what else makes another encoder
    recipe: str  # its repr
    seed: int | None  # None for views that are not drawn
    views: int  # per image


class _Asked(NamedTuple):
    """What a method said."""

    views: list[ViewRecipe]
    second: str  # its second backbone, or empty
    rewarded: list[ViewRecipe]  # as the second backbone sees them


class Needs:
    """What runs need. A method is asked once for all seeds, datasets and backbones."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._asked: dict[str, _Asked] = {}

    def of(self, spec: RunSpec) -> list[Need]:
        """Nothing for a pack, which has its features, and for a method that can't be asked: its run will say why."""
        if spec.pack is not None:
            return []
        key = repr((spec.method, spec.settings, spec.preset, spec.recipes))
        if key not in self._asked:
            self._asked[key] = self._ask(spec)
        asked = self._asked[key]
        tuned = spec.prompt if spec.prompt.startswith("maple:") else ""  # which reach into the image tower
        encoder = f"{spec.precision} {spec.weights or ''} {spec.random_weights} {tuned}"
        return [
            Need(str(spec.dataset), backbone, way, repr(recipe), spec.seed if recipe.seeded else None, recipe.count)
            for backbone, way, recipes in (
                (str(spec.backbone), encoder, asked.views),
                (asked.second, spec.precision, asked.rewarded),
            )
            for recipe in recipes
        ]

    def _ask(self, spec: RunSpec) -> _Asked:
        from tta_bench.views import Original

        try:
            with blamed(str(spec)):
                method, recipes = self._bench.method_and_recipes(spec)
                second = method.second_backbone() or ""
        except TTABenchError:
            return _Asked([], "", [])
        return _Asked([Original(), *recipes.values()], second, [Original(), recipes[REWARDED]] if second else [])
