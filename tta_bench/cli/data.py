"""`ttabench data`: which datasets are here, and how to get the others.

Nothing here knows a dataset by name: classes that are `Downloadable` say for themselves what they have and lack.
"""

from __future__ import annotations

import json as json_
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tta_bench.cli.options import (
    AsJson,
    Command,
    DataPaths,
    DataRoot,
    PluginFiles,
    WithoutPlugins,
    data_paths,
    registry,
)
from tta_bench.errors import Interrupted, TTABenchError, UsageError
from tta_bench.system import paths

if TYPE_CHECKING:
    from tta_bench.downloads import DataStatus, Downloadable
    from tta_bench.plugins import Registry

app = typer.Typer(help="Which datasets are here, and how to get the others.", no_args_is_help=True)


class Look(NamedTuple):
    """What was found of one dataset, and where it was looked for."""

    root: Path
    status: DataStatus


@app.command("status", cls=Command)
def status(
    data_root: DataRoot = None,
    data: DataPaths = None,
    json: AsJson = False,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Show which datasets are found, how complete they are, and how to get the rest."""
    found, own, root = registry(plugin, no_plugin), data_paths(data or []), data_root or paths.data()
    for name, path in own.items():
        found.find("datasets", name)
        if not path.is_dir():
            raise UsageError(f"--data {name}={path}: no such folder")
    names: Sequence[str] = found.names("datasets")
    if not root.is_dir():
        if data_root is not None or not own:
            raise UsageError(
                f"the data root {root} does not exist: name the folder that holds your datasets with --data-root DIR "
                "or TTABENCH_DATA; `ttabench data get NAME` creates it"
            )
        names = list(own)  # who keeps every dataset in a place of its own needs no common root
    looks = [look for name in names for look in _look(found, name, own.get(name, root))]
    if json:
        rows = [{**asdict(s), "complete": s.complete, "looked_in": str(place)} for place, s in looks]
        print(json_.dumps(rows, indent=1))
    else:
        _show(root, own, looks)


@app.command("get", cls=Command)
def get(
    name: Annotated[str, typer.Argument(help="A dataset: `ttabench data status` lists them.", metavar="NAME")],
    data_root: DataRoot = None,
    data: DataPaths = None,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Download a dataset from its official address; the same command resumes."""
    from tta_bench.system.progress import Terminal

    found, own = registry(plugin, no_plugin), data_paths(data or [])
    for other in own:
        found.find("datasets", other)
    source = _downloadable(found, name)
    if source is None:
        raise UsageError(f"dataset '{name}' has nothing to download: it needs no files, or does not say where they are")
    try:
        source.download(own.get(name) or data_root or paths.data(), Terminal())
    except KeyboardInterrupt:
        raise Interrupted from None


def _downloadable(found: Registry, name: str) -> type[Downloadable] | None:
    from tta_bench.downloads import Downloadable

    cls = found.dataset(name)
    return cls if issubclass(cls, Downloadable) else None


def _look(found: Registry, name: str, root: Path) -> list[Look]:
    """A dataset that can't be examined must not hide the others."""
    from tta_bench.downloads import DataStatus

    try:
        source = _downloadable(found, name)
        return [Look(root, status) for status in source.status(root)] if source else []
    except TTABenchError as error:
        return [Look(root, DataStatus(name, False, "", 0, None, str(error)))]


def _show(root: Path, own: Mapping[str, Path], looks: Sequence[Look]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table()
    for heading in ("dataset", "images", "where", "to do"):
        table.add_column(heading, overflow="fold")  # a path is never cut off
    for place, status in looks:
        images = f"{status.images:,}" + (f" of {status.expected:,}" if status.expected else "")
        table.add_row(
            escape(status.dataset),
            images if status.found else "not found",
            escape(status.where or f"looked in {place}"),
            escape("" if status.complete else status.how),
        )
    console = Console()
    for line in (f"data root: {root}", *(f"data root of {name}: {path}" for name, path in own.items())):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    console.print(table)
