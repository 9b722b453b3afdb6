"""Runs with scores on disk, made without running anything: what the page's statistics, curves and classes need."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.record_fixtures import record
from tta_bench import metrics, records
from tta_bench.metrics import AP_CONVENTIONS
from tta_bench.records import Identity, RunRecord

IMAGES, CLASSES = 60, ("cat", "dog", "tree", "sun")
SKILL = {"clip": 0.5, "regions": 0.55, "tda": 1.0, "purf": 3.0}  # how far positives stand out; purf is far ahead


def save_run(runs: Path, method: str, dataset: str = "toy", seed: int = 0, **changes: object) -> RunRecord:
    """A run whose mAP grows with the method's skill, in a stream order of its own seed."""
    of_images = np.random.default_rng(sum(map(ord, dataset)))
    labels = (of_images.random((IMAGES, len(CLASSES))) < 0.3).astype(np.int8)  # [N, C]
    shared_noise = of_images.normal(size=labels.shape)
    own_noise = np.random.default_rng([seed, *map(ord, method)]).normal(size=labels.shape)
    scores = (SKILL.get(method, 1.0) * labels + shared_noise + 0.2 * own_noise).astype(np.float32)
    ap = metrics.average_precision(scores, labels, "threshold")
    parts = {
        "dataset": dataset,
        "n": IMAGES,
        "class_names": list(CLASSES),
        "average_precision": AP_CONVENTIONS["threshold"],
        "empty_classes": "skip",
        "prompt_texts": "a" * 64,
    }
    fields: dict[str, object] = {
        "dataset": dataset,
        "protocol": Identity(parts),
        "config": Identity({"method": method, "version": "1"}),
        "replicate": Identity({"seed": seed, "order": "shuffled"}),
        "seed": seed,
        "n": IMAGES,
        "dataset_size": IMAGES,
        "metrics": metrics.summary(scores, labels, "skip", ap, "threshold"),
        "per_class_ap": dict(zip(CLASSES, map(float, ap), strict=True)),
        "counts": {"forwards_per_image": 1 + len(method), "state_bytes": 100 * len(method)},
        "speed": {"images_per_s": 1000.0 / len(method)},
        "provenance": {"git_commit": "c0ffee" * 6, "git_dirty": False, "versions": {"torch": "2.15.0"}},
        "hardware": {"processor": "AMD EPYC"},
        "setting": "episodic" if method in ("clip", "regions") else "online",
        **changes,
    }
    made = record(method, None, **fields)
    order = np.random.default_rng(seed).permutation(IMAGES)
    arrays = scores[order][:, None], scores[order], labels[order], order.astype(np.int64)
    return records.save(made, runs / made.run_id, *arrays, [f"image {i}" for i in order], {})


def save_grid(runs: Path) -> None:
    """Four methods on two datasets, two seeds each."""
    for method in SKILL:
        for dataset in ("toy", "second"):
            for seed in (0, 1):
                save_run(runs, method, dataset, seed)
