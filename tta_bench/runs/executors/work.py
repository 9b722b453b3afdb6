"""What travels to another process and back: how to make the same `Bench` there, one cell, and what became of it."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Protocol

from tta_bench.errors import DataMissing, TTABenchError, UsageError, WeightsMissing

if TYPE_CHECKING:
    from tta_bench.features.options import EncodingOptions
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.spec import RunSpec
    from tta_bench.system.progress import Reporter

RECIPES = "tta_bench.views"  # whose objects every process can make


@dataclass(frozen=True)
class Workplace:
    """All that a `Bench` is made of, as plain data."""

    folder: Path  # that relative paths start from
    home: Path
    runs: Path
    data_root: Path
    data: Mapping[str, Path]
    plugins: tuple[Path, ...]  # loose files
    without: tuple[str, ...]
    only: tuple[str, ...] | None
    device: str
    adapt_device: str
    encoding: EncodingOptions
    checkpoint_seconds: float
    step_timeout: float | None

    @classmethod
    def of(cls, bench: Bench) -> Workplace:
        registry = bench.registry
        return cls(
            folder=Path.cwd(),
            home=bench.home.absolute(),
            runs=bench.runs.absolute(),
            data_root=bench.data_root.absolute(),
            data={name: path.absolute() for name, path in bench.data.items()},
            plugins=tuple(sorted({Path(p.origin).absolute() for p in registry.plugins() if not p.distribution})),
            without=tuple(sorted(registry.without)),
            only=None if registry.only is None else tuple(sorted(registry.only)),
            device=bench.asked_device,
            adapt_device=bench.asked_adapt_device,
            encoding=bench.encoding,
            checkpoint_seconds=bench.checkpoint_seconds,
            step_timeout=bench.step_timeout,
        )

    def open(self, reporter: Reporter) -> Bench:
        """The same bench in this process. Loose files are asked in a process of their own, as always."""
        from tta_bench.plugins import Registry
        from tta_bench.runs.bench import Bench
        from tta_bench.runs.fence import Fence

        fence = Fence(self.step_timeout)
        return Bench(
            self.home,
            self.data_root,
            self.device,
            adapt_device=self.adapt_device,
            results=self.runs,
            data=self.data,
            registry=Registry(self.plugins, self.without, self.only, fence.offers),
            encoding=self.encoding,
            checkpoint_seconds=self.checkpoint_seconds,
            fence=fence,
            progress=reporter,
        )


class Task(NamedTuple):
    """A cell on its way to a worker."""

    number: int
    spec: RunSpec
    force: bool


class Answer(NamedTuple):
    """What became of a cell: the folder of its record, or why there is none."""

    folder: Path | None = None
    already: bool = False
    failure: str = ""
    exit_code: int = 0
    refused: bool = False  # the method does not run on this; nothing is broken


class Ended(NamedTuple):
    """A task that a worker has answered, or during which its worker died."""

    task: Task
    answer: Answer | None
    cause: str = ""  # of death


class Executor(Protocol):
    """Runs tasks elsewhere. It may be given more tasks while others run, and reports each as it ends."""

    @property
    def slots(self) -> int | None: ...  # tasks at a time; None: it has a queue of its own

    @property
    def waiting_costs(self) -> bool: ...  # whether a task that waits for another's features holds an accelerator

    def submit(self, tasks: Sequence[Task]) -> None: ...

    def wait(self) -> Sequence[Ended]:
        """Returns when at least one task has ended."""
        ...

    def close(self) -> None:
        """Ends what still runs, if it would run for nobody."""
        ...


def perform(bench: Bench, task: Task) -> Answer:
    """Runs the cell. Whatever the user can mend is an answer; anything else is a worker that died."""
    try:
        record, already = bench.run(task.spec, task.force)
    except TTABenchError as failure:
        return Answer(failure=words(failure, task.spec), exit_code=failure.exit_code, refused=is_refusal(failure))
    return Answer(record.folder, already)


def is_refusal(failure: TTABenchError) -> bool:
    """Whether the method does not run on this, and nothing is broken."""
    return isinstance(failure, UsageError) and not isinstance(failure, DataMissing | WeightsMissing)


def words(failure: TTABenchError, spec: RunSpec) -> str:
    """The failure in one line, without the cell's name, which stands before it."""
    return " ".join(str(failure).split()).removeprefix(f"{spec}: ")


def perform_alone(workplace: Workplace, task: Task) -> Answer:
    """The same for engines that only know functions; a worker that is used again keeps what it has loaded."""
    return perform(_opened(_Key(workplace)), task)


@dataclass(frozen=True, eq=False)
class _Key:
    """A workplace holds a mapping, so it can't be looked up by itself."""

    workplace: Workplace

    def __hash__(self) -> int:
        return hash(repr(self.workplace))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self.workplace == other.workplace


@functools.lru_cache(maxsize=1)
def _opened(key: _Key) -> Bench:
    from tta_bench.system.progress import Terminal

    os.chdir(key.workplace.folder)
    return key.workplace.open(Terminal())


def refuse_objects(spec: RunSpec) -> None:
    """An object that somebody made is in this process alone."""
    for thing in (spec.method, spec.dataset, spec.backbone):
        if not isinstance(thing, str):
            raise UsageError(f"{thing.name}: an instance can't go to other processes: use jobs=1 or a plugin")
    for key, value in (*spec.settings.items(), *spec.recipes.items()):
        if type(value).__module__ not in ("builtins", RECIPES):
            kind = type(value).__name__
            raise UsageError(f"{key}: a {kind} can't go to other processes: use jobs=1, or write it as a text")
