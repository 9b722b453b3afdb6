"""asked.txt beside a run: when it was last asked for. A run that is done is not repeated, so its record can't tell.

Of rows that differ only in their code a table shows the last. Whoever tries an edit, takes it back and runs the same
command again means the first one.
"""

from __future__ import annotations

import contextlib
import datetime
from pathlib import Path

from tta_bench.errors import StoreError
from tta_bench.system.files import write_atomically

FILE = "asked.txt"
LONGEST = 40  # characters of a time


def note(folder: Path) -> None:
    now = datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds")
    with contextlib.suppress(StoreError):  # results may be read-only
        write_atomically(folder / FILE, now.encode(), durable=False)


def read(folder: Path) -> str:
    """As `created` has it; empty if nobody has asked since, or it can't be read."""
    try:
        with (folder / FILE).open(encoding="ascii") as file:
            text = file.read(LONGEST)
        return datetime.datetime.fromisoformat(text).astimezone(datetime.UTC).isoformat(timespec="microseconds")
    except (OSError, ValueError, OverflowError):
        return ""
