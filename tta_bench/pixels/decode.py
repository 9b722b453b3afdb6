"""From a file to an image: upright, in RGB, or an error that names the file. Imports no torch."""

from __future__ import annotations

import contextlib
import io
from pathlib import Path

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from tta_bench.errors import BadData


def decode(source: Path | bytes) -> Image.Image:
    """The image in RGB and upright; transparency shows white. Raises `BadData` for a file that can't be decoded."""
    name = f"image of {len(source)} bytes" if isinstance(source, bytes) else str(source)
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            image.load()
            return to_rgb(_upright(image))
    except FileNotFoundError:
        reason = "no such file"
    except UnidentifiedImageError:
        reason = "not an image, or of an unknown format"
    except Exception as error:  # Pillow's decoders raise errors of any type on a broken file
        reason = f"can't be decoded: {' '.join(str(error).split()) or type(error).__name__}"
    raise BadData(f"{name}: {reason}")


def _upright(image: Image.Image) -> Image.Image:
    with contextlib.suppress(Exception):  # a broken EXIF block is no reason to reject sound pixels
        return ImageOps.exif_transpose(image)
    return image


def to_rgb(image: Image.Image) -> Image.Image:
    """Without transparency and in 8 bits."""
    if image.mode.startswith("I"):  # 16-bit gray, which Pillow would clip at 255
        return Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
