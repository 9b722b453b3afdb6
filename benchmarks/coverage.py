"""How often the 95 % intervals hold the truth, and how often two equal methods are called different.

    python benchmarks/coverage.py [STREAMS] [RESAMPLES]

Simulated streams: classes of different frequency that occur together, and scores that are Gaussian around the labels,
with a part that all classes of an image share. Method B separates the classes better than A by a known amount; A' is
another noisy copy of the same signal, so A and A' are equal by construction. With several replicates, each has noise
of its own on every image and, where a spread is given, a skill of its own. The truth is the mean over TRUTH other
streams of the same length. `endless` is what the cells' interval holds of the mAP of a stream without end, in which no
positive counts itself.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from tta_bench.metrics import Floats, Labels, average_precision, mean_average_precision
from tta_bench.metrics.bootstrap import ImageResamples
from tta_bench.metrics.paired import Resampled, difference, mean_ap
from tta_bench.metrics.significance import LEVEL, Estimate

GAIN = 0.3  # by which B separates positives from negatives better, in standard deviations of the scores
OFFSET, COMMON = 0.25, 0.7  # share of the noise that an image's classes have in common, and of the rest, the methods
TRUTH = 2000


@dataclass(frozen=True)
class World:
    """Where streams come from."""

    name: str
    images: int
    classes: int
    rarest: float  # share of images with the rarest class
    commonest: float
    replicates: int = 1
    spread: float = 0.0  # standard deviation of a replicate's skill

    @property
    def frequencies(self) -> Floats:
        return np.geomspace(self.rarest, self.commonest, self.classes)

    @property
    def skills(self) -> Floats:
        """How far A puts positives above negatives: not in the order of the frequencies."""
        return np.random.default_rng(0).permutation(np.linspace(1.0, 2.2, self.classes))

    def labels(self, rng: np.random.Generator) -> Labels:
        cut = [NormalDist().inv_cdf(1 - share) for share in self.frequencies]
        together = math.sqrt(0.2) * rng.standard_normal((self.images, 1))
        alone = math.sqrt(0.8) * rng.standard_normal((self.images, self.classes))
        return (together + alone > cut).astype(np.int8)

    def methods(self, labels: Labels, rng: np.random.Generator) -> tuple[list[Floats], list[Floats], list[Floats]]:
        """Scores of A, B and A', a matrix for each replicate."""
        offset = math.sqrt(OFFSET) * rng.standard_normal((self.images, 1))
        common = math.sqrt(COMMON) * rng.standard_normal(labels.shape)

        def replicates(skills: Floats) -> list[Floats]:
            found = []
            for _ in range(self.replicates):
                own = math.sqrt(1 - COMMON) * rng.standard_normal(labels.shape)
                skilled = skills + self.spread * rng.standard_normal()
                found.append(skilled * labels + offset + math.sqrt(1 - OFFSET) * (common + own))
            return found

        return replicates(self.skills), replicates(self.skills + GAIN), replicates(self.skills)

    def endless(self) -> float:
        """A's mAP on a stream without end: ∫ precision d(recall), for Gaussian scores."""
        t = np.linspace(-9, 12, 4001)
        above = np.array([0.5 * math.erfc(x / math.sqrt(2)) for x in t])  # P(a negative's score > t)
        aps = []
        for share, skill in zip(self.frequencies, self.skills, strict=True):
            found = share * np.interp(t - skill, t, above, left=1.0, right=0.0)
            precision = found / np.maximum(found + (1 - share) * above, 1e-300)
            aps.append(np.trapezoid(precision * np.exp(-((t - skill) ** 2) / 2), t) / math.sqrt(2 * math.pi))
        return 100 * float(np.mean(aps))


WORLDS = (
    World("100 images", 100, 10, 0.08, 0.4),
    World("100, rare classes", 100, 10, 0.03, 0.4),
    World("500 images", 500, 20, 0.02, 0.3),
    World("500, rare classes", 500, 20, 0.006, 0.1),
    World("200, 5 replicates", 200, 10, 0.05, 0.4, replicates=5),
    World("200, 5 of spread 0.1", 200, 10, 0.05, 0.4, replicates=5, spread=0.1),
    World("200, 3 of spread 0.3", 200, 10, 0.05, 0.4, replicates=3, spread=0.3),
)


@dataclass(frozen=True)
class Coverage:
    """Shares of the streams."""

    cell: float  # mAP of A is in its interval
    pair: float  # B - A is in its interval
    rejected: float  # A and A' are called different
    endless: float  # the interval of A holds its mAP on a stream without end
    above: float  # mAP points by which a stream of this length shows more than one without end


def coverage(world: World, streams: int, resamples: int, truth: int = TRUTH, seed: int = 1) -> Coverage:
    rng = np.random.default_rng(seed)
    known = np.array([(_mean_map(a, y), _mean_map(b, y)) for y, a, b, _ in _streams(world, truth, rng)]).mean(axis=0)
    endless = world.endless()
    rows = []
    for y, *methods in _streams(world, streams, rng):
        drawn = ImageResamples(world.images, resamples, int(rng.integers(2**31)))
        a, b, copy = ([Resampled.of(scores, y, drawn) for scores in method] for method in methods)
        cell, pair, null = mean_ap(a), difference(b, a), difference(copy, a)
        holds = (_holds(cell, known[0]), _holds(pair, known[1] - known[0]), null.p <= LEVEL, _holds(cell, endless))
        rows.append(holds)
    in_cell, in_pair, rejected, in_endless = np.mean(rows, axis=0).tolist()
    return Coverage(in_cell, in_pair, rejected, in_endless, float(known[0] - endless))


def _streams(
    world: World, count: int, rng: np.random.Generator
) -> Iterator[tuple[Labels, list[Floats], list[Floats], list[Floats]]]:
    for _ in range(count):
        labels = world.labels(rng)
        yield labels, *world.methods(labels, rng)


def _mean_map(replicates: list[Floats], labels: Labels) -> float:
    return float(np.mean([mean_average_precision(average_precision(scores, labels)) for scores in replicates]))


def _holds(found: Estimate, truth: float) -> bool:
    return found.low <= truth <= found.high


def main(streams: int = 1000, resamples: int = 200) -> None:
    print(f"{streams:,} streams, {resamples:,} resamples of each; shares in percent")
    print(f"{'stream':<22}{'cell':>8}{'pair':>8}{'equal called different':>24}{'endless':>9}{'above it by':>13}")
    for world in WORLDS:
        c = coverage(world, streams, resamples)
        shares = f"{100 * c.cell:>8.1f}{100 * c.pair:>8.1f}{100 * c.rejected:>24.1f}{100 * c.endless:>9.1f}"
        print(f"{world.name:<22}{shares}{c.above:>13.1f}", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
