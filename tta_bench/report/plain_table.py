"""Cells of text -> a table on a terminal or in markdown. Names come from records: everything is shown as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.cells import cell_len
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from tta_bench.report.formats import markdown
from tta_bench.system.text import visible

NARROW = 80  # columns below which a table has no lines
NAME = 8  # columns that a name is not folded below


def console_table(heads: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> RenderableType:
    """The first column is a name and may be folded; the others are numbers and never are."""
    shown = [[visible(cell) for cell in row] for row in rows]
    lined = width >= NARROW
    lines = 3 * len(heads) + 1 if lined else len(heads) - 1
    if NAME + sum(widest(column) for column in list(zip(heads, *shown, strict=True))[1:]) + lines > width:
        return blocks(heads, shown)
    table = Table() if lined else Table(box=None, pad_edge=False, padding=(0, 1, 0, 0))
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i else "left", overflow="fold", no_wrap=bool(i))
    for row in shown:
        table.add_row(*map(Text, row))
    return table


def widest(texts: Iterable[str]) -> int:
    return max(map(cell_len, texts))


def blocks(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Text:
    """For a terminal that is too narrow for a table, which would cut numbers: a row's name, and a line for each."""
    lines = []
    for name, *cells in rows:
        lines += [name, *(f"  {head}: {cell}" for head, cell in zip(heads[1:], cells, strict=True))]
    return Text("\n".join(lines), overflow="fold")


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(map(markdown, heads))} |", "|---|" + "---:|" * (len(heads) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(map(markdown, row))} |" for row in rows)])
