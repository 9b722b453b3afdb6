"""A recorded run once more, beside its record and not in its place: do the same scores come out?

The request is made anew from what the record says. What it does not hold (where a weights file, a prompt's file, a pack
or a loose plugin lies) has to be given again, and its digests tell whether it is the same.
"""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tta_bench.errors import UnknownName, UsageError
from tta_bench.metrics import Floats
from tta_bench.records import CODE_PARTS, DATA_CODE, OUTPUTS, RunRecord
from tta_bench.runs.bench import Bench
from tta_bench.runs.soundness import empty_of, ties_of
from tta_bench.runs.spec import RunSpec
from tta_bench.system import provenance
from tta_bench.system.tensors import read_tensors

if TYPE_CHECKING:
    from tta_bench.runs.hyperparameters import Configured
    from tta_bench.runs.run import Run

CODE = {*CODE_PARTS, DATA_CODE, "version"}  # parts of the identities that may change and give the same scores
HARDWARE = ("device", "processor", "instructions", "accelerator", "threads", "adapting_threads", "batch_size")
# By how much a run may differ on other hardware or with other libraries:
TOLERANCE = 1e-3  # scores, of their usual range
MAP_TOLERANCE = 0.05  # mAP, in points


class BlindBench(Bench):
    """Every method, built-ins too, in a process that has neither labels nor later images."""

    def configure(self, spec: RunSpec) -> Configured:
        if not isinstance(spec.method, str):
            return super().configure(spec)
        return self.fence.configure(self.registry.find("methods", spec.method), spec.settings, spec.preset)


@dataclass(frozen=True)
class Elsewhere:
    """What a record does not hold."""

    pack: Path | None = None
    weights: Path | None = None
    prompt: str | None = None  # with the file's folder


@dataclass(frozen=True)
class Replay:
    """What came out the second time."""

    kind: str  # blind | replay
    largest: float  # difference between two scores; 0: bit for bit
    where: str  # the image and class of it
    mean_ap: tuple[float | None, float | None]  # recorded, replayed
    elsewhere: tuple[str, ...]  # in what the machine and the libraries differ
    changed: tuple[str, ...]  # parts of the method's code that are not those of the record
    outside: tuple[str, ...]  # files and connections that the method reached for, where that was watched
    range: float  # of the recorded scores, as it is for most images and classes

    @property
    def holds(self) -> bool:
        if self.outside or not self.elsewhere:
            return self.largest == 0 and not self.outside
        before, now = (float("nan") if value is None else value for value in self.mean_ap)
        alike = self.mean_ap == (None, None) or abs(before - now) <= MAP_TOLERANCE
        return self.largest <= TOLERANCE * self.range and alike


def from_pack(record: RunRecord) -> bool:
    """Whose code a dataset is, is recorded of every run but those on a pack."""
    code = record.provenance.get("code", {})
    return bool(code) and "dataset" not in code


def request(record: RunRecord, given: Elsewhere) -> RunSpec:
    """The run as somebody would have to ask for it. Raises `UsageError` that says what is missing."""
    parts = record.protocol.parts
    if from_pack(record) and given.pack is None:
        raise UsageError("it ran on a feature pack, and the record does not say where that is: --pack FILE")
    kind, colon, file = record.prompt.partition(":")
    if colon and given.pack is None and given.prompt is None and not Path(file).is_file():
        raise UsageError(f"its prompt came from a file: --prompt {kind}:PATH/{file}")
    if parts.get("precision") == "as loaded":
        raise UsageError("its backbone was an instance in somebody's Python and can't be had by name")
    return RunSpec(
        record.method,
        "pack" if given.pack else record.dataset,
        "pack" if given.pack else record.backbone,
        record.seed,
        prompt=given.prompt or record.prompt,
        order=record.order,
        limit=record.n,
        settings=dict(record.hyper_parameters),
        preset=record.changes.get("preset"),
        recipes=_recipes(record),
        precision="fp32" if given.pack else parts.get("precision", "fp32"),
        weights=given.weights,
        random_weights=record.random_weights and given.pack is None,
        pack=given.pack,
        empty_classes=empty_of(record),
        ties=ties_of(record),
        protocol_preset=record.config.parts.get("protocol_preset"),
    )


def _recipes(record: RunRecord) -> dict[str, str]:
    """The views that were asked for, by role. One named as a hyper-parameter stands behind `recipe.`."""
    roles = record.config.parts.get("recipes", {})
    keys = {role: f"recipe.{role}" if role in record.hyper_parameters else role for role in roles}
    return {role: record.changes[key] for role, key in keys.items() if key in record.changes}


def prepared(record: RunRecord, bench: Bench, given: Elsewhere) -> Run:
    """The run, ready to go, if it is the same: other images, labels, texts, weights or settings are refused."""
    spec = request(record, given)
    try:
        run = bench.prepare(spec)
    except UnknownName as error:
        where = "--plugin FILE brings a plugin; what was an instance in somebody's Python can't be run again by name"
        raise UsageError(f"{error} ({where})") from error
    names = _unlike(record.protocol.parts, run.identities["protocol"].parts)
    names += _unlike(record.config.parts, run.identities["config"].parts)
    names = [name for name in names if name not in CODE]
    if names:
        raise UsageError(f"what is here is not what it ran on: {', '.join(names)} differ")
    return run


def _changed_parts(record: RunRecord, again: RunRecord) -> list[str]:
    pairs = ((record.config, again.config), (record.protocol, again.protocol))
    return [name for before, now in pairs for name in _unlike(before.parts, now.parts)]


def replay(record: RunRecord, bench: Bench, given: Elsewhere) -> Replay:
    """Runs it again in a folder of its own and compares what `step` and `finish` returned."""
    from tta_bench.runs.guest_method import GuestMethod
    from tta_bench.runs.replay import limited_threads

    run = prepared(record, bench, given)
    outside: list[str] = []
    with tempfile.TemporaryDirectory(prefix="ttabench-") as folder, limited_threads(_threads(record)):
        again = run.execute(Path(folder), bench.checkpoint_seconds, bench.reporter)
        run.say_notes(again, bench.reporter)
        if isinstance(run.method, GuestMethod):
            reached = run.method.reached()
            outside = [*reached.outside, *(f"import {module}" for module in reached.datasets)]
        largest, where, spread = _difference(record, again)
    return Replay(
        kind="blind" if isinstance(run.method, GuestMethod) else "replay",
        largest=largest,
        where=where,
        mean_ap=(record.metrics.get("mAP"), again.metrics.get("mAP")),
        elsewhere=tuple(_elsewhere(record, again)),
        changed=tuple(name for name in _changed_parts(record, again) if name in CODE),
        outside=tuple(outside),
        range=spread,
    )


def _threads(record: RunRecord) -> int:
    import torch

    threads = record.hardware.get("threads")
    return threads if isinstance(threads, int) and threads > 0 else torch.get_num_threads()


def _unlike(recorded: Mapping[str, Any], here: Mapping[str, Any]) -> list[str]:
    """Parts that differ. Those that an older version did not record tell nothing."""
    return [name for name in recorded if recorded[name] != here.get(name)]


def _elsewhere(record: RunRecord, again: RunRecord) -> list[str]:
    pairs = {name: (record.hardware.get(name), again.hardware.get(name)) for name in HARDWARE}
    if "instructions" not in record.hardware:  # as in records of before, which tell nothing about it
        del pairs["instructions"]
    before, now = (run.provenance.get("versions", {}) for run in (record, again))
    pairs |= {name: (before.get(name), now[name]) for name in now if name != "ttabench"}
    return [f"{name} {old} then, {new} now" for name, (old, new) in pairs.items() if old != new]


def _difference(record: RunRecord, again: RunRecord) -> tuple[float, str, float]:
    """The largest difference of two scores, where it is, and the range of most."""
    assert record.folder is not None
    assert again.folder is not None
    scores, replayed = record.scores().astype(np.float64), again.scores().astype(np.float64)
    if record.ids() != again.ids():
        raise UsageError("the stream shows other images, or in another order, than it did")
    apart = np.abs(scores - replayed)  # [N, C]
    largest, spread = float(apart.max()), usual_range(scores)
    i, c = np.unravel_index(int(apart.argmax()), apart.shape)
    where = f"image {record.ids()[int(i)]}, class {list(record.per_class_ap)[int(c)]}"
    if OUTPUTS in record.files:  # equal scores may come from other outputs
        both = [
            read_tensors(run.folder / OUTPUTS, run.files[OUTPUTS])[0]["outputs"]
            for run in (record, again)
            if run.folder
        ]
        if both[0].shape != both[1].shape:
            return float("inf"), "step returned branches of another shape", spread
        if largest == 0:
            largest, where = float(np.abs(both[0].astype(np.float64) - both[1]).max()), "in what step returned"
    return largest, where if largest else "", spread


def usual_range(scores: Floats) -> float:
    """That of most images' scores [N, C] in most classes: a few that are far off, such as a mask's, don't widen it."""
    low, high = np.percentile(scores, (5, 95), axis=0)  # [C]
    return float(np.median(high - low))


def details(found: Replay) -> dict[str, Any]:
    """What stands in verified.json."""
    return {**dataclasses.asdict(found), "versions": provenance.versions()}
