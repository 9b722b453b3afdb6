"""One column of the page -> what each row gains over another, and in which classes. Who is best the board knows.

A column with up to PAIRED rows holds the difference of every two. In a larger one every row is compared with the
baselines and with the best, so that a page of many rows stays a file that can be sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tta_bench.metrics.significance import LEVEL
from tta_bench.records import RunRecord
from tta_bench.report.comparison import BASELINES, Pair, ProtocolStatistics
from tta_bench.report.page.packing import MISSING, packed, points, probability

PAIRED = 40  # rows of a column of which every two are compared
NONE = (MISSING,) * 4  # difference, half of its interval, p, adjusted p


@dataclass(frozen=True)
class ColumnStatistics:
    """What the page says about one column in one score space. Rows go by their configurations' digests."""

    pairs: Mapping[tuple[str, str], Pair]  # of every two, or none
    against: Mapping[str, Sequence[Pair]]  # baseline -> the others against it, corrected as one family
    class_signs: Mapping[str, Mapping[str, str]]  # config -> class -> + or - where it differs significantly from clip

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


def column_statistics(runs: Sequence[RunRecord], metric: str) -> ColumnStatistics:
    """Of runs whose scores are at hand."""
    statistics = ProtocolStatistics(runs, metric)
    values = {config: cell.estimate.value for config, cell in statistics.cells().items()}
    every = statistics.all_pairs() if len(values) <= PAIRED else []
    best = statistics.runs[max(values, key=lambda config: values[config])].method
    methods = {*BASELINES, *(() if every else (best,))}
    against: dict[str, list[Pair]] = {}
    for method in sorted(methods & {run.method for run in runs}):
        for pair in statistics.against(method):
            against.setdefault(pair.baseline, []).append(pair)
    return ColumnStatistics(
        pairs={(pair.config, pair.baseline): pair for pair in every},
        against=against,
        class_signs=_class_signs(statistics, against) if metric == "mAP" else {},
    )


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
