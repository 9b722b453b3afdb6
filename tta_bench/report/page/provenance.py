"""Runs -> where their numbers come from, and the command that repeats them. What many runs share is kept once."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from tta_bench.records import RunRecord
from tta_bench.runs.soundness import ties_of
from tta_bench.system.text import visible

USUAL = {"precision": "fp32", "features": "float16", "empty_classes": "skip"}  # of the protocol, as `run` sets them
LONG = 400  # characters of a value; a list of a thousand class names would hide the rest


class Shared:
    """Values that stand in the page once, however many runs have them."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._places: dict[str, int] = {}

    def place(self, value: Any) -> int:
        """Where in `values` it stands from now on."""
        key = json.dumps(value, sort_keys=True, default=str)
        if key not in self._places:
            self._places[key] = len(self.values)
            self.values.append(value)
        return self._places[key]


def provenance(run: RunRecord, shared: Shared) -> dict[str, Any]:
    """Of one run; numbers are places in `shared`."""
    code = {name: value for name, value in run.provenance.items() if name != "versions"}
    facts: dict[str, Any] = {
        "run": visible(run.run_id),
        "seed": run.seed,
        "order": visible(run.order),
        "created": visible(run.created),
        "code": shared.place(texts(code)),
        "versions": shared.place(texts(run.provenance.get("versions", {}))),
        "hardware": shared.place(texts(run.hardware)),
        "sealed": run.sealed,
        "command": visible(command(run)),
    }
    if run.notes:
        facts["notes"] = shared.place([visible(note) for note in run.notes])
    return {**facts, "verified": shared.place(visible(run.verified))} if run.verified else facts


def command(run: RunRecord) -> str:
    """What to type to have the run again, as far as the record says: where data and weights lie is the reader's."""
    words = ["ttabench", "run", "--method", run.method, "--dataset", run.dataset, "--backbone", run.backbone]
    words += [] if run.prompt == "photo" else ["--prompt", run.prompt]
    words += ["--seed", str(run.seed)]
    words += [] if run.order == "shuffled" else ["--order", run.order]
    words += ["--limit", str(run.n)] if run.dataset_size is not None and run.n != run.dataset_size else []
    words += ["--random-weights"] if run.random_weights else []
    for name, value in run.changes.items():
        option = "--set" if name in run.hyper_parameters else "--recipe"
        words += ["--preset", str(value)] if name == "preset" else [option, f"{name}={value}"]
    parts = run.protocol.parts
    words += [word for name, usual in USUAL.items() for word in _unusual(name, usual, parts)]
    words += ["--ties", "dataset"] if ties_of(run) == "dataset" else []
    code = run.provenance.get("code", {})
    loose = {str(label) for label in code.values() if str(label).endswith(".py")} if isinstance(code, Mapping) else ()
    words += [word for file in sorted(loose) for word in ("--plugin", file)]
    return shlex.join(words)


def _unusual(name: str, usual: str, parts: Mapping[str, Any]) -> tuple[str, ...]:
    value = str(parts.get(name, usual))
    return () if value == usual else (f"--{name.replace('_', '-')}", value)


def texts(values: Mapping[str, Any]) -> dict[str, str]:
    return {visible(name): _text(value) for name, value in values.items()}


def _text(value: object) -> str:
    if isinstance(value, Mapping):
        value = ", ".join(f"{name} {inner}" for name, inner in value.items())
    elif isinstance(value, Sequence) and not isinstance(value, str):
        value = ", ".join(map(str, value))
    shown = visible(value)
    return shown if len(shown) <= LONG else f"{shown[:LONG]}…"
