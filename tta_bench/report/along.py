"""Records -> what happened along the stream: curves of mAP beside frozen CLIP's, and what methods reported."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from numbers import Integral

import numpy as np
import pandas as pd

from tta_bench.errors import BadData, UsageError
from tta_bench.metrics import AP_CONVENTIONS, Floats, along
from tta_bench.metrics.along import ScoredStream
from tta_bench.records import RunRecord
from tta_bench.system.code import BUILT_IN
from tta_bench.system.text import counted

BASELINE = "clip"
OF_RUN = ("method", "dataset", "backbone", "prompt", "seed", "order", "run")
CURVES = [*OF_RUN, "images", "mAP", "mAP_window", BASELINE, f"{BASELINE}_window"]


@dataclass(frozen=True)
class Curve:
    """mAP at some points of a stream, and the baseline's on the same images."""

    ends: Sequence[int]  # images seen so far
    window: int
    own: Floats  # of all images so far
    own_window: Floats  # of the last `window`
    baseline: Floats | None = None  # None: there is no run of it
    baseline_window: Floats | None = None

    @property
    def break_even(self) -> int | None:
        """See `metrics.along.break_even`."""
        return None if self.baseline is None else along.break_even(self.own, self.baseline, self.ends)


def is_frozen_clip(run: RunRecord) -> bool:
    """Whether it is a run of the built-in as it is: a notebook may call a class of its own so."""
    unchanged = not run.changes and "replaced" not in run.config.parts
    return run.method == BASELINE and unchanged and run.author == BUILT_IN


def baseline_of(run: RunRecord, others: Sequence[RunRecord]) -> RunRecord | None:
    """A run of frozen CLIP on the protocol. It has no memory, so that one in any order will do."""
    if is_frozen_clip(run):
        return None
    fits = [other for other in others if is_frozen_clip(other) and other.protocol.digest == run.protocol.digest]
    same = [other for other in fits if other.replicate.digest == run.replicate.digest]
    return next(iter(same or fits), None)


def curve(run: RunRecord, baseline: RunRecord | None, points: int = along.POINTS, window: int | None = None) -> Curve:
    """From the stored scores. The window is a tenth of the stream, if none is given."""
    whole = all(isinstance(number, Integral) for number in (points, 1 if window is None else window))
    if not whole or points < 1 or (window is not None and not 1 <= window <= run.n):
        most = counted(run.n, "image")
        raise UsageError(f"whole numbers are wanted: points from 1, and a window from 1 to {most}")
    stream, width = _scored(run), window or max(1, run.n // 10)
    ends = along.ends(run.n, points)
    own = along.cumulative(stream, ends), along.sliding(stream, ends, width)
    if baseline is None:
        return Curve(ends, width, *own)
    frozen = _in_order(_scored(baseline), stream)
    return Curve(ends, width, *own, along.cumulative(frozen, ends), along.sliding(frozen, ends, width))


def baseline_parts(run: RunRecord, baseline: RunRecord) -> dict[str, Mapping[str, float | None]]:
    """The baseline's mAP on the halves and domains of the run's stream. Of a domain it is the same in any order."""
    halves = along.halves(_in_order(_scored(baseline), _scored(run)))
    return {"halves": {**halves}, "domains": baseline.along.get("domains", {})}


def curves(runs: Sequence[RunRecord], points: int = along.POINTS, window: int | None = None) -> pd.DataFrame:
    """One row per run and point; the columns of the baseline are NaN where there is no run of it on the protocol."""
    rows: list[tuple[object, ...]] = []
    for run in runs:
        found = curve(run, run if is_frozen_clip(run) else baseline_of(run, runs), points, window)
        missing = np.full(len(found.ends), np.nan)
        frozen = [missing if values is None else values for values in (found.baseline, found.baseline_window)]
        rows += [(*_named(run), *point) for point in zip(found.ends, found.own, found.own_window, *frozen, strict=True)]
    return pd.DataFrame(rows, columns=CURVES)


def reported(runs: Sequence[RunRecord]) -> pd.DataFrame:
    """One row per image of each run that reported anything, in stream order."""
    parts = []
    for run in runs:
        columns = run.diagnostics()
        if columns:
            own = {**dict(zip(OF_RUN, _named(run), strict=True)), "position": range(run.n), "id": run.ids()}
            told = {f"reported {name}" if name in own else name: values for name, values in columns.items()}
            parts.append(pd.DataFrame({**own, **told}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=[*OF_RUN, "position", "id"])


def _named(run: RunRecord) -> tuple[object, ...]:
    return (*(getattr(run, name) for name in OF_RUN[:-1]), run.run_id)


def _scored(run: RunRecord) -> ScoredStream:
    parts = run.protocol.parts
    ties = {words: ties for ties, words in AP_CONVENTIONS.items()}.get(parts.get("average_precision", ""))
    if ties is None or parts.get("empty_classes") not in ("skip", "zero"):
        raise BadData(f"{run.run_id}: its protocol does not say how average precision is taken")
    return ScoredStream(run.scores(), run.labels(), run.index(), parts["empty_classes"], ties)


def _in_order(baseline: ScoredStream, like: ScoredStream) -> ScoredStream:
    """The baseline's rows in the order of another stream of the same images."""
    place = {index: row for row, index in enumerate(baseline.index.tolist())}
    rows = [place[index] for index in like.index.tolist()]
    return ScoredStream(baseline.scores[rows], like.labels, like.index, like.empty, like.ties)


def to_text(found: Curve) -> list[str]:
    """A table that fits 60 columns, and a line on where the run breaks even."""

    def shown(value: float) -> str:
        return "–" if np.isnan(value) else f"{value:.2f}"

    last = f"last {found.window:,}"
    heads = ["images", "mAP", last]
    columns = [[f"{end:,}" for end in found.ends], list(map(shown, found.own)), list(map(shown, found.own_window))]
    if found.baseline is not None and found.baseline_window is not None:
        heads += [BASELINE, f"{BASELINE}, {last}"]
        columns += [list(map(shown, found.baseline)), list(map(shown, found.baseline_window))]
    widths = [max(map(len, [head, *column])) for head, column in zip(heads, columns, strict=True)]
    rows = [heads, *zip(*columns, strict=True)]
    lines = ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]
    if found.baseline is None:
        return lines
    if found.break_even is None:
        return [*lines, f"below {BASELINE} on the same images at the end: it does not break even"]
    ahead = f"level with {BASELINE} or ahead from image {found.break_even:,} on"
    return [*lines, f"{ahead} (looked at every {found.ends[0]:,} images)"]
