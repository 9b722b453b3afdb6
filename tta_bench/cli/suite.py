"""`ttabench suite FILE.yaml`: all cells of a file, with a table that fills; `ttabench suite status FILE.yaml`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from tta_bench.cli.executors import (
    LOCAL,
    PRINT,
    Address,
    Choice,
    ExecutorName,
    Failures,
    Gpus,
    Jobs,
    SlurmOptions,
    print_lines,
    show_table,
)
from tta_bench.cli.means import mean_map
from tta_bench.cli.options import DataPaths, DataRoot, PluginFiles, Results, WithoutPlugins, data_paths, registry
from tta_bench.cli.run import line
from tta_bench.errors import Interrupted, UsageError
from tta_bench.features.options import EncodingOptions
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    from rich.table import Table

    from tta_bench.runs.bench import Bench
    from tta_bench.runs.ledger import Standing
    from tta_bench.runs.spec import RunSpec

STATUS = "status"
TERABYTE, GIGABYTE, MEGABYTE = 1e12, 1e9, 1e6


def suite(
    words: Annotated[
        list[str], typer.Argument(help="The suite's file; `status` before it only looks.", metavar="[status] FILE.yaml")
    ],
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try cells again that failed before.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Estimate forwards, disk and time from the records at hand.")
    ] = False,
    device: Annotated[str, typer.Option(help="Of the encoders: auto, cpu, cuda, cuda:1 …")] = "auto",
    adapt_device: Annotated[str, typer.Option(help="Of the methods; auto as in `run`.")] = "auto",
    batch_size: Annotated[int, typer.Option(help="Views per encoder forward.", min=1)] = EncodingOptions.batch_size,
    workers: Annotated[int, typer.Option(help="Processes that decode and render views.", min=0)] = (
        EncodingOptions.workers
    ),
    jobs: Jobs = None,
    executor: ExecutorName = LOCAL,
    address: Address = None,
    gpus: Gpus = 0,
    slurm: SlurmOptions = None,
    data_root: DataRoot = None,
    data: DataPaths = None,
    results: Results = None,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Run every cell of a suite; what is done is not repeated, and a cell that fails does not stop the others."""
    only_look = len(words) == 2 and words[0] == STATUS
    if len(words) != 1 + only_look:
        raise UsageError("write `ttabench suite FILE.yaml` or `ttabench suite status FILE.yaml`")
    where = Choice.of(executor, jobs, address, gpus, slurm)
    from tta_bench.runs import ledger
    from tta_bench.runs import suite as suites
    from tta_bench.runs.bench import Bench
    from tta_bench.system.progress import Terminal

    asked = suites.read(Path(words[-1]))
    fence = None
    if plugin:
        from tta_bench.runs.fence import Fence

        fence = Fence()
    bench = Bench(
        data_root=data_root,
        device=device,
        adapt_device=adapt_device,
        results=results,
        data=data_paths(data),
        registry=registry(plugin, no_plugin, fence),
        encoding=EncodingOptions(asked.features, batch_size, workers),
        fence=fence,
        progress=Terminal(),
    )
    cells = asked.cells(bench)
    if where.name == PRINT:
        print_lines(bench, cells, force=False)
        return
    notes = ledger.Ledger(bench)
    overview = Overview(cells, [notes.standing(spec) for spec in cells])
    if only_look or dry_run:
        overview.show()
        if dry_run:
            _estimate(bench, [spec for spec, at in zip(cells, overview.standings, strict=True) if at.record is None])
        return
    failures = Failures([])
    try:
        with overview.live(bench) as update:
            for cell in ledger.execute(bench, cells, retry_failed, asked.lenient, where.executor(bench)):
                state = ledger.State.FAILED if cell.record is None else ledger.State.DONE
                for number in (n for n, spec in enumerate(cells) if spec == cell.spec):  # 4 and 4.0 are one cell
                    update(number, ledger.Standing(state, cell.record, cell.failure, cell.exit_code))
                if cell.record is None:
                    failures.add(str(cell.spec), cell.failure, cell.exit_code)
                elif not cell.already:
                    bench.reporter.line(visible(line(cell.record, cell.already)))
    except KeyboardInterrupt:
        raise Interrupted from None
    overview.show()
    failures.end(counted(len(cells), "cell"))


class Place(NamedTuple):
    """Where a cell stands in the table: cells of one place differ in their seed alone."""

    row: str
    column: str


class Overview:
    """The cells of a suite as a table: methods with their settings down, datasets with backbones across."""

    def __init__(self, cells: Sequence[RunSpec], standings: Sequence[Standing]) -> None:
        self.standings = list(standings)
        self._places = _places(cells)

    def show(self) -> None:
        show_table(self._rows())
        states = [standing.state.value for standing in self.standings]
        if not all(standing.certain for standing in self.standings):
            print("* as recorded: only a run can tell whether a plugin's code and data are still those")
        print(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(("done", "failed", "waiting"))))

    @contextmanager
    def live(self, bench: Bench) -> Iterator[Callable[[int, Standing], None]]:
        """In a terminal the table is on the screen and fills; a log has the cells' own lines."""
        console = getattr(bench.reporter, "console", None)

        def keep(number: int, standing: Standing) -> None:
            self.standings[number] = standing

        if console is None or not console.is_terminal:
            yield keep
            return
        from rich.live import Live

        with Live(self._table(), console=console, transient=True, auto_refresh=False) as screen:

            def update(number: int, standing: Standing) -> None:
                keep(number, standing)
                screen.update(self._table(), refresh=True)

            yield update

    def _rows(self) -> list[list[str]]:
        rows = list(dict.fromkeys(place.row for place in self._places))
        columns = list(dict.fromkeys(place.column for place in self._places))
        return [["method", *columns]] + [[row, *(self._text(Place(row, column)) for column in columns)] for row in rows]

    def _text(self, place: Place) -> str:
        """Mean mAP and how many cells are done, as in "61.20 (3/5)"; runs over different images have no mean but a
        smallest and a largest."""
        here = [at for at, other in zip(self.standings, self._places, strict=True) if other == place]
        if not here:
            return ""
        records = [at.record for at in here if at.record is not None]
        failed = sum(bool(at.failure) for at in here)
        mark = "" if all(at.certain for at in here) else "*"
        return f"{mean_map(records)}{mark} ({len(records)}/{len(here)}{f', {failed} failed' if failed else ''})"

    def _table(self) -> Table:
        from rich.table import Table

        head, *rows = self._rows()
        table = Table(*map(visible, head), box=None)
        for row in rows:
            table.add_row(*map(visible, row))
        return table


def _places(cells: Sequence[RunSpec]) -> list[Place]:
    """Orders and packs of one name are told apart where there are several."""
    several_orders = len({spec.order for spec in cells}) > 1
    folders: dict[str, set[Path]] = {}
    for spec in cells:
        if spec.pack is not None:
            folders.setdefault(spec.pack.name, set()).add(spec.pack.parent)

    def place(spec: RunSpec) -> Place:
        settings = " ".join(f"{key}={value}" for key, value in spec.settings.items())
        column = f"{spec.dataset}/{spec.backbone}"
        if spec.pack is not None:
            column = spec.pack.name if len(folders[spec.pack.name]) == 1 else str(spec.pack)
        prompt = "" if spec.prompt == "photo" else f"/{spec.prompt}"
        order = f"/{spec.order}" if several_orders else ""
        order += "" if spec.limit is None else f" (n={spec.limit})"
        return Place(f"{spec.method_name} {settings}".strip(), f"{column}{prompt}{order}")

    return [place(spec) for spec in cells]


def _estimate(bench: Bench, todo: Sequence[RunSpec]) -> None:
    from tta_bench.runs.estimate import estimate

    found = estimate(bench, todo)
    print()
    print(f"{counted(len(todo), 'cell')} to run, by the records at hand:")
    print(f"  encoder forwards  {found.forwards:,}")
    print(f"  disk              {_size(found.bytes)}")
    print(f"  encoding          {_duration(found.encoding_seconds)}")
    print(f"  adapting          {_duration(found.adapting_seconds)}, both in one process")
    for note in found.notes:
        print(visible(f"  not included: {note}" if note.startswith("no record") else f"  note: {note}"))


def _size(count: int) -> str:
    for unit, name in ((TERABYTE, "TB"), (GIGABYTE, "GB")):
        if count >= unit:
            return f"{count / unit:.1f} {name}"
    return f"{count / MEGABYTE:.1f} MB"


def _duration(seconds: float) -> str:
    if seconds >= 2 * 3600:
        return f"{seconds / 3600:,.1f} h"
    return f"{seconds / 60:.1f} min" if seconds >= 120 else f"{seconds:.1f} s"
