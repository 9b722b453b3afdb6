"""A grid whose workers are killed, whoever runs it: they are found by the files that they have open."""

from __future__ import annotations

import itertools
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.conftest import TOY, start_process

GRID = ("--method", "twobranches,secondeyes", "--seed", "0-1", "--plugin", str(TOY), "--dataset", "toy")
RUN = ("run", *GRID, "--backbone", "toyclip", "--workers", "0", "--checkpoint-seconds", "0")
CELLS = 4
ALIKE = ("run", "--method", "twobranches", "--sweep", "weight=0.25,0.75", "--plugin", str(TOY), "--dataset", "toy")
# Two cells that lack the same features, of one image a block, so that there is much to share.
SHARING = (*ALIKE, "--backbone", "toyclip", "--workers", "0", "--batch-size", "5")
PATIENCE = 600.0  # seconds until something that should have happened is given up


def scores(home: Path) -> dict[str, bytes]:
    """Run -> its scores, bit for bit."""
    return {file.parent.name: file.read_bytes() for file in (home / "runs").glob("*/scores.safetensors")}


def in_one_process(home: Path, grid: tuple[str, ...] = RUN, cells: int = CELLS) -> dict[str, bytes]:
    process = start_process(*grid, home=home)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    found = scores(home)
    assert len(found) == cells
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


def with_a_death_in_shared_encoding(home: Path, *who: str, **environment: str) -> str:
    """Runs two cells that lack the same features, and kills one of two processes that encode one entry at the same
    time. Returns what was said."""
    process = start_process(*SHARING, *who, home=home, TOY_DELAY="0.2", **environment)
    deadline = time.monotonic() + PATIENCE
    while (both := _sharing(home)) is None or not _blocks(home):
        assert process.poll() is None, f"ended before two shared their work: {process.communicate()}"
        assert time.monotonic() < deadline, "two never shared their work"
        time.sleep(0.005)
    os.kill(both[0], signal.SIGKILL)
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
    folder = home / ("store" if suffix == "journal.txt" else "runs")
    return next((p for p, f in _open_files(folder) if p != not_this and any(n.endswith(suffix) for n in f)), None)


def _sharing(home: Path) -> tuple[int, int] | None:
    """Two processes that have each claimed another range of one entry."""
    ranges = [(p, {n for n in names if "/lock-" in n}) for p, names in _open_files(home / "store")]
    for (one, ones), (other, others) in itertools.combinations(ranges, 2):
        if not ones & others and {Path(n).parent for n in ones} & {Path(n).parent for n in others}:
            return one, other
    return None


def _open_files(folder: Path) -> Iterator[tuple[int, set[str]]]:
    """The processes that have files below the folder open, and which."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            names = {str(descriptor.readlink()) for descriptor in (process / "fd").iterdir()}
        except OSError:  # gone, or not ours
            continue
        if below := {name for name in names if name.startswith(str(folder))}:
            yield int(process.name), below
