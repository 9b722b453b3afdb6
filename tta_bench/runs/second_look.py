"""A finished run of an instance is found again only if its first images still give the scores that it recorded.

In its caller's process nothing is fenced off: what decides a number may lie where no identity looks, and an instance
that differs in it would be taken for the one that was run. So a few steps are taken once more, by a copy.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np

from tta_bench.records import OUTPUTS, RunRecord
from tta_bench.runs import alarms
from tta_bench.runs.again import TOLERANCE, usual_range
from tta_bench.runs.hyperparameters import Configured
from tta_bench.runs.run import Run
from tta_bench.runs.spec import RunSpec
from tta_bench.system.tensors import read_tensors

REPEATED = 8  # images


def unlike_record(run: Run, record: RunRecord, configure: Callable[[RunSpec], Configured]) -> list[str]:
    """What to say if it does not. Other processes and machines may round otherwise."""
    if not run.in_callers_process or run.configured.uncopied:
        return []
    assert record.folder is not None
    stored, _ = read_tensors(record.folder / OUTPUTS, record.files[OUTPUTS])
    recorded = stored["outputs"].astype(np.float64)  # [N, B, C]
    first = dataclasses.replace(run.spec, limit=min(REPEATED, record.n))
    outputs = dataclasses.replace(run, spec=first, configured=configure(run.spec)).steps()  # [N', B, C]
    before = recorded[: len(outputs)]
    if outputs.shape == before.shape:
        apart = np.abs(outputs.numpy().astype(np.float64) - before).max()
        if apart <= TOLERANCE * usual_range(recorded.reshape(-1, recorded.shape[-1])):
            return []
    return alarms.other_scores(run.method.name)
