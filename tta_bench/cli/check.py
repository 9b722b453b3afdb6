"""`ttabench check`, `list`, `doctor` and `preview`: what is here, and is it what it should be?"""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tta_bench.cli.options import AsJson, DataRoot, DatasetName, PluginFiles, WithoutPlugins, names, registry
from tta_bench.errors import PluginError, UnknownName, UsageError

if TYPE_CHECKING:
    from tta_bench.plugins import Plugin

SHOWN_RECIPES = ["augmix63", "plain63", "holistic63", "crops50"]


def list_(
    kind: Annotated[str, typer.Argument(help="methods, datasets, backbones or plugins.")],
    json: AsJson = False,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Show what can be named in the other commands."""
    from tta_bench.plugins import KINDS

    found = registry(plugin, no_plugin)
    if kind == "plugins":
        plugins = found.plugins()
    elif kind in KINDS:
        plugins = found.plugins(kind)
    else:
        raise UnknownName("kind", kind, (*KINDS, "plugins"), f"Choose one of {', '.join(KINDS)}, plugins.")
    if json:
        print(json_.dumps([{**asdict(p), "summary": p.summary} for p in plugins], indent=1))
        return
    columns = {"name": "name", "from": "origin", "what": "summary"}
    if kind == "plugins":
        columns = {"entry point": "entry_point", "module": "module", "from": "origin"}
    _print_table(columns, plugins)
    for name in {p.name for p in plugins if sum(q.entry_point == p.entry_point for q in plugins) > 1}:
        offers = " and ".join(p.origin for p in plugins if p.name == name)
        print(f"ttabench: warning: two plugins offer '{name}': {offers}", file=sys.stderr)


def _print_table(columns: Mapping[str, str], plugins: Sequence[Plugin]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*columns)
    for plugin in plugins:
        table.add_row(*(escape(getattr(plugin, attribute)) for attribute in columns.values()))
    Console().print(table)


def check(
    target: Annotated[
        str, typer.Argument(help="A method's name, or a plugin file: all its methods.", metavar="METHOD|FILE.py")
    ],
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Put a method through the conformance kit: shapes, determinism, restarts, edge cases."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from tta_bench.checks import conformance

    found = registry([*(plugin or []), *([Path(target)] if target.endswith(".py") else [])], no_plugin)
    methods = [target]
    if target.endswith(".py"):
        methods = [p.name for p in found.plugins("methods") if p.origin == target]
        if not methods:
            raise UsageError(f"{target} offers no method")
    failed = 0
    for name in methods:
        examination = conformance.examine(found.method(name))
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


def doctor(
    backbone: Annotated[list[str] | None, typer.Option(help="Whose features to check; tiny by default.")] = None,
    json: AsJson = False,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Check the installation: versions, plugins, folders, device, disk, and a backbone's features."""
    from tta_bench.checks import doctor as examination

    examination.examine(registry(plugin, no_plugin), json, names(backbone or ["tiny"], "--backbone"))


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
    from tta_bench.views import parse_recipe

    views = [parse_recipe(name) for name in names(recipe or SHOWN_RECIPES, "--recipe")]
    opened = Bench(data_root=data_root, registry=registry(plugin, no_plugin)).dataset(dataset)
    for file in write_sheets(opened, dataset, views, output, images, size, seed):
        print(file)
