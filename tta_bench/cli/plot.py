"""`ttabench plot`: one figure for a paper, of some runs or of a method in mid-stream."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tta_bench import records
from tta_bench.cli import replayed
from tta_bench.cli.options import DataPaths, DataRoot, PluginFiles, Results, choice, complain, names
from tta_bench.errors import UnknownName, UsageError
from tta_bench.records import RunRecord
from tta_bench.system import paths
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OF_RUNS = ("stream", "turnover", "sweep", "classes", "pareto", "orders", "diagnostics", "agreement")
KINDS = (*OF_RUNS, *replayed.KINDS)
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
    dpi: Annotated[int, typer.Option(help="Dots per inch of a .png.", min=50, max=1200)] = 300,
    results: Results = None,
    step: Annotated[
        int | None, typer.Option(help="cache: after so many images (2000). regions: of that image (100).", min=1)
    ] = None,
    shots: Annotated[int | None, typer.Option(help="cache: entries per class (7).", min=1)] = None,
    image: Annotated[str | None, typer.Option(help="regions: of the image of this id.", metavar="ID")] = None,
    photo: Annotated[
        Path | None, typer.Option(help="regions: the image's file, which a pack does not hold.", metavar="FILE")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="cache, regions: of order and views.", min=0)] = None,
    pack: Annotated[Path | None, typer.Option(help="cache, regions: features from a file.", metavar="FILE")] = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="cache, regions: an untrained backbone.")
    ] = False,
    data_root: DataRoot = None,
    data: DataPaths = None,
    plugin: PluginFiles = None,
) -> None:
    """Draw runs (along the stream, by class, against cost …), or what a method holds and sees in mid-stream."""
    choice("KIND", kind, KINDS)
    if output.suffix.lower() not in FILES:
        raise UsageError(f"-o {output}: a figure is a {', '.join(FILES)} file")
    from tta_bench.report.figure_style import saved
    from tta_bench.system.files import write_atomically
    from tta_bench.system.outputs import refuse_others

    refuse_others(output, "figure", lambda file: b"Matplotlib" in file.read_bytes())  # which signs all that it draws
    asked = replayed.Replayed(step, shots, image, photo, seed, pack, random_weights, data_root, tuple(data or ()))
    if kind in replayed.KINDS:
        if run or results:
            raise UsageError(f"`plot {kind}` replays features and needs no runs: leave RUN and --results out")
        figure = asked.figure(kind, method or (), dataset or (), backbone or (), plugin or [])
    else:
        if given := [*asked.given(), *(["--plugin"] if plugin else [])]:
            raise UsageError(f"{', '.join(given)}: for `plot cache` and `plot regions` only")
        figure = _of_runs(kind, run or [], {"dataset": dataset, "backbone": backbone, "method": method}, results)
    write_atomically(output, saved(figure, output.suffix[1:].lower(), dpi))
    complain(f"wrote {output}")


def _of_runs(kind: str, wanted: list[str], filters: dict[str, list[str] | None], results: Path | None) -> Figure:
    from tta_bench.report.figures import KINDS as drawers
    from tta_bench.report.selection import without_edited

    found, problems = records.load_all(results or paths.runs())
    for problem in problems:
        complain(f"warning: {visible(problem)}")
    found = [one for one in found if not one.random_weights]
    if wanted:
        found = [one for name in wanted for one in _named(found, name)]
    for field, values in filters.items():
        if values:
            chosen = names(values, f"--{field}")
            found = [one for one in found if getattr(one, field) in chosen]
    if not wanted and len(recent := without_edited(found)) < len(found):
        edited = counted(len(found) - len(recent), "run")
        complain(f"{edited} by code that was edited since left out: name runs to see them")
        found = recent
    return drawers[kind](found)


def _named(runs: list[RunRecord], name: str) -> list[RunRecord]:
    found = [run for run in runs if run.run_id.startswith(name)]
    if not found:
        raise UnknownName("run", name, [visible(run.run_id) for run in runs])
    return found
