"""A run's stored outputs under other labels, other rules or another `finish`. Nothing is written."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from tta_bench import metrics
from tta_bench.errors import UnknownName, UsageError
from tta_bench.features.labels import ids_and_labels
from tta_bench.metrics import Empty, Labels, Scores, Ties
from tta_bench.records import OUTPUTS, RunRecord
from tta_bench.runs.again import TOLERANCE, Elsewhere, from_pack, prepared, usual_range
from tta_bench.runs.bench import Bench
from tta_bench.runs.soundness import empty_of, ties_of
from tta_bench.system.tensors import read_tensors
from tta_bench.system.text import visible

if TYPE_CHECKING:
    from tta_bench.interfaces import Dataset

TAUGHT_BY = 16  # images, to see whether `finish` of a built-in depends on what it has learnt; of others, all images


@dataclass(frozen=True)
class Change:
    """What is to be other than recorded."""

    variant: str | None = None  # NAME:VARIANT, of which the labels are
    empty: Empty | None = None
    ties: Ties | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)  # of `finish`


@dataclass(frozen=True)
class Rescored:
    """A run's numbers under other rules, and which those are."""

    record: RunRecord
    labels: str  # the dataset's variant
    empty: Empty
    ties: Ties
    settings: str
    n: int  # images that count
    metrics: Mapping[str, float]
    warnings: Sequence[str] = ()


def rescore(record: RunRecord, change: Change, bench: Bench, given: Elsewhere) -> Rescored:
    """Every metric, computed anew from what is stored."""
    empty, ties = change.empty or empty_of(record), change.ties or ties_of(record)
    labels = variant_labels(record, bench, change.variant) if change.variant else record.labels()
    scores = finished_again(record, bench, given, change.settings) if change.settings else record.scores()
    order = record.index().argsort(kind="stable")  # so that no kind of ties depends on the stream's order
    order = order[(labels[order] != -1).any(axis=1)]
    return Rescored(
        record=record,
        labels=change.variant or record.dataset,
        empty=empty,
        ties=ties,
        settings=" ".join(f"{key}={value}" for key, value in change.settings.items()),
        n=len(order),
        metrics=metrics.summary(scores[order], labels[order], empty, ties=ties),
        warnings=_other_names(record, bench, change.variant) if change.variant else (),
    )


def _other_names(record: RunRecord, bench: Bench, variant: str) -> list[str]:
    """The scores are of prompts with the names that the run had."""
    names = list(bench.opened(variant).class_names)
    own = record.protocol.parts.get("class_names", names)
    renamed = [f"'{old}'" for old, new in zip(own, names, strict=True) if old != new]
    if not renamed:
        return []
    first = f"{renamed[0]} and {len(renamed) - 1} more" if len(renamed) > 1 else renamed[0]
    return [
        f"{visible(variant)} also calls classes by other names, and the scores of {visible(record.run_id)} are of "
        f"those that it ran with ({visible(first)}): a run on {visible(variant)} gives others"
    ]


def variant_labels(record: RunRecord, bench: Bench, variant: str) -> Labels:
    """The labels that a variant of the dataset has for the run's images, in stream order: [N, C]. An image that the
    variant leaves out is to be ignored in every class.

    Raises:
        UsageError: it is no variant of the same images and classes.
    """
    name = record.dataset.partition(":")[0]
    if from_pack(record):
        raise UsageError(f"{record.run_id} ran on a feature pack, which has its own labels and no others")
    if variant.partition(":")[0] != name:
        raise UsageError(f"--variant {variant}: {record.run_id} is of {name}; write {name}:VARIANT")
    own, other = bench.opened(record.dataset), bench.opened(variant)
    if list(map(_word, own.class_names)) != list(map(_word, other.class_names)):
        raise UsageError(f"--variant {variant} has other classes than {record.run_id}, which has no scores for them")
    by_id, recorded, ids = _labels_by_id(other), _labels_by_id(own), record.ids()
    names = record.protocol.parts.get("class_names", list(own.class_names))
    same = own.fingerprint == record.protocol.parts.get("images") and set(ids) <= recorded.keys()
    same = same and list(own.class_names) == list(names)
    if not same or not np.array_equal(np.stack([recorded[image] for image in ids]), record.labels()):
        raise UsageError(
            f"the {record.dataset} that is here has other images, labels or class names than {record.run_id} ran on"
        )
    if own.fingerprint != other.fingerprint and not _shares_files(own, other):
        raise UsageError(f"--variant {variant} has other images under the same ids: run on it (--dataset {variant})")
    if not any(image in by_id for image in ids):
        raise UsageError(f"--variant {variant} has none of the images of {record.run_id}")
    nowhere = np.full(len(other.class_names), -1, dtype=np.int8)
    return np.stack([by_id.get(image, nowhere) for image in ids])


def _shares_files(one: Dataset, other: Dataset) -> bool:
    """Whether what both have of ids are the same files: a variant may leave images out."""
    files = [dict(zip(getattr(d, "ids", ()), getattr(d, "files", ()), strict=False)) for d in (one, other)]
    return all(files) and all(files[1][image] == file for image, file in files[0].items() if image in files[1])


def _word(name: str) -> str:
    """Variants may write one class in several ways: "dining table", "diningtable"."""
    return "".join(c for c in name.casefold() if c.isalnum())


def _labels_by_id(dataset: Dataset) -> dict[str, Labels]:
    return dict(zip(*ids_and_labels(dataset), strict=True))


def finished_again(record: RunRecord, bench: Bench, given: Elsewhere, settings: Mapping[str, Any]) -> Scores:
    """What `finish` makes of the stored outputs with other settings: [N, C].

    Raises:
        UsageError: a setting is used before the end, or `finish` needs what the steps left behind: it has to run again.
    """
    import torch

    if record.folder is None or OUTPUTS not in record.files:
        raise UsageError(f"{record.run_id} has no stored outputs: run it again")
    own = prepared(record, bench, given)
    only, fields = own.method.finish_only, record.hyper_parameters
    for key in settings:
        if key not in fields:
            has = f"It has: {', '.join(fields) or 'none'}."
            raise UnknownName(f"hyper-parameter of {record.method}", key, fields, has)
        if key not in only:
            raise UsageError(
                f"--set {key}: {record.method} may use it before the end, so it has to run again with it "
                f"(`finish` alone uses {', '.join(sorted(only)) or 'none of its hyper-parameters'})"
            )
    outputs = torch.from_numpy(read_tensors(record.folder / OUTPUTS, record.files[OUTPUTS])[0]["outputs"])
    if not np.array_equal(own.finish_again(outputs), record.scores()):
        raise UsageError(
            f"{record.run_id}: `finish` on the stored outputs does not give the stored scores, so it needs what the "
            "steps left behind, or its code has changed: run it again"
        )
    changed = dataclasses.replace(own.spec, settings={**own.spec.settings, **settings})
    run = bench.prepare(changed)
    scores = run.finish_again(outputs)
    # At the recorded value `finish` may have had no use for what the steps leave behind: a prior of strength 0.
    # Somebody else's may begin to learn late in the stream.
    images = min(TAUGHT_BY, record.n) if not run.in_callers_process and run.origin.built_in else record.n
    again, given_again = bench.prepare(dataclasses.replace(changed, limit=images)).taught(outputs)
    stored = outputs.numpy().astype(np.float64)
    largest = TOLERANCE * usual_range(stored.reshape(-1, stored.shape[-1]))  # other machines round otherwise
    if not np.allclose(given_again, stored[: len(given_again)], rtol=0, atol=largest):
        raise UsageError(
            f"{record.run_id}: `step` gives something else with these settings, too: run it again with them"
        )
    if not np.array_equal(again, scores):
        raise UsageError(
            f"{record.run_id}: with these settings `finish` needs what the steps left behind: run it again"
        )
    return scores
