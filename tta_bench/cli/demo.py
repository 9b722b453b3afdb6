"""`ttabench demo`: a genuine experiment on the embedded default, ending in its leaderboard. `make demo` calls it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from tta_bench.cli.executors import Failures
from tta_bench.cli.leaderboard import show_board
from tta_bench.cli.run import line
from tta_bench.errors import Interrupted
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    from tta_bench.records import RunRecord

METHODS = ("clip", "regions", "tda", "boostadapter", "dmn", "dpe", "reta", "purf")  # all that views and crops serve
DATASET, BACKBONE = "scenes", "tiny"
IMAGES = 300  # half of them, to stay below a minute on two cores
NEXT = {
    "ttabench compare --baseline regions": "can it be believed?",
    "ttabench leaderboard --format html -o table.html": "as a page",
    "ttabench new method mine --file": "your own, in one file",
}


def demo(
    limit: Annotated[int, typer.Option(help="Only the first N of the embedded images.", min=1)] = IMAGES,
) -> None:
    """Try it: eight methods on the embedded images and backbone, and what came of it, in less than a minute."""
    from tta_bench.plugins import Registry
    from tta_bench.runs import grid
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.spec import RunOptions
    from tta_bench.system.progress import Terminal

    bench = Bench(registry=Registry(only=[]), progress=Terminal())  # built-ins alone: the same table for everybody
    done: list[RunRecord] = []
    failures = Failures([])
    cells = grid.plan(bench, METHODS, [DATASET], [BACKBONE], [0], RunOptions(limit=limit))
    try:
        for cell in grid.execute(bench, cells):
            if cell.record is None:
                failures.add(str(cell.spec), cell.failure, cell.exit_code)
            else:
                done.append(cell.record)
                print(visible(line(cell.record, cell.already)), flush=True)
        if done:
            print()
            show_board(done)
    except KeyboardInterrupt:
        raise Interrupted from None
    failures.end(counted(len(cells), "run"))
    print("Three commands to try next:")
    width = max(map(len, NEXT))
    for command, what in NEXT.items():
        print(f"  {command:<{width}}  # {what}")
