"""Average precision on resampled images: each class is sorted once, and every resample only re-weights it.

Images are drawn with replacement, so a resample is a weight per image: how often it was drawn. An image of weight 2 is
two images with equal scores. AP needs, at each threshold that holds a positive, the weight of all images down to it;
so the weights are put into the class's order and summed between such thresholds, for all resamples at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from tta_bench.metrics import Empty, Floats, Labels, Scores, Ties, checked

Draws: TypeAlias = npt.NDArray[np.float32]
Indices: TypeAlias = npt.NDArray[np.intp]
Weights: TypeAlias = npt.NDArray[np.uint8]

BLOCK_BYTES = 2**21  # of weights in one class's order: what stays in a core's cache is summed several times faster


class ImageResamples:
    """How often each of N images is drawn in each of R resamples: the same for every run of a protocol.

    They follow from N, R and the seed alone. Held in blocks [N, B] of resamples; whoever compares runs must bring their
    images into one order first.
    """

    def __init__(self, images: int, resamples: int, seed: int = 0) -> None:
        if images < 1 or resamples < 2:
            raise ValueError(f"{resamples} resamples of {images} images: at least 2 of 1 are needed")
        self.images, self.resamples = images, resamples
        rng = np.random.default_rng(seed)
        width = max(16, BLOCK_BYTES // images)
        self.blocks = [self._drawn(min(width, resamples - begin), rng) for begin in range(0, resamples, width)]

    def _drawn(self, count: int, rng: np.random.Generator) -> Weights:
        weights = np.empty((count, self.images), dtype=np.uint8)  # of 256 draws of one image the chance is below 1e-500
        for row in weights:
            row[:] = np.bincount(rng.integers(0, self.images, self.images, dtype=np.int32), minlength=self.images)
        return np.ascontiguousarray(weights.T)  # [N, B]: an image's weights lie together


def resampled_ap(scores: Scores, labels: Labels, resamples: ImageResamples, ties: Ties = "threshold") -> Draws:
    """`average_precision` of each resample and class, [R, C] in percent; NaN where no positive was drawn.

    With `ties="dataset"` images with equal scores rank in the order of their rows; copies of one image are one
    threshold under either rule, for they are one image that counts twice.
    """
    scores = checked(scores, labels)
    if len(scores) != resamples.images:
        raise ValueError(f"scores of {len(scores)} images, resamples of {resamples.images}")
    ap = np.full((resamples.resamples, scores.shape[1]), np.nan, dtype=np.float32)
    for c in range(scores.shape[1]):
        ranked = _Ranked.of(scores[:, c], labels[:, c], ties)
        if ranked is not None:
            ap[:, c] = np.concatenate([_weighted_ap(ranked, block) for block in resamples.blocks])
    return ap


def resampled_map(ap: Draws, empty: Empty = "skip") -> Floats:
    """`mean_average_precision` of each resample, [R], under the protocol's rule for classes without positives."""
    if empty not in ("skip", "zero"):
        raise ValueError(f"empty must be 'skip' or 'zero', not {empty!r}")
    drawn = ~np.isnan(ap)
    count = drawn.sum(axis=1) if empty == "skip" else np.full(len(ap), ap.shape[1])
    total = np.where(drawn, ap, 0).sum(axis=1, dtype=np.float64)
    means: Floats = np.divide(total, count, out=np.full(len(ap), np.nan), where=count > 0)
    return means


@dataclass(frozen=True)
class _Ranked:
    """One class, best score first, cut after every threshold that holds a positive."""

    order: Indices  # images down to the last positive, without those that the class ignores
    ends: list[int]  # of the S segments in `order`: one past the last image of a threshold with positives
    positives: Indices  # [P] images, in the same order
    first: Indices  # [S] the place in `positives` where each segment's begin

    @classmethod
    def of(cls, scores: Floats, labels: npt.NDArray[Any], ties: Ties) -> _Ranked | None:
        """None: the class has no positives."""
        order = np.argsort(-scores, kind="stable")
        order = order[labels[order] != -1]
        places = np.flatnonzero(labels[order] == 1)  # [P]
        if not places.size:
            return None
        ends = places + 1
        if ties == "threshold":
            by_rank = scores[order]
            last = np.flatnonzero(np.append(by_rank[:-1] != by_rank[1:], True))  # of each threshold
            ends = last[np.searchsorted(last, places)] + 1
        distinct, first = np.unique(ends, return_index=True)
        return cls(order[: distinct[-1]], distinct.tolist(), order[places], first)


def _weighted_ap(ranked: _Ranked, weights: Weights) -> Floats:
    """Σ_s h_s · H_s / K_s / H of each resample [B]: h_s positives drawn in segment s, H_s and K_s positives and images
    drawn down to its end.

    One segment after the other: arrays over all of them leave the core's cache, and took twice as long for 600 images.
    """
    hits, reached, images, part, total = np.zeros((5, weights.shape[1]))  # h_s, H_s, K_s, h_s · H_s / K_s and its sum
    firsts = [*ranked.first.tolist(), len(ranked.positives)]
    begin = 0
    for s, end in enumerate(ranked.ends):
        np.add.reduce(weights[ranked.order[begin:end]], axis=0, dtype=np.float64, out=part)
        np.add(images, part, out=images)
        np.add.reduce(weights[ranked.positives[firsts[s] : firsts[s + 1]]], axis=0, dtype=np.float64, out=hits)
        np.add(reached, hits, out=reached)
        np.maximum(images, 1, out=part)  # where nothing was drawn there is no hit either
        np.divide(reached, part, out=part)
        np.multiply(hits, part, out=part)
        np.add(total, part, out=total)
        begin = end
    with np.errstate(invalid="ignore"):
        ap: Floats = 100 * total / reached
    return ap
