"""Records -> all that the page shows, as plain values for JSON and for the template.

Text is made visible here and escaped where it is put into HTML or JSON. A cell is `row * columns + column`, so that a
kind of number is one list for all cells of a board.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

from tta_bench.records import RunRecord, one_of_each
from tta_bench.report.board import Board, Column, Row, Wanted, boards
from tta_bench.report.comparison import ProtocolStatistics, by_protocol
from tta_bench.report.frame import OF_LOGITS, SCORES, SHOWN_DIGITS, long_form
from tta_bench.report.page.memory import Memory, written
from tta_bench.report.page.packing import packed_points
from tta_bench.report.page.provenance import Shared, provenance, texts
from tta_bench.report.page.statistics import ColumnStatistics, column_statistics
from tta_bench.report.page.stream import curves_of
from tta_bench.report.standings import NONE, Key, Standings, key_of, resampling, standings_of
from tta_bench.system import published
from tta_bench.system.names import kind_of
from tta_bench.system.progress import Reporter
from tta_bench.system.text import visible

MANY = 40_000  # values of classes on a board: their texts would take too much of a page
COSTS: dict[str, Callable[[RunRecord], float | None]] = {
    "images_per_s": lambda run: run.speed.get("images_per_s"),
    "forwards_per_image": lambda run: run.counts.get("forwards_per_image"),
    "state_bytes": lambda run: run.counts.get("state_bytes"),
    "step_flops": lambda run: run.counts.get("step_flops"),
}


@dataclass(frozen=True)
class PageBoard:
    """A board with the runs behind each cell, and what each row of a column gains over others, by score space."""

    board: Board
    runs: dict[tuple[Row, Column], list[RunRecord]]
    statistics: dict[tuple[Column, str], ColumnStatistics]

    @property
    def cells(self) -> list[list[RunRecord]]:
        """The runs of each cell; none in a column of averages."""
        return [self.runs.get((row, column), []) for row in self.board.rows for column in self.board.columns]

    @cached_property
    def digests(self) -> dict[Row, str]:
        """Of the rows' configurations in full: rows carry the beginning."""
        return {row: runs[0].config.digest for (row, _), runs in self.runs.items()}

    def estimate(self, row: Row, column: Column, metric: str) -> tuple[float, float] | None:
        """The interval of a cell."""
        return self._standings(column, metric).intervals.get(row.config)

    def ranks(self, row: Row, column: Column, metric: str) -> tuple[int, int] | None:
        return None if self.board.untrained else self._standings(column, metric).ranks.get(row.config)

    def ranked(self, column: Column, metric: str) -> int:
        """Among how many, those included that a filter leaves out."""
        return len(self._standings(column, metric).intervals)

    def _standings(self, column: Column, metric: str) -> Standings:
        return self.board.standings.get((column, SCORES[metric]), NONE)


def page_boards(
    runs: Sequence[RunRecord],
    memory: Memory,
    wanted: Wanted | None = None,
    fast: bool = False,
    reporter: Reporter | None = None,
    family: Sequence[RunRecord] | None = None,
) -> list[PageBoard]:
    """The boards of the leaderboard; each run once. `fast`: without statistics; they are made over the `family`."""
    unique = one_of_each(runs)
    if not unique:
        return []
    wanted = wanted or Wanted()
    at_hand = [] if fast else [run for run in one_of_each(family or unique) if run.folder is not None]
    asked = [(group, metric) for group in by_protocol(at_hand) for metric in SCORES]
    found: dict[Key, Standings] = {}
    columns: dict[Key, ColumnStatistics] = {}
    with resampling(asked, wanted.baseline, reporter) as done:
        for group, metric in asked:
            key, which = key_of(group, metric), (group, metric, wanted.baseline)
            statistics_of = cache(partial(ProtocolStatistics, group, metric, done=done))  # once for both, if for any
            found[key] = standings_of(*which, statistics_of)
            if found[key].intervals:
                known = (metric, wanted.baseline, *sorted(map(written, group)))
                columns[key] = memory.get(known, partial(column_statistics, *which, statistics_of))
    made = boards(long_form(unique), wanted, found)
    return [_with_runs(board, unique, columns) for board in made]


def _with_runs(board: Board, runs: Sequence[RunRecord], statistics: Mapping[Key, ColumnStatistics]) -> PageBoard:
    wanted = (board.backbone, board.prompt, board.untrained)
    own = [run for run in runs if (run.backbone, run.prompt, run.random_weights) == wanted]
    columns = {(c.protocol, c.stream): c for c in board.columns if c.protocol}
    rows = {(row.method, row.config): row for row in board.rows}
    cells: dict[tuple[Row, Column], list[RunRecord]] = {}
    for run in own:
        column = columns[run.protocol.digest[:SHOWN_DIGITS], kind_of(run.order)]
        cells.setdefault((rows[run.method, run.config.digest[:SHOWN_DIGITS]], column), []).append(run)
    of_board = {
        (column, metric): statistics[protocol, stream, metric]
        for (protocol, stream), column in columns.items()
        for metric in SCORES
        if (protocol, stream, metric) in statistics
    }
    return PageBoard(board, cells, of_board)


def content(found: Sequence[PageBoard], memory: Memory) -> dict[str, Any]:
    """What the scripts of the page work on."""
    shared = Shared()
    shown = [_board(page_board, shared, memory) for page_board in found]
    return {"scores": dict(SCORES), "boards": shown, "shared": shared.values}


def _board(page: PageBoard, shared: Shared, memory: Memory) -> dict[str, Any]:
    board, cells = page.board, page.cells
    fine = sum(len(runs[0].per_class_ap) for runs in cells if runs) <= MANY
    others = dict.fromkeys(name for runs in cells for run in runs for name in run.metrics if name not in SCORES)
    return {
        "title": visible(board.title),
        "backbone": visible(board.backbone),
        "prompt": visible(board.prompt),
        "untrained": board.untrained,
        "sentence": visible(board.sentence),
        "notes": [visible(note) for note in board.notes],
        "columns": [_column(page, column, shared) for column in board.columns],
        "rows": [_row(page, row, shared) for row in board.rows],
        "metrics": {visible(name): _metric(page, name) for name in (*SCORES, *others)},
        "statistics": {metric: _statistics(page, metric) for metric in SCORES},
        "ap": [_class_ap(runs, fine) for runs in cells],
        "uneven": {
            number: made for number, runs in enumerate(cells) if (made := _each_class_ap(page, runs, fine)) is not None
        },
        "signs": [_signs(page, column) for column in board.columns],
        "curves": curves_of(cells, len(board.columns), memory, fine),
        "cost": {name: [_median(cost, runs) for runs in cells] for name, cost in COSTS.items()},
        "published": _published(page),
        "runs": [[provenance(run, shared) for run in sorted(runs, key=_replicate)] for runs in cells],
    }


def _replicate(run: RunRecord) -> tuple[int, str]:
    return run.seed, run.order


def _column(page: PageBoard, column: Column, shared: Shared) -> dict[str, Any]:
    run = next((runs[0] for (_, own), runs in page.runs.items() if own == column), None)
    parts = {} if run is None else {name: v for name, v in run.protocol.parts.items() if name != "class_names"}
    return {
        "name": visible(column.name),
        "dataset": visible(column.dataset),
        "n": column.n,
        "complete": column.complete,
        "protocol": "" if run is None else run.protocol.digest,
        "parts": shared.place(texts(parts)),
        "classes": shared.place([] if run is None else [visible(name) for name in run.per_class_ap]),
    }


def _row(page: PageBoard, row: Row, shared: Shared) -> dict[str, Any]:
    of_row = [run for (own, _), runs in page.runs.items() if own == row for run in runs]
    run = of_row[0]
    return {
        "name": visible(row.name),
        "method": visible(row.method),
        "tag": visible(run.tag),
        "setting": visible(row.setting or "not recorded"),
        "status": visible(run.status or "not recorded"),
        "warned": any(run.notes for run in of_row),
        "config": run.config.digest,
        "parts": shared.place(texts({**run.config.parts, "changes": run.changes or "none"})),
    }


def _metric(page: PageBoard, name: str) -> dict[str, Any]:
    """Mean and standard deviation over replicates; in the three score spaces also the interval."""
    board = page.board
    means: list[float | None] = []
    deviations: list[float | None] = []
    for row in board.rows:
        for column in board.columns:
            values = [float(v) for run in page.runs.get((row, column), []) if (v := run.metrics.get(name)) is not None]
            average = board.cells.get((row, column, SCORES.get(name, ""))) if not column.protocol else None
            means.append(_rounded(average.mean if average else statistics.fmean(values) if values else None))
            deviations.append(_rounded(statistics.stdev(values) if len(values) > 1 else None))
    found: dict[str, Any] = {"mean": means, "sd": deviations}
    if name in OF_LOGITS:
        found["less"] = True  # and none is marked
    if name in SCORES:
        places = [(row, column) for row in board.rows for column in board.columns]
        intervals = [page.estimate(row, column, name) or (None, None) for row, column in places]
        found |= {"low": [_rounded(low) for low, _ in intervals], "high": [_rounded(high) for _, high in intervals]}
    return found


def _statistics(page: PageBoard, metric: str) -> dict[str, Any]:
    board = page.board
    places = [(row, column) for row in board.rows for column in board.columns]
    configs = [page.digests[row] for row in board.rows]
    pairs = [page.statistics.get((column, metric)) for column in board.columns]
    return {
        "close": "".join("01"[board.is_close(row, column, SCORES[metric])] for row, column in places),
        "ranks": [page.ranks(row, column, metric) for row, column in places],
        "ranked": [page.ranked(column, metric) for column in board.columns],
        "pairs": [None if said is None else said.to_json(configs) for said in pairs],
    }


def _class_ap(runs: Sequence[RunRecord], fine: bool) -> str:
    """AP of each class, mean over replicates."""
    if not runs:
        return ""
    of_class = ([v for run in runs if (v := run.per_class_ap.get(name)) is not None] for name in runs[0].per_class_ap)
    return packed_points((statistics.fmean(values) if values else None for values in of_class), fine)


def _each_class_ap(page: PageBoard, runs: Sequence[RunRecord], fine: bool) -> list[str] | None:
    """AP of each class for every replicate, where rows of a column have other ones: a difference rests on those that
    two rows share."""
    if not runs:
        return None
    column = runs[0].protocol.digest, kind_of(runs[0].order)
    beside = (of for of in page.runs.values() if (of[0].protocol.digest, kind_of(of[0].order)) == column)
    if len({frozenset(map(_replicate, of)) for of in beside}) == 1:
        return None
    return [_class_ap([run], fine) for run in sorted(runs, key=_replicate)]


def _signs(page: PageBoard, column: Column) -> dict[str, str]:
    """In which classes two rows of a column differ significantly."""
    said = page.statistics.get((column, "mAP"))
    if said is None:
        return {}
    classes = next(runs[0].per_class_ap for (_, own), runs in page.runs.items() if own == column)
    return said.signs_to_json([page.digests[row] for row in page.board.rows], list(classes))


def _median(cost: Callable[[RunRecord], float | None], runs: Sequence[RunRecord]) -> float | None:
    values = [float(value) for run in runs if (value := cost(run)) is not None and math.isfinite(value)]
    return float(f"{statistics.median(values):.4g}") if values else None


def _published(page: PageBoard) -> list[dict[str, Any]]:
    """Printed numbers for the cells that may be held against them: defaults, on the complete dataset."""
    found = []
    for (row, column), runs in page.runs.items():
        if page.board.untrained or not column.complete or runs[0].changes:
            continue
        cell = published.find(page.board.backbone, page.board.prompt, row.method, runs[0].dataset)
        if cell is not None:
            place = page.board.rows.index(row) * len(page.board.columns) + page.board.columns.index(column)
            source = f"{cell.paper}, {cell.table}"
            found.append({"cell": place, "value": cell.value, "source": visible(source), "note": visible(cell.note)})
    return sorted(found, key=lambda one: one["cell"])


def _rounded(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 4)  # two are shown, also of differences
