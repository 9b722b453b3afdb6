"""Why a number is not the paper's: what one other decision would have made of the very same scores.

Three decisions are free once the scores are there: the score space, what a class without positives counts, and which of
a dataset's label variants is the truth. Nothing is run again. What would need a run is added by whoever has run it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np

from tta_bench import metrics
from tta_bench.metrics import Labels
from tta_bench.records import RunRecord, load_in_dataset_order
from tta_bench.report.draws import SPACES
from tta_bench.report.reproduction import AGREES, METRIC, Line
from tta_bench.runs.soundness import empty_of, ties_of

SPACE_WORDS = {"mAP_centered": "centred scores", "mAP_softmax": "softmax scores"}
EMPTY_WORDS = {"skip": "classes without positives left out", "zero": "classes without positives count 0"}
SHOWN = 12  # single changes, the nearest first


@dataclass(frozen=True)
class Change:
    """A number under other decisions."""

    what: tuple[str, ...]  # each a decision in words
    value: float


@dataclass(frozen=True)
class OtherLabels:
    """A label variant, for those images of a run that it has too."""

    rows: Sequence[int]  # of the run in dataset order
    labels: Labels  # [rows, C]


def rescored(run: RunRecord, variants: Mapping[str, OtherLabels]) -> list[Change]:
    """Score space × label variant × empty-class rule, without the combination that was run."""
    scores, own = load_in_dataset_order(run)
    truths = {"": OtherLabels(range(len(own)), own), **variants}
    found = []
    for space, (variant, truth), empty in product(SPACES, truths.items(), EMPTY_WORDS):
        what = [SPACE_WORDS[space]] if space != METRIC else []
        part = f" ({len(truth.rows):,} of {len(own):,} images)" if len(truth.rows) < len(own) else ""
        what += [f"labels of {variant}{part}"] if variant else []
        what += [EMPTY_WORDS[empty]] if empty != empty_of(run) else []
        if what:
            ap = metrics.average_precision(SPACES[space](scores)[list(truth.rows)], truth.labels, ties_of(run))
            value = metrics.mean_average_precision(ap, "zero" if empty == "zero" else "skip")
            found.append(Change(tuple(what), value))
    return [change for change in found if not np.isnan(change.value)]


def over_seeds(found: Sequence[Sequence[Change]]) -> list[Change]:
    """The mean of each change over all seeds, which is what a measured number is; those that every seed has."""
    values: dict[tuple[str, ...], list[float]] = {}
    for change in (change for changes in found for change in changes):
        values.setdefault(change.what, []).append(change.value)
    return [Change(what, math.fsum(v) / len(v)) for what, v in values.items() if len(v) == len(found)]


def of_one_seed(what: str, value: float, runs: Sequence[RunRecord]) -> Change | None:
    """A change that was run for the first seed alone: by what it moves that seed's own number it moves the mean."""
    measured = [number for run in runs if (number := run.metrics[METRIC]) is not None]
    own = runs[0].metrics[METRIC]
    if own is None:
        return None
    if len(runs) == 1:
        return Change((what,), value)
    words = f"{what} (of seed {runs[0].seed}, from {own:.2f} to {value:.2f})"
    return Change((words,), math.fsum(measured) / len(measured) + value - own)


def explanation(line: Line, changes: Sequence[Change]) -> list[str]:
    """The single changes that come nearest to the published number, and whether any of them explains it."""
    assert line.value is not None
    assert line.published is not None
    target = line.published
    near = sorted(changes, key=lambda change: abs(change.value - target))
    single = [change for change in near if len(change.what) == 1]
    where = f"{line.label} on {line.dataset} with {line.backbone}"
    over = f" over {line.seeds}" if line.seeds else ""
    said = [f"{where}: measured {line.value:.2f}{over}, published {target:.2f} ({line.value - target:+.2f})"]
    said += [f"  {change.value:.2f} ({change.value - target:+.2f})  {change.what[0]}" for change in single[:SHOWN]]
    best = single[0] if single else None
    explained = False
    if best is None or round(abs(best.value - target), 2) >= round(abs(line.value - target), 2):  # as they are shown
        said.append("  no single change comes nearer than what was run: something else differs")
    elif round(abs(best.value - target), 2) <= AGREES:
        said.append(f"  nearest: {best.what[0]}, which agrees")
        explained = True
    else:
        said.append(f"  nearest: {best.what[0]}, which does not explain it: {abs(best.value - target):.2f} are left")
    joint = next((change for change in near if len(change.what) > 1), None)
    if joint and not explained and (best is None or abs(joint.value - target) < abs(best.value - target)):
        said.append(f"  nearer together: {' and '.join(joint.what)}, {joint.value:.2f} ({joint.value - target:+.2f})")
    return said
