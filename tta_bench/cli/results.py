"""`ttabench leaderboard` and `show`: reading, never computing. Neither imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from tta_bench import records
from tta_bench.cli.options import AsJson, Results, choice, complain, names
from tta_bench.errors import UnknownName, UsageError
from tta_bench.records import RunRecord
from tta_bench.system import paths
from tta_bench.system.text import counted, visible

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
    from tta_bench.report.frame import long_form

    runs = _load_all(results)
    if not random_weights:
        untrained = sum(run.random_weights for run in runs)
        runs = [run for run in runs if not run.random_weights]
        if untrained:
            kind = "an untrained backbone" if untrained == 1 else "untrained backbones"
            complain(f"{counted(untrained, 'run')} of {kind} left out (--random-weights)")
    for field, values in wanted.items():
        known = {getattr(run, field) for run in runs}
        for value in values:
            if value not in known:
                shown = sorted(map(visible, known))
                raise UnknownName(f"{field} among the runs", value, shown, f"There are: {', '.join(shown)}.")
        runs = [run for run in runs if getattr(run, field) in values]
    if not runs:
        folder = results or paths.runs()
        raise UsageError(f"no runs in {folder}: `ttabench run --method clip` makes the first")
    frame = long_form(runs)
    if format_ == "console":
        from rich.console import Console

        from tta_bench.report.console import to_console

        console = Console()
        for table in to_console(frame, console.width):
            console.print(table)
        return
    from tta_bench.report.formats import render

    print(render(frame, format_).rstrip("\n"))


def _load_all(results: Path | None) -> list[RunRecord]:
    runs, problems = records.load_all(results or paths.runs())
    for problem in problems:
        complain(f"warning: {visible(problem)}")
    return runs


# ----------------------------------------------------------------------------------------------------------- show

IN_HEADLINE = ("method", "dataset", "backbone", "prompt", "seed", "order", "n", "dataset_size", "random_weights")
SETTINGS = ("tag", "changes", "hyper_parameters")
PROVENANCE = ("hardware", "provenance", "created", "files", "schema", "run_id", "identities")


def show(
    run: Annotated[str, typer.Argument(help="A run's name (or its beginning), or its folder.", metavar="RUN")],
    json: AsJson = False,
    results: Results = None,
) -> None:
    """Everything that is known of one run."""
    record = _find(results, run)
    if json:
        show_mapping(record.to_json(), as_json=True)
        return
    for line in _headline(record):
        print(visible(line))
    print()
    content = record.to_json()
    first = [name for name in SETTINGS if name in content]
    last = [name for name in PROVENANCE if name in content]
    between = [name for name in content if name not in (*first, *last, *IN_HEADLINE)]
    show_mapping({name: content[name] for name in (*first, *between, *last)}, as_json=False)


def _headline(record: RunRecord) -> Iterator[str]:
    """The numbers, and what they are of."""
    from tta_bench.report.board import UNTRAINED
    from tta_bench.report.frame import SCORES

    for metric, label in SCORES.items():
        value = record.metrics.get(metric)
        undefined = "undefined: no image of the stream has a label"
        yield _field(label, undefined if value is None else f"{value:.2f}")
    yield _field("images", _images(record.n, record.dataset_size))
    yield _field("method", record.method)
    yield _field("dataset", record.dataset)
    yield _field("backbone", f"{record.backbone} ({UNTRAINED})" if record.random_weights else record.backbone)
    yield _field("prompt", record.prompt)
    yield _field("seed", f"{record.seed}, order {record.order}")
    if "images_per_s" in record.speed:
        yield _field("images/s", f"{record.speed['images_per_s']:,.0f}")


def _images(n: int, size: int | None) -> str:
    if size is None:
        return f"{n:,} (of how many, the record does not say)"
    return f"{n:,}, all of the dataset" if n == size else f"{n:,} of {size:,}: a part of the dataset"


def show_mapping(content: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        from tta_bench.report.formats import json_text

        print(json_text(content))
        return
    for line in _readable(content):
        print(visible(line))


def _find(results: Path | None, name: str) -> RunRecord:
    if (Path(name) / "run.json").is_file():
        return records.load(Path(name))
    root = results or paths.runs()
    folders = [file.parent for file in sorted(root.glob("*/run.json"))]
    matches = [folder for folder in folders if folder.name == name] or [f for f in folders if f.name.startswith(name)]
    if not matches:
        known = [visible(folder.name) for folder in folders]
        raise UnknownName("run", name, known, f"`ttabench leaderboard --format csv` names those in {root}.")
    if len(matches) > 1:
        several = ", ".join(visible(folder.name) for folder in matches)
        raise UsageError(f"'{name}' begins the names of {len(matches)} runs: {several}")
    return records.load(matches[0], named=True)


def _readable(value: Mapping[str, Any], indent: int = 0) -> list[str]:
    """Nested JSON as indented lines."""
    pad = "  " * indent
    lines: list[str] = []
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            lines += [f"{pad}{key}", *_readable(item, indent + 1)]
        elif isinstance(item, float):
            lines.append(pad + _field(key, f"{item:.4g}"))
        elif isinstance(item, Mapping | list):
            lines.append(pad + _field(key, ", ".join(map(str, item)) or "none"))
        else:
            lines.append(pad + _field(key, "–" if item is None else item))
    return lines


def _field(name: str, value: object) -> str:
    return f"{name:<24} {value}"
