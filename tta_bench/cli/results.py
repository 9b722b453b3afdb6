"""`ttabench leaderboard` and `show`: reading, never computing. Neither imports torch."""

from __future__ import annotations

import json as json_
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tta_bench import records
from tta_bench.cli.options import AsJson, Results, choice, names
from tta_bench.errors import UnknownName, UsageError
from tta_bench.records import RunRecord
from tta_bench.system import paths

FORMATS = ("console", "md", "csv", "latex", "json")


# ---------------------------------------------------------------------------------------------------- leaderboard


def leaderboard(
    format_: Annotated[str, typer.Option("--format", help="console, md, csv, latex or json.")] = "console",
    dataset: Annotated[list[str] | None, typer.Option(help="Only these; repeat it, or put commas.")] = None,
    backbone: Annotated[list[str] | None, typer.Option(help="Only these; repeat it, or put commas.")] = None,
    method: Annotated[list[str] | None, typer.Option(help="Only these; repeat it, or put commas.")] = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Show runs of untrained backbones as well.")
    ] = False,
    results: Results = None,
) -> None:
    """Tables of all runs: methods × datasets, one per backbone and prompt."""
    options = {"dataset": dataset, "backbone": backbone, "method": method}
    wanted = {name: names(values, f"--{name}") for name, values in options.items() if values}
    show_leaderboard(results, choice("--format", format_, FORMATS), wanted, random_weights)


def show_leaderboard(
    results: Path | None, format_: str, wanted: Mapping[str, Sequence[str]], random_weights: bool = False
) -> None:
    from tta_bench.report import board

    runs = _load_all(results)
    if not random_weights:
        untrained = sum(run.random_weights for run in runs)
        runs = [run for run in runs if not run.random_weights]
        if untrained:
            print(f"ttabench: {untrained} runs of untrained backbones left out (--random-weights)", file=sys.stderr)
    for field, values in wanted.items():
        known = {getattr(run, field) for run in runs}
        for value in values:
            if value not in known:
                raise UnknownName(f"{field} among the runs", value, known, f"There are: {', '.join(sorted(known))}.")
        runs = [run for run in runs if getattr(run, field) in values]
    if not runs:
        folder = results or paths.runs()
        raise UsageError(f"no runs in {folder}: `ttabench run --method clip` makes the first")
    if format_ == "console":
        from rich.console import Console

        console = Console()
        for table in board.to_console(runs, console.width):
            console.print(table)
        return
    render = {
        "md": board.to_markdown,
        "csv": board.to_csv,
        "latex": board.to_latex,
        "json": board.to_json,
    }[format_]
    print(render(runs).rstrip("\n"))


def _load_all(results: Path | None) -> list[RunRecord]:
    runs, problems = records.load_all(results or paths.runs())
    for problem in problems:
        print(f"ttabench: warning: {problem}", file=sys.stderr)
    return runs


# ----------------------------------------------------------------------------------------------------------- show


def show(
    run: Annotated[str, typer.Argument(help="A run's name (or its beginning), or its folder.", metavar="RUN")],
    json: AsJson = False,
    results: Results = None,
) -> None:
    """Everything that is known of one run."""
    show_mapping(_find(results, run).to_json(), json)


def show_mapping(content: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json_.dumps(content, indent=1, ensure_ascii=False))
        return
    from rich.console import Console

    console = Console(highlight=False, soft_wrap=True)
    for line in _readable(content):
        console.print(line, markup=False)


def _find(results: Path | None, name: str) -> RunRecord:
    if (Path(name) / "run.json").is_file():
        return records.load(Path(name))
    root = results or paths.runs()
    folders = [file.parent for file in sorted(root.glob("*/run.json"))]
    matches = [folder for folder in folders if folder.name == name] or [f for f in folders if f.name.startswith(name)]
    if not matches:
        raise UnknownName(
            "run", name, [f.name for f in folders], f"`ttabench leaderboard --format csv` names those in {root}."
        )
    if len(matches) > 1:
        raise UsageError(f"'{name}' begins the names of {len(matches)} runs: {', '.join(f.name for f in matches)}")
    return records.load(matches[0])


def _readable(value: Any, indent: int = 0) -> list[str]:
    """Nested JSON as indented lines."""
    pad = "  " * indent
    lines: list[str] = []
    for key, item in value.items():
        if isinstance(item, dict) and item:
            lines += [f"{pad}{key}", *_readable(item, indent + 1)]
        else:
            shown = (
                f"{item:.4g}"
                if isinstance(item, float)
                else ", ".join(map(str, item))
                if isinstance(item, list)
                else item
            )
            lines.append(f"{pad}{key:<24} {shown}")
    return lines
