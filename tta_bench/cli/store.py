"""`ttabench store`: what the features take, and what of them no run needs. None of it imports torch."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tta_bench.cli.housekeeping import Yes, require_consent, size_text
from tta_bench.cli.options import AsJson, Command, complain
from tta_bench.errors import TTABenchError, UsageError
from tta_bench.system import paths
from tta_bench.system.files import bytes_on_disk
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    from tta_bench.features.store_usage import StoredEntry, Usage
    from tta_bench.records import RunRecord

app = typer.Typer(help="The stored features: what takes how much, and what no run needs.", no_args_is_help=True)

MoreRuns = Annotated[
    list[Path] | None,
    typer.Option("--results", help="Another folder of runs, whose features are needed too.", metavar="DIR"),
]
BESIDE = {  # what else is in TTABENCH_HOME, and what it is
    "runs": "records and scores",
    "statistics": "made again when missing",
    "known": "made again when missing",
    "contents": "made again when missing",
    "data": "datasets",
}


@app.command("ls", cls=Command)
def ls(json: AsJson = False, results: MoreRuns = None) -> None:
    """List the stored features, the largest first, with the number of runs that need them."""
    runs, problems = _runs(results)
    found = _usage(runs)
    if json:
        from tta_bench.report.formats import json_text

        print(json_text([_facts(one) for one in found]))
        return
    for problem in problems:
        complain(f"warning: {problem}")
    names = _names(runs)
    for one in found:
        print(_line(one, names, shutil.get_terminal_size().columns))
    unused = [one.entry for one in found if not one.runs]
    print(f"{size_text(_total(one.entry for one in found)):>7}  store, {paths.store()}")
    if unused and not problems:
        print(f"{size_text(_total(unused)):>7}  of it no run needs: `ttabench store gc` deletes that")
    for name, what in BESIDE.items():
        if (paths.home() / name).is_dir():
            print(f"{size_text(bytes_on_disk(paths.home() / name)):>7}  {name}: {what}")


@app.command("gc", cls=Command)
def gc(yes: Yes = False, results: MoreRuns = None) -> None:
    """Delete the features that no run needs. Asks first; a later run encodes again what it lacks."""
    from tta_bench.features.store_usage import remove

    runs, problems = _runs(results)
    if problems:
        raise UsageError(
            f"{counted(len(problems), 'record')} can't be read, so what they need can't be told: {problems[0]}; "
            "`ttabench runs rm NAME` deletes one"
        )
    _refuse_while_running(results)
    unused = [one for one in _usage(runs) if not one.runs]
    if not unused:
        print(f"nothing to delete: {counted(len(runs), 'run')} need all that is in {paths.store()}")
        return
    names = _names(runs)
    for one in unused:
        print(_line(one, names, shutil.get_terminal_size().columns))
    _mention_unfinished(results)
    size = size_text(_total(one.entry for one in unused))
    require_consent(f"delete these {len(unused):,} ({size}), which none of {counted(len(runs), 'run')} needs?", yes)
    freed: list[StoredEntry] = []
    for one in unused:
        try:
            remove(one.entry)
            freed.append(one.entry)
        except TTABenchError as error:
            complain(str(error))
    print(f"{size_text(_total(freed))} freed")
    if len(freed) < len(unused):
        raise typer.Exit(1)


def _folders(results: Sequence[Path] | None) -> list[Path]:
    return [paths.runs(), *(results or [])]


def _runs(results: Sequence[Path] | None) -> tuple[list[RunRecord], list[str]]:
    """All runs, and a line for each record that can't be read."""
    from tta_bench import records

    for folder in results or []:
        if not folder.is_dir():
            raise UsageError(f"--results {folder}: no such folder")
    loaded = [records.load_all(folder) for folder in _folders(results)]
    return [run for runs, _ in loaded for run in runs], [line for _, problems in loaded for line in problems]


def _usage(runs: Sequence[RunRecord]) -> list[Usage]:
    from tta_bench.features.store_usage import entries, usage

    return usage(entries(paths.store()), runs)


def _refuse_while_running(results: Sequence[Path] | None) -> None:
    from tta_bench.features.store_usage import runs_going_on

    going_on = [name for folder in _folders(results) for name in runs_going_on(folder)]
    if going_on:
        raise UsageError(f"{visible(going_on[0])} is running, and what it needs can't be told: try again after it")


def _mention_unfinished(results: Sequence[Path] | None) -> None:
    from tta_bench.runs.housekeeping import kept_runs

    unfinished = [run.name for folder in _folders(results) for run in kept_runs(folder) if run.unfinished]
    if unfinished:
        complain(f"{counted(len(unfinished), 'unfinished run')} may need some of it: {', '.join(unfinished)}")


def _total(entries: Iterable[StoredEntry]) -> int:
    return sum(entry.size for entry in entries)


def _names(runs: Iterable[RunRecord]) -> dict[str, str]:
    """Digest of a backbone -> its name, as far as a record tells."""
    return {str(run.protocol.parts.get("backbone_digest")): run.backbone for run in runs}


def _line(one: Usage, names: dict[str, str], width: int) -> str:
    entry, key = one.entry, one.entry.key
    start = f"{size_text(entry.size):>7}  "
    if key is None:
        return f"{start}{visible(entry.folder.name)}: set aside or damaged, never read"
    # A dataset stands in the key with its code, so only a run can say its name.
    dataset = ", ".join(sorted({run.dataset for run in one.runs})) or f"dataset {key['dataset'][:8]}"
    backbone = names.get(key["backbone"]) or f"backbone {key['backbone'][:8]}"
    images = f"{entry.encoded:,} of {counted(entry.shape[0], 'image')}"
    needed = f"for {counted(len(one.runs), 'run')}" if one.runs else "no run needs it"
    what = visible(f"{key['recipe']} seed {key['seed']}, {dataset}, {backbone}, {key['dtype']}")
    line = f"{start}{what}; {images}; {needed}"
    return line if len(line) <= width else f"{start}{what};\n{' ' * len(start)}{images}; {needed}"


def _facts(one: Usage) -> dict[str, Any]:
    return {
        "folder": str(one.entry.folder),
        "bytes": one.entry.size,
        "key": one.entry.key,
        "shape": list(one.entry.shape),
        "images_encoded": one.entry.encoded,
        "runs": [run.run_id for run in one.runs],
    }
