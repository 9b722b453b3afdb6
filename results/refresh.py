"""Checks the committed runs and writes their table, LEADERBOARD.md.

    python results/refresh.py            check the runs, write the table (`make results`)
    python results/refresh.py --check    check the runs, fail when the table is stale (`make lint`)

A run is sound when its seal, its files' digests and its protocol match, and its metrics follow from its scores.
"""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
from pathlib import Path

from tta_bench.errors import TTABenchError
from tta_bench.runs.exchange import checked

HERE = Path(__file__).resolve().parent
BYTES_AT_MOST = 10_000_000  # of all runs together: whoever clones the repository has them all
ABOVE = """# Results

The runs in [runs/](runs), as `ttabench leaderboard --format md --results results/runs` shows them. `make results`
writes this file; [README.md](README.md) says how to add a row.

"""
NO_RUNS = "No run is committed yet: `make results-run` makes them.\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("folder", nargs="?", type=Path, default=HERE, help="where runs/ and the table are")
    arguments = parser.parse_args()
    faults = list(unsound(arguments.folder / "runs"))
    for fault in faults:
        sys.stdout.write(f"{fault}\n")
    if faults:
        return 1
    page = arguments.folder / "LEADERBOARD.md"
    old = page.read_text(encoding="utf-8") if page.exists() else ""
    new = table(arguments.folder / "runs")
    if arguments.check and new != old:
        before, now = (text.splitlines(keepends=True) for text in (old, new))
        sys.stdout.writelines(difflib.unified_diff(before, now, page.name, "as it is now", n=1))
        sys.stdout.write(f"{page.name} is stale: `make results` writes it anew\n")
        return 1
    if new != old:
        page.write_text(new, encoding="utf-8")
        sys.stdout.write(f"{page.name}: written anew\n")
    return 0


def unsound(runs: Path) -> list[str]:
    """A line for each thing that must not be committed."""
    faults, size = [], 0
    for folder in sorted(runs.glob("*")):
        try:
            run = checked(folder)
        except TTABenchError as error:
            faults.append(str(error))
            continue
        if not run.record.sealed:
            faults.append(f"{folder}: its record has no seal")
        size += sum(map(len, run.contents.values()))
        strangers = sorted({file.name for file in folder.iterdir()} - set(run.contents))
        faults += [f"{folder / name}: no file of the run" for name in strangers]
    if size > BYTES_AT_MOST:
        faults.append(f"{runs}: {size / 1e6:.1f} MB, and {BYTES_AT_MOST / 1e6:.0f} MB is the most")
    return faults


def table(runs: Path) -> str:
    if not any(runs.glob("*/run.json")):
        return ABOVE + NO_RUNS
    command = [sys.executable, "-m", "tta_bench", "leaderboard", "--format", "md", "--results", str(runs)]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return ABOVE + shown.rstrip("\n") + "\n"


if __name__ == "__main__":
    sys.exit(main())
