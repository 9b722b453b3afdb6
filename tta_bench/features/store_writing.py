"""How blocks get into an entry of the feature store, by several processes at once if there are several.

Ranges of blocks don't overlap in features.bin, so their data need no lock. Journal lines are appended under the entry's
own.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import filelock
import torch
from torch import Tensor

from tta_bench.features import entry_locks
from tta_bench.features.entry_meta import MAKERS
from tta_bench.system.files import disk_errors

if TYPE_CHECKING:
    from tta_bench.features.store import Entry


@dataclass
class Claim:
    """A range that this process encodes, and which of its blocks are not in the journal yet."""

    lock: filelock.BaseFileLock
    blocks: set[int] = field(default_factory=set)


class Writer:
    """Claims ranges, writes their blocks and, after the data is on disk, their journal lines."""

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        self._lines: dict[int, bytes] = {}  # of blocks that are written but not in the journal yet
        self._claims: dict[int, Claim] = {}  # by the number of the range; the files are open while there are any

    def __enter__(self) -> Writer:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.flush()
        finally:
            for number in list(self._claims):
                self._give_back(number)

    def claim(self, blocks: Sequence[int]) -> list[int]:
        """Claims the range that these blocks are of, and returns those that are still to be written: none if the range
        is another process's, or done."""
        number = self.entry.range_of(blocks[0])
        if number not in self._claims and not self._take(number):
            return []
        lacking = [b for b in self.entry.lacking(blocks) if b not in self._lines]  # others may have been here before
        self._claims[number].blocks.update(lacking)
        if not self._claims[number].blocks:
            self._give_back(number)
        return lacking

    def wait(self, block: int) -> None:
        """Returns when whoever encodes this block's range has done it, or died."""
        number = self.entry.range_of(block)
        if number not in self._claims:  # what is our own would be waited for for ever
            entry_locks.wait_for(self.entry.folder, number)

    def write(self, block: int, features: Tensor) -> None:
        """features [images, V, D] of the images of a block that is claimed."""
        self._device = features.device.type
        images, (_, views, dim) = self.entry.images_of(block), self.entry.shape
        if features.shape != (len(images), views, dim):
            raise ValueError(f"block {block} wants {(len(images), views, dim)}, not {tuple(features.shape)}")
        content = features.cpu().numpy().astype(self.entry.dtype).tobytes()
        offset, _ = self.entry.span(block)
        with disk_errors(self.entry.folder):
            written = 0
            while written < len(content):
                written += os.pwrite(self._data, content[written:], offset + written)
        self._lines[block] = f"{block} {crc(content)} {self.entry.tag}\n".encode()

    def flush(self) -> None:
        """After this, everything written so far survives, and ranges that are done are given back."""
        if not self._lines:
            return
        with disk_errors(self.entry.folder):
            os.fsync(self._data)
            with entry_locks.entry_lock(self.entry.folder):
                end = os.lseek(self._journal, 0, os.SEEK_END)
                cut_off = end and os.pread(self._journal, 1, end - 1) != b"\n"  # a line, by a kill
                os.write(self._journal, (b"\n" if cut_off else b"") + b"".join(self._lines.values()))
                self._sign()
            os.fsync(self._journal)
        self.entry.written(self._lines, self._data)
        for number, claim in list(self._claims.items()):
            claim.blocks -= self._lines.keys()
            if not claim.blocks:
                self._give_back(number)
        self._lines = {}

    def _sign(self) -> None:
        """On other machines, and by other versions of torch, the last bits would be others."""
        maker = f"{torch.backends.cpu.get_cpu_capability()} instructions, torch {torch.__version__}, {self._device}"
        if maker not in self.entry.makers():
            with (self.entry.folder / MAKERS).open("a") as makers:
                makers.write(f"{maker}\n")

    def _take(self, number: int) -> bool:
        folder = self.entry.folder
        with entry_locks.entry_lock(folder):
            lock = entry_locks.claim(folder, number)
            if lock is None:
                return False
            if not self._claims:  # not sooner: until then the files may be set aside or deleted
                with disk_errors(folder):
                    self._data = os.open(folder / "features.bin", os.O_RDWR | os.O_CREAT, 0o644)
                    self._journal = os.open(folder / "journal.txt", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._claims[number] = Claim(lock)
        return True

    def _give_back(self, number: int) -> None:
        self._claims.pop(number).lock.release()
        if not self._claims:
            os.close(self._data)
            os.close(self._journal)


def crc(content: bytes) -> str:
    return f"{zlib.crc32(content):08x}"
