"""A grid whose workers are killed, whoever runs it: they are found by the files that they have open."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.conftest import TOY, start_process

GRID = ("--method", "twobranches,secondeyes", "--seed", "0-1", "--plugin", str(TOY), "--dataset", "toy")
RUN = ("run", *GRID, "--backbone", "toyclip", "--workers", "0", "--checkpoint-seconds", "0")
CELLS = 4
PATIENCE = 600.0  # seconds until something that should have happened is given up


def scores(home: Path) -> dict[str, bytes]:
    """Run -> its scores, bit for bit."""
    return {file.parent.name: file.read_bytes() for file in (home / "runs").glob("*/scores.safetensors")}


def in_one_process(home: Path) -> dict[str, bytes]:
    process = start_process(*RUN, home=home)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    found = scores(home)
    assert len(found) == CELLS
    return found


def with_two_deaths(home: Path, *who: str, **environment: str) -> str:
    """Runs the grid, kills the process that encodes and later one that adapts. Returns what was said."""
    process = start_process(*RUN, *who, home=home, TOY_DELAY="0.05", **environment)
    deadline = time.monotonic() + PATIENCE

    def kill(holds: str, far_enough: Callable[[], bool]) -> None:
        while True:
            assert process.poll() is None, f"ended before it could be disturbed: {process.communicate()}"
            assert time.monotonic() < deadline, "never got there"
            if far_enough() and (holder := _holder(home, holds, process.pid)) is not None:
                os.kill(holder, signal.SIGKILL)
                return
            time.sleep(0.005)

    kill("journal.txt", lambda: sum(_blocks(home).values()) >= 2)
    kill(".lock", lambda: any((home / "runs").glob("*/checkpoint.pt")))
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    return err


def encoded_once(home: Path) -> bool:
    """Whether no block of features was written down a second time."""
    blocks = _blocks(home)
    return bool(blocks) and set(blocks.values()) == {1}


def _blocks(home: Path) -> Counter[tuple[str, str]]:
    journals = (home / "store").glob("*/*/journal.txt")
    return Counter((file.parent.name, line.split()[0]) for file in journals for line in file.read_text().splitlines())


def _holder(home: Path, suffix: str, not_this: int) -> int | None:
    """A process that has such a file of this home open: the store's journal while encoding, a run's lock later."""
    folder = str(home / ("store" if suffix == "journal.txt" else "runs"))
    for process in Path("/proc").glob("[0-9]*"):
        if int(process.name) == not_this:
            continue
        try:
            names = [str(descriptor.readlink()) for descriptor in (process / "fd").iterdir()]
        except OSError:  # gone, or not ours
            continue
        if any(name.startswith(folder) and name.endswith(suffix) for name in names):
            return int(process.name)
    return None
