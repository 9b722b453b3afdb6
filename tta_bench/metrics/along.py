"""mAP along a stream: up to an image, over the last ones, of either half, per domain.

Every number ranks only the images that it is of, so its level moves with them (their number, their classes): compare
two methods on the same images, never two stretches of one method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tta_bench.metrics import Empty, Floats, Labels, Scores, Ties, average_precision, mean_average_precision

POINTS = 20  # of a curve


@dataclass(frozen=True)
class ScoredStream:
    """What a run gave for each image, in stream order, and how the protocol ranks it."""

    scores: Scores  # [N, C]
    labels: Labels  # [N, C]
    index: npt.NDArray[np.integer[Any]]  # [N] the images' places in the dataset, which may rank ties
    empty: Empty = "skip"
    ties: Ties = "threshold"

    def __len__(self) -> int:
        return len(self.scores)

    def map_of(self, positions: npt.ArrayLike) -> float:
        """mAP of the images at these positions alone; NaN (or by the protocol 0) if none of them has a label."""
        rows = np.asarray(positions, dtype=np.int64)
        rows = rows[np.argsort(self.index[rows], kind="stable")]
        return mean_average_precision(average_precision(self.scores[rows], self.labels[rows], self.ties), self.empty)


def ends(images: int, points: int = POINTS) -> list[int]:
    """How many images have been seen at each point of a curve: evenly spread, the last is all of them."""
    return sorted({-(-images * point // points) for point in range(1, points + 1)})


def cumulative(stream: ScoredStream, at: Sequence[int]) -> Floats:
    """mAP of the images so far, at each end."""
    return np.array([stream.map_of(np.arange(end)) for end in at])


def sliding(stream: ScoredStream, at: Sequence[int], window: int) -> Floats:
    """mAP of the last `window` images at each end; NaN before there are so many."""
    return np.array([stream.map_of(np.arange(end - window, end)) if end >= window else np.nan for end in at])


def break_even(own: Floats, baseline: Floats, at: Sequence[int]) -> int | None:
    """After how many images the cumulative mAP is that of the baseline or more, and stays so to the end of the stream.

    It is looked at where the curves have points, and so is not known more finely than their distance. A point at which
    either is undefined decides nothing. None: at the end it is below.
    """
    below = np.flatnonzero(own < baseline)  # NaN is not
    if not len(below):
        return at[0]
    return at[below[-1] + 1] if below[-1] + 1 < len(at) else None


def halves(stream: ScoredStream) -> dict[str, float]:
    """Of an odd number of images the second half has one more; of a single image there is none."""
    middle = len(stream) // 2
    if middle == 0:
        return {}
    return {"first": stream.map_of(np.arange(middle)), "second": stream.map_of(np.arange(middle, len(stream)))}


def by_domain(stream: ScoredStream, domains: Sequence[str]) -> dict[str, float]:
    """mAP of each domain's images alone, in the order in which the stream meets the domains."""
    of_image = np.asarray(domains)
    return {domain: stream.map_of(np.flatnonzero(of_image == domain)) for domain in dict.fromkeys(domains)}


def summary(stream: ScoredStream, domains: Sequence[str] | None) -> dict[str, Mapping[str, float]]:
    """What a record keeps: small, and of this run alone."""
    parts = {"halves": halves(stream), "domains": {} if domains is None else by_domain(stream, domains)}
    return {name: part for name, part in parts.items() if part}
