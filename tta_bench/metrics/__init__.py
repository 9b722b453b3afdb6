"""Multi-label metrics: pure functions of a score matrix and a label matrix.

Every function takes `scores` [N, C] (larger = more likely) and `labels` [N, C] with 1 = present, 0 = absent and
-1 = ignore: that image takes no part in that class. **Every result is a percentage, 0 to 100.** Arithmetic is float64.

AP ranks *images within a class*. A monotone map of the whole matrix leaves it alone, while a per-image map (softmax,
an offset) changes it; `summary` therefore reports mAP on the raw, the centred and the softmax scores side by side.
"""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from tta_bench.errors import BadData
from tta_bench.system.text import counted

Scores: TypeAlias = npt.NDArray[np.floating[Any]]
Labels: TypeAlias = npt.NDArray[np.integer[Any]]
Floats: TypeAlias = npt.NDArray[np.float64]
Decisions: TypeAlias = npt.NDArray[np.bool_]
Empty: TypeAlias = Literal["skip", "zero"]
"""What a class without positives does to a mean over classes: left out, or counted as 0 (ML-TTA's convention)."""
Ties: TypeAlias = Literal["threshold", "dataset"]
"""What equal scores of a class are: one threshold (scikit-learn's convention), or ranked by row (ML-TTA's)."""
RANKED_AT_ONCE = 2**18  # scores: ranking takes nine arrays of their size, which need not be that of a whole dataset
AP_CONVENTIONS: dict[Ties, str] = {  # as a protocol's identity says it
    "threshold": "non-interpolated; equal scores are one threshold",
    "dataset": "non-interpolated; ties by the dataset's order",
}


def average_precision(scores: Scores, labels: Labels, ties: Ties = "threshold") -> Floats:
    """Non-interpolated AP of each class, [C]: the mean, over its positives, of the precision at their rank.

    Images with equal scores are at one threshold and have one precision, that of all of them, so that no order of the
    rows matters. With `ties="dataset"` they rank in the order of their rows, the earlier first. NaN for a class without
    positives.
    """
    if ties not in ("threshold", "dataset"):
        raise ValueError(f"ties must be 'threshold' or 'dataset', not {ties!r}")
    scores = checked(scores, labels)
    classes = max(1, RANKED_AT_ONCE // len(scores))
    starts = range(0, scores.shape[1], classes)
    return np.concatenate([_ap(scores[:, c : c + classes], labels[:, c : c + classes], ties) for c in starts])


def _ap(scores: Floats, labels: Labels, ties: Ties) -> Floats:
    # Only a stable sort ranks ties by row on every processor; where they are one threshold, any sort does, and twice as
    # fast.
    order = np.argsort(-scores.T, axis=1, kind="stable" if ties == "dataset" else "quicksort")  # [C, N]
    ranked = np.take_along_axis(labels.T, order, axis=1)  # [C, N]
    hits = np.cumsum(ranked == 1, axis=1)
    rank = np.cumsum(ranked != -1, axis=1)
    last = np.ones(ranked.shape, dtype=np.bool_)  # the last image of its threshold
    if ties == "threshold":
        by_rank = np.take_along_axis(scores.T, order, axis=1)
        last[:, :-1] = by_rank[:, :-1] != by_rank[:, 1:]
    reached = np.maximum.accumulate(np.where(last, hits, 0), axis=1)  # hits down to the last threshold
    gained = np.diff(reached, axis=1, prepend=0)  # positives of a threshold, at its last image
    precision = np.divide(hits, rank, out=np.zeros(rank.shape), where=gained > 0)
    return 100 * _ratio((gained * precision).sum(axis=1), hits[:, -1], undefined=np.nan)


def mean_average_precision(ap: Floats, empty: Empty = "skip") -> float:
    """Plain mean of `average_precision` over classes. NaN if every class is skipped."""
    return _class_mean(ap, ~np.isnan(ap), empty)


def centered(scores: Scores) -> Floats:
    """s_ic - mean_c s_ic: takes away how strongly an image matches text in general."""
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    centred: Floats = scores - scores.mean(axis=1, keepdims=True)
    return centred


def softmax(scores: Scores) -> Floats:
    """exp s_ic / Σ_c exp s_ic, the maximum taken out first so that nothing overflows."""
    scores = np.ascontiguousarray(scores, dtype=np.float64)
    weight = np.exp(scores - scores.max(axis=1, keepdims=True))
    probabilities: Floats = weight / weight.sum(axis=1, keepdims=True)
    return probabilities


def at_top_k(scores: Scores, labels: Labels, k: int = 3, empty: Empty = "skip") -> dict[str, float]:
    """`threshold_metrics` when each image gets its k best classes; equal scores go to the lowest class index.

    The labels play no part in the choice, so an ignored class can use up one of the k places.
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}")
    scores = checked(scores, labels)
    best = np.argsort(-scores, axis=1, kind="stable")[:, :k]  # [N, k]
    predicted = np.zeros(scores.shape, dtype=np.bool_)
    np.put_along_axis(predicted, best, True, axis=1)
    return threshold_metrics(predicted, labels, empty)


def at_threshold(scores: Scores, labels: Labels, threshold: float = 0.5, empty: Empty = "skip") -> dict[str, float]:
    """`threshold_metrics` when each image gets the classes that score strictly above the threshold.

    The threshold is in the units of the scores passed: hand in probabilities for the default of 0.5 to mean anything.
    """
    return threshold_metrics(checked(scores, labels) > threshold, labels, empty)


def threshold_metrics(predicted: Decisions, labels: Labels, empty: Empty = "skip") -> dict[str, float]:
    """Precision, recall and F1 of yes/no decisions [N, C]: per class then averaged (C-), and pooled over cells (O-).

    CF1 is the harmonic mean of CP and CR (not the mean of the classes' F1). A class that is never predicted has
    precision 0. `empty` rules the C- family only: a wrong prediction of a class without positives always counts in OP.
    """
    _check_labels(predicted.shape, labels)
    correct = (predicted & (labels == 1)).sum(axis=0)  # [C]
    claimed = (predicted & (labels != -1)).sum(axis=0)  # [C]
    present = (labels == 1).sum(axis=0)  # [C]
    cp = _class_mean(100 * _ratio(correct, claimed), present > 0, empty)
    cr = _class_mean(100 * _ratio(correct, present), present > 0, empty)
    op = 100 * float(_ratio(correct.sum(), claimed.sum()))
    or_ = 100 * float(_ratio(correct.sum(), present.sum()))
    return {"CP": cp, "CR": cr, "CF1": _harmonic(cp, cr), "OP": op, "OR": or_, "OF1": _harmonic(op, or_)}


def summary(
    scores: Scores, labels: Labels, empty: Empty = "skip", ap: Floats | None = None, ties: Ties = "threshold"
) -> dict[str, float]:
    """Everything that a table shows for one run. `ap` is the raw scores' `average_precision`, if it is known already.

    `mAP`, `mAP_centered`, `mAP_softmax`; `CP@3` ... `OF1@3` for the three best classes of each image; `CP` ... `OF1`
    for the classes whose softmax exceeds 1/C; and the count `classes_without_positives`.

    Logits have no natural cut at 0.5, and at most one class of an image can have a softmax above it. 1/C asks that a
    class gets more than an equal share of its image: nothing to tune, and no influence of the image's offset. It does
    depend on the logit scale, so compare methods whose scores have different scales by mAP and the @3 columns.
    """
    scores = checked(scores, labels)
    probabilities = softmax(scores)
    aps = {
        "mAP": average_precision(scores, labels, ties) if ap is None else ap,
        "mAP_centered": average_precision(centered(scores), labels, ties),
        "mAP_softmax": average_precision(probabilities, labels, ties),
    }
    maps = {name: mean_average_precision(per_class, empty) for name, per_class in aps.items()}
    top_3 = {f"{name}@3": value for name, value in at_top_k(scores, labels, 3, empty).items()}
    above_equal_share = at_threshold(probabilities, labels, 1 / scores.shape[1], empty)
    without_positives = int((~(labels == 1).any(axis=0)).sum())
    return {**maps, **top_3, **above_equal_share, "classes_without_positives": without_positives}


def oddities(scores: Scores) -> list[str]:
    """A sentence for each way in which scores [N, C] look like something that the tables were not made for."""
    scores = np.asarray(scores, dtype=np.float64)
    if scores.ndim != 2 or 0 in scores.shape or not np.isfinite(scores).all():
        return []  # nothing to look at, or worse than odd
    images, classes = scores.shape
    if scores.size > 1 and np.ptp(scores) == 0:
        return ["all scores are equal: they rank nothing, so neither raw nor centred mAP means anything for them"]
    found = []
    if classes > 1 and not np.ptp(scores, axis=1).any():
        found.append("each image's scores are equal for all classes: centred mAP means nothing for them")
    if images > 1 and not np.ptp(scores, axis=0).any():
        found.append(
            "every image gets the same scores: no class ranks its images, so neither raw nor centred mAP means "
            "anything for them"
        )
    if classes > 1 and scores.min() >= 0 and np.abs(scores.sum(axis=1) - 1).max() < 1e-3:
        found.append(
            "each image's scores sum to 1, so they look like probabilities: centred mAP means nothing for them; "
            "return logits"
        )
    return found


def _class_mean(values: Floats, has_positives: Decisions, empty: Empty) -> float:
    if empty == "zero":
        return float(np.where(has_positives, values, 0.0).mean())
    if empty == "skip":
        return float(values[has_positives].mean()) if has_positives.any() else float("nan")
    raise ValueError(f"empty must be 'skip' or 'zero', not {empty!r}")


def _ratio(part: npt.ArrayLike, whole: npt.ArrayLike, undefined: float = 0.0) -> Floats:
    """part / whole, and `undefined` where whole is 0."""
    whole = np.asarray(whole, dtype=np.float64)
    quotient: Floats = np.divide(part, whole, out=np.full(whole.shape, undefined), where=whole != 0)
    return quotient


def _harmonic(a: float, b: float) -> float:
    return 2 * a * b / (a + b) if a + b != 0 else 0.0  # NaN stays NaN


def checked(scores: Scores, labels: Labels) -> Floats:
    """The scores in float64, or an error that says what is wrong with the pair."""
    _check_labels(scores.shape, labels)
    broken = ~np.isfinite(scores)
    if broken.any():
        row, column = np.argwhere(broken)[0]
        count = counted(int(broken.sum()), "non-finite value")
        raise BadData(f"scores: {count}, the first at (row {row}, class {column}), from 0")
    return np.ascontiguousarray(scores, dtype=np.float64)


def _check_labels(shape: tuple[int, ...], labels: Labels) -> None:
    if len(shape) != 2 or labels.shape != shape:
        raise ValueError(f"scores {shape} and labels {labels.shape} must both be [images, classes]")
    if 0 in shape:
        raise ValueError(f"nothing to measure: {counted(shape[0], 'image')}, {counted(shape[1], 'class')}")
    strange = labels[(labels != 1) & (labels != 0) & (labels != -1)]
    if strange.size:
        raise ValueError(f"labels must be 1, 0 or -1 (ignore), not {strange[0]}")
