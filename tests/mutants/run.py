"""Plants one small fault after the other in the formulas and asks the tests whether they notice: `make test-mutants`.

    python -m tests.mutants.run                 all mutants; writes tests/mutants/survivors.md
    python -m tests.mutants.run --again         those that survived the last time, where only tests were added since
    python -m tests.mutants.run --sample 200    so many of them, the same every time; writes nothing
    python -m tests.mutants.run --only purf     those of the files that have this in their path; writes nothing

The tests of a mutant are those that enter its function. One that reasons.toml says to compute the same is not tried,
and counts as a survivor. Each mutant has a process of its own, forked from one that has imported torch and the like but
nothing of the project: the mutated source is what every importer gets.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.mutants import report
from tests.mutants.mutations import Mutant, mutants_of
from tests.mutants.report import Outcome
from tests.mutants.session import BROKEN, Entered, module_of, preload, profile, start

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("tta_bench/functional", "tta_bench/metrics")
FILES = ("methods/purf.py",)
TESTS = (
    *(
        f"tests/unit/test_{name}.py"
        for name in (
            *("functional", "prototypes", "prompt_tuning", "purf_equations", "purf_settings"),
            *("metrics", "along", "bootstrap", "significance", "comparison", "single_label"),
        )
    ),
    "tests/golden",
)
LEAST = 88.0  # per cent killed


@dataclass(frozen=True)
class Running:
    mutant: Mutant
    deadline: float


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--again", action="store_true", help="try only those that survivors.md lists")
    parser.add_argument("--sample", type=int, metavar="N", help="try N mutants only")
    parser.add_argument("--only", default="", metavar="PART", help="only files with this in their path")
    parser.add_argument("--jobs", type=int, default=2, metavar="J", help="processes at a time")
    options = parser.parse_args()

    os.chdir(ROOT)
    os.environ["OMP_NUM_THREADS"] = "1"
    begin = time.monotonic()
    mutants = [mutant for file in sources() for mutant in mutants_of(file, Path(file).read_bytes())]
    chosen = [mutant for mutant in mutants if options.only in mutant.file]
    if options.again:
        listed = set(report.listed())
        chosen = [mutant for mutant in chosen if (mutant.place, mutant.change) in listed]
    if options.sample:
        chosen = random.Random(0).sample(chosen, min(options.sample, len(chosen)))
    preload()
    with tempfile.TemporaryDirectory(prefix="mutants") as folder:
        entered = profile(TESTS, {module_of(file) for file in sources()}, Path(folder))
        outcomes: dict[Mutant, Outcome] = {}
        for mutant, outcome in tried(chosen, entered, Path(folder), options.jobs):
            outcomes[mutant] = outcome
            if outcome == "survived" and not report.reason(mutant):
                sys.stdout.write(f"{len(outcomes)}/{len(chosen)} {report.plain(mutant)}\n")
                sys.stdout.flush()
    counted = mutants if options.again else chosen
    result = report.Result({mutant: outcomes.get(mutant, "killed") for mutant in counted})
    sys.stdout.write(f"{result.sentence()} {time.monotonic() - begin:.0f} s\n")
    if not options.sample and not options.only:
        report.write(result)
    return int(result.killed_share() < LEAST)


def sources() -> list[str]:
    """The files that are mutated."""
    found = (file for folder in FOLDERS for file in sorted((ROOT / folder).glob("*.py")))
    return [*(str(file.relative_to(ROOT)) for file in found), *FILES]


def tried(mutants: list[Mutant], entered: Entered, folder: Path, jobs: int) -> Iterator[tuple[Mutant, Outcome]]:
    """Each mutant with what became of it, some processes at a time."""
    waiting, running = list(reversed(mutants)), dict[int, Running]()
    while waiting or running:
        while waiting and len(running) < jobs:
            mutant = waiting.pop()
            sessions = [] if report.reason(mutant) else entered.sessions(mutant)
            if sessions:
                pid = start(mutant, sessions, folder)
                running[pid] = Running(mutant, time.monotonic() + entered.time_limit(sessions))
            else:
                yield mutant, "survived"
        for pid, outcome in ended(running):
            yield running.pop(pid).mutant, outcome
        time.sleep(0.005)


def ended(running: Mapping[int, Running]) -> list[tuple[int, Outcome]]:
    found: list[tuple[int, Outcome]] = []
    for pid, child in running.items():
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            if os.waitstatus_to_exitcode(status) == BROKEN:
                raise SystemExit(f"the tests of {child.mutant.file}, line {child.mutant.line} could not be run")
            found.append((pid, "survived" if status == 0 else "killed"))
        elif time.monotonic() > child.deadline:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            found.append((pid, "killed"))  # whoever waits for its result notices
    return found


if __name__ == "__main__":
    raise SystemExit(main())
