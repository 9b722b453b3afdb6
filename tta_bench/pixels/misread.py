"""Pictures whose values Pillow hands on without what their file says of them: they would be read as something else."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from PIL import Image

from tta_bench.pixels.tiff_parts import APART, PLANES

WIDENED = ("L;2", "L;4", "RGB;16B")  # of a PNG, of which Pillow makes 8 bits
KIND, BITS, PHOTOMETRIC, PALETTE, SAMPLE_FORMAT = 254, 258, 262, 320, 339  # tags of a TIFF
MOST, ABOUT = 281, 270  # the highest value that there may be; a description
PREVIEW, MASK = 1, 4  # bits of KIND
WHITE_IS_ZERO, SIGNED = 0, 2  # values of PHOTOMETRIC and SAMPLE_FORMAT
BEGIN_AND_SIZE = b"\xff\x4f\xff\x51"  # the markers that a JPEG 2000 codestream begins with
OF_12_BITS = 4095  # the highest level
HIGHEST = 65_535  # level of a PPM of 16 bits
SIZES = 36  # bytes behind BEGIN_AND_SIZE; then how many components there are, and three bytes for each


def misread(image: Image.Image, content: bytes) -> str:
    """What it is of which that is so, before it is loaded; nothing if it is read as it should be."""
    tiles = getattr(image, "tile", ())
    if image.mode.startswith("I") and "transparency" in image.info:
        return "16-bit gray with a transparent value"
    if "transparency" in image.info and any(tile.args in WIDENED for tile in tiles):
        return "2, 4 or 16 bits with a transparent value"
    if image.format == "GIF" and tiles and tiles[0].extents != (0, 0, *image.size):
        return "a GIF whose picture leaves a part of its canvas free"
    if image.mode == "CMYK" and image.format in ("JPEG", "MPO") and "adobe" not in image.info:
        return "CMYK that does not say whether 0 is no ink or all of it"
    if image.format == "JPEG2000" and (bits := _bits_of_jpeg_2000(content)):
        return f"colours of {bits} bits"
    return _of_tiff(image)


def is_deep(image: Image.Image) -> bool:
    """Whether it has colours of 16 bits, of which Pillow hands on the upper 8; before it is loaded."""
    found = [tile.args if isinstance(tile.args, tuple) else (tile.args,) for tile in getattr(image, "tile", ())]
    return any(";16" in str(one) or (image.format == "PPM" and one == HIGHEST) for args in found for one in args)


def is_nearly_black(image: Image.Image) -> bool:
    """Whether none of its colours is above what 12 of 16 bits become in 8, whatever its transparency is."""
    colours = image if image.mode in ("RGB", "L") else image.convert("RGB")
    return all(high <= OF_12_BITS >> 8 for _, high in np.atleast_2d(colours.getextrema()))


def without_colour(image: Image.Image) -> bool:
    """Whether some of its pixels, once they are loaded, have a colour that its palette does not have."""
    if image.mode != "P" or image.palette is None:
        return False
    used = np.asarray(image)
    used = used[used != image.info.get("transparency")]  # which has no colour
    return bool(used.size and used.max() >= len(image.palette.palette) // len(image.palette.mode))


def _of_tiff(image: Image.Image) -> str:
    tags: Mapping[int, Any] = getattr(image, "tag_v2", {})
    if tags.get(KIND, 0) & PREVIEW:
        return "a TIFF whose first page is a preview of another one"
    if image.mode.startswith("P") and 0 < max(tags.get(PALETTE, (0,))) < 256:  # Pillow keeps the upper half of 16 bits
        return "a palette of 8-bit values"
    bits, signed = tags.get(BITS, (1,))[0], SIGNED in tags.get(SAMPLE_FORMAT, ())
    if bits > 8 and tags.get(PLANES) == APART:
        return f"colours of {bits} bits in planes of their own"
    if bits == 16 and 0 < max(tags.get(MOST, (HIGHEST,))) < HIGHEST:
        return f"values of 16 bits up to {max(tags[MOST])}"
    if "ImageJ=" in str(tags.get(ABOUT, "")) and "images=" in str(tags[ABOUT]):
        return "a stack of pictures, as ImageJ writes it"
    if image.format == "TIFF" and _has_more_pages(image):
        return "a TIFF of several pages"
    if signed and bits < 32:
        return f"signed values of {bits} bits"
    if image.mode.startswith("I") and 8 < bits < 16:
        return f"gray of {bits} bits"
    return "gray in which 0 is white" if image.mode.startswith("I") and tags.get(PHOTOMETRIC) == WHITE_IS_ZERO else ""


def _has_more_pages(image: Any) -> bool:
    """Whether a second picture of the same size follows, and neither a preview nor a mask."""
    size = image.size
    try:
        image.seek(1)
        return bool(image.size == size and not image.tag_v2.get(KIND, 0) & (PREVIEW | MASK))
    except Exception:  # there is none, or a broken one
        return False
    finally:
        image.seek(0)


def _bits_of_jpeg_2000(content: bytes) -> str:
    """Of its components, if they are not 8 each, or 16 of gray: of more than 8, Pillow makes white black."""
    at = content.find(BEGIN_AND_SIZE) + len(BEGIN_AND_SIZE) + SIZES + 2
    count = int.from_bytes(content[at - 2 : at])
    depths = content[at : at + 3 * count : 3]  # one less than its bits each; the highest bit is for signed values
    if set(depths) == {7} or depths == b"\x0f":
        return ""
    return " and ".join(str((depth & 0x7F) + 1) for depth in sorted(set(depths)))
