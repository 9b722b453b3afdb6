"""`ttabench runs`: which runs are kept, and how they go away or to another machine. None of it imports torch."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tta_bench import records
from tta_bench.cli.housekeeping import Backbones, Datasets, Methods, Names, Yes, filters, require_consent, size_text
from tta_bench.cli.options import AsJson, Command, Results, complain
from tta_bench.errors import TTABenchError, UsageError
from tta_bench.system import paths
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    from tta_bench.runs.housekeeping import Kept

app = typer.Typer(help="The recorded runs: list, remove, and move between machines.", no_args_is_help=True)

Exported = Annotated[Path, typer.Argument(help="A folder with one folder per run.", metavar="DIR")]


@app.command("ls", cls=Command)
def ls(
    run: Names = None,
    method: Methods = None,
    dataset: Datasets = None,
    backbone: Backbones = None,
    json: AsJson = False,
    results: Results = None,
) -> None:
    """List runs with their mAP, images, seed, size and date, the unfinished and unreadable ones too."""
    found = _found(results, run, filters(method, dataset, backbone))
    if json:
        from tta_bench.report.formats import json_text

        print(json_text([_facts(kept) for kept in found]))
        return
    for line in _table([_row(kept) for kept in found], shutil.get_terminal_size().columns):
        print(line)
    for kept in found:
        if kept.record is None:
            complain(f"{kept.name}: {kept.problem}")
    print(f"{counted(len(found), 'run')}, {size_text(sum(kept.size for kept in found))} in {results or paths.runs()}")


def _found(results: Path | None, names: Sequence[str] | None, wanted: dict[str, list[str]]) -> list[Kept]:
    from tta_bench.runs.housekeeping import kept_runs, selected

    return selected(kept_runs(results or paths.runs()), names or [], wanted)


def _facts(kept: Kept) -> dict[str, Any]:
    facts: dict[str, Any] = {"run": kept.name, "bytes": kept.size, "problem": kept.problem}
    if kept.record is not None:
        fields = ("method", "dataset", "backbone", "prompt", "seed", "order", "n", "dataset_size", "created")
        facts |= {"mAP": kept.record.metrics.get("mAP"), "untrained": kept.record.random_weights}
        facts |= {**{name: getattr(kept.record, name) for name in fields}}
    return facts


HEADER = ("mAP", "images", "seed", "size", "date", "run")
DROPPED_FIRST = ("date", "size", "images")  # where a terminal is narrow


def _row(kept: Kept) -> tuple[str, ...]:
    """In the order of HEADER: what is of fixed width first, the name last."""
    record = kept.record
    if record is None:
        return ("–", "–", "–", size_text(kept.size), "–", visible(kept.name))
    value = record.metrics.get("mAP")
    images = f"{record.n:,}" if record.n == record.dataset_size else f"{record.n:,} of {record.dataset_size or '?'}"
    score = "–" if value is None else f"{value:.2f}"
    name = f"{visible(kept.name)}{' (untrained)' if record.random_weights else ''}"
    return (score, images, str(record.seed), size_text(kept.size), visible(record.created[:10]), name)


def _table(rows: Sequence[tuple[str, ...]], width: int) -> list[str]:
    columns = {name: [name, *(row[i] for row in rows)] for i, name in enumerate(HEADER)}
    widths = {name: max(map(len, column)) for name, column in columns.items()}
    for name in DROPPED_FIRST:
        if sum(widths[shown] + 2 for shown in columns) - 2 <= width:
            break
        del columns[name]
    cells = [[text.rjust(widths[name]) for text in column] for name, column in columns.items() if name != "run"]
    return ["  ".join(row) for row in zip(*cells, columns["run"], strict=True)]


@app.command("rm", cls=Command)
def rm(
    run: Names = None,
    method: Methods = None,
    dataset: Datasets = None,
    backbone: Backbones = None,
    yes: Yes = False,
    results: Results = None,
) -> None:
    """Delete runs: those named that also pass the filters. Asks first."""
    from tta_bench.runs.housekeeping import remove

    wanted = filters(method, dataset, backbone)
    if not run and not wanted:
        raise UsageError("runs rm: say which, by their names or with --method, --dataset or --backbone")
    found = _found(results, run, wanted)
    if not found:
        raise UsageError("no run is all of that, so nothing was deleted")
    for line in () if yes else _table([_row(kept) for kept in found], shutil.get_terminal_size().columns):
        print(line)
    size = size_text(sum(kept.size for kept in found))
    require_consent(f"delete {counted(len(found), 'run')} ({size}) in {results or paths.runs()}?", yes)
    failed = 0
    for kept in found:
        try:
            remove(kept)
        except TTABenchError as error:
            failed += 1
            complain(str(error))
    print(f"{counted(len(found) - failed, 'run')} deleted")
    if failed:
        raise typer.Exit(1)


@app.command("export", cls=Command)
def export(
    folder: Exported,
    run: Names = None,
    method: Methods = None,
    dataset: Datasets = None,
    backbone: Backbones = None,
    compact: Annotated[bool, typer.Option("--compact", help="Records and scores only.")] = False,
    results: Results = None,
) -> None:
    """Check runs and copy them into a folder, for `runs import` elsewhere."""
    wanted = filters(method, dataset, backbone)
    found = [kept.folder for kept in _found(results, run, wanted) if not kept.unfinished]
    if not found:
        raise UsageError(f"no runs to export in {results or paths.runs()}")
    merge(found, folder, compact=compact)


@app.command("import", cls=Command)
def import_(folder: Exported, results: Results = None) -> None:
    """Check the runs of a folder and take them in; one that is here with other scores is refused."""
    lost = [said for inside in sorted(folder.glob("*")) for said in records.leads_nowhere(inside)]
    for said in lost:
        complain(f"warning: {said}")
    found = [file.parent for file in sorted(folder.glob("*/run.json"))]
    if not found:
        raise UsageError(f"{folder}: no runs there, which are folders with a run.json")
    merge(found, results or paths.runs(), shared=True)
    if lost:
        raise typer.Exit(1)


def merge(sources: Sequence[Path], into: Path, *, compact: bool = False, shared: bool = False) -> None:
    """Copies what is sound, says what is not, and ends with code 1 if there was any such."""
    from tta_bench.runs.exchange import Outcome, add, checked

    outcomes: list[Outcome] = []
    for source in sources:
        try:
            run = checked(source)
            outcomes.append(add(run.compact() if compact else run, into, shared))
        except TTABenchError as error:
            complain(str(error))
    copied, refused = outcomes.count(Outcome.COPIED), len(sources) - len(outcomes)
    already = len(outcomes) - copied
    parts = [f"{counted(copied, 'run')} copied to {into}"]
    parts += [f"{already:,} there already"] if already else []
    parts += [f"{refused:,} refused"] if refused else []
    print(", ".join(parts))
    if refused:
        raise typer.Exit(1)
