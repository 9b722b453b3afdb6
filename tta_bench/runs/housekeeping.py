"""The folders under `runs/`: which there are, what they take, and how one goes away. Nothing here imports torch."""

from __future__ import annotations

import math
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from tta_bench import records
from tta_bench.errors import BadData, StoreError, UnknownName, UsageError
from tta_bench.records import SCORES, RunRecord
from tta_bench.runs.folder import RunFolder
from tta_bench.system.files import bytes_on_disk, disk_errors
from tta_bench.system.text import visible

UNFINISHED = "did not finish"
OF_AN_UNFINISHED_RUN = ("checkpoint.pt", "outputs.safetensors", SCORES)


@dataclass(frozen=True)
class Kept:
    """One folder among the runs: a record, or why there is none."""

    folder: Path
    record: RunRecord | None
    problem: str = ""  # UNFINISHED, or what is wrong with the record

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def unfinished(self) -> bool:
        return self.problem == UNFINISHED

    @cached_property
    def size(self) -> int:
        return bytes_on_disk(self.folder)


def kept_runs(runs: Path) -> list[Kept]:
    """Every run under `runs`, finished, unfinished or unreadable. Folders of other things are not among them."""
    try:
        inside = [folder for folder in runs.iterdir() if not folder.name.startswith(".")]
        folders = sorted(folder for folder in inside if folder.is_dir() or folder.is_symlink())
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StoreError(f"{visible(runs)} can't be read: {error.strerror or error}") from error
    found = []
    for folder in folders:
        try:
            if (folder / "run.json").exists():
                found.append(Kept(folder, records.load(folder, named=True)))
            elif nowhere := records.leads_nowhere(folder):
                found.append(Kept(folder, None, nowhere[0]))
            elif any((folder / name).exists() for name in OF_AN_UNFINISHED_RUN):
                found.append(Kept(folder, None, UNFINISHED))
        except (BadData, UsageError) as error:
            found.append(Kept(folder, None, str(error)))
        except OSError as error:
            found.append(Kept(folder, None, f"{visible(folder)} can't be read: {error.strerror or error}"))
    return sorted(found, key=_place)


def _place(kept: Kept) -> tuple[str, float, str]:
    """By what was run, and then by seed: the end of a name is a digest, which has no order that anybody knows."""
    seed = math.inf if kept.record is None else kept.record.seed
    return kept.name.rpartition("-")[0] or kept.name, seed, kept.name


def selected(kept: Sequence[Kept], names: Sequence[str], wanted: Mapping[str, Sequence[str]]) -> list[Kept]:
    """Those that begin with one of the names, if there are any, and whose fields have one of the wanted values.

    What can't be read is meant by its full name only: nobody knows what it is of.
    """
    for field, values in wanted.items():
        known = sorted({visible(getattr(run.record, field)) for run in kept if run.record is not None})
        for value in values:
            if value not in known:
                raise UnknownName(f"{field} among the runs", value, known, f"There are: {', '.join(known) or 'none'}.")
    for name in names:
        if not any(_is_meant(run, name) for run in kept):
            raise UnknownName("run", name, [visible(run.name) for run in kept], "`ttabench runs ls` names them.")
    return [
        run
        for run in kept
        if (not names or any(_is_meant(run, name) for name in names))
        and all(run.record is not None and getattr(run.record, field) in values for field, values in wanted.items())
    ]


def _is_meant(run: Kept, name: str) -> bool:
    readable = run.record is not None or run.unfinished
    return run.name == name or (readable and bool(name) and run.name.startswith(name))


def remove(run: Kept) -> None:
    """The run with all its files. Raises `UsageError` if it is going on."""
    folder = RunFolder(run.folder.parent, run.name)
    with folder.locked(lambda: in_use(run.name)), disk_errors(run.folder):
        if run.folder.is_symlink():  # what it leads to is somebody else's
            run.folder.unlink()
            return
        record = run.folder / "run.json"
        if not record.is_dir():
            record.unlink(missing_ok=True)  # first: a kill then leaves an unfinished run and no damaged record
        shutil.rmtree(run.folder)
        folder.tidy()


def in_use(name: str) -> None:
    """What to do instead of waiting for another process."""
    raise UsageError(f"{visible(name)}: another process is running it, so it is left alone")
