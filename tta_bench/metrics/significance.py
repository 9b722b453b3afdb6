"""From values on resamples to what may be said: intervals, p-values, and corrections for saying many things at once.

The standard error comes from the resamples. How many standard errors an interval needs is Student's t for as many
degrees of freedom as there is to estimate that error from: positives of the classes, and replicates (Satterthwaite's
formula). docs/statistics.md gives the reasons and what was measured.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from tta_bench.metrics import Floats

LEVEL = 0.05  # intervals are of 95 %, and a p below this is called significant
POWER = 0.80
MOST_FREEDOM = 1000.0  # beyond, Student's t is the normal distribution to a thousandth


@dataclass(frozen=True)
class Estimate:
    """A number with its uncertainty, in the number's own unit."""

    value: float  # mean over replicates
    low: float
    high: float
    p: float  # two-sided, for the truth being 0; NaN where nothing varies and the value is not 0
    error: float  # standard error
    freedom: float  # degrees of freedom of the error
    detectable: float  # the smallest truth that would have been significant with a chance of 80 %


def estimate(values: Floats, draws: Floats, image_freedom: Floats) -> list[Estimate]:
    """S numbers from their values [K, S] in K replicates, and those on each resample of the images, [K, R, S].

    Replicates are runs on the *same* images, so the two levels are crossed: a resample of images is one for all
    replicates, and resampled replicates add their variance to it.
    """
    of_images = np.nanvar(np.nanmean(draws, axis=0), axis=0, ddof=1)  # [S]
    of_replicates, already = _replicate_variance(values, draws)
    error = np.sqrt(of_images + np.maximum(of_replicates - already, 0))
    freedom = image_freedom
    if len(values) > 1:
        freedoms = np.stack((image_freedom, np.full_like(image_freedom, len(values) - 1)))
        freedom = satterthwaite(np.stack((of_images, of_replicates)), freedoms, error**2)
    value = values.mean(axis=0)
    half = student_quantile(LEVEL, freedom) * error
    statistic = np.divide(np.abs(value), error, out=np.full_like(value, np.nan), where=error > 0)
    p = np.where((error == 0) & (value == 0), 1.0, student_p(statistic, freedom))
    detectable = half + student_quantile(2 * (1 - POWER), freedom) * error
    columns = np.stack((value, value - half, value + half, p, error, freedom, detectable), axis=1)
    return [Estimate(*row) for row in columns.tolist()]


def _replicate_variance(values: Floats, draws: Floats) -> tuple[Floats, Floats]:
    """The variance [S] of the mean of K resampled replicates, and how much of it resampled images show already.

    With endlessly many resamples the first is Σ(x - x̄)² / K²: nothing has to be drawn. K - 1 in place of one K makes
    up for K drawn values spreading less than those that they stand for. The second is each replicate's noise of its
    own on every image: counted twice, differences between noisy methods would look less certain than they are.
    """
    count = len(values)
    if count == 1:
        return np.zeros(values.shape[1]), np.zeros(values.shape[1])
    by_chance = draws - np.nanmean(draws, axis=1, keepdims=True)  # [K, R, S]
    noise: Floats = np.nanmean(np.nanvar(by_chance, axis=0, ddof=1), axis=0) / count
    return values.var(axis=0, ddof=1) / count, noise


def satterthwaite(variances: Floats, freedoms: Floats, total: Floats | None = None) -> Floats:
    """Degrees of freedom of a sum of estimated variances, along the first axis; one that is 0 takes no part.

    `total` is the sum where something known was taken from it: its parts are as uncertain as before.
    """
    total = variances.sum(axis=0) if total is None else total
    parts = np.divide(variances**2, freedoms, out=np.zeros_like(variances), where=variances > 0).sum(axis=0)
    freedom = np.divide(total**2, parts, out=np.full_like(total, MOST_FREEDOM), where=parts > 0)
    clipped: Floats = np.clip(freedom, 1.0, MOST_FREEDOM)
    return clipped


# --------------------------------------------------------------------------------------------------------- Student's t

NODES, NODE_WEIGHTS = np.polynomial.legendre.leggauss(64)


@np.errstate(under="ignore")  # tails are tiny, and a caller may have made errors of that
def student_p(statistic: Floats, freedom: Floats) -> Floats:
    """P(|T| > statistic), each [S]: with t = √ν tan u, the density is cos^(ν-1) u, up to a factor."""
    begin = np.arctan(statistic / np.sqrt(freedom))[:, None]
    half = (math.pi / 2 - begin) / 2
    u = begin + half * (1 + NODES)  # [S, nodes]
    tail = (half * NODE_WEIGHTS * np.cos(u) ** (freedom[:, None] - 1)).sum(axis=1)
    p: Floats = np.minimum(tail / _whole(freedom), 1.0)
    return p


def student_quantile(p: float, freedom: Floats) -> Floats:
    """The t with P(|T| > t) = p, by Newton's steps on logarithms: there the tail is a line or bends gently."""
    t = np.full_like(freedom, 2.0)
    for _ in range(10):
        reached = student_p(t, freedom)
        density = (1 + t**2 / freedom) ** (-(freedom + 1) / 2) / np.sqrt(freedom) / _whole(freedom)
        t = t * np.exp(np.log(reached / p) * reached / (t * density))
    return t


def _whole(freedom: Floats) -> Floats:
    """∫ cos^(ν-1) u du from 0 to π/2."""
    logarithms = [math.lgamma(v / 2) - math.lgamma((v + 1) / 2) for v in freedom]
    whole: Floats = math.sqrt(math.pi) / 2 * np.exp(np.array(logarithms))
    return whole


# ----------------------------------------------------------------------------------------------------- many statements


def holm(p: Floats) -> Floats:
    """Adjusted p: below α for any wrong statement of the family with a chance of at most α. NaN takes no part."""
    return _in_order(p, lambda q: np.maximum.accumulate(q * np.arange(len(q), 0, -1)))


def benjamini_yekutieli(p: Floats) -> Floats:
    """Adjusted p: of what is below α, a share of at most α is expected to be wrong, whatever depends on what."""

    def step_up(q: Floats) -> Floats:
        ranks = np.arange(1, len(q) + 1)
        bounds = q * len(q) * (1 / ranks).sum() / ranks
        return np.minimum.accumulate(bounds[::-1])[::-1]

    return _in_order(p, step_up)


def _in_order(p: Floats, adjust: Callable[[Floats], Floats]) -> Floats:
    """`adjust` on the defined p, ascending, and back in their places; never above 1."""
    adjusted = np.full(len(p), np.nan)
    order = np.argsort(p, kind="stable")[: np.count_nonzero(~np.isnan(p))]  # NaN is sorted to the end
    adjusted[order] = np.minimum(adjust(p[order]), 1.0)
    return adjusted
