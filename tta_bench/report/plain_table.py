"""Cells of text -> a table on a terminal or in markdown. Names come from records: everything is shown as text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.table import Table
from rich.text import Text

from tta_bench.report.formats import markdown
from tta_bench.system.text import visible

NARROW = 80  # columns below which a table has no lines


def console_table(heads: Sequence[str], rows: Iterable[Sequence[str]], width: int) -> Table:
    """The first column is a name and may be folded; the others are numbers and never are."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0)) if width < NARROW else Table()
    for i, head in enumerate(heads):
        table.add_column(head, justify="right" if i else "left", overflow="fold", no_wrap=bool(i))
    for row in rows:
        table.add_row(*(Text(visible(cell)) for cell in row))
    return table


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [f"| {' | '.join(map(markdown, heads))} |", "|---|" + "---:|" * (len(heads) - 1)]
    return "\n".join([*lines, *(f"| {' | '.join(map(markdown, row))} |" for row in rows)])
