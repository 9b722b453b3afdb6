"""What `runs`, `store` and `results` share: filters, sizes, and the question before anything is deleted."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from tta_bench.cli.options import names
from tta_bench.errors import UsageError

Names = Annotated[
    list[str] | None, typer.Argument(help="Names of runs, or their beginnings; all by default.", metavar="[RUN]…")
]
Methods = Annotated[list[str] | None, typer.Option("--method", help="Only these; repeat it, or put commas.")]
Datasets = Annotated[list[str] | None, typer.Option("--dataset", help="Only these; repeat it, or put commas.")]
Backbones = Annotated[list[str] | None, typer.Option("--backbone", help="Only these; repeat it, or put commas.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Don't ask.")]


def filters(
    method: Sequence[str] | None, dataset: Sequence[str] | None, backbone: Sequence[str] | None
) -> dict[str, list[str]]:
    """Field of a record -> the values that are wanted."""
    given = {"method": method, "dataset": dataset, "backbone": backbone}
    return {field: names(values, f"--{field}") for field, values in given.items() if values}


def require_consent(question: str, yes: bool) -> None:
    """Goes on only when somebody agrees; where nobody can be asked, `--yes` has to say so."""
    if yes:
        return
    print(f"{question} [y/N] ", end="", flush=True)
    answer = sys.stdin.readline()
    if not answer.endswith("\n"):
        print()
    if not answer:
        raise UsageError("nobody is there to answer, so nothing was deleted: --yes deletes without asking")
    if answer.strip().casefold() not in ("y", "yes"):
        raise UsageError("nothing was deleted")


def size_text(count: int) -> str:
    """1234567 -> "1.2 MB"."""
    size, units = float(count), ["B", "kB", "MB", "GB", "TB"]
    while size >= 999.5 and len(units) > 1:
        size, units = size / 1000, units[1:]
    return f"{size:.1f} {units[0]}" if size < 9.95 and units[0] != "B" else f"{size:,.0f} {units[0]}"
