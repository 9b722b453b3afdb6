"""What files look like from outside, and whether they still look as they did when something was read from them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from time import time_ns
from typing import Any, Generic, TypeVar

from tta_bench.errors import UsageError
from tta_bench.system.files import digest, file_digest

CLOCK_TICK = 20_000_000  # ns by which a file system's clock may lag behind
GONE = "gone"
DEVICES = Path("/sys/dev/block")
Thing = TypeVar("Thing")


def stamp(path: Path) -> Any:
    """What a file or folder looks like from outside; a file can't change without its change time changing, but the
    image of a disk that it lies in may be replaced by one that was made with the same times."""
    try:
        status = path.stat()
        image = _image(status.st_dev, int(time.monotonic()))
        if path.is_dir():
            listing = _listing(os.scandir(path))
            return [listing, *image] if image else listing
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino, *image]


@lru_cache(maxsize=64)
def _image(device: int, now: int) -> tuple[int, ...]:
    """What the image looks like that a device is made of, looked at once in a second; nothing for a disk of its own."""
    try:
        file = (DEVICES / f"{os.major(device)}:{os.minor(device)}" / "loop" / "backing_file").read_text().strip()
        status = Path(file).stat()
    except OSError:
        return ()
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino


def last_change(path: Path) -> int:
    """When a file, a folder or anything in it was last changed, in ns."""
    try:
        inside = [_changed(entry) for entry in os.scandir(path)] if path.is_dir() else []
        return max(path.stat().st_ctime_ns, *inside, 0)
    except OSError:
        return 0


def _changed(entry: os.DirEntry[str]) -> int:
    """A link or what it leads to, whichever is newer."""
    own = entry.stat(follow_symlinks=False).st_ctime_ns
    try:
        return max(own, entry.stat().st_ctime_ns) if entry.is_symlink() else own
    except OSError:  # it leads nowhere
        return own


def content(path: Path) -> str:
    """Digest of a file, or of all files below a folder. What looks as it did is not read again."""
    files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
    try:
        digests = [_content(file.absolute(), tuple(stamp(file) or ())) for file in files]
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}") from error
    if not path.is_dir():
        return digests[0]
    return digest([[str(file.relative_to(path)), own] for file, own in zip(files, digests, strict=True)])


def content_or_gone(file: Path) -> str:
    try:
        return content(file)
    except UsageError:
        return GONE


@lru_cache(maxsize=1024)
def _content(file: Path, seen: tuple[int, ...]) -> str:
    return file_digest(file)


@dataclass(frozen=True)
class Read:
    """Files as they were when something was read from them."""

    stamps: tuple[tuple[Path, Any], ...]
    settled: bool  # none was changed while it was being read: it may have been read before or after

    @classmethod
    def since(cls, began: int, files: Iterable[Path]) -> Read:
        """Of what was read between `began` (ns) and now."""
        stamps = tuple((file.absolute(), stamp(file)) for file in dict.fromkeys(files))
        return cls(stamps, all(last_change(file) < began - CLOCK_TICK for file, _ in stamps))

    @classmethod
    def all_of(cls, parts: Iterable[Read | None]) -> Read | None:
        """Together; None if of one it can't be told."""
        known: list[Read] = []
        for part in parts:
            if part is None:
                return None
            known.append(part)
        return cls(tuple(each for part in known for each in part.stamps), all(part.settled for part in known))

    def changed(self) -> list[Path]:
        return [file for file, before in self.stamps if stamp(file) != before]


class Opened(Generic[Thing]):
    """Things that take long to open: each is opened once, and again when the files behind it have changed."""

    def __init__(self, files_of: Callable[[Thing], Sequence[Path] | None]) -> None:
        self._files_of = files_of  # None: that can't be told
        self._kept: dict[Hashable, tuple[Thing, Read | None]] = {}

    def get(self, key: Hashable, opens: Callable[[], Thing]) -> Thing:
        if key in self._kept:
            thing, read = self._kept[key]
            if read is None or not read.changed():
                return thing
        began = time_ns()
        thing = opens()
        files = self._files_of(thing)
        self._kept[key] = (thing, None if files is None else Read.since(began, files))
        return thing

    def read(self, thing: Thing) -> Read | None:
        """The files behind a thing as they were when it was opened; None if that can't be told."""
        return next((read for kept, read in self._kept.values() if kept is thing), None)

    def clear(self) -> None:
        self._kept.clear()


def _listing(entries: Iterable[os.DirEntry[str]]) -> str:
    lines = []
    for entry in entries:
        try:
            status = entry.stat()
            lines.append(f"{entry.name}\t{status.st_size}\t{status.st_mtime_ns}\t{status.st_ctime_ns}")
        except OSError:
            lines.append(f"{entry.name}\tgone")  # a link that leads nowhere
    return digest("\n".join(sorted(lines)))
