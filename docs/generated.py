"""What the scripts of this folder share that write pages from the code: they write them, or say which are stale."""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
Same = Callable[[str, str], bool]


def write_or_check(about: str | None, pages: Callable[[], Mapping[str, str]], same: Same = str.__eq__) -> int:
    """Writes the pages, by their names below docs/; with --check compares them by `same` and writes nothing."""
    parser = argparse.ArgumentParser(description=(about or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare instead of writing")
    check = parser.parse_args().check
    stale = 0
    for name, new in pages().items():
        file = DOCS / name
        old = file.read_text(encoding="utf-8") if file.exists() else ""
        if old == new or (check and same(old, new)):
            continue
        if check:
            stale += 1
            before, now = (text.splitlines(keepends=True) for text in (old, new))
            sys.stdout.writelines(difflib.unified_diff(before, now, f"docs/{name}", "as it is now", n=0))
            sys.stdout.write(f"docs/{name} is stale: `make readme` writes it anew\n")
        else:
            file.parent.mkdir(exist_ok=True)
            file.write_text(new, encoding="utf-8")
            sys.stdout.write(f"docs/{name}: written\n")
    return 1 if stale else 0


def table(head: list[str], rows: list[list[str]]) -> str:
    """A Markdown table; a bar within a cell is written so that it ends none."""
    lines = [head, ["---"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
