"""Runs that a repository keeps: compact, checked, and one per cell of its table."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from tta_bench import records
from tta_bench.errors import BadData, UsageError
from tta_bench.records import RunRecord
from tta_bench.runs import exchange
from tta_bench.runs.exchange import Checked, Outcome
from tta_bench.system.files import canonical_json, disk_errors
from tta_bench.system.text import visible


class Said(NamedTuple):
    """What came of one run, in lines to show."""

    added: bool
    lines: list[str]


class Committed:
    """The folder that holds them."""

    def __init__(self, runs: Path) -> None:
        self.runs = runs

    @cached_property
    def _by_cell(self) -> dict[str, RunRecord]:
        found, problems = records.load_all(self.runs)
        if problems:
            raise BadData(f"{problems[0]}: mend or delete it first")
        return {_cell(run): run for run in found}

    def add(self, run: Checked) -> Said:
        """The run in its compact form. Of two runs of one cell the newer stays: the other was made by other code."""
        record = run.record
        if not record.sealed:
            raise UsageError(f"{visible(record.run_id)}: a record of version 0.1 without a seal: run it again")
        if record.random_weights:
            raise UsageError(f"{visible(record.run_id)}: of an untrained backbone, which is no result")
        there = self._by_cell.get(_cell(record))
        replaced = there is not None and there.run_id != record.run_id
        if there is not None and replaced and there.created > record.created:
            return Said(False, [f"{record.run_id}: {there.run_id} is there, which is newer"])
        if exchange.add(run.compact(), self.runs, shared=False) is Outcome.ALREADY:
            return Said(False, [f"{record.run_id}: there already"])
        self._by_cell[_cell(record)] = record
        if there is None or not replaced:
            return Said(True, [record.run_id])
        with disk_errors(self.runs):
            shutil.rmtree(self.runs / there.run_id)
        return Said(True, [f"{record.run_id}: in place of {there.run_id}"])


# Of the protocol, what another value of makes another column.
CONVENTIONS = (
    *("labels", "class_names", "prompt_texts", "prompt_file", "precision", "features"),
    *("average_precision", "empty_classes", "images", "backbone_digest"),
)


def _cell(run: RunRecord) -> str:
    """What a reader of the table takes for the same thing, whatever code computed it."""
    fields: tuple[Any, ...] = (run.method, run.dataset, run.backbone, run.prompt, run.seed, run.order, run.n)
    conventions = [run.protocol.parts.get(name) for name in CONVENTIONS]
    files = _mapping(run.config.parts.get("files"))
    changes = {name: value for name, value in run.changes.items() if name not in files}  # where a file lies
    whose = {role: records.author(str(label)) for role, label in _mapping(run.provenance.get("code")).items()}
    # Nobody's name is on a loose file: another state of it may be another person's.
    loose = run.config.parts.get("source") if str(whose.get("method")).endswith(".py") else None
    # In words two arrays may be one: numpy leaves out what is in the middle.
    more = [run.config.parts.get(name) for name in ("second_backbone", "attributes")]
    return canonical_json([*fields, conventions, changes, run.tag, files, *more, whose, loose])


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
