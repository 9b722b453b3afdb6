"""`ttabench published`: numbers that papers print, as data. Imports nothing heavy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli.options import AsJson, Command
from tta_bench.errors import UnknownName
from tta_bench.system import published
from tta_bench.system.published import PublishedCell
from tta_bench.system.text import counted, visible

app = typer.Typer(help="Numbers that papers print, as data.", no_args_is_help=True)
OwnFile = Annotated[
    Path | None,
    typer.Option("--published", help=f"One's own numbers besides: {','.join(published.FIELDS)}.", metavar="FILE.csv"),
]


def read(file: Path | None) -> tuple[PublishedCell, ...]:
    """Those that come with ttabench, and behind them those of one's own file."""
    return (*published.cells(), *(published.read(file) if file is not None else ()))


@app.command("list", cls=Command)
def list_(file: OwnFile = None, json: AsJson = False) -> None:
    """Which tables there are."""
    tables: dict[str, int] = {}
    for cell in read(file):
        name = f"{cell.paper}:{cell.table}"
        tables[name] = tables.get(name, 0) + 1
    if json:
        _print_json([{"table": name, "numbers": count} for name, count in tables.items()])
        return
    width = max(map(len, tables))
    for name, count in tables.items():
        print(f"{visible(name):<{width}}  {counted(count, 'number')}")


@app.command("show", cls=Command)
def show(
    table: Annotated[
        str | None, typer.Argument(help="PAPER:TABLE, or a paper; all if none is named.", metavar="TABLE")
    ] = None,
    file: OwnFile = None,
    json: AsJson = False,
) -> None:
    """The numbers of a table, with footnotes where the paper contradicts itself."""
    found = read(file)
    names = {name for cell in found for name in (cell.paper, f"{cell.paper}:{cell.table}")}
    if table is not None and table not in names:
        raise UnknownName("table", table, names, "`ttabench published list` names all.")
    wanted = [cell for cell in found if table in (None, cell.paper, f"{cell.paper}:{cell.table}")]
    if json:
        _print_json([vars(cell) for cell in wanted])
        return
    _show(wanted)


def _show(cells: list[PublishedCell]) -> None:
    """A heading per table and row, a number with its column in each line below."""
    place, notes = ("", "", ""), dict[str, int]()
    for cell in cells:
        if (cell.paper, cell.table) != place[:2]:
            print(visible(f"{cell.paper}:{cell.table}"))
        if (cell.paper, cell.table, cell.row) != place:
            print(visible(f"  {cell.row}"))
        place = cell.paper, cell.table, cell.row
        mark = f"  [{notes.setdefault(cell.note, len(notes) + 1)}]" if cell.note else ""
        print(visible(f"    {cell.value:>8.2f}  {cell.column}{mark}"))
    for note, number in notes.items():
        print(visible(f"[{number}] {note}"))


def _print_json(content: object) -> None:
    from tta_bench.report.formats import json_text

    print(json_text(content))
