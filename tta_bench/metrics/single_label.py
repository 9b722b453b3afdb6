"""What single-label suites report: top-1, top-5 and calibration, where every image has exactly one label.

As in `metrics`, scores are [N, C], labels [N, C], and results are percentages. Equal scores go to the lowest class.
"""

from __future__ import annotations

import numpy as np

from tta_bench.metrics import Floats, Labels, Scores, checked, softmax

BINS = 15  # of confidence, equally wide: the usual number (Guo et al., ICML 2017)


def is_single_label(labels: Labels) -> bool:
    """Whether every image has exactly one positive label and none that is ignored."""
    return bool(((labels == 1).sum(axis=1) == 1).all() and (labels != -1).all())


def top_k(scores: Scores, labels: Labels, k: int) -> float:
    """Share of images whose label is among their k best classes."""
    best = np.argsort(-_checked(scores, labels), axis=1, kind="stable")[:, :k]  # [N, k]
    return float(100 * (np.take_along_axis(labels, best, axis=1) == 1).any(axis=1).mean())


def calibration_error(scores: Scores, labels: Labels, bins: int = BINS) -> float:
    """ECE = Σ_b n_b/N · |accuracy_b − confidence_b|, where an image's confidence is its largest softmax.

    Bin b holds the confidences in (b/B, (b+1)/B]. The scores must be logits of the backbone's scale to mean anything.
    """
    probabilities = softmax(_checked(scores, labels))
    confidence: Floats = probabilities.max(axis=1)  # [N]
    correct = labels[np.arange(len(labels)), probabilities.argmax(axis=1)] == 1  # [N]
    place = np.clip(np.ceil(confidence * bins).astype(int) - 1, 0, bins - 1)  # [N]
    gaps = np.bincount(place, correct - confidence, minlength=bins)  # Σ over each bin's images
    return float(100 * np.abs(gaps).sum() / len(labels))


def summary(scores: Scores, labels: Labels) -> dict[str, float]:
    """`top1`, `top5` (with more than five classes) and `ECE`."""
    found = {"top1": top_k(scores, labels, 1)}
    if scores.shape[1] > 5:
        found["top5"] = top_k(scores, labels, 5)
    return {**found, "ECE": calibration_error(scores, labels)}


def _checked(scores: Scores, labels: Labels) -> Floats:
    if not is_single_label(labels):
        raise ValueError("every image must have exactly one label, and none that is ignored")
    return checked(scores, labels)
