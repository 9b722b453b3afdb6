"""The options that say who runs the cells of a grid or suite, and where they are told what becomes of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from tta_bench.cli.options import choice, complain, pairs
from tta_bench.errors import UsageError
from tta_bench.system.text import visible

if TYPE_CHECKING:
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.executors.work import Executor
    from tta_bench.runs.spec import RunSpec

LOCAL, SLURM, RAY, PRINT = "local", "slurm", "ray", "print"
Jobs = Annotated[
    int | None,
    typer.Option("--jobs", "-j", help="So many cells at a time, each in its own process.", min=1, show_default="1"),
]
ExecutorName = Annotated[
    str, typer.Option("--executor", help="local, slurm, ray, or print: a shell line per cell (docs/scale.md).")
]
Address = Annotated[str | None, typer.Option("--address", help="Of a Ray cluster; without it, one on this machine.")]
Gpus = Annotated[int, typer.Option("--gpus", help="For each cell, from Slurm or Ray.", min=0)]
SlurmOptions = Annotated[
    list[str] | None,
    typer.Option("--slurm", help="An option of sbatch, e.g. partition=gpu, account=me.", metavar="KEY=VALUE"),
]


@dataclass(frozen=True)
class Choice:
    """Who is to run the cells, as the command line says it."""

    name: str
    jobs: int | None
    address: str | None
    gpus: int
    slurm: dict[str, str]

    @classmethod
    def of(cls, name: str, jobs: int | None, address: str | None, gpus: int, slurm: list[str] | None) -> Choice:
        name = choice("--executor", name, (LOCAL, SLURM, RAY, PRINT))
        given = pairs(slurm or [], "--slurm", "KEY=VALUE, for example --slurm partition=gpu")
        if given and name != SLURM:
            raise UsageError("--slurm KEY=VALUE belongs to --executor slurm")
        if address is not None and name != RAY:
            raise UsageError("--address belongs to --executor ray")
        if gpus and name not in (SLURM, RAY):
            raise UsageError("--gpus belongs to --executor slurm and ray: others take what they find")
        return cls(name, jobs, address, gpus, given)

    def executor(self, bench: Bench) -> Executor | None:
        """None: the cells run in this process."""
        from tta_bench.runs.executors.work import Workplace

        if self.name == LOCAL and self.jobs in (None, 1):
            return None
        workplace, say = Workplace.of(bench), bench.reporter.line
        if self.name == SLURM:
            from tta_bench.runs.executors.slurm import SlurmExecutor

            return SlurmExecutor(workplace, self.slurm, self.gpus, self.jobs, say)
        if self.name == RAY:
            from tta_bench.runs.executors.ray_cluster import RayExecutor

            return RayExecutor(workplace, self.address, self.gpus, self.jobs)
        from tta_bench.runs.executors.local import LocalExecutor

        return LocalExecutor(workplace, self.jobs or 1, say)


def print_lines(bench: Bench, cells: Sequence[RunSpec], force: bool) -> None:
    """The cells that have no record yet, as commands."""
    from tta_bench.runs.executors.shell import command
    from tta_bench.runs.executors.work import Workplace

    workplace = Workplace.of(bench)
    todo = [spec for spec in cells if force or bench.find(spec) is None]
    if len(todo) < len(cells):
        bench.reporter.line(f"{len(cells) - len(todo)} of {len(cells)} cells are done, and left out")
    for spec in todo:
        print(command(spec, workplace, force))


@dataclass
class Failures:
    """The cells that failed, said at once and again at the end."""

    lines: list[str]
    code: int = 0

    def add(self, cell: str, failure: str, exit_code: int) -> None:
        self.lines.append(f"{cell}: {failure}")
        self.code = exit_code if self.code in (0, exit_code) else 1
        complain(f"{self.lines[-1]} (the others go on)")

    def end(self, total: str) -> None:
        """Names them all, and ends the command if there are any."""
        if self.lines:
            complain(f"{len(self.lines)} of {total} failed:")
            for line in self.lines:
                complain(line)
            raise typer.Exit(self.code)


def sweep_values(values: Sequence[str] | None) -> dict[str, list[str]]:
    """["delta=100,500"] -> {"delta": ["100", "500"]}; commas within brackets belong to a value."""
    given = pairs(values or [], "--sweep", "KEY=A,B, for example --sweep delta=100,500,1000")
    found = {key: [part.strip() for part in _split(text) if part.strip()] for key, text in given.items()}
    for key, parts in found.items():
        if not parts:
            raise UsageError(f"--sweep {key}: no values")
    return found


def _split(text: str) -> list[str]:
    parts, depth = [""], 0
    for character in text:
        depth += (character in "[(") - (character in "])")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def show_table(rows: Sequence[Sequence[str]], say: Callable[[str], None] = print) -> None:
    """Columns as wide as they need to be, the first row being their names."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        say(visible("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()))
