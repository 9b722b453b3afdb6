"""`ttabench check`, `list`, `doctor` and `preview`: what is here, and is it what it should be?"""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tta_bench.cli.options import (
    AsJson,
    DataRoot,
    DatasetName,
    PluginFiles,
    Weights,
    WithoutPlugins,
    complain,
    names,
    registry,
)
from tta_bench.errors import PluginError, UnknownName, UsageError
from tta_bench.system.text import counted

if TYPE_CHECKING:
    from tta_bench.checks.verdicts import Examination
    from tta_bench.plugins import Kind, Plugin, Registry

SHOWN_RECIPES = ["augmix63", "plain63", "holistic63", "crops50"]


def list_(
    kind: Annotated[str, typer.Argument(help="methods, datasets, backbones or plugins.")],
    name: Annotated[str | None, typer.Argument(help="One of them: all about it.")] = None,
    data_root: DataRoot = None,
    json: AsJson = False,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Show what can be named in the other commands; with a NAME its fields, presets, views, variants and needs."""
    from tta_bench.plugins import KINDS

    found = registry(plugin, no_plugin)
    kinds = {str(known): known for known in KINDS}
    if kind not in (*kinds, "plugins"):
        raise UnknownName("kind", kind, (*KINDS, "plugins"), f"Choose one of {', '.join(KINDS)}, plugins.")
    if name is not None:
        if kind == "plugins":
            raise UsageError(f"list plugins {name}: write methods, datasets or backbones for all about one of them")
        _show_one(found, found.find(kinds[kind], name), data_root, json)
        return
    plugins = found.plugins(kinds.get(kind))
    if json:
        print(json_.dumps([_said(p) for p in plugins], indent=1))
        return
    columns = {"name": "name", "from": "origin", "what": "summary"}
    if kind == "plugins":
        columns = {"entry point": "entry_point", "module": "module", "from": "origin"}
    _print_table(columns, plugins)
    for twice in {p.name for p in plugins if sum(q.entry_point == p.entry_point for q in plugins) > 1}:
        offers = " and ".join(p.origin for p in plugins if p.name == twice)
        print(f"ttabench: warning: two plugins offer '{twice}': {offers}", file=sys.stderr)


def _show_one(found: Registry, plugin: Plugin, data_root: Path | None, json: bool) -> None:
    from tta_bench.checks.description import describe
    from tta_bench.cli.plugin_pages import print_description
    from tta_bench.system import paths

    description = describe(found, plugin, data_root or paths.data())
    if json:
        print(json_.dumps(asdict(description), indent=1, default=str))
    else:
        print_description(description)


def _said(plugin: Plugin) -> dict[str, Any]:
    """All that is known of a plugin without importing it."""
    said = {**asdict(plugin), "entry_point": plugin.entry_point, "summary": plugin.summary}
    return {**said, **plugin.declared} if plugin.kind == "methods" else said


def _print_table(columns: Mapping[str, str], plugins: Sequence[Plugin]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for column in columns:
        table.add_column(column, overflow="fold")
    for plugin in plugins:
        said = _said(plugin)
        if plugin.kind == "methods":
            said["summary"] += f"\n{said['setting']}; {said['status']}"
        table.add_row(*(escape(said[attribute]) for attribute in columns.values()))
    Console().print(table)


# ---------------------------------------------------------------------------------------------------------- check


def check(
    target: Annotated[
        str,
        typer.Argument(
            help="A name (KIND.NAME where it has several kinds), or a plugin file: all that it offers.",
            metavar="NAME|KIND.NAME|FILE.py",
        ),
    ],
    data_root: DataRoot = None,
    weights: Weights = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Check a backbone's architecture without its weights.")
    ] = False,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Does a method, dataset or backbone keep the rules that make numbers trustworthy?"""
    from tta_bench.cli.plugin_pages import print_examination

    found = registry([*(plugin or []), *([Path(target)] if target.endswith(".py") else [])], no_plugin)
    subjects = _subjects(found, target)
    kinds = {kind for kind, _ in subjects}
    if (weights or random_weights) and "backbones" not in kinds:
        raise UsageError(f"--weights and --random-weights are for backbones, and {target} is none")
    if weights and random_weights:
        raise UsageError("--weights or --random-weights: only one of them can count")
    if data_root and "datasets" not in kinds:
        raise UsageError(f"--data-root is for datasets, and {target} is none")
    failed, missing = 0, 0
    for kind, name in subjects:
        try:
            examination = _examine(found, kind, name, data_root, weights, random_weights)
        except UsageError as error:  # its data or weights are not here
            if len(subjects) == 1:
                raise
            complain(f"{kind}.{name} can't be checked: {error}")
            missing += 1
            continue
        print_examination(examination)
        failed += sum(not verdict.passed for verdict in examination.verdicts)
    if failed:
        raise PluginError(f"{counted(failed, 'check')} failed: {target} would give numbers not to be trusted")
    if missing:
        raise UsageError(f"{missing} of the {len(subjects)} plugins in {target} can't be checked here")


def _subjects(found: Registry, target: str) -> list[tuple[Kind, str]]:
    """What is meant by NAME, NAME:ARGUMENT, KIND.NAME or FILE.py."""
    from tta_bench.plugins import KINDS

    if target.endswith(".py"):
        return [(kind, p.name) for kind in KINDS for p in found.plugins(kind) if p.origin == target]
    for kind in KINDS:
        if target.startswith(f"{kind}."):
            name = target.removeprefix(f"{kind}.")
            found.find(kind, name.partition(":")[0])
            return [(kind, name)]
    plain = target.partition(":")[0]
    matches = [(kind, target) for kind in KINDS if plain in found.names(kind)]
    if not matches:
        everything = [name for kind in KINDS for name in found.names(kind)]
        hint = "`ttabench list methods`, `datasets` and `backbones` show what there is."
        raise UnknownName("method, dataset or backbone", target, everything, hint)
    if len(matches) > 1:
        kinds = " and a ".join(kind[:-1] for kind, _ in matches)
        ways = " or ".join(f"{kind}.{target}" for kind, _ in matches)
        raise UsageError(f"'{target}' is a {kinds}: write {ways}")
    return matches


def _examine(
    found: Registry, kind: Kind, name: str, data_root: Path | None, weights: Path | None, random_weights: bool
) -> Examination:
    from tta_bench.checks import backbones, conformance, datasets
    from tta_bench.system import paths

    match kind:
        case "methods":
            return conformance.examine(found.method(name))
        case "datasets":
            plain, _, variant = name.partition(":")
            return datasets.examine(found.dataset(plain), data_root or paths.data(), variant or "default")
        case "backbones":
            return backbones.examine(found.backbone(name), weights, random_weights)


def doctor(
    backbone: Annotated[list[str] | None, typer.Option(help="Whose features to check; tiny by default.")] = None,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Everything, not only what is wrong.")] = False,
    json: AsJson = False,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Check the installation: versions, plugins, folders, device, disk, and a backbone's features."""
    from tta_bench.checks.doctor import examine
    from tta_bench.cli.plugin_pages import print_findings

    findings = examine(registry(plugin, no_plugin), names(backbone or ["tiny"], "--backbone"))
    if json:
        print(json_.dumps([finding.as_json for finding in findings], indent=1))
    else:
        print_findings(findings, verbose)
    if not all(finding.ok for finding in findings):
        sys.exit(1)


def preview(
    dataset: DatasetName = "scenes",
    recipe: Annotated[
        list[str] | None, typer.Option(help="View recipes to show; all four kinds by default.", metavar="RECIPE")
    ] = None,
    images: Annotated[int, typer.Option(help="How many images.", min=1)] = 32,
    size: Annotated[int, typer.Option(help="Pixels per side of a picture.", min=16)] = 128,
    seed: Annotated[int, typer.Option(help="Of the choice of images and of the views.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the PNG files.", metavar="DIR")] = Path(),
    data_root: DataRoot = None,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Write contact sheets of a dataset's images and of each view recipe."""
    from tta_bench.checks.preview import write_sheets
    from tta_bench.runs.bench import Bench
    from tta_bench.system.progress import Terminal
    from tta_bench.views import parse_recipe

    views = [parse_recipe(name) for name in names(recipe or SHOWN_RECIPES, "--recipe")]
    found = registry(plugin, no_plugin)
    opened = Bench(data_root=data_root, registry=found, progress=Terminal()).dataset(dataset)
    for file in write_sheets(opened, dataset, views, output, images, size, seed):
        print(file)
