"""`ttabench plot`: one figure of some runs, for a paper."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tta_bench import records
from tta_bench.cli.options import Results, choice, complain, names
from tta_bench.errors import UnknownName, UsageError
from tta_bench.records import RunRecord
from tta_bench.system import paths
from tta_bench.system.text import visible

KINDS = ("stream", "turnover", "sweep", "classes", "pareto", "orders", "diagnostics", "agreement")
FILES = (".png", ".svg", ".pdf")


def plot(
    kind: Annotated[str, typer.Argument(help=f"{', '.join(KINDS[:-1])} or {KINDS[-1]}.", metavar="KIND")],
    output: Annotated[Path, typer.Option("--output", "-o", help="A .png, .svg or .pdf.", metavar="FILE")],
    run: Annotated[
        list[str] | None, typer.Argument(help="Names of runs, or their beginnings; else all.", metavar="RUN")
    ] = None,
    dataset: Annotated[list[str] | None, typer.Option(help="Only these; repeat it, or put commas.")] = None,
    backbone: Annotated[list[str] | None, typer.Option(help="Only these; repeat it, or put commas.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only these; repeat it, or put commas.")] = None,
    results: Results = None,
) -> None:
    """Draw runs: along the stream, by class, against cost, beside published numbers."""
    choice("KIND", kind, KINDS)
    if output.suffix.lower() not in FILES:
        raise UsageError(f"-o {output}: a figure is a {', '.join(FILES)} file")
    from tta_bench.report.figure_style import saved
    from tta_bench.report.figures import KINDS as drawers
    from tta_bench.system.files import write_atomically

    found, problems = records.load_all(results or paths.runs())
    for problem in problems:
        complain(f"warning: {visible(problem)}")
    found = [one for one in found if not one.random_weights]
    if run:
        found = [one for name in run for one in _named(found, name)]
    for field, values in {"dataset": dataset, "backbone": backbone, "method": method}.items():
        if values:
            wanted = names(values, f"--{field}")
            found = [one for one in found if getattr(one, field) in wanted]
    write_atomically(output, saved(drawers[kind](found), output.suffix[1:].lower()))
    complain(f"wrote {output}")


def _named(runs: list[RunRecord], name: str) -> list[RunRecord]:
    found = [run for run in runs if run.run_id.startswith(name)]
    if not found:
        raise UnknownName("run", name, [visible(run.run_id) for run in runs])
    return found
