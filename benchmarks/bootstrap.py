"""How much faster resamples are scored by re-weighting than by scoring each with the plain metric.

    python benchmarks/bootstrap.py

1,000 resamples of 5,000 images × 80 classes for two methods, on one thread. The plain metric is timed on PLAIN of the
resamples, in turns with the other, and multiplied.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import resource
import time

import numpy as np

from tta_bench.metrics import Floats, Labels, average_precision, mean_average_precision
from tta_bench.metrics.bootstrap import ImageResamples, resampled_ap, resampled_map

IMAGES, CLASSES, RESAMPLES, METHODS = 5000, 80, 1000, 2
POSITIVES = 0.036  # share of labels that are positive, as in COCO
PLAIN = 10
ROUNDS = 3


def make_scores(rng: np.random.Generator) -> tuple[list[Floats], Labels]:
    labels = (rng.random((IMAGES, CLASSES)) < POSITIVES).astype(np.int8)
    return [rng.standard_normal(labels.shape) + 1.5 * labels for _ in range(METHODS)], labels


def reweighted(methods: list[Floats], labels: Labels) -> list[Floats]:
    drawn = ImageResamples(IMAGES, RESAMPLES)
    return [resampled_map(resampled_ap(scores, labels, drawn)) for scores in methods]


def plain(methods: list[Floats], labels: Labels, count: int) -> list[list[float]]:
    drawn = ImageResamples(IMAGES, RESAMPLES).blocks[0]  # [N, B]
    images = [np.repeat(np.arange(IMAGES), drawn[:, r]) for r in range(count)]
    return [[mean_average_precision(average_precision(s[i], labels[i])) for i in images] for s in methods]


def main() -> None:
    methods, labels = make_scores(np.random.default_rng(0))
    ratios = []
    for _ in range(ROUNDS):
        begin = time.perf_counter()
        fast = reweighted(methods, labels)
        middle = time.perf_counter()
        slow = plain(methods, labels, PLAIN)
        seconds, plainly = middle - begin, (time.perf_counter() - middle) * RESAMPLES / PLAIN
        ratios.append(plainly / seconds)
        print(f"re-weighted {seconds:.2f} s   plain {plainly:.0f} s   {ratios[-1]:.0f} times faster")
    worst = max(np.abs(f[:PLAIN] - s).max() for f, s in zip(fast, slow, strict=True))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"median {np.median(ratios):.0f} times; largest difference {worst:.1e} mAP; peak memory {peak:.0f} MB")


if __name__ == "__main__":
    main()
