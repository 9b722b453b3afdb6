"""mAP of a method, and of one method against another, over the same resamples of the same images.

Everything here takes a method's replicates: its runs on one set of images with other seeds or stream orders.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from tta_bench.metrics import Empty, Floats, Labels, Scores, Ties, average_precision, mean_average_precision
from tta_bench.metrics.bootstrap import Draws, ImageResamples, resampled_ap, resampled_map
from tta_bench.metrics.significance import Estimate, estimate, satterthwaite


@dataclass(frozen=True)
class Resampled:
    """One run's average precision, on its images and on every resample of them."""

    ap: Floats  # [C], NaN for a class without positives
    draws: Draws  # [R, C], NaN where no positive was drawn
    positives: npt.NDArray[np.integer[Any]]  # [C]

    @classmethod
    def of(cls, scores: Scores, labels: Labels, resamples: ImageResamples, ties: Ties = "threshold") -> Resampled:
        ap = average_precision(scores, labels, ties)
        return cls(ap, resampled_ap(scores, labels, resamples, ties), (labels == 1).sum(axis=0))


class Replicates(tuple[Resampled, ...]):
    """A method's replicates in one order. What each of its comparisons begins with is worked out once."""

    @classmethod
    def of(cls, runs: Sequence[Resampled]) -> Replicates:
        return runs if isinstance(runs, cls) else cls(runs)

    def maps(self, empty: Empty) -> tuple[Floats, Floats]:
        """mAP of each replicate, [K], and on each resample, [K, R]."""
        known = self.__dict__.setdefault("_maps", {})
        if empty not in known:
            values = np.array([mean_average_precision(run.ap, empty) for run in self])
            known[empty] = values, np.stack([resampled_map(run.draws, empty) for run in self])
        found: tuple[Floats, Floats] = known[empty]
        return found

    @functools.cached_property
    def class_draws(self) -> Floats:
        """AP on each resample, mean over the replicates: [R, C]."""
        mean: Floats = np.mean([run.draws for run in self], axis=0, dtype=np.float64)
        return mean


def mean_ap(runs: Sequence[Resampled], empty: Empty = "skip") -> Estimate:
    """mAP, mean over the replicates. Its p is of no interest."""
    replicates = Replicates.of(runs)
    (values, draws), by_class, positives = replicates.maps(empty), replicates.class_draws, runs[0].positives
    return _overall(values, _made_up_for(positives, by_class) * draws, by_class, positives)


def difference(runs: Sequence[Resampled], others: Sequence[Resampled], empty: Empty = "skip") -> Estimate:
    """mAP of `runs` less that of `others`, whose replicates are in the same order."""
    one, other = Replicates.of(runs), Replicates.of(others)
    (values, draws), (other_values, other_draws) = one.maps(empty), other.maps(empty)
    by_class = one.class_draws - other.class_draws
    return _overall(values - other_values, draws - other_draws, by_class, runs[0].positives)


def class_differences(runs: Sequence[Resampled], others: Sequence[Resampled]) -> list[Estimate | None]:
    """The same for each class. None where there are no positives."""
    positives = runs[0].positives
    defined = positives > 0
    values = np.stack([a.ap[defined] - b.ap[defined] for a, b in zip(runs, others, strict=True)])  # [K, S]
    draws = np.stack([a.draws[:, defined] - b.draws[:, defined] for a, b in zip(runs, others, strict=True)])
    with _undrawn_classes():
        found = iter(estimate(values, draws.astype(np.float64), _freedom(positives[defined])))
    return [next(found) if count else None for count in positives]


def _overall(values: Floats, draws: Floats, by_class: Floats, positives: npt.NDArray[Any]) -> Estimate:
    """From values [K], draws [K, R] and their classes' [R, C], which tell how many positives the error rests on."""
    freedom = satterthwaite(_class_variances(by_class), _freedom(positives))
    with _undrawn_classes():
        return estimate(values[:, None], draws[:, :, None], freedom[None])[0]


def _made_up_for(positives: npt.NDArray[Any], by_class: Floats) -> float:
    """By how much resampled positives spread less than those that they stand for: P / (P - 1), mean over classes.

    Differences don't need it: copies of an image move them further than they move a cell (docs/statistics.md).
    """
    variances = _class_variances(by_class)
    freedom = _freedom(positives)
    total = variances.sum()
    return math.sqrt(float((variances * (1 + 1 / freedom)).sum() / total)) if total > 0 else 1.0


def _class_variances(by_class: Floats) -> Floats:
    """[C] from [R, C]; 0 for a class that was never drawn."""
    with _undrawn_classes():
        variances: Floats = np.nan_to_num(np.nanvar(by_class, axis=0))
    return variances


def _freedom(positives: npt.NDArray[Any]) -> Floats:
    """AP is a mean over a class's positives, so its variance is known as well as that of so many values."""
    freedom: Floats = np.maximum(positives - 1.0, 1.0)
    return freedom


@contextmanager
def _undrawn_classes() -> Iterator[None]:
    """numpy warns of a mean over nothing: a class whose few positives are in none of the resamples."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield
