"""`ttabench compare`: which differences between methods can be believed. It does not import torch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli.found import filtered, find_run, trained_runs
from tta_bench.cli.options import Results, choice, complain, names
from tta_bench.errors import UsageError
from tta_bench.records import RunRecord
from tta_bench.system.text import counted

BASELINE = "clip"
FORMATS = ("table", "md", "csv", "json")
Several = Annotated[list[str] | None, typer.Option(help="Only these; repeat it, or put commas.")]


def compare(
    pair: Annotated[
        list[str] | None,
        typer.Argument(help="Two runs, methods, or #CONFIG as in tables: also class by class.", metavar="[A B]"),
    ] = None,
    baseline: Annotated[
        str | None, typer.Option(help="The method that all others are set against.", show_default="clip")
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="mAP, mAP_centered or mAP_softmax; repeat it, or put commas.", show_default="mAP"),
    ] = None,
    all_pairs: Annotated[bool, typer.Option("--all-pairs", help="Every two methods: for exploring.")] = False,
    dataset: Several = None,
    backbone: Several = None,
    method: Several = None,
    prompt: Several = None,
    format_: Annotated[str, typer.Option("--format", help="table, md, csv or json.")] = "table",
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Runs of untrained backbones as well.")
    ] = False,
    results: Results = None,
) -> None:
    """What methods gain over a baseline on the same images: differences, intervals, p, and classes that lose."""
    choice("--format", format_, FORMATS)
    spaces = names(metric or ["mAP"], "--metric")
    if pair and len(pair) != 2:
        raise UsageError(f"compare {' '.join(pair)}: name two runs or methods, or none to set all against --baseline")
    if (pair and (baseline or all_pairs or method)) or (baseline and all_pairs):
        raise UsageError("two names, --all-pairs, or --baseline with --method: each asks for another comparison")
    options = {"dataset": dataset, "backbone": backbone, "prompt": prompt}
    wanted = {name: names(values, f"--{name}") for name, values in options.items() if values}
    runs = filtered(trained_runs(results, random_weights), wanted)
    shown = names(method, "--method") if method else []
    filtered(runs, {"method": shown})  # refuses a name that nobody has
    if pair:
        _show_two(_chosen(runs, results, pair[0]), _chosen(runs, results, pair[1]), pair, spaces, format_)
    else:
        _show_all(_not_edited(runs), None if all_pairs else baseline or BASELINE, spaces, shown, format_)


def _not_edited(runs: Sequence[RunRecord]) -> list[RunRecord]:
    from tta_bench.report.selection import without_edited

    kept = without_edited(runs)
    if len(kept) < len(runs):
        complain(f"{counted(len(runs) - len(kept), 'run')} by code that was edited since left out (#CONFIG names one)")
    return kept


def _show_all(
    runs: Sequence[RunRecord], baseline: str | None, spaces: list[str], methods: list[str], format_: str
) -> None:
    from tta_bench.report.comparison import compare as compared

    found = compared(runs, baseline, spaces)
    if methods:  # left out after p was adjusted: looking at fewer rows must not make any of them more certain
        sides = ("method",) if baseline else ("method", "baseline")  # of two methods either may stand on the left
        rows = [row for row in found.rows if any(row[side] in methods for side in sides)]
        found = replace(found, rows=tuple(rows))
    for note in found.notes:
        complain(note)
    if not found.rows:
        raise UsageError(f"nothing to compare: no two runs {_with(baseline)}on the same images, seed and order")
    if format_ == "table":
        from rich.console import Console

        from tta_bench.report.comparison_text import to_console

        console = Console()
        for part in to_console(found.rows, console.width):
            console.print(part)
    elif format_ == "md":
        from tta_bench.report.comparison_text import to_markdown

        print(to_markdown(found.rows), end="")
    else:
        from tta_bench.report.formats import render

        print(render(found.to_frame(), format_), end="")


def _with(baseline: str | None) -> str:
    return "" if baseline is None else f"(one of them of {baseline}) "


def _show_two(
    one: Sequence[RunRecord], other: Sequence[RunRecord], asked: Sequence[str], spaces: list[str], format_: str
) -> None:
    from tta_bench.report.comparison import between

    duels, notes = between(one, other, spaces)
    for note in notes:
        complain(note)
    if not duels:
        raise UsageError(
            f"{asked[0]} and {asked[1]} can't be paired: they have no run of another configuration on the same images, "
            "seed and order in common (`ttabench diff RUN RUN` says in what two runs differ)"
        )
    if format_ == "table":
        from rich.console import Console

        from tta_bench.report.comparison_text import duels_to_console

        console = Console()
        for part in duels_to_console(duels, console.width):
            console.print(part)
    elif format_ == "md":
        from tta_bench.report.comparison_text import duels_to_markdown

        print(duels_to_markdown(duels), end="")
    else:
        from tta_bench.report.comparison import class_frame
        from tta_bench.report.formats import render

        print(render(class_frame(duels), format_), end="")


def _chosen(runs: Sequence[RunRecord], results: Path | None, name: str) -> list[RunRecord]:
    """The runs that a name means: of a method, of a configuration, or one run."""
    if name.startswith("#"):
        found = [run for run in runs if run.config.digest.startswith(name[1:])]
        if not found:
            raise UsageError(f"{name}: no run among these has a configuration whose digest begins so")
        digests = sorted({run.config.digest for run in found})
        if len(digests) > 1:  # p is of one comparison
            kinds = ", ".join(f"#{digest[:12]}" for digest in digests[:6])
            raise UsageError(f"{name} is the beginning of {len(digests)} configurations: name one of {kinds}")
        return found
    of_method = [run for run in runs if run.method == name]
    if not of_method:
        return [find_run(results, name)]
    of_method = _not_edited(of_method)
    configs = {run.config.digest: run for run in of_method}
    together: dict[str, set[str]] = {}  # on the same images
    for run in of_method:
        together.setdefault(run.protocol.digest, set()).add(run.config.digest)
    if max(map(len, together.values())) > 1 or len({tuple(run.changes.items()) for run in configs.values()}) > 1:
        kinds = ", ".join(f"#{d[:6]} ({_changes(run)})" for d, run in configs.items())
        raise UsageError(f"{name} was run in {len(configs)} configurations: name one of {kinds}")
    return of_method


def _changes(run: RunRecord) -> str:
    return " ".join(f"{key}={value}" for key, value in run.changes.items()) or "defaults"
