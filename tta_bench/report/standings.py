"""Runs -> how configurations stand to each other in a column of a table: intervals, ranks, differences to a baseline.

All of it follows from the runs' scores, so it is kept in `$TTABENCH_HOME/statistics` under their digests: a second
leaderboard reads no scores and compares nothing again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from tta_bench.metrics.significance import LEVEL
from tta_bench.records import RunRecord
from tta_bench.report import draws, kept
from tta_bench.report.comparison import BASELINES, Pair, ProtocolStatistics, by_protocol
from tta_bench.report.frame import SHOWN_DIGITS
from tta_bench.system.names import kind_of
from tta_bench.system.progress import Advance, Reporter, Silent

Key = tuple[str, str, str]  # protocol, kind of order and metric


@dataclass(frozen=True)
class Delta:
    """A configuration's gain over the baseline."""

    value: float
    low: float
    high: float
    p_adjusted: float
    replicates: int  # that both have

    @property
    def significant(self) -> bool:
        return self.p_adjusted < LEVEL


@dataclass(frozen=True)
class Standings:
    """The configurations of one protocol, kind of order and metric, by the digests that tables have."""

    intervals: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    pairs: Mapping[str, Mapping[str, float]] = field(default_factory=dict)  # the lower -> the higher -> adjusted p
    deltas: Mapping[str, Delta] = field(default_factory=dict)
    partial: Mapping[str, Sequence[str]] = field(default_factory=dict)  # pairs of which one has seeds the other lacks
    facing: str = ""  # the configuration that deltas are to
    notes: Sequence[str] = ()

    def told_apart(self, config: str, other: str) -> bool | None:
        """None: they were not compared."""
        p = self.pairs.get(config, {}).get(other, self.pairs.get(other, {}).get(config))
        return None if p is None else p < LEVEL

    def on_equal_terms(self, config: str, other: str) -> bool:
        """Whether the two have the same seeds and orders, so that their means may be compared."""
        return other not in self.partial.get(config, ()) and config not in self.partial.get(other, ())

    @cached_property
    def ranks(self) -> dict[str, tuple[int, int]]:
        """The best and the worst rank that may be a configuration's own: those that it can't be told from may be on
        either side of it."""
        above = {c: sum(p < LEVEL for p in self.pairs.get(c, {}).values()) for c in self.intervals}
        below = dict.fromkeys(self.intervals, 0)
        for higher in self.pairs.values():
            for config, p in higher.items():
                if config in below:
                    below[config] += p < LEVEL
        return {c: (1 + above[c], len(self.intervals) - below[c]) for c in self.intervals}


NONE = Standings()


def standings(
    runs: Iterable[RunRecord], metrics: Iterable[str], baseline: str, reporter: Reporter | None = None
) -> dict[Key, Standings]:
    """For every protocol and kind of order; metrics that are no mAP have no statistics."""
    wanted = [metric for metric in metrics if metric in draws.SPACES]
    asked = [(group, metric) for group in by_protocol(run for run in runs if run.folder) for metric in wanted]
    with resampling(asked, baseline, reporter) as done:
        return {
            key_of(group, metric): standings_of(
                group, metric, baseline, partial(ProtocolStatistics, group, metric, done=done)
            )
            for group, metric in asked
        }


@contextmanager
def resampling(
    asked: Iterable[tuple[Sequence[RunRecord], str]], baseline: str, reporter: Reporter | None
) -> Iterator[Advance]:
    """Whom to tell how far it is; nobody waits for what is on disk."""
    files = [(_file(group, metric, baseline), len(group)) for group, metric in asked]
    missing = sum(runs for file, runs in files if not kept.is_there(file))
    with (reporter if reporter and missing else Silent()).task("resampling images", missing, "runs") as done:
        yield done


def key_of(runs: Sequence[RunRecord], metric: str) -> Key:
    return runs[0].protocol.digest[:SHOWN_DIGITS], kind_of(runs[0].order), metric


def _file(runs: Sequence[RunRecord], metric: str, baseline: str) -> Path | None:
    return kept.file_of(runs, metric=metric, baseline=baseline)


def standings_of(
    runs: Sequence[RunRecord], metric: str, baseline: str, statistics: Callable[[], ProtocolStatistics]
) -> Standings:
    """Of one protocol and kind of order. The statistics are asked for only if nothing is kept."""
    file = _file(runs, metric, baseline)
    known = _parsed(kept.read(file))
    if known is not None:
        return known
    try:
        made = _compared(statistics(), baseline)
    except ValueError:  # one protocol, but other numbers of images or classes: no run of ours writes that
        return Standings(notes=(f"protocol {runs[0].protocol.digest[:6]}: the runs' scores don't fit together",))
    if not made.notes:  # a lost file may come back
        kept.write(file, asdict(made))
    return made


def _compared(statistics: ProtocolStatistics, baseline: str) -> Standings:
    pairs: dict[str, dict[str, float]] = {}
    # What is said about a baseline has one p wherever it is said: that of the family that the difference is shown with.
    families = [pair for name in dict.fromkeys((*BASELINES, baseline)) for pair in statistics.against(name)]
    cells, against = statistics.cells(), statistics.against(baseline)
    facing = _chosen(against, statistics.runs)
    partial: dict[str, list[str]] = {}
    for pair in [*statistics.all_pairs(), *families]:
        lower, higher = (pair.config, pair.baseline) if pair.estimate.value < 0 else (pair.baseline, pair.config)
        pairs.setdefault(_short(lower), {})[_short(higher)] = pair.p_adjusted
        if pair.replicates < max(cells[lower].replicates, cells[higher].replicates):
            partial.setdefault(_short(lower), []).append(_short(higher))
    return Standings(
        {_short(config): cell.interval for config, cell in cells.items()},
        pairs,
        _deltas(against, facing),
        {lower: sorted(set(others)) for lower, others in partial.items()},
        _short(facing),
        tuple(statistics.notes),
    )


def _chosen(pairs: Sequence[Pair], runs: Mapping[str, RunRecord]) -> str:
    """One configuration of the baseline: that of which there are defaults, and the newest of these."""
    facing = {pair.baseline for pair in pairs}
    return max(facing, key=lambda config: (not runs[config].changes, runs[config].created), default="")


def _deltas(pairs: Sequence[Pair], facing: str) -> dict[str, Delta]:
    return {
        _short(pair.config): Delta(e.value, e.low, e.high, pair.p_adjusted, pair.replicates)
        for pair, e in ((pair, pair.estimate) for pair in pairs)
        if pair.baseline == facing
    }


def _short(config: str) -> str:
    return config[:SHOWN_DIGITS]


def _parsed(content: Any) -> Standings | None:
    try:
        intervals = {config: (float(low), float(high)) for config, (low, high) in content["intervals"].items()}
        deltas = {config: Delta(**delta) for config, delta in content["deltas"].items()}
        return Standings(intervals, content["pairs"], deltas, content["partial"], content["facing"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None
