"""`ttabench reproduce --figures`: what a paper draws, of the runs of its rows or of methods in mid-stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tta_bench.cli import replayed
from tta_bench.cli.options import complain
from tta_bench.errors import TTABenchError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tta_bench.records import RunRecord
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.suites import Attempt, Choice, Suite

NO_FILE_NAME = re.compile(r"[^\w.=-]+")
Drawing = tuple[str, "Callable[[], Figure]"]  # what it is called, and how to make it


def draw(suite: Suite, asked: Choice, attempts: Sequence[Attempt], bench: Bench, folder: Path) -> None:
    """What can't be drawn here is said, as what can't be run is."""
    from tta_bench.report.figure_style import saved
    from tta_bench.system.files import write_atomically

    for name, drawn in (*_of_runs(suite, attempts), *_in_mid_stream(suite, asked, bench)):
        file = folder / f"{suite.paper}-{suite.name}-{NO_FILE_NAME.sub('-', name)}.pdf"
        try:
            write_atomically(file, saved(drawn(), "pdf"))
        except TTABenchError as error:
            complain(f"{suite}: {name} can't be drawn: {error}")
        else:
            complain(f"wrote {file}")


def _of_runs(suite: Suite, attempts: Sequence[Attempt]) -> Iterator[Drawing]:
    """A sweep for each set of hyper-parameters that the rows vary; other kinds show all rows together."""
    from tta_bench.report.figures import KINDS
    from tta_bench.runs.suites import method_of

    for kind in [kind for kind in suite.figures if kind not in replayed.KINDS]:
        groups: dict[str, list[RunRecord]] = {}
        for attempt in attempts:
            varied = list(method_of(attempt.cell.row)[1]) if kind == "sweep" else []
            name = " ".join([kind, *varied, attempt.cell.dataset, attempt.cell.backbone])
            groups.setdefault(name, []).extend(attempt.records)
        for name, runs in groups.items():
            if runs:  # why there are none stands in the table
                yield name, partial(KINDS[kind], runs)


def _in_mid_stream(suite: Suite, asked: Choice, bench: Bench) -> Iterator[Drawing]:
    from tta_bench.runs.suites import replays

    for specs in replays(suite, asked):
        place = f"{bench.dataset_name(specs[0])} {asked.backbones[0] if specs[0].pack else specs[0].backbone}"
        for kind in suite.figures:
            if kind == "cache":
                step = min(suite.step or replayed.STEP, specs[0].limit or replayed.STEP)
                yield f"{kind} {place}", partial(replayed.cache, bench, specs, step, suite.shots or replayed.SHOTS)
            else:
                yield f"{kind} {place}", partial(replayed.regions, bench, specs[0], specs[0].limit)
