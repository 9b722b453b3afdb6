"""Rows of the features in a safetensors file.

Through pread: a slice of safetensors' own takes longer to make than a row to read, and it reads through a memory map,
where a file that becomes shorter ends the process with SIGBUS. A grid reads the same rows once for each of its cells,
so a tensor that is small enough is read once and kept.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from tta_bench.errors import BadData
from tta_bench.features.store import Descriptor

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
LENGTH = 8  # bytes that say how long the table of contents is
KEPT = 256 * 2**20  # bytes of features in memory, whatever the size of the file
NORM_TOLERANCE = 0.01  # float16 is within 0.0003


class Rows:
    """An open file whose table of contents `safe_open` has found to be sound."""

    def __init__(self, file: Path) -> None:
        self.file, self._open = file, Descriptor(file)
        count = int.from_bytes(os.pread(self._open.number, LENGTH, 0), "little")
        self._contents = json.loads(os.pread(self._open.number, count, LENGTH))
        self._begin, self._size = LENGTH + count, os.fstat(self._open.number).st_size
        self._kept: dict[str, Tensor | None] = {}  # unit-norm tensors; None: one that is read row by row
        self._left = KEPT

    def unit(self, name: str, row: int, count: int | None = None, lent: bool = False) -> Tensor:
        """The row's first `count` vectors, [V, D], as float32 and of length 1: a copy, unless it is only lent."""
        if name not in self._kept:
            self._kept[name] = self._keep(name)
        whole = self._kept[name]
        if whole is not None and whole._version:  # changed in place by somebody to whom it was lent
            whole = self._kept[name] = self._keep(name)
        if os.fstat(self._open.number).st_size < self._size:
            raise self._shorter()
        if whole is not None:
            return whole[row, :count] if lent else whole[row, :count].clone()
        return unit(self._read(name, row, row + 1), f"{self.file}, {name}, row {row}")[0, :count]

    def _keep(self, name: str) -> Tensor | None:
        """All of a tensor, [N, V, D], if there is room for it and nothing wrong with it."""
        shape = self._contents[name]["shape"]
        size = math.prod(shape) * torch.float32.itemsize
        if size > self._left and self._kept.get(name) is None:
            return None
        try:
            whole = unit(self._read(name, 0, shape[0]), name)
        except BadData:  # only the rows that a run asks for have to be sound
            return None
        self._left -= size if name not in self._kept else 0
        return whole.data  # which counts its changes from 0

    def _read(self, name: str, start: int, end: int) -> Tensor:
        """Rows of a tensor of floats, [n, V, D], in memory of their own."""
        about = self._contents[name]
        dtype, (_, *shape) = TYPES[about["dtype"]], about["shape"]
        row = math.prod(shape) * dtype.itemsize
        content = bytearray((end - start) * row)
        if _read_into(content, self._open.number, self._begin + about["data_offsets"][0] + start * row) < len(content):
            raise self._shorter()
        return torch.frombuffer(content, dtype=dtype).view(end - start, -1, shape[-1])

    def _shorter(self) -> BadData:
        return BadData(f"{self.file} is shorter than it was when it was opened")


def _read_into(content: bytearray, number: int, offset: int) -> int:
    """How many bytes the file had; the system may hand out a large piece in parts."""
    filled = 0
    while filled < len(content):
        more = os.preadv(number, [memoryview(content)[filled:]], offset + filled)
        if more == 0:
            break
        filled += more
    return filled


def unit(features: Tensor, where: str) -> Tensor:
    """A copy as float32 and of length 1. Raises `BadData` for features that were not, which would give a wrong
    number."""
    copy = features.to(torch.float32, copy=True)
    lengths: Tensor = torch.linalg.vector_norm(copy, dim=-1, keepdim=True)
    # numpy takes half of torch's time for a few numbers
    if not np.abs(lengths.numpy() - 1).max() <= NORM_TOLERANCE:  # nor is a nan
        raise BadData(f"{where}: the length is not 1; see `ttabench pack verify`")
    return copy.div_(lengths)
