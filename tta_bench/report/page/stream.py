"""Runs of a cell -> mAP along the stream, mean over replicates, packed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tta_bench.errors import BadData, UsageError
from tta_bench.metrics import Floats, along
from tta_bench.records import RunRecord
from tta_bench.report import kept
from tta_bench.report.along import Curve, baseline_of, curve
from tta_bench.report.page.memory import Memory, written
from tta_bench.report.page.packing import packed_points


def curves_of(
    cells: Sequence[Sequence[RunRecord]], columns: int, memory: Memory, fine: bool
) -> list[dict[str, Any] | None]:
    """Of each cell: images seen at each point, mAP so far and in the window, and frozen CLIP's so far."""
    found: list[dict[str, Any] | None] = []
    for number, runs in enumerate(cells):
        others = [run for cell in cells[number % columns :: columns] for run in cell]
        curves = [made for run in runs if (made := _curve(run, baseline_of(run, others), memory)) is not None]
        found.append(_mean(curves, fine) if curves else None)
    return found


def _curve(run: RunRecord, baseline: RunRecord | None, memory: Memory) -> Curve | None:
    """None where the scores are not at hand: a table is no place to fail for a lost file."""
    if baseline is None or run.replicate.digest != baseline.replicate.digest:
        return memory.get(("curve", written(run), baseline and written(baseline)), lambda: _kept(run, baseline))
    own, frozen = _curve(run, None, memory), _curve(baseline, None, memory)  # both in the same order
    if own is None or frozen is None:
        return own
    return replace(own, baseline=frozen.own, baseline_window=frozen.own_window)


def _kept(run: RunRecord, baseline: RunRecord | None) -> Curve | None:
    file = kept.file_of([run] if baseline is None else [run, baseline], curve=[along.POINTS, run.run_id])
    known = _parsed(kept.read(file))
    if known is not None:
        return known
    try:
        made = curve(run, baseline)
    except (BadData, UsageError):
        return None
    kept.write(file, [list(made.ends), made.window, *map(_listed, _values(made))])
    return made


def _values(made: Curve) -> tuple[Floats | None, ...]:
    return made.own, made.own_window, made.baseline, made.baseline_window


def _listed(values: Floats | None) -> list[float] | None:
    return None if values is None else values.tolist()


def _parsed(content: Any) -> Curve | None:
    try:
        ends, window, own, recent, *frozen = content
        arrays = [None if values is None else np.array(values, dtype=np.float64) for values in frozen]
        return Curve(ends, window, np.array(own), np.array(recent), *arrays)
    except (ValueError, TypeError):
        return None


def _mean(curves: Sequence[Curve], fine: bool) -> dict[str, Any]:
    beside = [c.baseline for c in curves if c.baseline is not None]
    return {
        "ends": list(curves[0].ends),
        "window": curves[0].window,
        "own": _packed([c.own for c in curves], fine),
        "recent": _packed([c.own_window for c in curves], fine),
        "clip": _packed(beside, fine) if len(beside) == len(curves) else "",
    }


def _packed(series: Sequence[Floats], fine: bool) -> str:
    return packed_points((float(value) for value in np.mean(series, axis=0)), fine)
