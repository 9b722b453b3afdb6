"""Runs of a cell -> mAP along the stream, mean over replicates, packed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tta_bench.errors import BadData, UsageError
from tta_bench.metrics import Floats
from tta_bench.records import RunRecord
from tta_bench.report.along import Curve, baseline_of, curve
from tta_bench.report.page.memory import Memory, written
from tta_bench.report.page.packing import packed, points


def curves_of(cells: Sequence[Sequence[RunRecord]], columns: int, memory: Memory) -> list[dict[str, Any] | None]:
    """Of each cell: images seen at each point, mAP so far and in the window, and frozen CLIP's so far."""
    found: list[dict[str, Any] | None] = []
    for number, runs in enumerate(cells):
        others = [run for cell in cells[number % columns :: columns] for run in cell]
        curves = [made for run in runs if (made := _curve(run, baseline_of(run, others), memory)) is not None]
        found.append(_mean(curves) if curves else None)
    return found


def _curve(run: RunRecord, baseline: RunRecord | None, memory: Memory) -> Curve | None:
    """None where the scores are not at hand: a table is no place to fail for a lost file."""

    def made() -> Curve | None:
        try:
            return curve(run, baseline)
        except (BadData, UsageError):
            return None

    return memory.get(("curve", written(run), baseline and written(baseline)), made)


def _mean(curves: Sequence[Curve]) -> dict[str, Any]:
    beside = [c.baseline for c in curves if c.baseline is not None]
    return {
        "ends": list(curves[0].ends),
        "window": curves[0].window,
        "own": _packed([c.own for c in curves]),
        "recent": _packed([c.own_window for c in curves]),
        "clip": _packed(beside) if len(beside) == len(curves) else "",
    }


def _packed(series: Sequence[Floats]) -> str:
    return packed(points(float(value)) for value in np.mean(series, axis=0))
