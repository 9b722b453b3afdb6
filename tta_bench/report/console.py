"""Boards -> tables on a terminal that fit its width: whatever does not fit goes on in a further table."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pandas as pd
from rich.cells import cell_len
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from tta_bench.errors import UsageError
from tta_bench.report.board import Board, Column, Row, Wanted, boards
from tta_bench.report.formats import NO_RUNS
from tta_bench.report.notes import legend
from tta_bench.report.plain_table import blocks
from tta_bench.report.standings import Key, Standings
from tta_bench.system.text import visible

BEST, CLOSE = "bold green", "green"
BEST_MARK, CLOSE_MARK = "*", "~"  # in front of a number: seen without colours too
BORDER = 3  # a column's padding and its right-hand line
NAMES = 0.4  # share of the width that names of rows may take while columns go on in further tables
WORD = 12  # a longer word of a heading may be broken to save width


def to_text(
    frame: pd.DataFrame,
    width: int = 100,
    wanted: Wanted | None = None,
    standings: Mapping[Key, Standings] | None = None,
) -> str:
    """As a file would get it: no colours."""
    if width < 1:
        raise UsageError(f"width={width}: a table needs at least one column of text")
    console = Console(file=io.StringIO(), width=width, color_system=None, force_terminal=False)
    for shown in to_console(frame, width, wanted, standings):
        console.print(shown)
    assert isinstance(console.file, io.StringIO)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def to_console(
    frame: pd.DataFrame,
    width: int,
    wanted: Wanted | None = None,
    standings: Mapping[Key, Standings] | None = None,
) -> list[RenderableType]:
    """Rich renderables: all numbers of one dataset side by side, or for several datasets a table per kind of number.

    Everything is `Text`, never markup: names from records may hold what rich would read as a style or an emoji.
    """
    shown: list[RenderableType] = []
    for board in boards(frame, wanted, standings) if len(frame) else []:
        if board.sentence:
            shown.append(_paragraph(board.sentence, width))
        if len(board.columns) == 1:
            (column,) = board.columns
            fields = [(kind, column, kind) for kind in board.kinds_of(column)]
            shown += _tables(board, f"{column.name} with {board.title}", fields, width)
        else:
            for kind in board.kinds:
                fields = [(column.name, column, kind) for column in board.columns if kind in board.kinds_of(column)]
                shown += _tables(board, f"{kind} with {board.title}", fields, width)
        marks = legend(board, BEST_MARK, CLOSE_MARK)
        shown.append(_paragraph(" ".join([*board.notes, marks]), width))
    return shown or [Text(NO_RUNS)]


def _paragraph(text: str, width: int) -> Text:
    """Wrapped here: rich leaves a blank at the end of each line."""
    return Text(textwrap.fill(visible(text), width, break_on_hyphens=False) + "\n")


@dataclass
class _Laid:
    """A column of a terminal's table, and how wide it is."""

    heading: str
    cells: list[Text]
    width: int = 0
    numbers: bool = True

    @property
    def least(self) -> int:
        """Numbers are never broken; headings are, between words and within very long ones."""
        words = max((min(cell_len(word), WORD) for word in self.heading.split()), default=1)
        return max(words, *(cell.cell_len for cell in self.cells))

    @property
    def most(self) -> int:
        return max(self.least, cell_len(self.heading))


def _tables(board: Board, title: str, fields: Sequence[tuple[str, Column, str]], width: int) -> list[RenderableType]:
    """`fields` are headings and what stands below them; the title says what all of them have in common."""
    names = [visible(row.name) for row in board.rows]
    columns = [
        _Laid(visible(heading), [_number(board, row, column, kind) for row in board.rows])
        for heading, column, kind in fields
    ]
    if len(board.settings) > 1:
        columns.insert(0, _Laid("setting", [Text(visible(row.setting or "–")) for row in board.rows], numbers=False))
    first = _name_width(names, columns, width)
    room = width - 1 - first - BORDER
    if max(column.least for column in columns) + BORDER > room:
        heads = ["", *(column.heading for column in columns)]
        rows = zip(names, *([cell.plain for cell in column.cells] for column in columns), strict=True)
        return [Text(visible(title)), blocks(heads, rows)]
    made: list[RenderableType] = []
    for part in _packed(columns, room):
        _widen(part, room)
        made += [Text(visible(title)), _table(first, names, part)]  # a table's own title is no wider than its table
    return made


def _name_width(names: Sequence[str], columns: Sequence[_Laid], width: int) -> int:
    """Where not all fits side by side, long names are folded; they leave at least the widest column its room."""
    longest = max(map(cell_len, ["method", *names]))
    needed = sum(column.least + BORDER for column in columns)
    share = longest if 1 + longest + BORDER + needed <= width else max(WORD, int(width * NAMES))
    widest = max(column.least for column in columns)
    return min(longest, share, max(8, width - 1 - BORDER - widest - BORDER))


def _number(board: Board, row: Row, column: Column, kind: str) -> Text:
    text = Text(board.text(row, column, kind, lambda t: f"{BEST_MARK}{t}", lambda t: f"{CLOSE_MARK}{t}"))
    style = {BEST_MARK: BEST, CLOSE_MARK: CLOSE}.get(text.plain[0])
    if style:
        text.stylize(style, 0, len(text.plain.split(" ")[0]))  # the mean, and not its deviation
    return text


def _packed(columns: Sequence[_Laid], room: int) -> list[list[_Laid]]:
    """As many columns in a table as fit, and at least one."""
    tables: list[list[_Laid]] = [[]]
    for column in columns:
        if tables[-1] and sum(c.least + BORDER for c in [*tables[-1], column]) > room:
            tables.append([])
        tables[-1].append(column)
    return tables


def _widen(columns: Sequence[_Laid], room: int) -> None:
    """Each gets what it needs, and then in turn what its heading would like, while there is room."""
    for column in columns:
        column.width = column.least
    spare = room - sum(column.width + BORDER for column in columns)
    while spare > 0 and (short := [column for column in columns if column.width < column.most]):
        for column in short[:spare]:
            column.width += 1
        spare -= len(short[:spare])


def _table(first: int, names: Sequence[str], columns: Sequence[_Laid]) -> Table:
    table = Table()
    table.add_column("method", width=first, overflow="fold")
    for column in columns:
        side: Literal["left", "right"] = "right" if column.numbers else "left"
        table.add_column(Text(column.heading), justify=side, overflow="fold", width=column.width)
    for i, name in enumerate(names):
        table.add_row(Text(name), *(column.cells[i] for column in columns))
    return table
