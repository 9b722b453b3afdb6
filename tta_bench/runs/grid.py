"""A grid of runs."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import cast

from tta_bench import metrics
from tta_bench.errors import DataMissing, PluginError, UnknownName, UsageError, WeightsMissing
from tta_bench.features.encoding import EncodingOptions
from tta_bench.features.store import FeatureType
from tta_bench.features.stream import stream_order
from tta_bench.interfaces import Method
from tta_bench.plugins import Registry
from tta_bench.prompts.sets import PromptSet
from tta_bench.records import RunRecord
from tta_bench.runs import hyperparameters
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.system import paths
from tta_bench.system.progress import Reporter, Terminal


def run_grid(
    *,
    registry: Registry,
    pack: Path | None,
    random_weights: bool,
    results: Path | None,
    data_root: Path | None,
    methods: Sequence[str],
    datasets: Sequence[str],
    backbones: Sequence[str],
    seeds: Sequence[int],
    prompt: str,
    order: str,
    limit: int | None,
    settings: Sequence[str],
    preset: str | None,
    recipes: Sequence[str],
    device: str,
    precision: str,
    weights: Path | None,
    features: str,
    empty_classes: str,
    batch_size: int,
    workers: int,
    checkpoint_seconds: float,
    force: bool,
) -> None:
    reporter = Terminal()
    classes = _methods(registry, methods, reporter)
    # Whatever is misspelt fails here, before anything is loaded.
    stream_order((), order, 0)
    if pack is None:
        PromptSet.named(prompt, ())
        for dataset in datasets:
            registry.find("datasets", dataset.partition(":")[0])
        for backbone in backbones:
            registry.find("backbones", backbone.partition(":")[0])
    else:
        datasets, backbones = ["pack"], ["pack"]  # the pack knows its own names
    own_settings = _own_settings(classes, hyperparameters.parse_settings(settings))
    own_recipes = _own_recipes(classes, recipes)
    bench = Bench(
        registry,
        results or paths.runs(),
        paths.store(),
        data_root or paths.data(),
        reporter,
        device,
        EncodingOptions(cast(FeatureType, features), batch_size, workers),
        checkpoint_seconds,
    )
    for backbone, dataset, seed, name in itertools.product(backbones, datasets, seeds, classes):
        spec = RunSpec(
            method=name,
            dataset=dataset,
            backbone=backbone,
            prompt=prompt,
            seed=seed,
            order=order,
            limit=limit,
            settings=own_settings[name],
            preset=preset if preset in getattr(classes[name], "presets", {}) or len(classes) == 1 else None,
            recipes=own_recipes[name],
            precision=precision,
            weights=weights,
            random_weights=random_weights,
            pack=pack,
            empty_classes=cast(metrics.Empty, empty_classes),
        )
        try:
            record, already = bench.run(spec, force)
        except (DataMissing, WeightsMissing):
            raise
        except UsageError as refusal:
            if list(methods) != ["all"]:
                raise
            reporter.line(f"ttabench: {name} left out: {refusal}")  # `all` means all that can run here
            continue
        print(_line(record, already), flush=True)


def _line(record: RunRecord, already: bool) -> str:
    value = record.metrics["mAP"]
    score = "mAP undefined (no positives)" if value is None else f"mAP {value:.2f}"
    others = ", ".join(
        f"{label} {record.metrics[name]:.2f}"
        for name, label in (("mAP_centered", "centred"), ("mAP_softmax", "softmax"))
        if record.metrics[name] is not None
    )
    cost = "done before, nothing to do" if already else f"{record.speed['images_per_s']:,.0f} images/s"
    empty = int(record.metrics.get("classes_without_positives") or 0)
    convention = record.protocol.parts["empty_classes"]
    treatment = {"skip": "left out", "zero": "counted as 0"}[convention]
    note = f", {empty} classes without positives {treatment}" if empty else ""
    untrained = " (untrained: the numbers mean nothing)" if record.random_weights else ""
    where = f"{record.method} on {record.dataset} with {record.backbone}{untrained}, seed {record.seed}"
    return f"{where}: {score} ({others}){note}, {record.n} images, {cost} [{record.run_id}]"


def _methods(registry: Registry, names: Sequence[str], reporter: Reporter) -> dict[str, type[Method]]:
    """The classes, in the order asked for. `all` takes what loads and names what does not."""
    if list(names) != ["all"]:
        return {name: registry.method(name) for name in names}
    classes: dict[str, type[Method]] = {}
    for name in registry.names("methods"):
        try:
            classes[name] = registry.method(name)
        except PluginError as error:
            reporter.line(f"ttabench: warning: {error}")
    return classes


def _own_settings(classes: dict[str, type[Method]], settings: dict[str, str]) -> dict[str, dict[str, str]]:
    """What `--set` means for each method; a key that concerns none of them is a mistake."""
    for key in settings:
        if "." in key and key.partition(".")[0] not in classes:
            raise UnknownName("method in --set", key.partition(".")[0], classes, "It is not among those to run.")
    own = {name: hyperparameters.settings_for(name, cls, settings) for name, cls in classes.items()}
    used = {key for name, chosen in own.items() for field in chosen for key in (field, f"{name}.{field}")}
    unused = [key for key in settings if key not in used]
    if unused:
        name, cls = next(iter(classes.items()))
        if len(classes) == 1:
            hyperparameters.build(cls, {unused[0]: settings[unused[0]]})  # says what the method does have
        raise UsageError(f"--set {unused[0]}: none of the methods to run has such a hyper-parameter")
    for name, cls in classes.items():
        hyperparameters.build(cls, own[name])  # a bad value fails before anything is encoded
    return own


def _own_recipes(classes: dict[str, type[Method]], recipes: Sequence[str]) -> dict[str, dict[str, str]]:
    from tta_bench.views import parse_recipe

    chosen: dict[str, str] = {}
    for text in recipes:
        role, equals, name = text.partition("=")
        if not equals:
            raise UsageError(f"--recipe {text}: write role=recipe, for example --recipe views=plain63")
        parse_recipe(name)
        chosen[role] = name
    roles = {role for cls in classes.values() for role in cls().recipes}
    for role in chosen:
        if role not in roles:
            raise UnknownName(
                "view role", role, roles, f"The methods to run have: {', '.join(sorted(roles)) or 'none'}."
            )
    return {
        name: {role: recipe for role, recipe in chosen.items() if role in cls().recipes}
        for name, cls in classes.items()
    }
