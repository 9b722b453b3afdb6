"""FeatureStore: every view of every image is encoded once and kept on disk for all methods.

An entry is one (dataset, backbone, recipe, seed). Its folder holds

    meta.json       the parts of the key, readable, and the shape
    features.bin    [N, V, D], written block by block with pwrite, read with pread
    journal.txt     one line "block crc32 entry" for each block that is complete on disk
    made_by.txt     on what kinds of machine, and by what versions of torch
    lock, lock-K    who may change the above, and who encodes the K-th range of blocks (entry_locks.py)

A block is a run of neighbouring images on a fixed grid, so what a block contains never depends on who asked for it; a
batch size that means another grid has an entry of its own, KEY.grid-IMAGES-VIEWS. A folder whose meta.json is not that
of its key is set aside as KEY.set-aside-N, never read again, and deleted by `ttabench store gc` only. The journal is
written after the data: a block that a kill -9 interrupts is simply not in it and is encoded again. A block whose
checksum does not match (truncated file, flipped bit) counts as missing too, and so does one whose line names another
entry (files swapped between two folders).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tta_bench.errors import StoreError
from tta_bench.features.entry_locks import any_claimed, entry_lock
from tta_bench.features.entry_meta import MAKERS, Grid, read_meta, set_aside
from tta_bench.features.options import FeatureType
from tta_bench.features.store_writing import Writer, crc
from tta_bench.system.files import digest, disk_errors, write_atomically
from tta_bench.system.text import counted

STORE_VERSION = 2  # raise it when features come out differently for another reason than the views' own source
JOURNAL_LINE = re.compile(rb"(\d+) ([0-9a-f]{8}) ([0-9a-f]{16})")
IMAGES_PER_BLOCK_AT_MOST = 16  # a short `--limit` must not drag many neighbours along
POLL_SECONDS = 0.1
SHORTEST = 0.5  # features are of length 1, whatever the type that they are stored in
RANGES_AT_MOST = 32  # of an entry: each has a lock file, and whoever comes last waits for one range at most


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
        grid = Grid(images, min(batch_size, images * shape[1]))
        meta = {"key": asdict(key), "shape": list(shape), **grid._asdict()}
        folder = self.root / key.digest[:2] / key.digest
        held = self._made(folder, meta)
        if held != grid:
            folder = folder.with_name(f"{folder.name}.grid-{grid.images_per_block}-{grid.views_at_once}")
            if not folder.exists():
                self._say(
                    f"store: {key.recipe} was encoded {counted(held.views_at_once, 'view')} at a time, and "
                    f"--batch-size {batch_size} means {grid.views_at_once}: encoding it for that too"
                )
            self._made(folder, meta, any_grid=False)
        return Entry(folder, key, shape, grid)

    def _made(self, folder: Path, wanted: dict[str, Any], any_grid: bool = True) -> Grid:
        """Has the entry in the folder, and returns its grid. Whatever else is in there is set aside: features are dear,
        and the mistake may be somebody else's."""
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        found, _ = read_meta(folder, wanted, any_grid)
        if found is not None:
            return found
        while True:
            with entry_lock(folder):
                found, why = read_meta(folder, wanted, any_grid)  # somebody else may have been faster
                if found is not None:
                    return found
                if not why or not any_claimed(folder):
                    if why:
                        aside = set_aside(folder)
                        self._say(f"store: {folder / 'meta.json'} {why}: set aside as {aside.name}, encoding afresh")
                    write_atomically(folder / "meta.json", json.dumps(wanted, indent=1).encode())
                    return Grid.of(wanted)
            time.sleep(POLL_SECONDS)  # what is being written is not taken from under its writer


class Entry:
    """The features [N, V, D] of one key, some of them perhaps not encoded yet."""

    def __init__(self, folder: Path, key: FeatureKey, shape: tuple[int, int, int], grid: Grid) -> None:
        self.folder, self.key, self.shape, self.images_per_block = folder, key, shape, grid.images_per_block
        self.damaged = 0  # blocks found with a wrong checksum, and so to be encoded again
        self.tag = digest([key.digest, shape, grid])[:16]  # in the journal: whose blocks these are
        self.dtype = np.dtype(key.dtype)
        self._verified: set[int] = set()
        self._file: Descriptor | None = None  # in which blocks were verified, and are read

    # ------------------------------------------------------------------------------------------------ blocks

    def images_of(self, block: int) -> range:
        """The dataset indices that block number `block` covers."""
        first = block * self.images_per_block
        return range(first, min(first + self.images_per_block, self.shape[0]))

    def range_of(self, block: int) -> int:
        """The number of the range that the block belongs to: what one process claims at a time."""
        blocks = -(-self.shape[0] // self.images_per_block)
        return block // -(-blocks // RANGES_AT_MOST)

    def missing(self, indices: Iterable[int]) -> list[int]:
        """The blocks that still have to be encoded before all `indices` can be read; checks the others' checksums."""
        return self.lacking({i // self.images_per_block for i in indices})

    def lacking(self, blocks: Iterable[int]) -> list[int]:
        """Those of the blocks that are not complete on disk."""
        self._hold()
        journal = self._journal()
        self.damaged = 0
        missing = []
        for block in sorted(set(blocks) - self._verified):
            if block in journal and self._checksum(block) == journal[block]:
                self._verified.add(block)
            else:
                self.damaged += block in journal
                missing.append(block)
        return missing

    def bytes_for(self, blocks: Sequence[int]) -> int:
        _, views, dim = self.shape
        return sum(len(self.images_of(b)) for b in blocks) * views * dim * self.dtype.itemsize

    def span(self, block: int) -> tuple[int, int]:
        """Where a block lies in features.bin: offset and size."""
        _, views, dim = self.shape
        row = views * dim * self.dtype.itemsize
        images = self.images_of(block)
        return images.start * row, len(images) * row

    def _checksum(self, block: int) -> str | None:
        offset, size = self.span(block)
        try:
            content = os.pread(self._descriptor(), size, offset)
        except OSError:
            return None
        return crc(content) if len(content) == size else None

    def _journal(self) -> dict[int, str]:
        try:
            content = (self.folder / "journal.txt").read_bytes()
        except OSError:  # not there, or no file
            return {}
        complete_lines = content.split(b"\n")[:-1]  # what follows the last line feed was interrupted
        matches = (JOURNAL_LINE.fullmatch(line) for line in complete_lines)
        own = self.tag.encode()
        return {int(m[1]): m[2].decode() if m[3] == own else "of another entry" for m in matches if m}

    # ------------------------------------------------------------------------------------------------- write

    def writing(self) -> Writer:
        """To be entered: claims ranges of blocks and writes them, while other processes may write other ranges."""
        return Writer(self)

    def written(self, blocks: Iterable[int], data: int) -> None:
        """Takes note that these blocks are complete in the file behind the descriptor `data`."""
        self._hold()
        if self._file is None or not os.path.samestat(os.fstat(self._file.number), os.fstat(data)):
            raise self._lost("another file has taken its place while it was written")
        self._verified.update(blocks)

    def makers(self) -> list[str]:
        """What the features were made with, in words; nothing for an entry of before that was noted."""
        try:
            return (self.folder / MAKERS).read_text().splitlines()
        except (OSError, ValueError):
            return []

    def forget(self) -> None:
        """What was written is not to be believed by anybody who comes later."""
        (self.folder / "journal.txt").unlink(missing_ok=True)
        self._verified.clear()

    def _hold(self) -> None:
        """Keeps features.bin open: what was verified holds for that file, and not for one that takes its place."""
        try:
            here = (self.folder / "features.bin").stat()
        except OSError:
            here = None
        if self._file is not None and (here is None or not os.path.samestat(here, os.fstat(self._file.number))):
            self._file = None
            self._verified.clear()
        if self._file is None and here is not None:
            with suppress(OSError):  # whoever reads it is told
                self._file = Descriptor(self.folder / "features.bin")

    # -------------------------------------------------------------------------------------------------- read

    def read(self, i: int) -> Tensor:
        """Features of image i as unit-norm float32, [V, D]."""
        if i // self.images_per_block not in self._verified:
            raise StoreError(f"{self.folder}: image {i} is not encoded yet")
        _, views, dim = self.shape
        size = views * dim * self.dtype.itemsize
        rows = np.frombuffer(self._bytes(i * size, size), self.dtype).astype(np.float32)  # a copy
        features = torch.from_numpy(rows).view(views, dim)
        lengths = torch.linalg.vector_norm(features, dim=-1, keepdim=True)  # [V, 1]
        if not lengths.min() > SHORTEST:  # as where a file has a hole; nor is a nan
            raise self._lost("it holds something else than features")
        return features.div_(lengths)

    def expect(self, i: int) -> None:
        """Lets the system fetch image i before it is read: no readahead of its own guesses where a stream jumps."""
        if not hasattr(os, "posix_fadvise"):
            return
        _, views, dim = self.shape
        size = views * dim * self.dtype.itemsize
        with suppress(OSError):  # whoever reads it is told
            os.posix_fadvise(self._descriptor(), i * size, size, os.POSIX_FADV_WILLNEED)

    def stored(self) -> Iterator[bytes]:
        """All features as they are on disk, [N, V, D], block by block."""
        for block in range(-(-self.shape[0] // self.images_per_block)):
            yield self._bytes(*self.span(block))

    def _bytes(self, offset: int, size: int) -> bytes:
        """Not through a memory map: a file that becomes shorter would end the process with SIGBUS."""
        try:
            content = os.pread(self._descriptor(), size, offset)
        except OSError as error:
            raise self._lost(error.strerror or str(error)) from error
        if len(content) != size:
            raise self._lost("the file is shorter than it was")
        return content

    def _descriptor(self) -> int:
        if self._file is None:
            self._file = Descriptor(self.folder / "features.bin")
        return self._file.number

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


def check_free_space(folder: Path, needed: int) -> None:
    """Better to say so before an hour of encoding than after it."""
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise StoreError(
            f"the features need {needed / 1e6:,.0f} MB but the disk that holds {folder} has {free / 1e6:,.0f} MB left; "
            "set TTABENCH_HOME to a folder on a larger disk"
        )
