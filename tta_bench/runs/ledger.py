"""What became of the cells of suites: which run each is, or why it failed. One small file per cell below `home/cells`.

`known.py` finds a run again only where all code is ours, and never a failure; a suite wants to know both of all cells.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tta_bench import records
from tta_bench.errors import StoreError, TTABenchError
from tta_bench.plugins import Kind
from tta_bench.records import RunRecord
from tta_bench.runs import grid, known
from tta_bench.runs.executors.work import words
from tta_bench.runs.grid import Cell
from tta_bench.system import paths
from tta_bench.system.files import digest, file_digest, write_atomically
from tta_bench.system.seal import opened, sealed
from tta_bench.system.stamps import stamp

if TYPE_CHECKING:
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.executors.work import Executor
    from tta_bench.runs.spec import RunSpec


class State(StrEnum):
    DONE = "done"
    FAILED = "failed"
    WAITING = "waiting"


class Standing(NamedTuple):
    """How a cell stands."""

    state: State
    record: RunRecord | None = None
    failure: str = ""
    exit_code: int = 0
    certain: bool = True  # False: of a plugin only a run itself can tell that its code and data are still the same


class Ledger:
    """The notes about cells under a bench's home. Another version of ttabench starts without any."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench

    def standing(self, spec: RunSpec) -> Standing:
        """Found without torch. Of a plugin an edit since then, or of its data, is not seen here: it would run again."""
        found = self._bench.find(spec)
        if found is not None:
            return Standing(State.DONE, found)
        try:
            file = self._file(spec)
            note = json.loads(opened(file.read_bytes(), file.stem))
            if note["files"] != _looks_of(spec):
                return Standing(State.WAITING)
            if note["run"] and self._bench.can_find(spec):  # and has not: its files are others now
                return Standing(State.WAITING)
            if note["run"]:
                return Standing(State.DONE, records.load(self._bench.runs / note["run"]), certain=False)
            return Standing(State.FAILED, None, str(note["failure"]), int(note["exit_code"]))
        except (OSError, ValueError, KeyError, TypeError, TTABenchError):
            return Standing(State.WAITING)

    def note(self, cell: Cell) -> None:
        run = "" if cell.record is None else cell.record.run_id
        content = {
            "cell": str(cell.spec),
            "run": run,
            "failure": cell.failure,
            "exit_code": cell.exit_code,
            "files": _looks_of(cell.spec),
        }
        file = self._file(cell.spec)
        with suppress(StoreError):  # a home that is read-only still has its records
            write_atomically(file, sealed(json.dumps(content).encode(), file.stem))

    def _file(self, spec: RunSpec) -> Path:
        around = self._bench.surroundings(spec)
        where = [str(around.data_root.absolute()), paths.user(), around.features]
        files = {name: str(file) for name, file in known.files_of(spec).items()}  # one text may mean two files
        key = digest([repr(spec), files, known.code_digest(), *where, self._loose_code(spec)])
        return self._bench.home / "cells" / key[:2] / f"{key}.note"

    def _loose_code(self, spec: RunSpec) -> dict[str, str]:
        """Digests of the loose files behind the names: a distribution is known only when it is loaded."""
        found: dict[str, str] = {}
        named: dict[Kind, object] = {"methods": spec.method, "datasets": spec.dataset, "backbones": spec.backbone}
        for kind, name in named.items():
            with suppress(OSError, TTABenchError):
                if isinstance(name, str):
                    plugin = self._bench.registry.find(kind, name.partition(":")[0])
                    found |= {} if plugin.distribution else {kind: file_digest(Path(plugin.origin))}
        return found


def _looks_of(spec: RunSpec) -> dict[str, Any]:
    """What the files that a request names look like from outside: another pack under the same name is another cell."""
    return {name: stamp(file) for name, file in known.files_of(spec).items()}


def execute(
    bench: Bench,
    cells: Sequence[RunSpec],
    retry_failed: bool = False,
    lenient: bool = False,
    executor: Executor | None = None,
) -> Iterator[Cell]:
    """Runs the cells that have no record, and notes what becomes of them. One that failed before is left alone and
    named, unless it is to be tried again."""
    ledger = Ledger(bench)
    before = {id(spec): ledger.standing(spec) for spec in cells}
    left_out = [] if retry_failed else [spec for spec in cells if before[id(spec)].state is State.FAILED]
    for spec in left_out:
        found = before[id(spec)]
        failure = f"failed before, --retry-failed tries again: {found.failure}"
        yield Cell(spec, failure=failure, exit_code=found.exit_code)
    todo = [spec for spec in cells if spec not in left_out]
    try:
        for cell in grid.execute(bench, todo, lenient=lenient, executor=executor):
            ledger.note(cell)
            yield cell
    except TTABenchError as failure:
        if len(todo) != 1:
            raise
        cell = Cell(todo[0], failure=words(failure, todo[0]), exit_code=failure.exit_code)  # a grid of one raises
        ledger.note(cell)
        yield cell
