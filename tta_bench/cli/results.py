"""`ttabench list`, `leaderboard` and `show`: reading, never computing. None of them imports torch."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tta_bench import records
from tta_bench.errors import UnknownName, UsageError
from tta_bench.plugins import KINDS, Plugin, Registry
from tta_bench.records import RunRecord
from tta_bench.system import paths


def show_plugins(registry: Registry, kind: str, as_json: bool) -> None:
    if kind == "plugins":
        plugins = registry.plugins()
    elif kind in KINDS:
        plugins = registry.plugins(kind)
    else:
        raise UnknownName("kind", kind, (*KINDS, "plugins"), f"Choose one of {', '.join(KINDS)}, plugins.")
    if as_json:
        print(json.dumps([{**asdict(p), "summary": p.summary} for p in plugins], indent=1))
        return
    columns = {"name": "name", "from": "origin", "what": "summary"}
    if kind == "plugins":
        columns = {"entry point": "entry_point", "module": "module", "from": "origin"}
    _print_table(columns, plugins)
    for name in {p.name for p in plugins if sum(q.entry_point == p.entry_point for q in plugins) > 1}:
        offers = " and ".join(p.origin for p in plugins if p.name == name)
        print(f"ttabench: warning: two plugins offer '{name}': {offers}", file=sys.stderr)


def _print_table(columns: Mapping[str, str], plugins: Sequence[Plugin]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(*columns)
    for plugin in plugins:
        table.add_row(*(escape(getattr(plugin, attribute)) for attribute in columns.values()))
    Console().print(table)


# ---------------------------------------------------------------------------------------------------- leaderboard


def show_leaderboard(
    results: Path | None, format_: str, wanted: Mapping[str, Sequence[str]], random_weights: bool = False
) -> None:
    from tta_bench.report import board as leaderboard

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
        for table in leaderboard.to_console(runs, console.width):
            console.print(table)
        return
    render = {
        "md": leaderboard.to_markdown,
        "csv": leaderboard.to_csv,
        "latex": leaderboard.to_latex,
        "json": leaderboard.to_json,
    }[format_]
    print(render(runs).rstrip("\n"))


def _load_all(results: Path | None) -> list[RunRecord]:
    runs, problems = records.load_all(results or paths.runs())
    for problem in problems:
        print(f"ttabench: warning: {problem}", file=sys.stderr)
    return runs


# ----------------------------------------------------------------------------------------------------------- show


def show_run(results: Path | None, name: str, as_json: bool) -> None:
    show_mapping(_find(results, name).to_json(), as_json)


def show_mapping(content: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(content, indent=1, ensure_ascii=False))
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
