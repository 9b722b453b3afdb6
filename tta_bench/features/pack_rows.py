"""Rows of the tensors of a safetensors file, read one at a time.

Through pread: a slice of safetensors' own takes longer to make than a row to read, and it reads through a memory map,
where a file that becomes shorter ends the process with SIGBUS.
"""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import torch
from torch import Tensor

from tta_bench.errors import BadData
from tta_bench.features.store import Descriptor

TYPES = {"F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16}
LENGTH = 8  # bytes that say how long the table of contents is


class Rows:
    """An open file whose table of contents `safe_open` has found to be sound."""

    def __init__(self, file: Path) -> None:
        self.file, self._open = file, Descriptor(file)
        count = int.from_bytes(os.pread(self._open.number, LENGTH, 0), "little")
        self._contents = json.loads(os.pread(self._open.number, count, LENGTH))
        self._begin = LENGTH + count

    def read(self, name: str, row: int) -> Tensor:
        """Row `row` of a tensor of floats, in memory of its own."""
        about = self._contents[name]
        dtype, shape = TYPES[about["dtype"]], about["shape"][1:]
        content = bytearray(math.prod(shape) * dtype.itemsize)
        start = self._begin + about["data_offsets"][0] + row * len(content)
        if os.preadv(self._open.number, [content], start) != len(content):
            raise BadData(f"{self.file} is shorter than it was when it was opened")
        return torch.frombuffer(content, dtype=dtype).view(shape)
