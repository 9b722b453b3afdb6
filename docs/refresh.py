"""Runs the commands that README.md and docs/*.md show, and puts their output below them.

    python docs/refresh.py            rewrite the blocks (`make readme`)
    python docs/refresh.py --check    fail when a block no longer looks like its command's output (`make lint`)

A block is marked by a comment on the line before it:

    <!-- refresh -->                  a console block: its lines with a $ are run, the output follows
    <!-- refresh tail=20 -->          of the output the last 20 lines
    <!-- refresh measured -->         its rows are sorted by what was measured: the check only runs it
    <!-- refresh python -->           a python block that is run; the text block after it holds what it prints
    <!-- file NAME -->                a block that is a file of that name, for the commands below it
    <!-- not run: WHY -->             a console block that is left as it is (a test wants one of the two marks)

A page's commands share a folder and a home of their own, which are empty at its beginning; `make` runs in the
repository. The check compares forms: numbers, names of runs and widths of columns may differ, commands, words and
columns may not. It runs everything on a few images only.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BLOCK = re.compile(
    r"<!-- (?P<mark>refresh|file)(?P<options>[^>]*?) -->\n```(?P<kind>\w+)\n(?P<body>.*?)```\n"
    r"(?:\n?```text\n(?P<output>.*?)```\n)?",
    re.DOTALL,
)
FEW_IMAGES = "6"
WIDTH = "80"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    parser.add_argument("pages", nargs="*", type=Path, help="only these; by default README.md and docs/*.md")
    arguments = parser.parse_args()
    check = arguments.check
    stale = 0
    for file in arguments.pages or [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]:
        old = file.read_text(encoding="utf-8")
        if not BLOCK.search(old):
            continue
        with somewhere_new() as place:
            new = BLOCK.sub(lambda match, place=place: refreshed(match, check, place), old)  # type: ignore[misc]
        if not check and new != old:
            file.write_text(new, encoding="utf-8")
            sys.stdout.write(f"{file.name}: refreshed\n")
        if check and form(new) != form(old):
            stale += 1
            sys.stdout.writelines(difflib.unified_diff(form(old), form(new), str(file), "as it is now", n=1))
            sys.stdout.write(f"{file.name} is stale: `make readme` refreshes it\n")
    return 1 if stale else 0


@dataclass(frozen=True)
class Place:
    """Where the commands of one page run."""

    folder: Path
    home: Path

    def run(self, command: list[str], folder: Path | None = None) -> str:
        """What the command prints."""
        environment = os.environ | {
            "TTABENCH_HOME": str(self.home),
            "COLUMNS": WIDTH,
            "OMP_WAIT_POLICY": "PASSIVE",  # as the command sets it: threads that spin make Python code crawl
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            "MAKEFLAGS": "--no-print-directory --silent",
        }
        done = subprocess.run(
            command, cwd=folder or self.folder, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise SystemExit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
        return done.stdout + ("\n" if done.stdout and not done.stdout.endswith("\n") else "")


@contextmanager
def somewhere_new() -> Iterator[Place]:
    """So that nothing is known before."""
    with tempfile.TemporaryDirectory(prefix="ttabench-docs-") as folder:
        place = Place(Path(folder, "work"), Path(folder, "home"))
        place.folder.mkdir()
        yield place


def refreshed(block: re.Match[str], quick: bool, place: Place) -> str:
    """The block with the output of its commands as they are now."""
    options, kind, body = block["options"].split(), block["kind"], block["body"]
    if block["mark"] == "file":
        place.folder.joinpath(*options).write_text(body, encoding="utf-8")
        return block[0]
    if kind == "python":
        code = re.sub(r"limit=\d+", f"limit={FEW_IMAGES}", body) if quick else body
        output = place.run([sys.executable, "-c", code])
        return f"<!-- refresh{block['options']} -->\n```python\n{body}```\n\n```text\n{output}```\n"
    shown = []
    for command in (line for line in body.splitlines() if line.startswith("$ ")):
        typed = command.removeprefix("$ ").partition("  #")[0].strip()
        makes = typed.startswith("make ")
        if quick:
            typed = f"{typed} LIMIT={FEW_IMAGES}" if makes else re.sub(r"--limit \d+", f"--limit {FEW_IMAGES}", typed)
        lines = place.run(["bash", "-c", typed], ROOT if makes else None).splitlines()
        tail = next((int(o.removeprefix("tail=")) for o in options if o.startswith("tail=")), len(lines))
        cut = ["…"] if tail < len(lines) else []
        shown += [command, *cut, *lines[-tail:]]
    if quick and "measured" in options:
        return block[0]
    text = "\n".join(line.rstrip() for line in shown)
    return f"<!-- refresh{block['options']} -->\n```{kind}\n{text}\n```\n"


def form(text: str) -> list[str]:
    """The text without what may change from run to run: numbers, digests, and how wide a table came out."""
    text = re.sub(r"\b[0-9a-f]{12}\b", "DIGEST", text)
    text = re.sub(r"\d[\d,]*(?:\.\d+)?", "#", text)
    return [re.sub(r"[\s─━]+", " ", line).strip() + "\n" for line in text.splitlines()]


if __name__ == "__main__":
    sys.exit(main())
