"""`ttabench run`: a grid of runs, one line each, one failure not stopping the others' records from being kept."""

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
from tta_bench.runs.bench import Bench, RunSpec, open_dataset
from tta_bench.system import paths
from tta_bench.system.progress import Reporter, Terminal


def run(
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
    checkpoint: Path | None,
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
            checkpoint=checkpoint,
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


def export_pack(
    registry: Registry,
    file: Path,
    dataset: str,
    backbone: str,
    recipes: Sequence[str],
    prompts: Sequence[str],
    seed: int,
    precision: str,
    checkpoint: Path | None,
    data_root: Path | None,
) -> None:
    from tta_bench.features.pack_export import export
    from tta_bench.views import parse_recipe

    views = [parse_recipe(name) for name in recipes]
    bench = Bench(registry, paths.runs(), paths.store(), data_root or paths.data(), Terminal())
    spec = RunSpec("", dataset, backbone, precision=precision, checkpoint=checkpoint, seed=seed)
    encoder, images = bench.backbone(spec), bench.dataset(dataset)
    pack = export(
        file,
        dataset=images,
        backbone=encoder,
        recipes=views,
        prompts=[PromptSet.named(name, images.class_names) for name in prompts],
        store=bench.store,
        encoding=bench.encoding,
        reporter=bench.reporter,
        seed=seed,
        dataset_name=dataset,
        backbone_name=backbone,
        notes={"precision": precision},
    )
    print(f"{file}: {len(pack)} images, {', '.join(pack.recipes)}")


def build_captions(
    registry: Registry,
    source: str,
    dataset: str,
    backbone: str,
    output: Path,
    checkpoint: Path | None,
    data_root: Path | None,
) -> None:
    from tta_bench.prompts import captions

    bench = Bench(registry, paths.runs(), paths.store(), data_root or paths.data(), Terminal())
    encoder = bench.backbone(RunSpec("", dataset, backbone, checkpoint=checkpoint))
    count, digest = captions.build(source, bench.dataset(dataset).class_names, encoder, output)
    print(f"{output}: {count} captions, digest {digest[:12]}; use it with --set captions={output}")


def preview(
    registry: Registry,
    dataset: str,
    recipes: Sequence[str],
    output: Path,
    images: int,
    size: int,
    seed: int,
    data_root: Path | None,
) -> None:
    """Contact sheets, one line for each file."""
    from tta_bench.checks.preview import write_sheets
    from tta_bench.views import parse_recipe

    views = [parse_recipe(name) for name in recipes]
    opened = open_dataset(registry, dataset, data_root or paths.data())
    for file in write_sheets(opened, dataset, views, output, images, size, seed):
        print(file)


def check(registry: Registry, target: str) -> None:
    """A verdict table for each method; exits with 1 if one fails."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from tta_bench.checks import conformance

    names = [target]
    if target.endswith(".py"):
        names = [p.name for p in registry.plugins("methods") if p.origin == target]
        if not names:
            raise UsageError(f"{target} offers no method")
    failed = 0
    for name in names:
        examination = conformance.examine(registry.method(name))
        table = Table("check", "verdict", "why", title=escape(name))
        for verdict in examination.verdicts:
            table.add_row(
                verdict.check, "[green]passed[/]" if verdict.passed else "[red]FAILED[/]", escape(verdict.reason)
            )
        Console().print(table)
        failed += sum(not verdict.passed for verdict in examination.verdicts)
    if failed:
        raise PluginError(
            f"{failed} check{'s' if failed > 1 else ''} failed: {target} would give numbers not to be trusted"
        )


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
    roles = {role for cls in classes.values() for role in cls.recipes}
    for role in chosen:
        if role not in roles:
            raise UnknownName(
                "view role", role, roles, f"The methods to run have: {', '.join(sorted(roles)) or 'none'}."
            )
    return {
        name: {role: recipe for role, recipe in chosen.items() if role in cls.recipes} for name, cls in classes.items()
    }
