"""A finished run of an instance is found again only if its first images still give the scores that it recorded.

In its caller's process nothing is fenced off: what decides a number may lie where no identity looks, and an instance
that differs in it would be taken for the one that was run. So a few steps are taken once more, by a copy; an instance
that can't be copied is run anew, and so is one whose `finish` gives other scores than were recorded: it may be another
one by now, or need what it learns from all images.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from contextlib import suppress

import torch
from torch import Tensor

from tta_bench.errors import PluginError
from tta_bench.interfaces import Method
from tta_bench.records import OUTPUTS, RunRecord
from tta_bench.runs import alarms
from tta_bench.runs.again import TOLERANCE, usual_range
from tta_bench.runs.hyperparameters import Configured
from tta_bench.runs.run import Run
from tta_bench.runs.spec import RunSpec
from tta_bench.system.tensors import read_tensors

REPEATED = 8  # images


def unlike_record(run: Run, record: RunRecord, configure: Callable[[RunSpec], Configured]) -> list[str] | None:
    """None if it does. Otherwise it has to run again, and this is what its record should say of that. Other processes
    and machines may round otherwise."""
    if not run.in_callers_process:
        return None
    if run.configured.uncopied:
        return alarms.run_anew(run.method.name)
    assert record.folder is not None
    stored, _ = read_tensors(record.folder / OUTPUTS, record.files[OUTPUTS])
    recorded = torch.from_numpy(stored["outputs"])  # [N, B, C]
    first = dataclasses.replace(run.spec, limit=min(REPEATED, record.n))
    again = dataclasses.replace(run, spec=first, configured=configure(run.spec))
    again.method.validate()
    outputs = again.steps()  # [N', B, C]
    if not _alike(outputs, recorded[: len(outputs)], recorded):
        return alarms.other_scores(run.method.name)
    if type(run.method).finish is not Method.finish:
        with suppress(PluginError):
            scores = torch.from_numpy(record.scores())
            return None if _alike(again.finished(recorded), scores, scores) else []
        return []  # nothing less than the whole stream tells
    return None


def _alike(now: Tensor, before: Tensor, whole: Tensor) -> bool:
    """Whether these are the same up to rounding, in the range that most of all of them have."""
    if now.shape != before.shape:
        return False
    apart = (now.double() - before.double()).abs().max().item()
    return bool(apart <= TOLERANCE * usual_range(whole.double().reshape(-1, whole.shape[-1]).numpy()))
