"""Records -> which differences between methods can be believed. Numbers only; layouts are made elsewhere.

Runs are grouped by protocol, and in it by configuration. Two configurations are compared over the replicates (seed and
stream order) that both have, on the same resamples of the same images.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product
from numbers import Integral

import numpy as np
import pandas as pd

from tta_bench.errors import BadData, UnknownName, UsageError
from tta_bench.metrics import Floats
from tta_bench.metrics.paired import Replicates, Resampled, class_differences, difference, mean_ap
from tta_bench.metrics.significance import LEVEL, Estimate, benjamini_yekutieli, holm
from tta_bench.records import RunRecord
from tta_bench.report.draws import resampled
from tta_bench.report.frame import rules_of
from tta_bench.report.versions import several, version_of
from tta_bench.runs.soundness import empty_of
from tta_bench.system.names import kind_of

BASELINES = ("clip", "regions")  # what every method has to beat: nothing adapted, with one view and with many
EXPLORATORY = "Benjamini-Yekutieli (exploratory)"
COLUMNS = (
    *("method", "baseline", "dataset", "backbone", "prompt", "metric", "delta", "low", "high", "p", "p_adjusted"),
    *("correction", "detectable", "helped", "harmed", "significantly_harmed", "replicates", "n", "tag", "changes"),
    *("protocol", "config", "baseline_config", "untrained", "order", "baseline_changes", "dataset_size", "rules"),
)
KEPT_APART = COLUMNS[COLUMNS.index("replicates") :]  # what rows of other protocols and configurations differ in
CLASS_KEYS = COLUMNS[: COLUMNS.index("delta")]  # what a class's row shares with that of all classes


@dataclass(frozen=True)
class Cell:
    """One configuration under one protocol."""

    estimate: Estimate
    replicates: int

    @property
    def interval(self) -> tuple[float, float]:
        """As far as mAP goes."""
        return max(self.estimate.low, 0.0), min(self.estimate.high, 100.0)


@dataclass(frozen=True)
class Pair:
    """One configuration against another under one protocol."""

    config: str  # digests
    baseline: str
    estimate: Estimate  # of the difference
    replicates: int  # that both have
    p_adjusted: float  # for all statements that are made together
    correction: str


@dataclass(frozen=True)
class ClassDifference:
    estimate: Estimate
    p_adjusted: float  # Holm over the classes

    @property
    def significantly_harmed(self) -> bool:
        return self.estimate.value < 0 and self.p_adjusted < LEVEL


class ProtocolStatistics:
    """What can be said about the runs of one protocol in one score space. Configurations go by their digests."""

    def __init__(
        self,
        runs: Sequence[RunRecord],
        metric: str = "mAP",
        resamples: int = 1000,
        done: Callable[[int], None] = lambda runs: None,
    ) -> None:
        """`done` is told of every run that was resampled: that is what takes long."""
        if len({run.protocol.digest for run in runs}) != 1:
            raise ValueError("statistics are of one protocol at a time")
        self.metric = metric
        self.runs: dict[str, RunRecord] = {}  # config -> one of its runs
        self.notes: list[str] = []
        self._replicates: dict[str, dict[str, Resampled]] = {}  # config -> replicate -> AP
        self._together: dict[tuple[str, ...], Replicates] = {}  # config and replicates; many pairs ask for the same
        self._pairs: dict[tuple[str, str], Pair | None] = {}
        self._empty = empty_of(runs[0])
        self._class_names = [str(name) for name in runs[0].protocol.parts.get("class_names", runs[0].per_class_ap)]
        for run in runs:
            done(1)
            if run.n < 2:
                self.notes.append(f"left out: {run.run_id}: one image can't be resampled")
                continue
            try:
                found = resampled(run, metric, resamples)
            except BadData as error:  # one lost file must not take the table with it
                self.notes.append(f"left out: {error}")
                continue
            self._replicates.setdefault(run.config.digest, {})[run.replicate.digest] = found
            self.runs.setdefault(run.config.digest, run)

    def cells(self) -> dict[str, Cell]:
        """mAP of every configuration for which it is defined."""
        found = {c: Cell(mean_ap(self._of(c, tuple(by)), self._empty), len(by)) for c, by in self._replicates.items()}
        return {config: cell for config, cell in found.items() if not math.isnan(cell.estimate.value)}

    def all_pairs(self) -> list[Pair]:
        """Every two configurations that have a replicate in common: for exploring, and corrected for that many."""
        pairs = [pair for one, other in combinations(self.runs, 2) if (pair := self._pair(one, other))]
        return _largest_first(_adjusted(pairs, benjamini_yekutieli, EXPLORATORY))

    def against(self, baseline: str) -> list[Pair]:
        """Every configuration against each of the method `baseline`.

        Corrected as one family with what is said about the other BASELINES: who looks at one of them only does not get
        smaller p for it.
        """
        family = {*BASELINES, baseline}
        pairs = [pair for one, other in combinations(self.runs, 2) if (pair := self._in_family(one, other, family))]
        asked = [_facing(pair, self.runs, baseline) for pair in _adjusted(pairs, holm, "Holm")]
        return _largest_first(pair for pair in asked if pair)

    def between(self, config: str, baseline: str) -> Pair | None:
        """These two alone: whoever names them before looking has nothing to correct for. None as for `_pair`."""
        pair = self._pair(config, baseline)
        return None if pair is None else replace(pair, p_adjusted=pair.estimate.p)

    def classes(self, config: str, baseline: str) -> dict[str, ClassDifference]:
        """The difference in AP of each class that has positives."""
        estimates = class_differences(*self._matched(config, baseline))
        defined = [(name, e) for name, e in zip(self._class_names, estimates, strict=True) if e is not None]
        adjusted = holm(np.array([e.p for _, e in defined])).tolist()
        return {name: ClassDifference(e, p) for (name, e), p in zip(defined, adjusted, strict=True)}

    def _in_family(self, one: str, other: str, family: set[str]) -> Pair | None:
        methods = self.runs[one].method, self.runs[other].method
        return self._pair(one, other) if methods[0] != methods[1] and not family.isdisjoint(methods) else None

    def _pair(self, config: str, baseline: str) -> Pair | None:
        """None: they have no replicate in common, or no image has a label."""
        if (config, baseline) not in self._pairs:  # most are part of more than one family
            self._pairs[config, baseline] = self._estimated(config, baseline)
        return self._pairs[config, baseline]

    def _estimated(self, config: str, baseline: str) -> Pair | None:
        runs, others = self._matched(config, baseline)
        found = difference(runs, others, self._empty) if runs else None
        if found is None or math.isnan(found.value):
            return None
        return Pair(config, baseline, found, len(runs), math.nan, "none")

    def _matched(self, config: str, baseline: str) -> tuple[Replicates, Replicates]:
        """The replicates that both have, in one order."""
        other = self._replicates[baseline]
        common = tuple(replicate for replicate in self._replicates[config] if replicate in other)
        return self._of(config, common), self._of(baseline, common)

    def _of(self, config: str, replicates: tuple[str, ...]) -> Replicates:
        key = (config, *replicates)
        if key not in self._together:
            self._together[key] = Replicates(self._replicates[config][replicate] for replicate in replicates)
        return self._together[key]


@dataclass(frozen=True)
class Comparison:
    """Differences between methods, by protocol and metric; the largest first."""

    rows: tuple[Mapping[str, object], ...]  # by COLUMNS
    notes: tuple[str, ...]

    def to_frame(self) -> pd.DataFrame:
        """One row per protocol, method, baseline and metric; `attrs["notes"]` says what was left out."""
        frame = pd.DataFrame(list(self.rows), columns=list(COLUMNS))
        frame.attrs["notes"] = list(self.notes)
        return frame


def compare(
    runs: Iterable[RunRecord],
    baseline: str | None = "clip",
    metrics: Collection[str] = ("mAP",),
    resamples: int = 1000,
    shown: Collection[str] | None = None,
) -> Comparison:
    """Every method against `baseline` under every protocol; every two methods if there is no baseline. `shown` are the
    digests of the configurations to tell of: looking at fewer does not make any of them more certain."""
    if not isinstance(resamples, Integral) or resamples < 2:
        wanted = "a whole number from 2 is wanted, and 1,000 for intervals that mean something"
        raise UsageError(f"resamples={resamples!r}: {wanted}")
    runs = list(runs)
    methods = {run.method for run in runs}
    if baseline is not None and baseline not in methods:
        raise UnknownName("baseline", baseline, methods, "No run of it is among these.")
    rows: list[Mapping[str, object]] = []
    notes: dict[str, None] = {}  # in their order, each once
    for group in by_protocol(runs):
        for metric in metrics:
            statistics = ProtocolStatistics(group, metric, resamples)
            pairs = statistics.all_pairs() if baseline is None else statistics.against(baseline)
            rows += [_row(statistics, pair) for pair in pairs if _is_shown(pair, shown, baseline)]
            notes |= dict.fromkeys((*statistics.notes, *_uncompared(statistics, pairs, baseline)))
            notes |= dict.fromkeys(_by_other_code(group, pairs))
    return Comparison(tuple(rows), tuple(notes))


def _is_shown(pair: Pair, shown: Collection[str] | None, baseline: str | None) -> bool:
    return shown is None or (pair.config in shown and (baseline is not None or pair.baseline in shown))


@dataclass(frozen=True)
class Duel:
    """Two configurations under one protocol in one score space, class by class."""

    row: Mapping[str, object]  # by COLUMNS
    classes: Mapping[str, ClassDifference]


def between(
    one: Sequence[RunRecord], other: Sequence[RunRecord], metrics: Collection[str] = ("mAP",), resamples: int = 1000
) -> tuple[list[Duel], list[str]]:
    """The runs of one configuration against those of another, wherever both ran on the same images; and what was left
    out."""
    duels: list[Duel] = []
    notes: dict[str, None] = {}
    sides = ({run.config.digest for run in one}, {run.config.digest for run in other})
    for group in by_protocol([*one, *other]):
        for metric in metrics:
            statistics = ProtocolStatistics(group, metric, resamples)
            notes |= dict.fromkeys(statistics.notes)
            here = [[config for config in statistics.runs if config in side] for side in sides]
            sought = [statistics.between(*both) for both in product(*here) if len(set(both)) == 2]
            pairs = [pair for pair in sought if pair]
            duels += [Duel(_row(statistics, pair), statistics.classes(pair.config, pair.baseline)) for pair in pairs]
            notes |= dict.fromkeys(_by_other_code(group, pairs))
    return duels, list(notes)


def class_frame(duels: Iterable[Duel]) -> pd.DataFrame:
    """One row per class; the row of all classes together, named "", comes first, and begins as in `compare`."""
    lines: list[dict[str, object]] = []
    for duel in duels:
        lines.append({**duel.row, "class": ""})
        for name, change in sorted(duel.classes.items(), key=lambda item: -item[1].estimate.value):
            e, own = change.estimate, {key: duel.row[key] for key in CLASS_KEYS}
            own |= {"delta": e.value, "low": e.low, "high": e.high, "p": e.p, "p_adjusted": change.p_adjusted}
            own |= {key: duel.row[key] for key in KEPT_APART}
            lines.append({**own, "correction": "Holm", "detectable": e.detectable, "class": name})
    return pd.DataFrame(lines, columns=[*COLUMNS[: COLUMNS.index("detectable") + 1], "class", *KEPT_APART])


def by_protocol(runs: Iterable[RunRecord]) -> list[list[RunRecord]]:
    """Runs that may be compared, of one protocol and kind of order; a run that is handed in twice is one run."""
    groups: dict[tuple[str, str], dict[str, RunRecord]] = {}
    for run in runs:
        groups.setdefault((run.protocol.digest, kind_of(run.order)), {}).setdefault(run.run_id, run)
    return [list(group.values()) for group in groups.values()]


def _row(statistics: ProtocolStatistics, pair: Pair) -> Mapping[str, object]:
    run, baseline, found = statistics.runs[pair.config], statistics.runs[pair.baseline], pair.estimate
    classes = statistics.classes(pair.config, pair.baseline).values()
    return {
        "method": run.method,
        "baseline": baseline.method,
        "dataset": run.dataset,
        "backbone": run.backbone,
        "prompt": run.prompt,
        "metric": statistics.metric,
        "delta": found.value,
        "low": found.low,
        "high": found.high,
        "p": found.p,
        "p_adjusted": pair.p_adjusted,
        "correction": pair.correction,
        "detectable": found.detectable,
        "helped": sum(change.estimate.value > 0 for change in classes),
        "harmed": sum(change.estimate.value < 0 for change in classes),
        "significantly_harmed": sum(change.significantly_harmed for change in classes),
        "replicates": pair.replicates,
        "n": run.n,
        "tag": run.tag,
        "changes": _changes(run),
        "protocol": run.protocol.digest[:12],
        "config": pair.config[:12],
        "baseline_config": pair.baseline[:12],
        "untrained": run.random_weights,
        "order": kind_of(run.order),
        "baseline_changes": _changes(baseline),
        "dataset_size": run.dataset_size,
        "rules": rules_of(run),
    }


def _changes(run: RunRecord) -> str:
    return " ".join(f"{key}={value}" for key, value in run.changes.items())


def _uncompared(statistics: ProtocolStatistics, pairs: Sequence[Pair], baseline: str | None) -> list[str]:
    """A line for the configurations that should stand in the table and don't."""
    seen = {digest for pair in pairs for digest in (pair.config, pair.baseline)}
    missing = [run.method for digest, run in statistics.runs.items() if digest not in seen and run.method != baseline]
    if not missing:
        return []
    where = _where(next(iter(statistics.runs.values())))
    names = ", ".join(sorted(set(missing)))
    return [f"{where}: nothing to compare {names} with: no run of {baseline or 'another'} with the same seed and order"]


def _by_other_code(runs: Sequence[RunRecord], pairs: Sequence[Pair]) -> list[str]:
    compared = {digest for pair in pairs for digest in (pair.config, pair.baseline)}
    said = several(version_of(run) for run in runs if run.config.digest in compared)
    return [f"{_where(runs[0])}: {said}"] if said else []


def _where(run: RunRecord) -> str:
    return f"{run.dataset} × {run.backbone} (protocol {run.protocol.digest[:6]})"


def _facing(pair: Pair, runs: Mapping[str, RunRecord], baseline: str) -> Pair | None:
    """The pair with `baseline` on its right; None if it has no part in it."""
    if runs[pair.baseline].method == baseline:
        return pair
    if runs[pair.config].method != baseline:
        return None
    e = pair.estimate
    return replace(
        pair,
        config=pair.baseline,
        baseline=pair.config,
        estimate=replace(e, value=-e.value, low=-e.high, high=-e.low),
    )


def _adjusted(pairs: Sequence[Pair], correct: Callable[[Floats], Floats], name: str) -> list[Pair]:
    adjusted = correct(np.array([pair.estimate.p for pair in pairs])).tolist()
    return [replace(pair, p_adjusted=p, correction=name) for pair, p in zip(pairs, adjusted, strict=True)]


def _largest_first(pairs: Iterable[Pair]) -> list[Pair]:
    return sorted(pairs, key=lambda pair: -pair.estimate.value)
