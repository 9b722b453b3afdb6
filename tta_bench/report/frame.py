"""Records -> pandas long form: one row per run. What the csv holds, and what every table is made from."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tta_bench.records import CODE_PARTS, RunRecord
from tta_bench.system.files import digest

SCORES = {"mAP": "mAP", "mAP_centered": "centred", "mAP_softmax": "softmax"}  # metric -> its heading in tables
SPEED = "images_per_s"
HEADINGS = {**SCORES, SPEED: "img/s"}  # other metrics are headed by their names
SHOWN_DIGITS = 12  # of an identity's digest
VERSIONS = ("ttabench", "torch")  # that a run was recorded by, where it says so
# Scripts read the csv by these names, and some by their place: new ones go to the end.
BEFORE = ("method", "dataset", "backbone", "prompt", "seed", "order", "n", *SCORES)
AFTER = (
    *(SPEED, "tag", "changes", "protocol", "config", "run", "dataset_size", "untrained", *VERSIONS, "code"),
    *("setting", "status", "verified", "state_bytes"),
)
ORDER = ["dataset", "backbone", "prompt", "method", "order", "seed"]


def long_form(runs: Sequence[RunRecord]) -> pd.DataFrame:
    """One row per run, everything in columns; the other metrics stand between BEFORE and AFTER.

    A run that is handed in twice is one run: a copy is no replicate.
    """
    runs = list({run.run_id: run for run in reversed(runs)}.values())[::-1]
    others = [name for name in dict.fromkeys(n for run in runs for n in run.metrics) if name not in (*BEFORE, *AFTER)]
    rows = [
        {
            **{name: run.metrics.get(name) for name in (*SCORES, *others)},
            "method": run.method,
            "dataset": run.dataset,
            "backbone": run.backbone,
            "prompt": run.prompt,
            "seed": run.seed,
            "order": run.order,
            "n": run.n,
            SPEED: run.speed.get(SPEED),
            "tag": run.tag,
            "changes": " ".join(f"{key}={value}" for key, value in run.changes.items()),
            "protocol": run.protocol.digest[:SHOWN_DIGITS],
            "config": run.config.digest[:SHOWN_DIGITS],
            "run": run.run_id,
            "dataset_size": run.dataset_size,
            "untrained": run.random_weights,
            **{name: run.provenance.get("versions", {}).get(name, "") for name in VERSIONS},
            "code": _code(run),
            "setting": run.setting,
            "status": run.status,
            "verified": run.verified,
            "state_bytes": run.counts.get("state_bytes"),
        }
        for run in runs
    ]
    frame = pd.DataFrame(rows, columns=[*BEFORE, *others, *AFTER])
    undefined = [name for name in others if frame[name].dtype == object]  # None everywhere
    numbers = dict.fromkeys([*SCORES, *undefined, SPEED], "float64")
    # None would turn the column into floats, and a count of 5000.0 images looks odd in a csv.
    frame = frame.astype({**numbers, "dataset_size": "Int64", "state_bytes": "Int64", "untrained": "bool"})
    return frame.sort_values(ORDER, ignore_index=True)


def _code(run: RunRecord) -> str:
    """What of the config is the code's; empty in version 0.1, where that of a built-in was not recorded."""
    parts = [run.config.parts.get(name) for name in CODE_PARTS]
    return digest(parts)[:12] if any(parts) else ""
