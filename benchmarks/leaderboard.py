"""How long a leaderboard of 1,000 records takes, against only reading their JSON.

    python benchmarks/leaderboard.py

20 datasets × 10 methods × 5 seeds with records as large as those of a real run (80 classes). The first leaderboard
makes the statistics, which takes as long as their scores are large; what is timed finds them on disk, as every later
one does.
"""

from __future__ import annotations

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")  # before numpy is imported

import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tta_bench import records
from tta_bench.metrics import summary
from tta_bench.records import Identity, RunRecord
from tta_bench.report.board import Wanted
from tta_bench.report.formats import render
from tta_bench.report.frame import long_form
from tta_bench.report.standings import standings

DATASETS, METHODS, SEEDS = 20, 10, 5
CLASSES = 80  # in the records
IMAGES, SCORED = 40, 4  # in the scores, which are not what is timed
ROUNDS = 5


def make_run(dataset: int, method: int, seed: int, labels: np.ndarray) -> tuple[RunRecord, np.ndarray]:
    rng = np.random.default_rng([dataset, method, seed])
    scores = (rng.standard_normal(labels.shape) + (1 + 0.05 * method) * labels).astype(np.float32)
    names = [f"class {c}" for c in range(CLASSES)]
    texts = [f"a photo of a {name}." for name in names]
    name = "clip" if method == 0 else f"method{method}"
    protocol = {"dataset": f"set{dataset}", "class_names": names, "prompt_texts": texts, "empty_classes": "skip"}
    settings = {f"parameter_{i}": i / 7 for i in range(20)}
    record = RunRecord(
        protocol=Identity(protocol),
        config=Identity({"method": name, "hyper_parameters": settings, "source": f"{method:064d}"}),
        replicate=Identity({"seed": seed, "order": "shuffled"}),
        method=name,
        dataset=f"set{dataset}",
        backbone="vit-b16",
        prompt="photo",
        seed=seed,
        order="shuffled",
        n=IMAGES,
        hyper_parameters=settings,
        tag="default",
        changes={},
        metrics=summary(scores, labels),
        per_class_ap=dict.fromkeys(names, 50.0),
        counts={"encoder_forwards": 0},
        speed={"images_per_s": 100.0 + method},
        provenance={"versions": {"ttabench": "0", "torch": "0"}},
        created=f"2026-01-01T00:00:{seed:02d}+00:00",
        dataset_size=IMAGES,
        setting="online",
    )
    return record, scores


def make_runs(root: Path) -> None:
    for dataset in range(DATASETS):
        labels = (np.random.default_rng(dataset).random((IMAGES, SCORED)) < 0.2).astype(np.int8)
        for method in range(METHODS):
            for seed in range(SEEDS):
                record, scores = make_run(dataset, method, seed, labels)
                ids = [str(i) for i in range(IMAGES)]
                records.save(record, root / record.run_id, scores[:, None], scores, labels, np.arange(IMAGES), ids, {})


def read_json(root: Path) -> None:
    for file in sorted(root.glob("*/run.json")):
        json.loads(file.read_text(encoding="utf-8"))


def read_records(root: Path) -> None:
    records.load_all(root)


def leaderboard(root: Path) -> None:
    runs, _ = records.load_all(root)
    wanted = Wanted()
    render(long_form(runs), "md", wanted=wanted, standings=standings(runs, wanted.metrics, wanted.baseline))


def seconds(work: Callable[[Path], None], root: Path) -> float:
    start = time.perf_counter()
    work(root)
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TTABENCH_HOME"] = folder
        root = Path(folder) / "runs"
        make_runs(root)
        print(f"first, with statistics: {seconds(leaderboard, root):.1f} s")
        works = (read_json, read_records, leaderboard)
        rounds = [[seconds(work, root) for work in works] for _ in range(ROUNDS)]  # in turns: the machine may be busy
        plain, checked, table = (min(times) for times in zip(*rounds, strict=True))
        print(f"{DATASETS * METHODS * SEEDS} records: JSON {plain:.2f} s, records {checked:.2f} s, table {table:.2f} s")
        print(f"a leaderboard takes {table / plain:.1f} × the JSON and {table / checked:.1f} × reading the records")


if __name__ == "__main__":
    main()
