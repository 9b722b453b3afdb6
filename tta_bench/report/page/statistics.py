"""One column of the page -> what each row gains over another, and in which classes. Who is best the board knows.

A column with up to PAIRED rows holds the difference of every two, and with up to PAIRED_BY_CLASS class by class. In a
larger one every row is compared with the baselines and with the best, so that a page of many rows stays a file that
can be sent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Any, NamedTuple

from tta_bench.metrics.significance import LEVEL
from tta_bench.records import RunRecord
from tta_bench.report import kept
from tta_bench.report.comparison import BASELINES, Pair, ProtocolStatistics
from tta_bench.report.page.packing import MISSING, packed, packed_signs, points, probability, width

PAIRED = 40  # rows of a column of which every two are compared
PAIRED_BY_CLASS = 20
NONE = (MISSING,) * 4  # difference, half of its interval, p, adjusted p


class Difference(NamedTuple):
    """A row less another."""

    value: float
    half: float  # of its interval
    p: float
    p_adjusted: float

    @classmethod
    def of(cls, pair: Pair) -> Difference:
        e = pair.estimate
        return cls(e.value, (e.high - e.low) / 2, e.p, pair.p_adjusted)


@dataclass(frozen=True)
class ColumnStatistics:
    """What the page says about one column in one score space. Rows go by their configurations' digests, and mappings
    from a baseline to those that are held against it."""

    pairs: Mapping[str, Mapping[str, Difference]]  # of every two, once, or none
    against: Mapping[str, Mapping[str, Difference]]  # corrected as one family
    class_signs: Mapping[str, Mapping[str, Mapping[str, str]]]  # class -> + or - where the two differ significantly

    @classmethod
    def parsed(cls, content: Any) -> ColumnStatistics | None:
        try:
            pairs, against = (
                {b: {c: Difference(*map(float, d)) for c, d in of.items()} for b, of in content[name].items()}
                for name in ("pairs", "against")
            )
            return cls(pairs, against, content["class_signs"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return None

    def to_json(self, configs: Sequence[str]) -> dict[str, Any]:
        """`all` holds the pairs (0, 1), (0, 2) … (1, 2) … of `configs`, `against` a list as long as they are."""
        place = {config: number for number, config in enumerate(configs)}
        return {
            "all": packed(self._of_every_two(configs)) if self.pairs else "",
            "against": {
                str(place[baseline]): packed(_codes(of.get(config) for config in configs))
                for baseline, of in self.against.items()
                if baseline in place  # statistics are of rows, too, that a filter leaves out
            },
        }

    def _of_every_two(self, configs: Sequence[str]) -> Iterable[int]:
        for one, other in combinations(configs, 2):
            found, turned = self.pairs.get(other, {}).get(one), self.pairs.get(one, {}).get(other)
            yield from _codes([found]) if found or not turned else _codes([turned], sign=-1)

    def signs_to_json(self, configs: Sequence[str], classes: Sequence[str]) -> dict[str, str]:
        """ "ROW,BASELINE" -> a sign for each class, for those that were compared class by class."""
        place = {config: number for number, config in enumerate(configs)}
        return {
            f"{place[config]},{place[baseline]}": packed_signs([signs.get(name, "") for name in classes])
            for baseline, of in self.class_signs.items()
            for config, signs in of.items()
            if {config, baseline} <= place.keys()
        }


def _codes(differences: Iterable[Difference | None], sign: int = 1) -> Iterable[int]:
    for found in differences:
        if found is None:
            yield from NONE
        else:
            yield from (points(sign * found.value), width(found.half))
            yield from (probability(found.p), probability(found.p_adjusted))


def column_statistics(
    runs: Sequence[RunRecord], metric: str, baseline: str, statistics: Callable[[], ProtocolStatistics]
) -> ColumnStatistics:
    """Of runs whose scores are at hand. The statistics are asked for only if nothing is kept."""
    limits = [PAIRED, PAIRED_BY_CLASS]
    file = kept.file_of(runs, page=metric, baseline=baseline, versions=limits)
    known = ColumnStatistics.parsed(kept.read(file))
    if known is not None:
        return known
    found = statistics()
    made = _worked_out(found, baseline)
    if not found.notes:  # a lost file may come back
        kept.write(file, asdict(made))
    return made


def _worked_out(statistics: ProtocolStatistics, baseline: str) -> ColumnStatistics:
    values = {config: cell.estimate.value for config, cell in statistics.cells().items()}
    every = statistics.all_pairs() if len(values) <= PAIRED else []
    best = statistics.runs[max(values, key=lambda config: values[config])].method
    methods = {*BASELINES, baseline, *(() if every else (best,))}
    there = sorted(methods & {run.method for run in statistics.runs.values()})
    against = [pair for method in there for pair in statistics.against(method)]
    by_class: Sequence[Pair] = ()
    if statistics.metric == "mAP":
        by_class = every if every and len(values) <= PAIRED_BY_CLASS else against
    return ColumnStatistics(_by_baseline(every), _by_baseline(against), _class_signs(statistics, by_class))


def _by_baseline(pairs: Iterable[Pair]) -> dict[str, dict[str, Difference]]:
    found: dict[str, dict[str, Difference]] = {}
    for pair in pairs:
        found.setdefault(pair.baseline, {})[pair.config] = Difference.of(pair)
    return found


def _class_signs(statistics: ProtocolStatistics, pairs: Iterable[Pair]) -> dict[str, dict[str, dict[str, str]]]:
    found: dict[str, dict[str, dict[str, str]]] = {}
    for pair in pairs:
        found.setdefault(pair.baseline, {})[pair.config] = {
            name: "+" if change.estimate.value > 0 else "-"
            for name, change in statistics.classes(pair.config, pair.baseline).items()
            if change.p_adjusted < LEVEL
        }
    return found
