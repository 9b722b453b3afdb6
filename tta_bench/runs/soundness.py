"""Is a record what its run left: files as they were written, and numbers that follow from the scores? Without torch."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

import numpy as np

from tta_bench import metrics, records
from tta_bench.errors import TTABenchError
from tta_bench.metrics import AP_CONVENTIONS, along, single_label
from tta_bench.records import RunRecord
from tta_bench.system.files import digest

ROUNDING = 1e-9  # by which another processor's sums may differ

Numbers = Mapping[str, float | None]


def faults(record: RunRecord) -> list[str]:
    """What does not fit together, in a line each; empty for a sound record."""
    assert record.folder is not None  # it was read from there
    damage = records.damage(record.folder)
    if damage:
        return [damage]
    try:
        return [*_unlike_identity(record), *_unlike_scores(record)]
    except (TTABenchError, ValueError) as error:
        return [f"its numbers can't be computed again: {error}"]


def ties_of(record: RunRecord) -> metrics.Ties:
    return "dataset" if record.protocol.parts.get("average_precision") == AP_CONVENTIONS["dataset"] else "threshold"


def empty_of(record: RunRecord) -> metrics.Empty:
    return "zero" if record.protocol.parts.get("empty_classes") == "zero" else "skip"


def _unlike_identity(record: RunRecord) -> Iterator[str]:
    """Images and labels are those that the protocol's digests name."""
    scores, labels, ids = records.load_scores(record)
    order = record.index().argsort(kind="stable")
    found = {
        "n": len(scores),
        "image_ids": digest([ids[i] for i in order]),
        "labels": digest(labels[order].astype(np.int8).tobytes()),
    }
    for name, value in found.items():
        if record.protocol.parts.get(name, value) != value:
            yield f"{name} of {records.SCORES} are not those of the protocol"


def _unlike_scores(record: RunRecord) -> Iterator[str]:
    """Every metric, every class and both halves, computed again."""
    scores, labels = records.load_in_dataset_order(record)
    ties, empty = ties_of(record), empty_of(record)
    ap = metrics.average_precision(scores, labels, ties)
    classes = record.protocol.parts.get("class_names", list(record.per_class_ap))
    again = metrics.summary(scores, labels, empty, ap, ties)
    if "top1" in record.metrics and single_label.is_single_label(labels):
        again |= single_label.summary(scores, labels)
    yield from (f"{name} does not follow from the scores" for name in record.metrics.keys() - again.keys())
    yield from _differing("", record.metrics, again)
    yield from _differing("AP of ", record.per_class_ap, dict(zip(classes, ap.tolist(), strict=True)))
    if "halves" in record.along:
        stream = along.ScoredStream(*records.load_scores(record)[:2], record.index(), empty, ties)
        yield from _differing("mAP of the half ", record.along["halves"], along.summary(stream, None)["halves"])


def _differing(what: str, recorded: Numbers, computed: Mapping[str, float]) -> Iterator[str]:
    for name, value in recorded.items():
        again = computed.get(name)
        if again is not None and not _same(value, again):
            yield f"{what}{name} is recorded as {value} and is {again:.6f} by the scores"


def _same(recorded: float | None, computed: float) -> bool:
    if recorded is None or math.isnan(computed):
        return recorded is None and math.isnan(computed)
    return abs(recorded - computed) <= ROUNDING
