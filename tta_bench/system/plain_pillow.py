"""Pillow as it comes, in a process that is somebody's own: a notebook may have switched something on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tta_bench.system.together import Together

# All that changes what is decoded, or whether damage is refused, as Pillow has it itself.
SWITCHES: dict[tuple[str, str], Any] = {
    ("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES"): False,
    ("PIL.BmpImagePlugin", "USE_RAW_ALPHA"): False,
    ("PIL.GifImagePlugin", "LOADING_STRATEGY"): 0,  # RGB_AFTER_FIRST
    ("PIL.TiffImagePlugin", "READ_LIBTIFF"): False,
    ("PIL.AvifImagePlugin", "DECODE_CODEC_CHOICE"): "auto",
}


@contextmanager
def _switched() -> Iterator[None]:
    found = [(sys.modules[module], name, value) for (module, name), value in SWITCHES.items() if module in sys.modules]
    before = [(module, name, getattr(module, name)) for module, name, _ in found if hasattr(module, name)]
    for module, name, value in found:
        setattr(module, name, value)
    try:
        yield
    finally:
        for module, name, value in before:
            setattr(module, name, value)


plain_pillow = Together(_switched)
