"""What went in and out of a method's cache along the stream, beside its mAP: curves of a paper as a few rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tta_bench.records import RunRecord
from tta_bench.report.along import curve

POINTS = 10


def turnover(run: RunRecord, diagnostics: Sequence[str]) -> list[str]:
    """A row per part of the stream: images so far, the mean of each diagnostic over the part, mAP of all so far."""
    found = curve(run, None, min(POINTS, run.n))
    columns = run.diagnostics()
    there = [name for name in diagnostics if name in columns]
    heading = "  ".join(f"{name:>11}" for name in ("images", *there, "mAP so far"))
    rows, begin = [], 0
    for end, value in zip(found.ends, found.own, strict=True):
        means = [float(np.nanmean(columns[name][begin:end])) for name in there]
        rows.append("  ".join([f"{end:>11,}", *(f"{mean:>11.3f}" for mean in means), f"{value:>11.2f}"]))
        begin = end
    return [heading, *rows]
