"""What a board is made of: rows, columns, cells, and what is said about them. No layout here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property

from tta_bench.report.frame import HEADINGS, OF_LOGITS, SPEED
from tta_bench.report.standings import NONE, Standings
from tta_bench.system.names import SHUFFLED
from tta_bench.system.text import signed

RANK, INTERVAL = "rank", "95 %"  # kinds of number that come from statistics, beside those that are metrics
UNTRAINED = "untrained: the numbers mean nothing"
MIXED = "†"  # on a number of another protocol than the rest of its column


@dataclass(frozen=True)
class Row:
    """One configuration of a method."""

    name: str  # as tables show it: the method, what was changed, and what else tells it from the next row
    method: str
    config: str  # the configuration's digest
    setting: str = ""  # episodic, online or transductive; empty: no record says


@dataclass(frozen=True)
class Column:
    """One protocol and kind of order, or (with an empty digest) the average over several."""

    name: str
    dataset: str
    protocol: str
    n: int
    size: int | None  # images of the complete dataset; None: no record says
    stream: str = SHUFFLED  # the kind of order: a mean over shuffles and sorted streams would be of neither
    rules: str = ""  # in what the protocol departs from the usual ones
    images: str = ""  # digest of the dataset's own; empty: no record says
    encoder: str = ""  # digest of backbone and prompt file; empty: not told

    @property
    def complete(self) -> bool:
        return self.n == self.size


@dataclass(frozen=True)
class Cell:
    mean: float
    deviation: float | None  # None: a single run
    runs: int
    mixed: bool = False  # of another protocol than its column's


@dataclass(frozen=True)
class Board:
    """One backbone and prompt: methods × datasets. Rows are in the order in which they are shown."""

    backbone: str
    prompt: str
    untrained: bool
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    cells: Mapping[tuple[Row, Column, str], Cell]  # the last: a metric's heading
    notes: tuple[str, ...]
    metrics: tuple[str, ...]  # the first is the main one
    baseline: str = ""  # the method that differences are to
    standings: Mapping[tuple[Column, str], Standings] = field(
        default_factory=dict
    )  # by metric; empty without statistics
    sentence: str = ""  # what the table shows

    @property
    def title(self) -> str:
        return f"{self.backbone}{f' ({UNTRAINED})' if self.untrained else ''}, prompt '{self.prompt}'"

    @property
    def main(self) -> str:
        return self.metrics[0]

    @property
    def tested(self) -> bool:
        """Whether there are statistics."""
        return any(standings.intervals for standings in self.standings.values())

    @property
    def difference(self) -> str:
        """The kind of number that is a difference to the baseline."""
        return f"Δ {self.baseline}"

    @cached_property
    def settings(self) -> list[str]:
        """What the rows' methods may know; tables show it where that differs."""
        return sorted({row.setting for row in self.rows})

    @cached_property
    def kinds(self) -> list[str]:
        """Of numbers that the board has: metrics by their headings, and what statistics add to the main one."""
        return list(dict.fromkeys(kind for column in self.columns for kind in self.kinds_of(column)))

    def kinds_of(self, column: Column) -> list[str]:
        found: list[str] = []
        for metric in self.metrics:
            heading = HEADINGS.get(metric, metric)
            if metric == SPEED and not column.protocol:
                continue  # an average speed would say nothing
            standings = self._standings(column, heading) if metric == self.main else NONE
            said = {INTERVAL: standings.intervals, self.difference: standings.deltas, RANK: standings.ranks}
            found += [heading, *(kind for kind, numbers in said.items() if numbers)]
        return found

    @property
    def fields(self) -> list[tuple[Column, str]]:
        """Every column with each of its kinds of number: what a wide table has side by side."""
        return [(column, kind) for column in self.columns for kind in self.kinds_of(column)]

    # ------------------------------------------------------------------------------------------------ who is best

    def is_best(self, row: Row, column: Column, kind: str) -> bool:
        """Of all rows, or of those of its setting, to the last digit shown.

        Among numbers that mean nothing there is no best, nor where one stands alone.
        """
        value = self._rankable(row, column, kind)
        if value is None:
            return False
        return any(len(values) > 1 and value == max(values) for values in self._rivals(row, column, kind))

    def is_close(self, row: Row, column: Column, kind: str) -> bool:
        """Not the best of its setting (of all rows, if it is the only one of that), and not significantly below it."""
        best = self._rival(row, column, kind)
        return best is not None and self._standings(column, kind).told_apart(row.config, best.config) is False

    def is_untested(self, row: Row, column: Column, kind: str) -> bool:
        """Whether both have statistics, and yet nothing is known of the difference."""
        best, standings = self._rival(row, column, kind), self._standings(column, kind)
        return (
            best is not None
            and {row.config, best.config} <= standings.intervals.keys()
            and standings.told_apart(row.config, best.config) is None
        )

    def _rival(self, row: Row, column: Column, kind: str) -> Row | None:
        """The best of the row's setting, or of all rows if it is the only one of that; None if it is best itself."""
        if self._rankable(row, column, kind) is None or self.is_best(row, column, kind):
            return None
        alike = [other for other in self._values[column, kind] if other.setting == row.setting]
        rivals = alike if len(alike) > 1 else self._values[column, kind]
        best: Row = max(rivals, key=lambda other: self.cells[other, column, kind].mean)
        return None if best == row else best

    def _rankable(self, row: Row, column: Column, kind: str) -> float | None:
        cell = self.cells.get((row, column, kind))
        if cell is None or cell.mixed or self.untrained or kind in (HEADINGS[SPEED], *OF_LOGITS):
            return None
        return round(cell.mean, 2)

    def _rivals(self, row: Row, column: Column, kind: str) -> list[list[float]]:
        """The values of all rows, and of those of the row's setting."""
        values = self._values[column, kind]
        return [list(values.values()), [value for other, value in values.items() if other.setting == row.setting]]

    @cached_property
    def _values(self) -> dict[tuple[Column, str], dict[Row, float]]:
        found: dict[tuple[Column, str], dict[Row, float]] = {}
        for row, column, kind in self.cells:
            if (value := self._rankable(row, column, kind)) is not None:
                found.setdefault((column, kind), {})[row] = value
        return found

    def _standings(self, column: Column, kind: str) -> Standings:
        return self.standings.get((column, kind), NONE)

    # ------------------------------------------------------------------------------------------------------- text

    def text(
        self,
        row: Row,
        column: Column,
        kind: str,
        bold: Callable[[str], str] = str,
        close: Callable[[str], str] = str,
        plus_minus: str = " ± ",
    ) -> str:
        """A cell: `bold` marks the best, `close` what is not significantly below it."""
        if kind in (RANK, INTERVAL, self.difference):
            return self._said(row, column, kind)
        cell = self.cells.get((row, column, kind))
        if cell is None:
            return "–"
        if kind == HEADINGS[SPEED]:
            return f"{cell.mean:,.0f}"
        shown = f"{cell.mean:.2f}"
        if self.is_best(row, column, kind):
            shown = bold(shown)
        elif self.is_close(row, column, kind):
            shown = close(shown)
        shown = f"{shown}{MIXED}" if cell.mixed else shown
        return shown if cell.deviation is None else f"{shown}{plus_minus}{cell.deviation:.2f}"

    def _said(self, row: Row, column: Column, kind: str) -> str:
        """What statistics say of the main metric."""
        standings = self._standings(column, HEADINGS.get(self.main, self.main))
        cell = self.cells.get((row, column, HEADINGS.get(self.main, self.main)))
        if cell is not None and cell.mixed:
            return "–"
        if kind == RANK and row.config in standings.ranks:
            first, last = standings.ranks[row.config]
            return str(first) if first == last else f"{first}-{last}"
        if kind == INTERVAL and row.config in standings.intervals:
            low, high = standings.intervals[row.config]
            return f"[{low:.2f}, {high:.2f}]"
        if kind == self.difference and row.config in standings.deltas:
            delta = standings.deltas[row.config]
            ends = ", ".join(signed(end).removeprefix("+") for end in (delta.low, delta.high))
            return f"{signed(delta.value)} [{ends}]{'' if delta.significant else ' ns'}"
        return "–"
