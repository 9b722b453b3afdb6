"""Long form -> boards: what stands in which row, column and cell, and what must be said about it. No layout here.

A column is one protocol and kind of order, a row one configuration, a cell the mean over replicates. Two protocols are
never merged: if two runs differ in images, labels, class names, prompts, backbone or metric, they stand in two columns,
and the columns' names say what differs or carry the protocol's digest. What could mislead is part of the names and not
of a layout, so no format can leave it out: a backbone without training, a column over part of its dataset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pandas as pd

from tta_bench.features.orders import SHUFFLED, kind_of
from tta_bench.report.frame import SCORES, VERSIONS
from tta_bench.system.text import counted

SPEED = "img/s"
KINDS = (*SCORES.values(), SPEED)  # of numbers that a column has
ROW = ["label", "config"]  # what makes a row; `label` is the method and what was changed, one for each config
COLUMN = ["dataset", "protocol", "n", "stream"]  # what makes a column; `stream` is the kind of its order
UNTRAINED = "untrained: the numbers mean nothing"
LEGEND = (
    "mAP ranks raw scores; centred and softmax rank the same scores after a per-image shift or softmax. "
    "Bold is the best of a column; ± is the standard deviation over runs with other seeds or orders."
)


@dataclass(frozen=True)
class Row:
    """One configuration of a method."""

    name: str  # as tables show it: the method, what was changed, and what else tells it from the next row
    method: str
    config: str  # the configuration's digest


@dataclass(frozen=True)
class Column:
    """One protocol and kind of order, or (with an empty digest) the average over several."""

    name: str
    dataset: str
    protocol: str
    n: int
    size: int | None  # images of the complete dataset; None: no record says
    stream: str = SHUFFLED  # the kind of order: a mean over shuffles and sorted streams would be of neither

    @property
    def complete(self) -> bool:
        return self.n == self.size

    @property
    def kinds(self) -> tuple[str, ...]:
        return KINDS if self.protocol else tuple(SCORES.values())  # an average speed would say nothing


@dataclass(frozen=True)
class Cell:
    mean: float
    deviation: float | None  # None: a single run
    runs: int


@dataclass(frozen=True)
class Board:
    """One backbone and prompt: methods × datasets."""

    backbone: str
    prompt: str
    untrained: bool
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    cells: Mapping[tuple[Row, Column, str], Cell]  # the last: one of KINDS
    notes: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.backbone}{f' ({UNTRAINED})' if self.untrained else ''}, prompt '{self.prompt}'"

    @property
    def fields(self) -> list[tuple[Column, str]]:
        """Every column with each of its kinds of number: what a wide table has side by side."""
        return [(column, kind) for column in self.columns for kind in column.kinds]

    def is_best(self, row: Row, column: Column, kind: str) -> bool:
        """To the last digit shown. Among numbers that mean nothing there is no best, nor where one stands alone."""
        cell = self.cells.get((row, column, kind))
        if cell is None or self.untrained or kind == SPEED:
            return False
        if sum((other, column, kind) in self.cells for other in self.rows) == 1:
            return False
        return round(cell.mean, 2) == self._best[column, kind]

    @cached_property
    def _best(self) -> dict[tuple[Column, str], float]:
        best: dict[tuple[Column, str], float] = {}
        for (_, column, kind), cell in self.cells.items():
            value = round(cell.mean, 2)
            best[column, kind] = max(value, best.get((column, kind), value))
        return best

    def text(
        self, row: Row, column: Column, kind: str, bold: Callable[[str], str] = str, plus_minus: str = " ± "
    ) -> str:
        cell = self.cells.get((row, column, kind))
        if cell is None:
            return "–"
        if kind == SPEED:
            return f"{cell.mean:,.0f}"
        mean = f"{cell.mean:.2f}"
        shown = bold(mean) if self.is_best(row, column, kind) else mean
        return shown if cell.deviation is None else f"{shown}{plus_minus}{cell.deviation:.2f}"


def boards(frame: pd.DataFrame) -> list[Board]:
    """A board for each backbone and prompt; untrained runs of a backbone have one of their own."""
    frame = frame.assign(label=_labels(frame), stream=frame["order"].map(kind_of))
    rows = _rows(frame)
    grouped = frame.groupby(["backbone", "prompt", "untrained"], sort=True)
    return [_board(str(b), str(p), bool(u), part, rows) for (b, p, u), part in grouped]


def images(n: int, size: int | None) -> str:
    """How much of a dataset was seen, where that has to be said."""
    if size is None:
        return f"n={n:,}"  # a record of version 0.1: whether that is all can't be told
    return "" if n == size else f"{n:,} of {size:,}"


def _board(backbone: str, prompt: str, untrained: bool, frame: pd.DataFrame, names: Mapping[Any, Row]) -> Board:
    columns = _columns(frame)
    row_of = {key: replace(row, name=f"{row.name} (untrained)") if untrained else row for key, row in names.items()}
    cells: dict[tuple[Row, Column, str], Cell] = {}
    for key, part in frame.groupby([*ROW, *COLUMN]):
        row, column = row_of[key[:2]], columns[key[2:]]
        for metric, kind in SCORES.items():
            _put(cells, (row, column, kind), _mean(part[metric]))
        _put(cells, (row, column, SPEED), _median(part["images_per_s"]))
    rows = sorted({row_of[key] for key in _distinct(frame, ROW)}, key=lambda row: row.name)
    shown = sorted(columns.values(), key=lambda column: column.name)
    average, over, why_not = _average(shown)
    if average is not None:
        for row in rows:
            for kind in average.kinds:
                parts = [cells[row, column, kind].mean for column in over if (row, column, kind) in cells]
                if len(parts) == len(over):  # an average over other datasets than the next row's would mislead
                    cells[row, average, kind] = Cell(sum(parts) / len(parts), None, len(parts))
        shown.append(average)
    notes = [*_marks(shown, untrained), *why_not, *_notes(frame)]
    return Board(backbone, prompt, untrained, tuple(shown), tuple(rows), cells, tuple(notes))


# ------------------------------------------------------------------------------------------------------------ names


def _labels(frame: pd.DataFrame) -> list[str]:
    """The method and what was changed. One configuration is one row, also if a run of it spelt a default out."""
    found = zip(frame["method"], frame["tag"], frame["changes"], strict=True)
    labels = [f"{method} [{tag}: {changes}]" if changes else str(method) for method, tag, changes in found]
    keys = list(zip(frame["method"], frame["config"], strict=True))
    shortest: dict[tuple[str, str], str] = {}
    for key, label in zip(keys, labels, strict=True):
        shortest[key] = min(shortest.get(key, label), label, key=lambda text: (len(text), text))
    return [shortest[key] for key in keys]


def _distinct(frame: pd.DataFrame, by: list[str]) -> list[tuple[Any, ...]]:
    return list(frame[by].drop_duplicates().itertuples(index=False, name=None))


def _rows(frame: pd.DataFrame) -> dict[Any, Row]:
    """The method, what was changed, and the config's digest where that does not tell two rows apart."""
    methods = dict(zip(frame["label"], frame["method"], strict=True))
    keys = _distinct(frame, ROW)
    names = _told_apart([label for label, _ in keys], [config for _, config in keys])
    return {key: Row(name, methods[key[0]], key[1]) for key, name in zip(keys, names, strict=True)}


def _columns(frame: pd.DataFrame) -> dict[Any, Column]:
    """The dataset, how much of it was seen where that is not all, the order where it is no shuffle, and the protocol's
    digest where that does not do."""
    keys = _distinct(frame, COLUMN)
    # The same protocol is the same dataset: one record that knows its size speaks for those that don't.
    told = frame.dropna(subset=["dataset_size"]).groupby(COLUMN)["dataset_size"].max().to_dict()
    sizes = [int(told[key]) if key in told else None for key in keys]
    marks = [_mark(n, size, stream) for (_, _, n, stream), size in zip(keys, sizes, strict=True)]
    names = [f"{dataset} ({mark})" if mark else dataset for (dataset, *_), mark in zip(keys, marks, strict=True)]
    names = _told_apart(names, [protocol for _, protocol, *_ in keys])
    found = zip(keys, names, sizes, strict=True)
    return {key: Column(name, key[0], key[1], key[2], size, key[3]) for key, name, size in found}


def _mark(n: int, size: int | None, stream: str) -> str:
    return ", ".join(part for part in (images(n, size), "" if stream == SHUFFLED else f"order {stream}") if part)


def _told_apart(names: Sequence[str], digests: Sequence[str]) -> list[str]:
    """Names come from anywhere, and one may look like another with its mark: then all of its digest is shown."""
    for shown in (6, 12):
        pairs = zip(names, digests, strict=True)
        names = [f"{name} #{digest[:shown]}" if names.count(name) > 1 else name for name, digest in pairs]
    return list(names)


# ---------------------------------------------------------------------------------------------------------- numbers


def _put(cells: dict[tuple[Row, Column, str], Cell], key: tuple[Row, Column, str], cell: Cell | None) -> None:
    if cell is not None:
        cells[key] = cell


def _mean(values: pd.Series[Any]) -> Cell | None:
    values = values.dropna()
    if values.empty:
        return None
    deviation = float(values.std(ddof=1)) if len(values) > 1 else None
    return Cell(float(values.mean()), deviation, len(values))


def _median(values: pd.Series[Any]) -> Cell | None:
    values = values.dropna()
    return None if values.empty else Cell(float(values.median()), None, len(values))


def _average(columns: Sequence[Column]) -> tuple[Column | None, list[Column], list[str]]:
    """The column of averages, what it is over, and what has to be said: it never takes a part for the whole."""
    if len(columns) < 2:
        return None, [], []
    streams = {column.stream for column in columns}
    stream = SHUFFLED if SHUFFLED in streams else min(streams)  # an average is of one kind of order, too
    complete = [column for column in columns if column.complete and column.stream == stream]
    if len(complete) < 2:
        return None, [], ["No average: it takes two complete datasets."]
    if len({column.dataset for column in complete}) < len(complete):
        return None, [], ["No average: a dataset that stands there under two protocols would count twice."]
    everything = len(complete) == len(columns)
    name = "average" if everything else f"average of {len(complete)}"
    names = ", ".join(column.name for column in complete)
    said = [] if everything else [f"The average is over the complete columns: {names}."]
    return Column(name, dataset="", protocol="", n=0, size=None), complete, said


# ------------------------------------------------------------------------------------------------------------ notes


def _marks(columns: Sequence[Column], untrained: bool) -> list[str]:
    marks = ["The backbone is untrained: its numbers only show that the pipeline runs."] if untrained else []
    measured = [column for column in columns if column.protocol]
    if any(column.size is not None and not column.complete for column in measured):
        marks.append("A column headed (n of N) saw n of the dataset's N images: compare within it only.")
    if any(column.size is None for column in measured):
        marks.append("A column headed (n=…) comes from records that don't say how many images the dataset has.")
    return marks


def _notes(frame: pd.DataFrame) -> list[str]:
    counts = sorted(frame.groupby([*ROW, *COLUMN]).size().unique())
    few, many = int(counts[0]), int(counts[-1])
    notes = [f"{counted(few, 'run')} per cell." if few == many else f"{few} to {counted(many, 'run')} per cell."]
    for dataset, protocols in frame.groupby("dataset")["protocol"].nunique().items():
        if protocols > 1:
            notes.append(f"{dataset}: {protocols} protocols, kept apart (ttabench show RUN has the parts).")
    if bool(frame["mAP"].isna().any()):
        notes.append("Where a run has a speed but no mAP, it is undefined: no image of its stream has a label.")
    for label, states in frame.groupby("label")["code"].nunique().items():
        if states > 1:
            notes.append(f"{label}: {states} rows by other code, told apart by the digest of their config.")
    notes += _mixed_versions(frame)
    tags = sorted(set(frame["tag"]) - {"default"})
    if tags:
        notes.append(f"Hyper-parameters are the defaults except where the row says otherwise ({', '.join(tags)}).")
    return notes


def _mixed_versions(frame: pd.DataFrame) -> list[str]:
    """Replicates stand in one cell whoever recorded them, but their spread is then not only that of seeds."""
    found: dict[str, set[str]] = {}
    cells = 0
    for _, part in frame.groupby([*ROW, *COLUMN]):
        mixed = {name: set(part[name]) for name in VERSIONS if part[name].nunique() > 1}
        cells += bool(mixed)
        for name, versions in mixed.items():
            found.setdefault(name, set()).update(versions)
    if not found:
        return []
    named = [f"{name} {', '.join(v or 'unknown' for v in sorted(versions))}" for name, versions in found.items()]
    which = f"{counted(cells, 'cell')} with runs recorded by different versions ({'; '.join(named)})"
    return [f"{which}: part of their ± may be the versions'."]
