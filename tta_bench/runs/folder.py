"""Where one run is kept, so that a record is never lost: a run that replaces another is written beside it.

    runs/RUN_ID/             the record, or the checkpoint of a run that has none yet
    runs/.again/RUN_ID/      a run that will replace it, until it is complete; too deep for `runs/*/run.json`
    runs/.RUN_ID.lock        one process at a time

A run that is killed while it replaces another goes on from its own checkpoint when the same command is given again. One
that is killed after its last image, in the moment before it takes its place, starts afresh.
"""

from __future__ import annotations

import ctypes
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

from tta_bench import records
from tta_bench.errors import StoreError, TTABenchError
from tta_bench.records import RunRecord
from tta_bench.system import asked, outcome
from tta_bench.system.files import disk_errors
from tta_bench.system.locks import lock_on

WRITTEN = ("run.json", "checkpoint.pt", "log.txt", asked.FILE, outcome.FILE)
AT_THE_WORKING_FOLDER, EXCHANGE = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of renameat2(2)


class RunFolder:
    """The folder of one run id under `runs`."""

    def __init__(self, runs: Path, run_id: str) -> None:
        self.final, self.beside = runs / run_id, runs / ".again" / run_id
        self._old = runs / ".again" / f"{run_id}.old"
        self._locked_by = runs / f".{run_id}.lock"

    @property
    def untidy(self) -> bool:
        """Whether a kill left something to put right."""
        return self.beside.exists() or self._old.exists()

    def state(self) -> tuple[RunRecord | None, str]:
        """The record, if it is there and whole; otherwise what is wrong with it, if it is there at all. Writes
        nothing: results may be read-only."""
        try:
            (self.final / "run.json").stat()
        except (FileNotFoundError, NotADirectoryError):
            return None, ""
        except OSError as error:
            raise StoreError(f"{self.final} can't be read: {error.strerror or error}") from error
        damage = records.damage(self.final)
        return (None, damage) if damage else (records.load(self.final), "")

    @contextmanager
    def locked(self, on_wait: Callable[[], None]) -> Iterator[None]:
        """The right to change it; given back by the system if the process dies."""
        with disk_errors(self.final):
            self.final.parent.mkdir(parents=True, exist_ok=True)
            lock = lock_on(self._locked_by)
            try:
                lock.acquire(timeout=0)
            except filelock.Timeout:
                on_wait()
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    def spare_another(self) -> Path | None:
        """Sets aside another whole run that lies under this one's name, and returns where it is now."""
        try:
            another = records.load(self.final)
        except TTABenchError:
            return None
        if another.run_id == self.final.name:
            return None
        number = 1
        while (aside := self.final.with_name(f"{self.final.name}.set-aside-{number}")).exists():
            number += 1
        with disk_errors(aside):
            self.final.rename(aside)
        return aside

    def begin(self, replacing: bool) -> Path:
        """The folder to run in, rid of all that a killed run left there except its checkpoint."""
        folder = self.beside if replacing else self.final
        with disk_errors(folder):
            if not replacing:
                self.tidy()
            folder.mkdir(parents=True, exist_ok=True)
            if (folder / "run.json").exists():  # complete, and killed before or after the swap: which, can't be told
                self._spare(folder)
                _remove(folder)
                folder.mkdir()
            for leftover in folder.iterdir():
                if leftover.name.startswith(".") or leftover.suffix == ".safetensors":
                    _remove(leftover)
        return folder

    def recover(self) -> None:
        """Ends a swap in two steps that a kill cut in half."""
        if self._old.exists():
            with disk_errors(self.final):
                if not self.final.exists():
                    (self.beside if (self.beside / "run.json").exists() else self._old).rename(self.final)
                _remove(self._old)

    def publish(self) -> None:
        """The run beside takes the place of the other: a reader finds the one or the other at any moment. What somebody
        has put beside the other, say notes, stays."""
        with disk_errors(self.final):
            if not self.final.exists():
                self.beside.rename(self.final)
            elif not _exchange(self.beside, self.final):  # then for an instant there is none; `recover` ends it
                self.final.rename(self._old)
                self.beside.rename(self.final)
        self.tidy()

    def tidy(self) -> None:
        """Away with what is beside."""
        for folder in (self.beside, self._old):
            self._spare(folder)
            _remove(folder)
        with suppress(OSError):
            self.beside.parent.rmdir()  # the last one puts out the light

    def _spare(self, folder: Path) -> None:
        """What somebody has put into a run that was replaced belongs to the one in its place."""
        if folder == self.final or not (folder / "run.json").exists() or not self.final.is_dir():
            return
        for file in folder.iterdir():
            if not _is_of_a_run(file) and not (self.final / file.name).exists():
                shutil.move(file, self.final / file.name)  # perhaps to another disk


def _is_of_a_run(file: Path) -> bool:
    return file.name in WRITTEN or file.suffix == ".safetensors" or file.name.startswith(".")


def _remove(path: Path) -> None:
    """A folder with all that is in it, a file, or a link: what it leads to, say on a larger disk, is not touched."""
    if path.is_symlink() or path.is_file():
        path.unlink()
    else:
        shutil.rmtree(path, ignore_errors=True)


def _exchange(one: Path, other: Path) -> bool:
    """Two folders change names in one step; False where the system or the file system can't."""
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):
        return False
    here = AT_THE_WORKING_FOLDER
    return bool(rename(here, os.fsencode(one), here, os.fsencode(other), EXCHANGE) == 0)
