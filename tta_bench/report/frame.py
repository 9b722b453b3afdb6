"""Records -> pandas long form: one row per run. What the csv holds, and what every table is made from."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tta_bench.metrics import AP_CONVENTIONS
from tta_bench.records import CODE_PARTS, RunRecord, one_of_each
from tta_bench.system.files import digest

SCORES = {"mAP": "mAP", "mAP_centered": "centred", "mAP_softmax": "softmax"}  # metric -> its heading in tables
SPEED = "images_per_s"
HEADINGS = {**SCORES, SPEED: "img/s"}  # other metrics are headed by their names
OF_LOGITS = ("ECE",)  # errors, the less the better, which mean nothing for scores that are no logits: none is best
USUAL = {  # rules of a protocol that need no word
    "average_precision": AP_CONVENTIONS["threshold"],
    "empty_classes": "skip",
    "precision": "fp32",
    "features": "float16",
}
SAYS_NOTHING = (None, "as packed", "as loaded")  # of an old record, a pack, an instance
SHOWN_DIGITS = 12  # of an identity's digest
BETWEEN_NOTES = " | "
MACHINE = ("processor", "accelerator")  # of a record's hardware, what its speed and last digits depend on
THREADS = "threads"  # that torch had
ENCODER = ("backbone_digest", "backbone_weights", "backbone_source", "prompt_file")
VERSIONS = ("ttabench", "torch")  # that a run was recorded by, where it says so
# Scripts read the csv by these names, and some by their place: new ones go to the end.
BEFORE = ("method", "dataset", "backbone", "prompt", "seed", "order", "n", *SCORES)
AFTER = (
    *(SPEED, "tag", "changes", "protocol", "config", "run", "dataset_size", "untrained", *VERSIONS, "code"),
    *("setting", "status", "verified", "state_bytes", "rules", "notes", "images"),
    *("encoder", "hardware", "instructions", "process", THREADS, "encoded_by"),
)
ORDER = ["dataset", "backbone", "prompt", "method", "order", "seed"]


def long_form(runs: Sequence[RunRecord]) -> pd.DataFrame:
    """One row per run, sorted: what tables are made from. A run that is handed in twice is one run: a copy is no
    replicate."""
    return in_order(one_of_each(runs)).sort_values(ORDER, ignore_index=True)


def in_order(runs: Sequence[RunRecord]) -> pd.DataFrame:
    """One row per run, as they come; the other metrics stand between BEFORE and AFTER."""
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
            "rules": rules_of(run),
            "images": _images(run)[:SHOWN_DIGITS],
            "notes": BETWEEN_NOTES.join(run.notes),
            "encoder": _encoder(run),
            "hardware": ", ".join(str(run.hardware[key]) for key in MACHINE if run.hardware.get(key)),
            "instructions": str(run.hardware.get("instructions", "")),
            "process": str(run.provenance.get("process", "")),
            THREADS: str(run.hardware.get(THREADS, "")),
            "encoded_by": str(run.hardware.get("encoded_by", "")),
        }
        for run in runs
    ]
    frame = pd.DataFrame(rows, columns=[*BEFORE, *others, *AFTER])
    undefined = [name for name in others if frame[name].dtype == object]  # None everywhere
    numbers = dict.fromkeys([*SCORES, *undefined, SPEED], "float64")
    # None would turn the column into floats, and a count of 5000.0 images looks odd in a csv.
    return frame.astype({**numbers, "dataset_size": "Int64", "state_bytes": "Int64", "untrained": "bool"})


def rules_of(run: RunRecord) -> str:
    """In what a protocol departs from the usual rules, beside images, labels and texts."""
    found = {name: run.protocol.parts.get(name) for name in USUAL}
    words = {
        "average_precision": str(found["average_precision"]).rpartition("; ")[2],
        "empty_classes": f"classes without positives {found['empty_classes']}",
        "precision": f"{found['precision']}",
        "features": f"features {found['features']}",
    }
    return ", ".join(words[name] for name in USUAL if found[name] not in (USUAL[name], *SAYS_NOTHING))


def _images(run: RunRecord) -> str:
    """Fingerprint of the dataset; of a pack that of the dataset that it was made from, if it says so."""
    parts = run.protocol.parts
    return str(parts.get("packed_images") or parts.get("images", ""))


def _encoder(run: RunRecord) -> str:
    """What stands behind the names of backbone and prompt, whatever the dataset; empty for a pack that does not say
    what backbone it was made with."""
    parts = run.protocol.parts
    from_pack = parts.get("backbone_digest") == parts.get("images")
    if from_pack and "packed_backbone" not in parts:
        return ""
    known = {**parts, "backbone_digest": parts["packed_backbone"]} if from_pack else parts
    return digest([known.get(name) for name in ENCODER])[:SHOWN_DIGITS]


def _code(run: RunRecord) -> str:
    """What of the config is the code's; empty in version 0.1, where that of a built-in was not recorded."""
    parts = [run.config.parts.get(name) for name in CODE_PARTS]  # of the method: the data's parts columns
    return digest(parts)[:12] if any(parts) else ""
