"""How to encode. Apart from the rest, so that a command can have its options without importing torch."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal

FeatureType = Literal["float16", "float32"]


@dataclass(frozen=True)
class EncodingOptions:
    """None of this changes what is encoded; batch size and threads may change its last bits."""

    dtype: FeatureType = "float16"  # of the stored features
    batch_size: int = 64  # views per encoder forward
    workers: int = min(8, os.cpu_count() or 1)  # processes that decode and render
