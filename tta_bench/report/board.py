"""Long form -> boards: what stands in which row, column and cell.

A column is one protocol and kind of order, a row one configuration, a cell the mean over replicates. Two protocols are
never merged: if two runs differ in images, labels, class names, prompts, backbone or metric, they stand in two columns,
and the columns' names say what differs or carry the protocol's digest. Only who asks for `mixed` gets them in one, and
then every number of another protocol is marked. What could mislead is part of the names and not of a layout, so no
format can leave it out: a backbone without training, a column over part of its dataset.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from tta_bench.errors import UnknownName
from tta_bench.report import notes
from tta_bench.report.cells import UNTRAINED as UNTRAINED  # public here, as all that a board is made of
from tta_bench.report.cells import Board as Board
from tta_bench.report.cells import Cell as Cell
from tta_bench.report.cells import Column as Column
from tta_bench.report.cells import Row as Row
from tta_bench.report.frame import HEADINGS, OF_LOGITS, SCORES, SPEED
from tta_bench.report.standings import Key, Standings
from tta_bench.report.story import sentence
from tta_bench.system.names import SHUFFLED, kind_of

ROW = ["label", "config"]  # what makes a row; `label` is the method and what was changed, one for each config
COLUMN = ["dataset", "protocol", "n", "stream"]  # what makes a column; `stream` is the kind of its order
BY_NAME = "method"  # in place of a metric or a dataset to sort by
AVERAGE = "average"
SETTINGS = ("episodic", "online", "transductive")
Cells = dict[tuple[Row, Column, str], Cell]


@dataclass(frozen=True)
class Wanted:
    """What a reader wants to see of the runs."""

    metrics: tuple[str, ...] = (*SCORES, SPEED)
    sort: str = ""  # a metric, a dataset, `average` or `method`; empty: the first metric
    baseline: str = "clip"
    mixed: bool = False
    left_out: int = 0  # runs by code that was edited since

    @property
    def headings(self) -> dict[str, str]:
        return {metric: HEADINGS.get(metric, metric) for metric in self.metrics}


def boards(
    frame: pd.DataFrame, wanted: Wanted | None = None, standings: Mapping[Key, Standings] | None = None
) -> list[Board]:
    """A board for each backbone and prompt; untrained runs of a backbone have one of their own."""
    wanted = _checked(frame, wanted or Wanted())
    frame = frame.assign(label=_labels(frame), stream=frame["order"].map(kind_of))
    rows = _rows(frame)
    grouped = frame.groupby(["backbone", "prompt", "untrained"], sort=True)
    return [_board((str(b), str(p), bool(u)), part, rows, wanted, standings or {}) for (b, p, u), part in grouped]


def images(n: int, size: int | None) -> str:
    """How much of a dataset was seen, where that has to be said."""
    if size is None:
        return f"n={n:,}"  # a record of version 0.1: whether that is all can't be told
    return "" if n == size else f"{n:,} of {size:,}"


def _checked(frame: pd.DataFrame, wanted: Wanted) -> Wanted:
    """With the metric that is sorted by as the first: it is what ranks and differences are of."""
    known = [name for name in frame.columns if pd.api.types.is_float_dtype(frame[name])]
    for metric in wanted.metrics:
        if metric not in known:
            raise UnknownName("metric", metric, known, f"There are: {', '.join(known)}.")
    places = sorted({*map(str, frame["dataset"]), AVERAGE, BY_NAME})
    if wanted.sort in known:
        return replace(wanted, metrics=tuple(dict.fromkeys((wanted.sort, *wanted.metrics))))
    if wanted.sort and wanted.sort not in places:
        listed = f"Sort by a metric ({', '.join(known)}), or by {', '.join(places)}."
        raise UnknownName("column to sort by", wanted.sort, [*known, *places], listed)
    return wanted


def _board(
    about: tuple[str, str, bool],
    frame: pd.DataFrame,
    names: Mapping[Any, Row],
    wanted: Wanted,
    standings: Mapping[Key, Standings],
) -> Board:
    backbone, prompt, untrained = about
    columns = _columns(frame)
    row_of = {key: replace(row, name=f"{row.name} (untrained)") if untrained else row for key, row in names.items()}
    cells: Cells = {(row_of[key[:2]], columns[key[2:]], kind): cell for key, kind, cell in _cells(frame, wanted)}
    rows = sorted({row_of[key] for key in _distinct(frame, ROW)}, key=lambda row: row.name)
    shown = sorted(columns.values(), key=lambda column: column.name)
    into: list[Column] = []
    hidden = 0
    if wanted.mixed:
        shown, cells, into, taken = _mixed(shown, cells)
        keys = frame[[*ROW, *COLUMN]].itertuples(index=False, name=None)
        stands = [(row_of[key[:2]], columns[key[2:]]) in taken for key in keys]
        hidden, frame = len(frame) - sum(stands), frame[stands]
    said = notes.notes(frame, wanted.mixed) + notes.left_out(wanted.left_out) + notes.other_protocols(into, hidden)
    average, over, why_not = _average(shown)
    if average is not None:
        averages = _averages(rows, average, over, cells)
        if not averages:
            why_not = [*why_not, "No average: no row has a number in all of its columns."]
        cells |= averages
        shown.append(average)
    tested = {
        (column, heading): standings[column.protocol, column.stream, metric]
        for column in shown
        for metric, heading in wanted.headings.items()
        if (column.protocol, column.stream, metric) in standings
    }
    rows = _in_order(rows, shown, cells, wanted)
    said = [*notes.marks(shown, untrained), *notes.of_metrics(wanted.metrics), *why_not, *said]
    board = Board(
        backbone, prompt, untrained, tuple(shown), tuple(rows), cells, (), wanted.metrics, wanted.baseline, tested
    )
    return replace(board, notes=(*said, *notes.statistics(board)), sentence=sentence(board))


def _in_order(rows: Sequence[Row], columns: Sequence[Column], cells: Cells, wanted: Wanted) -> list[Row]:
    """Best first; rows without a number last, and equal ones by name."""
    if wanted.sort == BY_NAME:
        return sorted(rows, key=lambda row: row.name)
    heading = next(iter(wanted.headings.values()))
    asked = [c for c in columns if wanted.sort in (c.dataset, c.name) or (wanted.sort == AVERAGE and not c.protocol)]
    filled = {column: sum((row, column, heading) in cells for row in rows) for column in columns}
    main = asked[0] if asked else max(columns, key=lambda column: (not column.protocol, filled[column]))

    def place(row: Row) -> tuple[bool, float, str]:
        cell = cells.get((row, main, heading))
        sign = 1 if heading in OF_LOGITS else -1
        return cell is None, 0.0 if cell is None else sign * cell.mean, row.name

    return sorted(rows, key=place)


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
    told = zip(frame["config"], frame["setting"], strict=True)
    settings = {config: setting if setting in SETTINGS else "unstated" for config, setting in told if setting}
    keys = _distinct(frame, ROW)
    names = told_apart([label for label, _ in keys], [config for _, config in keys])
    found = zip(keys, names, strict=True)
    return {key: Row(name, methods[key[0]], key[1], settings.get(key[1], "")) for key, name in found}


def _columns(frame: pd.DataFrame) -> dict[Any, Column]:
    """The dataset, how much of it was seen where that is not all, the order where it is no shuffle, rules that are not
    the usual ones, and the protocol's digest where that does not do."""
    keys = _distinct(frame, COLUMN)
    # The same protocol is the same dataset: one record that knows its size speaks for those that don't.
    told = frame.dropna(subset=["dataset_size"]).groupby(COLUMN)["dataset_size"].max().to_dict()
    sizes = [int(told[key]) if key in told else None for key in keys]
    rules = frame.groupby(COLUMN)["rules"].first().to_dict()
    marks = [_mark(key[2], size, key[3], rules[key]) for key, size in zip(keys, sizes, strict=True)]
    names = [f"{dataset} ({mark})" if mark else dataset for (dataset, *_), mark in zip(keys, marks, strict=True)]
    names = told_apart(names, [protocol for _, protocol, *_ in keys])
    found = zip(keys, names, sizes, strict=True)
    seen, through = (frame.groupby(COLUMN)[name].first().to_dict() for name in ("images", "encoder"))
    return {
        key: Column(name, key[0], key[1], key[2], size, key[3], rules[key], seen[key], through[key])
        for key, name, size in found
    }


def _mark(n: int, size: int | None, stream: str, rules: str) -> str:
    parts = (images(n, size), "" if stream == SHUFFLED else f"order {stream}", rules)
    return ", ".join(part for part in parts if part)


def told_apart(names: Sequence[str], digests: Sequence[str]) -> list[str]:
    """Names come from anywhere, and one may look like another with its mark: then all of its digest is shown."""
    for shown in (6, 12):
        pairs = zip(names, digests, strict=True)
        names = [f"{name} #{digest[:shown]}" if names.count(name) > 1 else name for name, digest in pairs]
    return list(names)


# ---------------------------------------------------------------------------------------------------------- numbers


def _cells(frame: pd.DataFrame, wanted: Wanted) -> Iterator[tuple[tuple[Any, ...], str, Cell]]:
    """Means over replicates; of speeds the median, which one busy moment does not move."""
    grouped = frame.groupby([*ROW, *COLUMN])
    for metric, heading in wanted.headings.items():
        middle = "median" if metric == SPEED else "mean"
        found = grouped[metric].agg([middle, "std", "count"])
        for key, mean, deviation, count in found.itertuples(name=None):
            if count:
                spread = float(deviation) if count > 1 and metric != SPEED else None
                yield key, heading, Cell(float(mean), spread, int(count))


def _average(columns: Sequence[Column]) -> tuple[Column | None, list[Column], list[str]]:
    """The column of averages, what it is over, and what has to be said: it never takes a part for the whole."""
    if len(columns) < 2:
        return None, [], []
    streams = {column.stream for column in columns}
    stream = SHUFFLED if SHUFFLED in streams else min(streams)  # an average is of one kind of order, too
    complete = [column for column in columns if column.complete and column.stream == stream]
    if len(complete) < 2:
        return None, [], ["No average: it takes two complete datasets."]
    same = [column.images for column in complete if column.images]  # one folder may have two names
    if len({column.dataset for column in complete}) < len(complete) or len(set(same)) < len(same):
        return None, [], ["No average: a dataset that stands there under two protocols would count twice."]
    if len({column.rules for column in complete}) > 1:
        return None, [], ["No average: the columns follow different rules."]
    if len({column.encoder for column in complete} - {""}) > 1:
        return None, [], ["No average: backbone or prompt file are not the same in all columns."]
    everything = len(complete) == len(columns)
    name = AVERAGE if everything else f"{AVERAGE} of {len(complete)}"
    names = ", ".join(column.name for column in complete)
    said = [] if everything else [f"The average is over the complete columns: {names}."]
    unsaid = ", ".join(column.name for column in complete if not column.encoder)
    if unsaid:
        said.append(f"The average goes by the backbone's name: {unsaid} don't say which weights they were made with.")
    return Column(name, dataset="", protocol="", n=0, size=None), complete, said


def _averages(rows: Sequence[Row], average: Column, over: Sequence[Column], cells: Cells) -> Cells:
    made: Cells = {}
    for kind in {kind for _, _, kind in cells} - {HEADINGS[SPEED]}:
        for row in rows:
            parts = [cell for column in over if (cell := cells.get((row, column, kind))) and not cell.mixed]
            if len(parts) == len(over):  # an average over other datasets than the next row's would mislead
                made[row, average, kind] = Cell(sum(part.mean for part in parts) / len(parts), None, len(parts))
    return made


def _mixed(
    columns: Sequence[Column], cells: Cells
) -> tuple[list[Column], Cells, list[Column], set[tuple[Row, Column]]]:
    """One column for each dataset and kind of order: the protocol with the most numbers, its gaps filled from others.
    Returned last are the columns that took something in, and where all that is shown stood before."""
    filled = {column: sum(c is column for _, c, _ in cells) for column in columns}
    first = sorted(columns, key=lambda column: (-filled[column], -column.n, column.name))
    kept: dict[tuple[str, str], Column] = {}
    into: dict[Column, None] = {}
    taken: set[tuple[Row, Column]] = set()
    made: Cells = {}
    for column in first:
        target = kept.setdefault((column.dataset, column.stream), column)
        for (row, where, kind), cell in cells.items():
            if where == column and (row, target, kind) not in made:
                made[row, target, kind] = replace(cell, mixed=column != target)
                into |= {target: None} if column != target else {}
                taken.add((row, column))
    return [column for column in columns if column in kept.values()], made, list(into), taken
