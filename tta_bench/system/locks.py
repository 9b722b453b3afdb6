"""Locks between processes, which the system gives back when one dies. Imports no torch."""

from __future__ import annotations

import errno
import functools
import tempfile
from pathlib import Path

import filelock

SOFT = ".soft"


def lock_on(file: Path) -> filelock.BaseFileLock:
    """To be asked for when its folder is there. Where a file system knows no `flock` (Lustre mounted without, some of
    FUSE), whoever makes a file has the lock. It is another file then: ours stay where they are, and one that came from
    another file system would be held by nobody for ever."""
    try:
        device = file.parent.stat().st_dev
    except OSError:
        return filelock.FileLock(file)  # which says what is wrong
    if _knows_flock(device, file.parent):
        return filelock.FileLock(file)
    return filelock.SoftFileLock(file.with_name(file.name + SOFT))


@functools.lru_cache(maxsize=64)
def _knows_flock(device: int, folder: Path) -> bool:
    """`device` tells a folder from another one that is mounted there later."""
    try:
        import fcntl

        with tempfile.TemporaryFile(dir=folder) as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except ImportError:  # another system, with locks of its own
        return True
    except OSError as error:
        return error.errno != errno.ENOSYS
    return True
