"""Which of the recorded runs a command is about: by name, by their beginning, by what they are of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from tta_bench import records
from tta_bench.cli.options import complain
from tta_bench.errors import UnknownName, UsageError
from tta_bench.records import RunRecord
from tta_bench.system import paths
from tta_bench.system.text import counted, visible


def find_run(results: Path | None, name: str) -> RunRecord:
    """Of the results the run of that name, or the only one whose name begins so; else the one in the folder there."""
    root, there = results or paths.runs(), Path(name).resolve()
    folders = [file.parent for file in sorted(root.glob("*/run.json"))]
    matches = [folder for folder in folders if folder.name == name] or [f for f in folders if f.name.startswith(name)]
    if not matches and (there / "run.json").is_file():
        return records.load(there, named=True)
    if not matches:
        known = [visible(folder.name) for folder in folders]
        raise UnknownName("run", name, known, f"`ttabench leaderboard --format csv` names those in {root}.")
    if len(matches) > 1:
        several = ", ".join(visible(folder.name) for folder in matches)
        raise UsageError(f"'{name}' begins the names of {len(matches)} runs: {several}")
    return records.load(matches[0], named=True)


def trained_runs(results: Path | None, untrained_too: bool) -> list[RunRecord]:
    """All sound records of a folder; what is left out is said."""
    runs, problems = records.load_all(results or paths.runs())
    for problem in problems:
        complain(f"warning: {visible(problem)}")
    if not runs:
        raise no_runs(results)
    if untrained_too:
        return runs
    kept = [run for run in runs if not run.random_weights]
    if len(kept) < len(runs):
        complain(f"{counted(len(runs) - len(kept), 'run')} with random weights left out (--random-weights)")
    return kept


def no_runs(results: Path | None) -> UsageError:
    """Says where there are some: a folder of results has them one level further down."""
    if results is not None and results.is_file():
        return UsageError(f"--results {results}: a folder of runs is wanted, not a file")
    if results is not None and (results / "run.json").is_file():
        return UsageError(f"--results {results} is one run: name the folder that it is in, {results.absolute().parent}")
    below = None if results is None else results / "runs"
    if below is not None and any(below.glob("*/run.json")):
        return UsageError(f"no runs in {results}: they are in {below}")
    return UsageError(f"no runs in {results or paths.runs()}: `ttabench run --method clip` makes the first")


def filtered(runs: Sequence[RunRecord], wanted: Mapping[str, Sequence[str]]) -> list[RunRecord]:
    """Those whose fields have one of the wanted values; a value that nobody has is a mistake."""
    kept = list(runs)
    for field, values in wanted.items():
        known = {str(getattr(run, field)) for run in kept}
        for value in values:
            if value not in known:
                shown = sorted(map(visible, known))
                raise UnknownName(f"{field} among the runs", value, shown, f"There are: {', '.join(shown)}.")
        kept = [run for run in kept if getattr(run, field) in values]
    return kept
