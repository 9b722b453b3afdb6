"""Whether photos are of the sizes that their annotations tell: a resized copy has other pixels, and other numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from PIL import Image

from tta_bench.system.text import visible

LOOKED_AT = 8  # photos

Size = tuple[int, int]  # width, height


def resized(dataset: str, files: Sequence[Path], told: Callable[[int], Size | None]) -> list[str]:
    """A sentence if one of a few photos is of another size than `told` of its place; turned ones aside."""
    for place in sorted({len(files) * k // LOOKED_AT for k in range(LOOKED_AT)}) if files else ():
        size, wanted = _size_of(files[place]), told(place)
        if size is not None and wanted is not None and sorted(size) != sorted(wanted):
            return [
                f"{dataset}: {visible(files[place].name)} has {size[0]} x {size[1]} pixels, and its annotation says "
                f"{wanted[0]} x {wanted[1]}: a resized copy, whose numbers are not those of the official photos"
            ]
    return []


def _size_of(file: Path) -> Size | None:
    """From its header; what can't be read is told where it is decoded."""
    with suppress(Exception), file.open("rb") as opened, Image.open(opened) as image:
        return image.size
    return None
