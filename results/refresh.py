"""Checks the committed runs and writes their table, LEADERBOARD.md, and their page, leaderboard.html.

    python results/refresh.py            check the runs, write table and page (`make results`)
    python results/refresh.py --check    check the runs, fail when either is stale (`make lint`)

A run is sound when its seal, its files' digests and its protocol match, and its metrics follow from its scores. The
page ends with a digest of what it was made of: its many digits would differ where another processor rounds otherwise.
"""

from __future__ import annotations

import argparse
import difflib
import subprocess
import sys
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

from tta_bench.errors import TTABenchError
from tta_bench.runs.exchange import checked
from tta_bench.system.files import digest

HERE = Path(__file__).resolve().parent
BYTES_AT_MOST = 10_000_000  # of all runs together: whoever clones the repository has them all
ABOVE = """# Results

The runs in [runs/](runs), as `ttabench leaderboard --format md --results results/runs` shows them. `make results`
writes this file; [README.md](README.md) says how to add a row.

"""
PAGE = "leaderboard.html"
PAGE_CODE = ("", "page", "page/assets")  # of tta_bench/report: numbers, words and looks
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
    stale = [*stale_table(arguments.folder, arguments.check), *stale_page(arguments.folder, arguments.check)]
    for name in stale:
        sys.stdout.write(
            f"{name} is stale: `make results` writes it anew\n" if arguments.check else f"{name}: written anew\n"
        )
    return 1 if arguments.check and stale else 0


def stale_table(folder: Path, check: bool) -> Iterator[str]:
    """Its name if it is not as the runs are; unless it is only checked, it is so afterwards."""
    file = folder / "LEADERBOARD.md"
    old = file.read_text(encoding="utf-8") if file.exists() else ""
    new = table(folder / "runs")
    if new == old:
        return
    if check:
        before, now = (text.splitlines(keepends=True) for text in (old, new))
        sys.stdout.writelines(difflib.unified_diff(before, now, file.name, "as it is now", n=1))
    else:
        file.write_text(new, encoding="utf-8")
    yield file.name


def stale_page(folder: Path, check: bool) -> Iterator[str]:
    """The same of the page; without a run there is none."""
    if not any((folder / "runs").glob("*/run.json")):
        return
    file, end = folder / PAGE, f"<!-- made of {ingredients(folder / 'runs')} -->\n"
    if file.exists() and file.read_text(encoding="utf-8").endswith(end):
        return
    if not check:
        file.write_text(shown(folder / "runs", "html").rstrip("\n") + "\n" + end, encoding="utf-8")
    yield file.name


def ingredients(runs: Path) -> str:
    """Digest of the runs, and of all code that makes a page of them."""
    code = resources.files("tta_bench.report")
    texts = [file.read_bytes() for name in PAGE_CODE for file in sorted(Path(str(code / name)).glob("*.*"))]
    return digest([digest(content) for content in (*texts, *(f.read_bytes() for f in sorted(runs.glob("*/run.json"))))])


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
    return ABOVE + shown(runs, "md").rstrip("\n") + "\n"


def shown(runs: Path, format_: str) -> str:
    command = [sys.executable, "-m", "tta_bench", "leaderboard", "--format", format_, "--results", str(runs)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
