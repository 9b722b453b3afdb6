"""One column of the page -> intervals, which rows can be told apart, and what each gains over another.

A column with up to PAIRED rows holds the difference of every two. In a larger one every row is compared with the
baselines and with the best, so that a page of many rows stays a file that can be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tta_bench.metrics.significance import LEVEL, Estimate
from tta_bench.records import RunRecord
from tta_bench.report.comparison import BASELINES, Pair, ProtocolStatistics
from tta_bench.report.page.packing import MISSING, packed, points, probability

PAIRED = 40  # rows of a column of which every two are compared
NONE = (MISSING,) * 4  # difference, half of its interval, p, adjusted p


@dataclass(frozen=True)
class ColumnStatistics:
    """What the page says about one column in one score space. Rows go by their configurations' digests."""

    intervals: Mapping[str, Estimate]
    ranks: Mapping[str, tuple[int, int]]  # from … to; empty where not every two rows were compared
    tied: frozenset[str]  # not significantly below the best
    pairs: Mapping[tuple[str, str], Pair]  # of every two, or none
    against: Mapping[str, Sequence[Pair]]  # baseline -> the others against it, corrected as one family
    class_signs: Mapping[str, Mapping[str, str]]  # config -> class -> + or - where it differs significantly from clip
    notes: Sequence[str]

    def to_json(self, configs: Sequence[str]) -> dict[str, Any]:
        """`all` holds the pairs (0, 1), (0, 2) … (1, 2) … of `configs`, `against` a list as long as they are."""
        found = {(pair.config, pair.baseline): pair for of in self.against.values() for pair in of}
        place = {config: number for number, config in enumerate(configs)}
        return {
            "all": packed(self._of_every_two(configs)) if self.pairs else "",
            "against": {
                str(place[baseline]): packed(_codes(found.get((config, baseline)) for config in configs))
                for baseline in self.against
            },
        }

    def _of_every_two(self, configs: Sequence[str]) -> Iterable[int]:
        for number, one in enumerate(configs):
            for other in configs[number + 1 :]:
                pair, turned = self.pairs.get((one, other)), self.pairs.get((other, one))
                yield from _codes([pair]) if pair or not turned else _codes([turned], sign=-1)


def _codes(pairs: Iterable[Pair | None], sign: int = 1) -> Iterable[int]:
    for pair in pairs:
        if pair is None:
            yield from NONE
        else:
            e = pair.estimate
            half = (e.high - e.low) / 2
            yield from (points(sign * e.value), points(half), probability(e.p), probability(pair.p_adjusted))


def column_statistics(runs: Sequence[RunRecord], metric: str) -> ColumnStatistics | None:
    """None where no run has its scores at hand: the column then has means and nothing more."""
    at_hand = [run for run in runs if run.folder is not None and run.folder.is_dir()]
    if not at_hand:
        return None
    statistics = ProtocolStatistics(at_hand, metric)
    values = {config: cell.estimate for config, cell in statistics.cells().items()}
    if not values:
        return None
    best = max(values, key=lambda config: values[config].value)
    every = statistics.all_pairs() if len(values) <= PAIRED else []
    methods = {*BASELINES, *(() if every else (statistics.runs[best].method,))}
    against: dict[str, list[Pair]] = {}
    for method in sorted(methods & {run.method for run in at_hand}):
        for pair in statistics.against(method):
            against.setdefault(pair.baseline, []).append(pair)
    wins = _wins(every or against.get(best, ()))
    return ColumnStatistics(
        intervals=values,
        ranks=_ranks(values, wins) if every else {},
        tied=frozenset(values) - {behind for ahead, behind in wins if ahead == best},
        pairs={(pair.config, pair.baseline): pair for pair in every},
        against=against,
        class_signs=_class_signs(statistics, against) if metric == "mAP" else {},
        notes=statistics.notes,
    )


def _wins(pairs: Iterable[Pair]) -> list[tuple[str, str]]:
    """Who is significantly ahead of whom."""
    certain = (pair for pair in pairs if pair.p_adjusted < LEVEL)
    return [(p.config, p.baseline) if p.estimate.value > 0 else (p.baseline, p.config) for p in certain]


def _ranks(rows: Iterable[str], wins: Iterable[tuple[str, str]]) -> dict[str, tuple[int, int]]:
    """A rank is at least 1 + how many are significantly better, at most all rows less those that are worse."""
    better = dict.fromkeys(rows, 0)
    worse = dict(better)
    for ahead, behind in wins:
        better[behind] += 1
        worse[ahead] += 1
    return {config: (1 + better[config], len(better) - worse[config]) for config in better}


def _class_signs(statistics: ProtocolStatistics, against: Mapping[str, Sequence[Pair]]) -> dict[str, dict[str, str]]:
    """Against clip as it is; nothing where that was not run."""
    frozen = [c for c in against if statistics.runs[c].method == BASELINES[0] and not statistics.runs[c].changes]
    return {
        pair.config: {
            name: "+" if change.estimate.value > 0 else "-"
            for name, change in statistics.classes(pair.config, pair.baseline).items()
            if change.p_adjusted < LEVEL
        }
        for pair in (against[frozen[0]] if frozen else ())
    }
