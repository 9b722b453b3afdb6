"""What became of the mutants: a sentence, and survivors.md with the reasons that reasons.toml gives."""

from __future__ import annotations

import functools
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from tests.mutants.mutations import Mutant

FOLDER = Path(__file__).parent
REASONS, SURVIVORS = FOLDER / "reasons.toml", FOLDER / "survivors.md"
Outcome: TypeAlias = Literal["killed", "survived"]


@dataclass(frozen=True)
class Result:
    outcomes: dict[Mutant, Outcome]

    def survivors(self, file: str = "") -> list[Mutant]:
        return [m for m, outcome in self.outcomes.items() if outcome == "survived" and file in ("", m.file)]

    def killed_share(self) -> float:
        """In per cent."""
        return 100 * (1 - len(self.survivors()) / len(self.outcomes))

    def sentence(self) -> str:
        total, survived = len(self.outcomes), len(self.survivors())
        return f"{total - survived} of {total} mutants killed: {self.killed_share():.1f} %."


@functools.cache
def reasons() -> dict[str, dict[str, str]]:
    """file::function -> change -> why no test can notice it."""
    return tomllib.loads(REASONS.read_text(encoding="utf-8"))


def write(result: Result) -> None:
    SURVIVORS.write_text("\n".join(page(result)) + "\n", encoding="utf-8")


def page(result: Result) -> Iterator[str]:
    explained = sum(reason(mutant) != "" for mutant in result.survivors())
    yield "# Mutants that the tests let live"
    yield ""
    yield "Written by `make test-mutants`, with the reasons of reasons.toml beside it: don't edit."
    yield ""
    yield f"{result.sentence()} Of the {len(result.survivors())} survivors {explained} have a reason."
    yield ""
    yield "| file | mutants | killed | % |"
    yield "|---|--:|--:|--:|"
    files = dict.fromkeys(mutant.file for mutant in result.outcomes)
    for file in files:
        total = sum(mutant.file == file for mutant in result.outcomes)
        killed = total - len(result.survivors(file))
        yield f"| {file} | {total} | {killed} | {100 * killed / total:.1f} |"
    for file in files:
        if survivors := result.survivors(file):
            yield from ("", f"## {file}", "")
            yield from ("| line | in | was | became | why nothing notices |", "|--:|---|---|---|---|")
            yield from map(_row, survivors)


def _row(mutant: Mutant) -> str:
    was, became = ("`" + line.replace("|", r"\|") + "`" for line in (mutant.was, mutant.became))
    return f"| {mutant.line} | {mutant.function} | {was} | {became} | {reason(mutant)} |"


def plain(mutant: Mutant) -> str:
    """For a terminal."""
    return f"{mutant.file}:{mutant.line} {mutant.function}: {mutant.change}"


def reason(mutant: Mutant) -> str:
    """Why no test can notice it, or nothing."""
    return reasons().get(mutant.place, {}).get(mutant.change, "")


def listed() -> Iterator[tuple[str, str]]:
    """Place and change of each survivor that survivors.md lists."""
    file = ""
    for line in SURVIVORS.read_text(encoding="utf-8").splitlines():
        if line.startswith("## "):
            file = line[3:]
        elif row := re.fullmatch(r"\| \d+ \| (.*?) \| `(.*)` \| `(.*)` \| .* \|", line):
            function, was, became = (cell.replace(r"\|", "|") for cell in row.groups())
            yield f"{file}::{function}", f"{was} → {became}"
