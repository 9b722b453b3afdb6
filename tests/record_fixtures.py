"""Records as small as they get, and a way to put them on disk: tables are tested without running anything."""

from __future__ import annotations

import json
from pathlib import Path

from tta_bench.records import Identity, RunRecord

COMPLETE = 10  # images of the toy dataset in these records


def record(method: str = "tda", value: float | None = 50.0, **changes: object) -> RunRecord:
    """A trained, complete run; `changes` overrides fields."""
    maps = {"mAP": value, "mAP_centered": value and value + 1, "mAP_softmax": value and value + 2}
    fields: dict[str, object] = {
        "protocol": Identity({"dataset": "toy"}),
        "config": Identity({"method": method}),
        "replicate": Identity({"seed": 0}),
        "method": method,
        "dataset": "toy",
        "backbone": "tiny",
        "prompt": "photo",
        "seed": 0,
        "order": "shuffled",
        "n": COMPLETE,
        "dataset_size": COMPLETE,
        "hyper_parameters": {},
        "tag": "default",
        "changes": {},
        "metrics": maps,
        "per_class_ap": {},
        "counts": {},
        "speed": {"images_per_s": 100.0},
    }
    return RunRecord(**{**fields, **changes})  # type: ignore[arg-type]


def on(dataset: str, value: float = 50.0, method: str = "tda", n: int = COMPLETE, **changes: object) -> RunRecord:
    """A run on another dataset, or on the first n images of one."""
    protocol = Identity({"dataset": dataset, "n": n})
    return record(method, value, dataset=dataset, protocol=protocol, n=n, **changes)


def write(runs: Path, *made: RunRecord) -> None:
    """As the runner would leave them, without scores."""
    for run in made:
        folder = runs / run.run_id
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(json.dumps(run.to_json()), encoding="utf-8")
