"""asked.txt beside a run: when it was last asked for. A run that is done is not repeated, so its record can't tell.

Of rows that differ only in their code a table shows the last. Whoever tries an edit, takes it back and runs the same
command again means the first one.
"""

from __future__ import annotations

import datetime
from pathlib import Path

from tta_bench.errors import StoreError
from tta_bench.system.files import write_atomically

FILE = "asked.txt"
LONGEST = 40  # characters of a time


def note(folder: Path) -> str:
    """What to say if it can't be noted, as results may be read-only or a disk full, and a table may go wrong by it."""
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    try:
        write_atomically(folder / FILE, now.encode(), durable=False)
    except StoreError:
        beside = folder.parent.glob(f"{folder.name.rpartition('-')[0]}-*")  # perhaps the same by other code
        if any(other != folder for other in beside):
            return (
                f"that it was asked for again can't be noted in {folder}: of runs that differ in nothing but their "
                "code, tables go on showing the one that ran last"
            )
    return ""


def read(folder: Path) -> str:
    """As `created` has it; empty if nobody has asked since, or it can't be read."""
    try:
        if not (folder / FILE).is_file():  # a pipe would never end
            return ""
        with (folder / FILE).open(encoding="ascii") as file:
            text = file.read(LONGEST)
        return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC).isoformat(timespec="microseconds")
    except (OSError, ValueError, OverflowError):
        return ""
