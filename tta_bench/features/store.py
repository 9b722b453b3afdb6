"""FeatureStore: every view of every image is encoded once and kept on disk for all methods.

An entry is one (dataset, backbone, recipe, seed). Its folder holds

    meta.json       the parts of the key, readable, and the shape
    features.bin    [N, V, D], written block by block with pwrite, read with pread
    journal.txt     one line "block crc32 entry" for each block that is complete on disk

A block is a run of neighbouring images on a fixed grid, so what a block contains never depends on who asked for it; a
batch size that means another grid has an entry of its own, KEY.grid-N. A folder whose meta.json is not that of its key
is set aside as KEY.set-aside-N, never read again, and deleted by `ttabench store gc` only. The
journal is written after the data: a block that a kill -9 interrupts is simply not in it and is encoded again. A block
whose checksum does not match (truncated file, flipped bit) counts as missing too, and so does one whose line names
another entry (files swapped between two folders). Lines of before name none, and are believed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import torch
from torch import Tensor

from tta_bench.errors import StoreError
from tta_bench.features.options import FeatureType
from tta_bench.system.files import digest, disk_errors, write_atomically
from tta_bench.system.text import counted

STORE_VERSION = 2  # raise it when features come out differently for another reason than the views' own source
JOURNAL_LINE = re.compile(rb"(\d+) ([0-9a-f]{8})(?: ([0-9a-f]{16}))?")
IMAGES_PER_BLOCK_AT_MOST = 16  # a short `--limit` must not drag many neighbours along


@dataclass(frozen=True)
class FeatureKey:
    """What an entry's features are a function of."""

    dataset: str  # fingerprint
    backbone: str  # fingerprint
    recipe: str  # repr of the view recipe
    seed: int
    dtype: FeatureType = "float16"
    version: int = STORE_VERSION

    @property
    def digest(self) -> str:
        return digest(asdict(self))


class FeatureStore:
    """All entries under one folder. `say` is told what is found amiss."""

    def __init__(self, root: Path, say: Callable[[str], None] | None = None) -> None:
        self.root = root
        self._say = say or (lambda text: None)

    def entry(self, key: FeatureKey, shape: tuple[int, int, int], batch_size: int) -> Entry:
        """The entry for `key` on the grid of this batch size, made if it is not there.

        Last bits depend on what was encoded together. So another grid is another entry, and what is read never depends
        on what others asked of the store before.
        """
        images = max(1, min(IMAGES_PER_BLOCK_AT_MOST, batch_size // shape[1]))
        meta = {"key": asdict(key), "shape": list(shape), "images_per_block": images}
        folder = self.root / key.digest[:2] / key.digest
        held = self._made(folder, meta)
        if held != images:
            folder = folder.with_name(f"{folder.name}.grid-{images}")
            if not folder.exists():
                self._say(
                    f"store: {key.recipe} was encoded {counted(held, 'image')} at a time, and --batch-size "
                    f"{batch_size} means {images}: encoding it for that too"
                )
            self._made(folder, meta, any_grid=False)
        return Entry(folder, key, shape, images)

    def _made(self, folder: Path, wanted: dict[str, Any], any_grid: bool = True) -> int:
        """Has the entry in the folder, and returns its images per block. Whatever else is in there is set aside:
        features are dear, and the mistake may be somebody else's."""
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        found, _ = _read_meta(folder, wanted, any_grid)
        if found is not None:
            return found
        with _lock(folder):
            found, why = _read_meta(folder, wanted, any_grid)  # somebody else may have been faster
            if found is not None:
                return found
            if why:
                aside = _set_aside(folder)
                self._say(f"store: {folder / 'meta.json'} {why}: set aside as {aside.name}, encoding afresh")
            write_atomically(folder / "meta.json", json.dumps(wanted, indent=1).encode())
        return int(wanted["images_per_block"])


class Entry:
    """The features [N, V, D] of one key, some of them perhaps not encoded yet."""

    def __init__(self, folder: Path, key: FeatureKey, shape: tuple[int, int, int], images_per_block: int) -> None:
        self.folder, self.key, self.shape, self.images_per_block = folder, key, shape, images_per_block
        self.damaged = 0  # blocks found with a wrong checksum, and so to be encoded again
        self.tag = digest([key.digest, shape, images_per_block])[:16]  # in the journal: whose blocks these are
        self._dtype = np.dtype(key.dtype)
        self._verified: set[int] = set()
        self._file: Descriptor | None = None  # for reading

    # ------------------------------------------------------------------------------------------------ blocks

    def images_of(self, block: int) -> range:
        """The dataset indices that block number `block` covers."""
        first = block * self.images_per_block
        return range(first, min(first + self.images_per_block, self.shape[0]))

    def missing(self, indices: Iterable[int]) -> list[int]:
        """The blocks that still have to be encoded before all `indices` can be read; checks the others' checksums."""
        journal = self._journal()
        needed = sorted({i // self.images_per_block for i in indices} - self._verified)
        self.damaged = 0
        missing = []
        for block in needed:
            if block in journal and self._checksum(block) == journal[block]:
                self._verified.add(block)
            else:
                self.damaged += block in journal
                missing.append(block)
        return missing

    def bytes_for(self, blocks: Sequence[int]) -> int:
        _, views, dim = self.shape
        return sum(len(self.images_of(b)) for b in blocks) * views * dim * self._dtype.itemsize

    def _span(self, block: int) -> tuple[int, int]:
        _, views, dim = self.shape
        row = views * dim * self._dtype.itemsize
        images = self.images_of(block)
        return images.start * row, len(images) * row

    def _checksum(self, block: int) -> str | None:
        offset, size = self._span(block)
        try:
            with (self.folder / "features.bin").open("rb") as file:
                content = os.pread(file.fileno(), size, offset)
        except OSError:
            return None
        return _crc(content) if len(content) == size else None

    def _journal(self) -> dict[int, str]:
        try:
            content = (self.folder / "journal.txt").read_bytes()
        except FileNotFoundError:
            return {}
        complete_lines = content.split(b"\n")[:-1]  # what follows the last line feed was interrupted
        matches = (JOURNAL_LINE.fullmatch(line) for line in complete_lines)
        own = (self.tag.encode(), None)
        return {int(m[1]): m[2].decode() if m[3] in own else "of another entry" for m in matches if m}

    # ------------------------------------------------------------------------------------------------- write

    @contextmanager
    def writing(self, on_wait: Any = None) -> Iterator[Writer]:
        """The right to write: one process at a time, given back by the system if the process dies."""
        with _lock(self.folder, on_wait), Writer(self) as writer:
            yield writer

    # -------------------------------------------------------------------------------------------------- read

    def read(self, i: int) -> Tensor:
        """Features of image i as unit-norm float32, [V, D]."""
        if i // self.images_per_block not in self._verified:
            raise StoreError(f"{self.folder}: image {i} is not encoded yet")
        _, views, dim = self.shape
        size = views * dim * self._dtype.itemsize
        rows = np.frombuffer(self._bytes(i * size, size), self._dtype).astype(np.float32)  # a copy
        return torch.nn.functional.normalize(torch.from_numpy(rows).view(views, dim), dim=-1)

    def stored(self) -> Iterator[bytes]:
        """All features as they are on disk, [N, V, D], block by block."""
        for block in range(-(-self.shape[0] // self.images_per_block)):
            yield self._bytes(*self._span(block))

    def _bytes(self, offset: int, size: int) -> bytes:
        """Not through a memory map: a file that becomes shorter would end the process with SIGBUS."""
        try:
            if self._file is None:
                self._file = Descriptor(self.folder / "features.bin")
            content = os.pread(self._file.number, size, offset)
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        if len(content) != size:
            raise self._lost("the file is shorter than it was")
        return content

    def _lost(self, reason: str) -> StoreError:
        self._verified.clear()
        return StoreError(
            f"{self.folder}: features.bin can't be read ({reason}); the same command encodes again what is missing"
        )


class Descriptor:
    """A file open for reading, closed when nobody holds it any more."""

    def __init__(self, file: Path) -> None:
        self.number = os.open(file, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if hasattr(self, "number"):
            os.close(self.number)


class Writer:
    """Writes blocks and, after their data is on disk, their journal lines."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._lines: list[bytes] = []
        self._pending: list[int] = []

    def __enter__(self) -> Writer:
        with disk_errors(self.entry.folder):
            self._data = os.open(self.entry.folder / "features.bin", os.O_RDWR | os.O_CREAT, 0o644)
            self._journal = os.open(self.entry.folder / "journal.txt", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        end = os.lseek(self._journal, 0, os.SEEK_END)
        if end and os.pread(self._journal, 1, end - 1) != b"\n":
            os.write(self._journal, b"\n")  # close a line that a kill cut off
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            os.close(self._data)
            os.close(self._journal)

    def write(self, block: int, features: Tensor) -> None:
        """features [images, V, D] of the block's images."""
        images, (_, views, dim) = self.entry.images_of(block), self.entry.shape
        if features.shape != (len(images), views, dim):
            raise ValueError(f"block {block} wants {(len(images), views, dim)}, not {tuple(features.shape)}")
        content = features.cpu().numpy().astype(self.entry._dtype).tobytes()
        offset, _ = self.entry._span(block)
        with disk_errors(self.entry.folder):
            written = 0
            while written < len(content):
                written += os.pwrite(self._data, content[written:], offset + written)
        self._lines.append(f"{block} {_crc(content)} {self.entry.tag}\n".encode())
        self._pending.append(block)

    def flush(self) -> None:
        """After this, everything written so far survives."""
        if not self._lines:
            return
        with disk_errors(self.entry.folder):
            os.fsync(self._data)
            os.write(self._journal, b"".join(self._lines))
            os.fsync(self._journal)
        self.entry._verified.update(self._pending)
        self.entry._file = None  # it may be another file now; the old one is closed when nobody holds it
        self._lines, self._pending = [], []


def check_free_space(folder: Path, needed: int) -> None:
    """Better to say so before an hour of encoding than after it."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StoreError(
            f"the features need {needed / 1e6:,.0f} MB but the disk that holds {folder} has {free / 1e6:,.0f} MB left; "
            "set TTABENCH_HOME to a folder on a larger disk"
        )


def _crc(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"


FILES = ("meta.json", "journal.txt", "features.bin")


def _read_meta(folder: Path, wanted: Mapping[str, Any], any_grid: bool) -> tuple[int | None, str]:
    """The images per block of the entry that is in the folder; None and a reason if it is not the one that is wanted,
    None and no reason if there is none."""
    try:
        meta = json.loads((folder / "meta.json").read_bytes())
        if meta["key"] != wanted["key"] or meta["shape"] != wanted["shape"]:
            return None, "is that of another entry"
        images = meta["images_per_block"]
        if type(images) is not int or images <= 0:
            return None, "can't be read"
        return (images, "") if any_grid or images == wanted["images_per_block"] else (None, "is that of another grid")
    except FileNotFoundError:
        return None, "is missing" if any((folder / name).exists() for name in FILES) else ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None, "can't be read"


def _set_aside(folder: Path) -> Path:
    """Moves an entry's files out of the way; their folder and its lock stay where others look for them."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.set-aside-{number}")).exists():
        number += 1
    with disk_errors(aside):
        aside.mkdir()
        for name in FILES:
            if (folder / name).exists():
                (folder / name).rename(aside / name)
    return aside


@contextmanager
def _lock(folder: Path, on_wait: Any = None) -> Iterator[None]:
    lock = filelock.FileLock(folder / "lock")
    try:
        lock.acquire(timeout=0)
    except filelock.Timeout:
        if on_wait is not None:
            on_wait()
        lock.acquire()
    except OSError as error:
        raise StoreError(f"can't lock {folder}: {error.strerror or error}") from error
    try:
        yield
    finally:
        lock.release()
