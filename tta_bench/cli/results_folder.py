"""`ttabench results`: the runs that a repository keeps (results/README.md)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli.options import Command, Results, complain
from tta_bench.errors import TTABenchError, UsageError
from tta_bench.system import paths
from tta_bench.system.text import counted, visible

app = typer.Typer(help="The runs that the repository keeps.", no_args_is_help=True)


@app.command("add", cls=Command)
def add(
    run: Annotated[list[str], typer.Argument(help="Names of runs, or their beginnings, or folders.", metavar="RUN…")],
    into: Annotated[Path, typer.Option("--into", help="Where they are kept.", metavar="DIR")] = Path("results/runs"),
    results: Results = None,
) -> None:
    """Check runs and copy their records and scores. A newer run takes the place of an older one of the same cell."""
    from tta_bench.runs.committed import Committed
    from tta_bench.runs.exchange import checked

    if not into.parent.is_dir():
        raise UsageError(
            f"{into.parent}: no such folder; in a checkout of ttabench it is there, or --into DIR names one"
        )
    kept, added, refused = Committed(into), 0, 0
    for folder in _folders(run, results or paths.runs()):
        try:
            said = kept.add(checked(folder))
            added += said.added
            for line in said.lines:
                print(visible(line))
        except TTABenchError as error:
            refused += 1
            complain(str(error))
    print(f"{counted(added, 'run')} added to {into}: `make results` writes the table")
    if refused:
        raise typer.Exit(1)


def _folders(names: list[str], runs: Path) -> list[Path]:
    """Of each name: the folder that it is, or all runs that begin so."""
    from tta_bench.runs.housekeeping import kept_runs, selected

    found: list[Path] = []
    among = None
    for name in names:
        if "/" in name:
            found.append(Path(name))
            continue
        among = kept_runs(runs) if among is None else among
        found += [kept.folder for kept in selected(among, [name], {}) if not kept.unfinished]
    return list(dict.fromkeys(found))
