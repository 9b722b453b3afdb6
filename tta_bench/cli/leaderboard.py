"""`ttabench leaderboard`: what the records say. Imports no torch."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tta_bench import records
from tta_bench.cli.found import no_runs
from tta_bench.cli.options import Results, choice, complain, names
from tta_bench.records import RunRecord
from tta_bench.system import paths
from tta_bench.system.files import write_atomically
from tta_bench.system.outputs import refuse_inputs, refuse_others
from tta_bench.system.progress import Terminal
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    from tta_bench.report.leaderboard import Leaderboard

FORMATS = ("console", "md", "csv", "latex", "json", "html")
FILE_WIDTH = 100  # of the console's tables in a file
# By which a file is known as one: tables for readers, csv, json, and the page.
MARKS = (" per cell.", "method,dataset,backbone,prompt,seed,order,n,mAP", '"mAP_centered":', 'id="data"')
Several = Annotated[list[str] | None, typer.Option(help="Only these; repeat it, or put commas.")]


def leaderboard(
    format_: Annotated[
        str, typer.Option("--format", help="console, md, csv, latex, json or html: a page with all there is.")
    ] = "console",
    metric: Annotated[
        list[str] | None,
        typer.Option(
            help="mAP, mAP_centered, mAP_softmax, CF1, images_per_s …; repeat it, or put commas. "
            "By default all three mAP and the speed, in LaTeX mAP."
        ),
    ] = None,
    sort: Annotated[
        str, typer.Option(help="A metric, a dataset, `average` or `method`.", show_default="the first metric")
    ] = "",
    baseline: Annotated[
        str | None, typer.Option(help="The method that differences are to.", show_default="clip")
    ] = None,
    fast: Annotated[bool, typer.Option("--fast", help="No statistics: neither intervals, nor ranks, nor Δ.")] = False,
    dataset: Several = None,
    backbone: Several = None,
    method: Several = None,
    prompt: Several = None,
    n: Annotated[list[str] | None, typer.Option("--n", help="Only runs of so many images.")] = None,
    tag: Several = None,
    protocol: Annotated[list[str] | None, typer.Option(help="Only these: the beginning of a digest.")] = None,
    order: Several = None,
    latest: Annotated[bool, typer.Option("--latest", help="Of runs alike in name, only the last.")] = False,
    all_: Annotated[bool, typer.Option("--all", help="Rows by code that was edited since, too.")] = False,
    mixed: Annotated[
        bool, typer.Option("--mixed", help="One column per dataset: gaps filled from other protocols, and marked †.")
    ] = False,
    columns: Annotated[str, typer.Option(help="LaTeX: wide, or narrow for one of two columns.")] = "wide",
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Show runs of untrained backbones as well.")
    ] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="A file in place of the terminal.", metavar="FILE")
    ] = None,
    results: Results = None,
) -> None:
    """Tables of all runs, best first: methods × datasets, one per backbone and prompt."""
    from tta_bench.report.board import Wanted
    from tta_bench.report.leaderboard import Leaderboard, metrics_of, opening_of
    from tta_bench.report.selection import Selection

    format_ = choice("--format", format_, FORMATS)
    columns = choice("--columns", columns, ("wide", "narrow"))
    options = {
        "dataset": dataset,
        "backbone": backbone,
        "method": method,
        "prompt": prompt,
        "n": n,
        "tag": tag,
        "protocol": protocol,
        "order": order,
    }
    asked = {name: names(values, f"--{name}") for name, values in options.items() if values}
    loaded = _loaded(results)
    if output is not None:
        refuse_inputs(output, [run.folder for run in loaded if run.folder is not None])
        refuse_others(output, "leaderboard", _is_board)
    runs, family, edited = Selection(asked, latest, all_).of(_trained(loaded, random_weights))
    if edited:
        complain(f"{counted(edited, 'run')} by code that was edited since left out (--all)")
    if not runs:
        raise no_runs(results)
    chosen = tuple(names(metric, "--metric")) if metric else ()
    wanted = Wanted(metrics_of(format_, chosen), sort, baseline or Wanted.baseline, mixed, edited)
    opening = None
    if format_ == "html":
        opening = opening_of(runs, replace(wanted, metrics=chosen, baseline=baseline or ""), fast)
    board = Leaderboard(runs, wanted, fast, columns, Terminal(), opening, family)
    if output is None:
        _print(board, format_)
    else:
        write_atomically(output, board.text(format_, FILE_WIDTH).encode(errors="backslashreplace"))


def _is_board(file: Path) -> bool:
    text = " ".join(file.read_text(errors="replace").split())
    return any(mark in text for mark in MARKS)


def show_board(runs: list[RunRecord]) -> None:
    """The leaderboard of these runs alone, as `ttabench leaderboard` prints it."""
    from tta_bench.report.board import Wanted
    from tta_bench.report.leaderboard import Leaderboard

    _print(Leaderboard(runs, Wanted(), reporter=Terminal()), "console")


def show_grid(runs: list[RunRecord]) -> None:
    """The table that a grid ends with: compact, and without statistics, which would keep the user waiting."""
    from tta_bench.report.board import Wanted
    from tta_bench.report.frame import SCORES
    from tta_bench.report.leaderboard import Leaderboard

    if len(runs) > 1:
        print()
        _print(Leaderboard(runs, Wanted(metrics=tuple(SCORES)), fast=True), "console")


def _print(board: Leaderboard, format_: str) -> None:
    if format_ != "console":
        print(board.text(format_, FILE_WIDTH).rstrip("\n"))
        return
    from rich.console import Console

    console = Console()
    for part in board.parts(console.width):
        console.print(part)


def _trained(runs: list[RunRecord], random_weights: bool) -> list[RunRecord]:
    trained = [run for run in runs if random_weights or not run.random_weights]
    if untrained := len(runs) - len(trained):
        kind = "an untrained backbone" if untrained == 1 else "untrained backbones"
        complain(f"{counted(untrained, 'run')} of {kind} left out (--random-weights)")
    return trained


def _loaded(results: Path | None) -> list[RunRecord]:
    runs, problems = records.load_all(results or paths.runs())
    for problem in problems:
        complain(f"warning: {visible(problem)}")
    return runs
