"""Numbers that papers print, as data: data/published/PAPER.csv with paper, table, row, column, value, note and url.

A row is "BACKBONE PROMPT METHOD", a column "DATASET METRIC", in ttabench's names; METHOD may carry settings in
brackets, and the dataset `avg` is the mean over those of the table. Notes are footnotes: where a paper contradicts
itself.
"""

from __future__ import annotations

import csv
import functools
import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from tta_bench.errors import BadData

LARGEST = 1e6  # no table prints more
NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)  # as a paper prints it: 5_6 is none
MOST = 100_000  # numbers in a file: all papers of a field
MOST_BYTES = 2**26
FIELDS = ("paper", "table", "row", "column", "value", "note", "url")


@dataclass(frozen=True)
class PublishedCell:
    """One number of one table."""

    paper: str
    table: str
    row: str
    column: str
    value: float
    note: str = ""
    url: str = ""

    @property
    def place(self) -> tuple[str, str, str, str]:
        return self.paper, self.table, self.row, self.column


@functools.cache
def cells() -> tuple[PublishedCell, ...]:
    """All that come with ttabench."""
    folder = resources.files("tta_bench") / "data" / "published"
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".csv")), key=lambda file: file.name)
    return tuple(cell for file in files for cell in parsed(file.read_text(encoding="utf-8"), file.name))


def read(file: Path) -> tuple[PublishedCell, ...]:
    """Those of one's own file, which can add to what papers print and not replace it."""
    try:
        if file.stat().st_size > MOST_BYTES:
            raise BadData(f"{file}: larger than {MOST_BYTES // 2**20} MB: not the numbers of a paper")
        own = parsed(file.read_text(encoding="utf-8-sig"), str(file))
    except (OSError, UnicodeDecodeError) as error:
        raise BadData(f"{file}: can't be read ({getattr(error, 'strerror', None) or error})") from error
    printed = {cell.place for cell in cells()}
    for cell in own:
        if cell.place in printed:
            raise BadData(
                f"{file}: {' / '.join(cell.place)} is there already: printed by the paper, or twice in the file"
            )
        printed.add(cell.place)
    return own


def parsed(text: str, name: str) -> tuple[PublishedCell, ...]:
    lines = csv.DictReader(text.splitlines())
    if lines.fieldnames is None or list(lines.fieldnames) != list(FIELDS):
        raise BadData(f"{name}: the first line must be {','.join(FIELDS)}")
    found: list[PublishedCell] = []
    for line in _lines(lines, name):
        if len(found) == MOST:
            raise BadData(f"{name}: more than {MOST:,} numbers")
        try:
            if None in line or None in line.values():  # the first holds what is beyond the last field
                raise ValueError
            texts = {field: str(line[field]) for field in FIELDS if field != "value"}
            value = float(line["value"]) if NUMBER.fullmatch(line["value"].strip()) else math.nan
            possible = 0 <= value <= 100 if texts["column"].split()[-1:] == ["mAP"] else abs(value) < LARGEST
            if not possible:
                raise ValueError
            found.append(PublishedCell(value=value, **texts))
        except (TypeError, ValueError):
            raise BadData(
                f"{name}, line {lines.line_num}: not the seven fields of a published number, or its value is none"
            ) from None
    return tuple(found)


def _lines(lines: csv.DictReader[str], name: str) -> Iterator[dict[str, str]]:
    try:
        yield from lines
    except csv.Error as error:  # a field without end
        raise BadData(f"{name}, line {lines.line_num}: {error}") from error


def of_table(found: Iterable[PublishedCell], paper: str, table: str) -> dict[tuple[str, str], PublishedCell]:
    """A table's numbers by row and column."""
    return {(cell.row, cell.column): cell for cell in found if (cell.paper, cell.table) == (paper, table)}


def find(backbone: str, prompt: str, method: str, dataset: str, metric: str = "mAP") -> PublishedCell | None:
    """The first table that has it."""
    row, column = f"{backbone} {prompt} {method}", f"{dataset} {metric}"
    return next((cell for cell in cells() if (cell.row, cell.column) == (row, column)), None)
