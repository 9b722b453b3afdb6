"""Runs from one folder into another: between machines, and into what a repository keeps.

A run is checked before it is copied: its seal, its files' digests, its images and labels against its protocol, and its
metrics against its scores. What is copied is what was checked. Where the run is already, nothing is overwritten.

The compact form of a run is run.json and the scores: enough for every table, for statistics and for checking the
metrics. Its `files` name what is there, so that nothing counts as lost; `left_out` has the digests of the rest.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np

from tta_bench import metrics, records
from tta_bench.errors import BadData
from tta_bench.metrics import AP_CONVENTIONS, single_label
from tta_bench.records import SCORES, RunRecord
from tta_bench.runs.folder import RunFolder
from tta_bench.runs.housekeeping import in_use
from tta_bench.system import asked
from tta_bench.system.files import digest, write_atomically
from tta_bench.system.record_form import SEAL, seal
from tta_bench.system.text import visible

LEFT_OUT = "left_out"
AGREES = 0.005  # of a percentage: tables show two digits, and another machine's last bits may rank a near-tie otherwise


class Outcome(Enum):
    COPIED = "copied"
    ALREADY = "here already"


@dataclass(frozen=True)
class Checked:
    """A run that was read and found sound."""

    record: RunRecord
    contents: Mapping[str, bytes]  # file name -> what is in it; run.json is the last

    def compact(self) -> Checked:
        """The same run without what can be had only by running it again."""
        content = json.loads(self.contents["run.json"])
        left_out = {name: sha for name, sha in self.record.files.items() if name != SCORES}
        if not left_out:
            return self
        content["files"] = {SCORES: content["files"][SCORES]}
        content[LEFT_OUT] = {**content.get(LEFT_OUT, {}), **left_out}
        if SEAL in content:  # a record that never had one gets none
            content[SEAL] = seal(content)
        text = json.dumps(content, indent=1, ensure_ascii=False).encode(errors="backslashreplace")
        record = RunRecord.from_json(content, self.record.folder)
        kept = {name: self.contents[name] for name in (SCORES, asked.FILE) if name in self.contents}
        return Checked(record, {**kept, "run.json": text})


def checked(folder: Path) -> Checked:
    """The run in `folder`. Raises `BadData` or `UsageError` that says what is wrong with it."""
    record = records.load(folder, named=True)
    files = {**record.files} or {SCORES: ""}  # version 0.1 kept no digests
    if SCORES not in files:
        raise BadData(f"{visible(folder)}: the record names no scores, so its numbers can't be checked")
    contents = {}
    for name in (*files, "run.json"):
        contents[name] = _read(folder / name)
        if files.get(name) and digest(contents[name]) != files[name]:
            raise BadData(f"{visible(folder / name)} is not what was written")
    for why in disagreements(record):
        raise BadData(f"{visible(folder)}: {visible(why)}")
    if record.asked:  # so that the same of two codes is the last
        contents = {asked.FILE: record.asked.encode(), **contents}
    return Checked(record, contents)


def _read(file: Path) -> bytes:
    try:
        if not file.is_file():  # a pipe would never end
            raise BadData(f"{visible(file)} is missing, or no file")
        return file.read_bytes()
    except OSError as error:
        raise BadData(f"{visible(file)} can't be read: {error.strerror or error}") from error


def disagreements(record: RunRecord) -> Iterator[str]:
    """Where a record's numbers are not those of its scores, or its scores not of its protocol's images."""
    scores, labels, ids = records.load_scores(record)
    index, classes = record.index(), len(record.per_class_ap)
    if scores.shape != (record.n, classes) or labels.shape != scores.shape or len(ids) != record.n:
        yield f"scores {scores.shape} are not of {record.n} images and {classes} classes"
        return
    if index.shape != (record.n,) or len(np.unique(index)) != record.n:
        yield f"its index names no {record.n} images"
        return
    order = np.argsort(index, kind="stable")
    scores, labels = scores[order], labels[order]
    of_scores = {
        "image_ids": digest([ids[i] for i in order]),
        "labels": digest(labels.astype(np.int8).tobytes()),
    }
    for part, found in of_scores.items():
        if record.protocol.parts.get(part, found) != found:
            yield f"the scores' {part} are not those of the protocol"
    convention = record.protocol.parts.get("average_precision")
    ties: metrics.Ties = next((name for name, words in AP_CONVENTIONS.items() if words == convention), "threshold")
    empty: metrics.Empty = "zero" if record.protocol.parts.get("empty_classes") == "zero" else "skip"
    try:
        ap = metrics.average_precision(scores, labels, ties)
        summary = metrics.summary(scores, labels, empty, ap, ties)
        if "top1" in record.metrics:
            summary |= single_label.summary(scores, labels)
    except (BadData, ValueError, TypeError) as error:  # scores that are not finite or no numbers, labels that are none
        yield f"its scores can't be ranked: {error}"
        return
    yield from _unlike("metrics", record.metrics, summary)
    yield from _unlike("per_class_ap", record.per_class_ap, dict(zip(record.per_class_ap, ap.tolist(), strict=True)))


def _unlike(what: str, said: Mapping[str, float | None], found: Mapping[str, float]) -> Iterator[str]:
    for name, value in said.items():
        if name not in found:
            continue  # of another version
        now = None if np.isnan(found[name]) else found[name]
        if (value is None) != (now is None) or (value is not None and now is not None and abs(value - now) > AGREES):
            yield f"'{what}' says {name} {_number(value)}, its scores {_number(now)}"


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.2f}"


# --------------------------------------------------------------------------------------------------------- the copy


def add(run: Checked, runs: Path, shared: bool) -> Outcome:
    """Puts a run under `runs`, unless it is there. `shared`: other processes may be running into that folder.

    Raises `BadData` when the same run is there with other scores: neither can be told to be the right one.
    """
    folder = RunFolder(runs, run.record.run_id)
    lock: AbstractContextManager[Any] = folder.locked(lambda: in_use(run.record.run_id)) if shared else nullcontext()
    with lock:
        folder.recover()
        here, _ = folder.state()  # what is damaged is replaced
        if here is not None:
            _require_same(here, run.record)
            if not run.record.files.keys() > here.files.keys():  # else what is here is the compact form
                return Outcome.ALREADY
        folder.tidy()
        beside = folder.begin(replacing=True)
        for name, content in run.contents.items():
            write_atomically(beside / name, content)
        folder.publish()
    return Outcome.COPIED


def _require_same(here: RunRecord, there: RunRecord) -> None:
    one, other = here.scores(), there.scores()
    if one.shape == other.shape and np.array_equal(one, other):
        return
    apart = f"up to {np.abs(one - other).max():.2g} apart" if one.shape == other.shape else "of another shape"
    raise BadData(
        f"{visible(there.run_id)}: its scores in {visible(there.folder)} (mAP {_number(there.metrics.get('mAP'))}) are "
        f"others than in {visible(here.folder)} (mAP {_number(here.metrics.get('mAP'))}), {apart}: both are left as is"
    )
