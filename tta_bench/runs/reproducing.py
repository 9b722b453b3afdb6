"""Running a suite: what is done is skipped, what can't run here is named once, and the rest is run.

Many cells of a table lack the same weights or data. Each of those is asked for once, so that a table without any of
them is there within seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from tta_bench.errors import TTABenchError, UnknownName
from tta_bench.records import RunRecord
from tta_bench.runs import grid
from tta_bench.runs.bench import Bench
from tta_bench.runs.executors.work import Executor, is_refusal, words
from tta_bench.runs.spec import RunSpec
from tta_bench.runs.suites import Attempt, Obstacle, SuiteCell

NOT_HERE = "not on this machine: a run downloads them, or says how to get them"


class Reproduction:
    """Cells of suites, run or looked up."""

    def __init__(self, bench: Bench, executor: Executor | None = None) -> None:
        """With an executor several runs are under way at a time, each in a process of its own."""
        self.bench = bench
        self.executor = executor
        self._asked: dict[tuple[str, object], Obstacle | None] = {}  # kind and what was looked for

    def look(self, cells: Sequence[SuiteCell]) -> Iterator[Attempt]:
        """What is done and what stands in the way of the rest. Nothing is run, loaded or downloaded."""
        for cell in cells:
            done = self._done(cell)
            yield Attempt(cell, done, () if _all(done, cell) else self.obstacles(cell, load=False))

    def run(self, cells: Sequence[SuiteCell]) -> Iterator[Attempt]:
        if self.executor is not None:
            yield from self._run_elsewhere(cells, self.executor)
            return
        for cell in cells:
            done = self._done(cell)
            if _all(done, cell):
                yield Attempt(cell, done)
            elif obstacles := self.obstacles(cell, load=True):
                yield Attempt(cell, done, obstacles)
            else:
                yield self._executed(cell)

    def _run_elsewhere(self, cells: Sequence[SuiteCell], executor: Executor) -> Iterator[Attempt]:
        """All that can run goes there at once, and a run that two cells share goes once."""
        ready = [cell for cell in cells if not self.obstacles(cell, load=True)]
        found: dict[str, RunRecord | Obstacle] = {}  # by a run's `repr`, as `grid.distinct` knows them
        todo = []
        for spec in grid.distinct(spec for cell in ready for spec in cell.runs if self.bench.find(spec) is None):
            try:
                self.bench.check(spec)
                todo.append(spec)
            except TTABenchError as error:  # must not keep the others from running
                found[repr(spec)] = _failed(error, spec)
        for outcome in grid.execute(self.bench, todo, executor=executor):
            code = 0 if outcome.refused else outcome.exit_code
            found[repr(outcome.spec)] = outcome.record or Obstacle("failed", outcome.failure, code)
        for cell in cells:
            ended = [(spec, found.get(repr(spec)) or self.bench.find(spec)) for spec in cell.runs]
            records = [end for _, end in ended if isinstance(end, RunRecord)]
            failures = [_of_seed(end, spec, cell) for spec, end in ended if isinstance(end, Obstacle)]
            missing = () if _all(records, cell) else self.obstacles(cell, load=True)
            yield Attempt(cell, records, missing or failures)

    def _done(self, cell: SuiteCell) -> list[RunRecord]:
        return [record for spec in cell.runs if (record := self.bench.find(spec))]

    def _executed(self, cell: SuiteCell) -> Attempt:
        records, failures = [], []
        for spec in cell.runs:
            try:
                outcomes = list(grid.execute(self.bench, [spec]))
            except TTABenchError as error:
                failures.append(_of_seed(_failed(error, spec), spec, cell))
            else:
                records += [outcome.record for outcome in outcomes if outcome.record]
        return Attempt(cell, records, failures)

    def obstacles(self, cell: SuiteCell, load: bool) -> list[Obstacle]:
        """All that the cell lacks here. With `load` weights are fetched where they can be."""
        if not cell.runs:
            return list(cell.obstacles)
        spec = cell.runs[0]
        found = [self._once("files", _method_key(spec), lambda: self.bench.configure(spec).method.validate())]
        if spec.pack is None:
            second = self.bench.configure(spec).method.second_backbone()
            found += [
                self._once("prompt", spec.prompt, lambda: self.bench.check(spec)),
                self._weights(str(spec.backbone), spec.weights, load),
                self._once("data", spec.dataset, lambda: self.bench.opened(str(spec.dataset))),
                self._weights(second, None, load) if second else None,
            ]
        return [obstacle for obstacle in found if obstacle is not None]

    def _weights(self, name: str, weights: Path | None, load: bool) -> Obstacle | None:
        ask = self._load if load else self._look_for
        return self._once("weights", (name, weights), lambda: ask(name, weights))

    def _load(self, name: str, weights: Path | None) -> None:
        self.bench.loaded(name, "fp32", weights, random_weights=False)

    def _look_for(self, name: str, weights: Path | None) -> None:
        from tta_bench.interfaces import BackboneExtras

        if weights is not None:  # whether they fit is seen when they are loaded
            return
        here = BackboneExtras.of(self.bench.registry.backbone(name)).weights_here
        if here is not None and not here():
            raise TTABenchError(f"the weights of {name} are {NOT_HERE}")

    def _once(self, kind: str, what: object, ask: Callable[[], object]) -> Obstacle | None:
        if (kind, what) not in self._asked:
            try:
                ask()
                self._asked[kind, what] = None
            except UnknownName:  # misspelt: nothing that could be had later
                raise
            except TTABenchError as error:
                self._asked[kind, what] = Obstacle(kind, _in_a_line(error))
        return self._asked[kind, what]


def _all(records: Sequence[RunRecord], cell: SuiteCell) -> bool:
    return len(records) == len(cell.runs) > 0


def _failed(error: TTABenchError, spec: RunSpec) -> Obstacle:
    """A method that does not run on this has its line in the table, and nothing is broken."""
    return Obstacle("failed", words(error, spec), 0 if is_refusal(error) else error.exit_code)


def _of_seed(obstacle: Obstacle, spec: RunSpec, cell: SuiteCell) -> Obstacle:
    """Named, where the cell has several."""
    return obstacle._replace(how=f"seed {spec.seed}: {obstacle.how}") if len(cell.runs) > 1 else obstacle


def _in_a_line(error: Exception) -> str:
    return " ".join(str(error).split())


def _method_key(spec: RunSpec) -> str:
    return f"{spec.method_name} {sorted(spec.settings.items())}"
