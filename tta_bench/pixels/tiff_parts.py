"""Whether the parts that a TIFF lists make up its whole picture. Pillow reads what is missing as black, or as something
else of the file."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from typing import Any

WIDTH, HEIGHT, SAMPLES, PLANES = 256, 257, 277, 284  # tags
STRIPS, ROWS = 273, 278
TILES, TILE_WIDTH, TILE_HEIGHT = 324, 322, 323
APART = 2  # each sample has strips or tiles of its own
HEADER = 8  # bytes, before which no part begins


def lacks_parts(tags: Mapping[int, Any]) -> bool:
    """Of a TIFF's first page; nothing is known of other formats, which have no such tags."""
    if TILES in tags:
        offsets, across, down = tags[TILES], _number(tags, TILE_WIDTH), _number(tags, TILE_HEIGHT)
    elif STRIPS in tags:
        offsets, across, down = tags[STRIPS], _number(tags, WIDTH), _number(tags, ROWS, _number(tags, HEIGHT))
    else:
        return False
    if not across or not down:
        return True
    parts = ceil(_number(tags, WIDTH) / across) * ceil(_number(tags, HEIGHT) / down)
    wanted = parts * (_number(tags, SAMPLES, 1) if _number(tags, PLANES, 1) == APART else 1)
    found = offsets if isinstance(offsets, tuple) else (offsets,)
    return len(found) < wanted or any(offset < HEADER for offset in found[:wanted])


def _number(tags: Mapping[int, Any], tag: int, default: int = 0) -> int:
    """Some writers make a list of one number."""
    value = tags.get(tag, default)
    return int(value[0] if isinstance(value, tuple) else value)
