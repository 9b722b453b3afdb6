"""Who may change an entry of the feature store. Imports no torch.

Its blocks are divided into ranges, and whoever encodes one holds the lock file `lock-K` of that range, which the system
gives back if the process dies. The entry's own `lock` is held for moments only, to claim a range or to append to the
journal. So whoever holds it and finds that no range is claimed is alone with the entry.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock

from tta_bench.errors import StoreError
from tta_bench.system.locks import SOFT, lock_on

LOCK = "lock"


def is_lock(file: Path) -> bool:
    return file.name == LOCK or file.name.startswith(f"{LOCK}-")


@contextmanager
def entry_lock(folder: Path, timeout: float = -1) -> Iterator[None]:
    """Raises `filelock.Timeout` if it can't be had in time."""
    lock = lock_on(folder / LOCK)
    _acquire(lock, timeout)
    try:
        yield
    finally:
        lock.release()


def claim(folder: Path, number: int) -> filelock.BaseFileLock | None:
    """The lock of this range; None if another process has it. The entry's own lock must be held."""
    lock = lock_on(folder / f"{LOCK}-{number}")
    try:
        _acquire(lock, 0)
    except filelock.Timeout:
        return None
    return lock


def wait_for(folder: Path, number: int) -> None:
    """Returns when nobody has claimed this range."""
    lock = lock_on(folder / f"{LOCK}-{number}")
    _acquire(lock, -1)
    lock.release()


def any_claimed(folder: Path) -> bool:
    """Whether a process encodes a range of the entry. Its own lock must be held for the answer to last."""
    numbers = [file.name.removeprefix(f"{LOCK}-").removesuffix(SOFT) for file in folder.glob(f"{LOCK}-*")]
    for number in filter(str.isdecimal, numbers):  # others are somebody's copies
        lock = claim(folder, int(number))
        if lock is None:
            return True
        lock.release()
    return False


def _acquire(lock: filelock.BaseFileLock, timeout: float) -> None:
    try:
        lock.acquire(timeout=timeout)
    except filelock.Timeout:  # it is an OSError, too
        raise
    except OSError as error:
        raise StoreError(f"can't lock {Path(lock.lock_file).parent}: {error.strerror or error}") from error
