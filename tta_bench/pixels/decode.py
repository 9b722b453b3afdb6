"""From a file to an image: upright, in RGB, or an error that names the file. Imports no torch."""

from __future__ import annotations

import contextlib
import functools
import io
import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from tta_bench.errors import BadData
from tta_bench.pixels.damage import JPEGS, damage, scans_of
from tta_bench.pixels.misread import OF_12_BITS, is_deep, is_nearly_black, misread, without_colour
from tta_bench.pixels.tiff_parts import lacks_parts
from tta_bench.system.plain_pillow import plain_pillow

MAX_PIXELS = 100_000_000  # decoding and rendering take up to 16 bytes per pixel
MAX_SCANS = 100  # of a JPEG, each of which takes the time of the whole picture; encoders write about ten
LIMIT = "TTABENCH_MAX_PIXELS"
# By Pillow's names. Of the others it runs a program for some (EPS, WMF) and misreads some (FITS, PSD).
READ = ("JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "TGA", "AVIF", "JPEG2000")
GRAY_16 = ("PNG", "PPM")  # formats whose mode "I" is 16-bit gray
OTHERWISE = "save it with 8 or 16 bits"
ALL_LOW = "of 16 bits of which none is above 4095: it would be nearly black, so save it with 8 bits"


def decode(source: Path | bytes) -> Image.Image:
    """The image in RGB and upright; transparency shows white. Raises `BadData` for a file that can't be decoded."""
    name = f"image of {len(source)} bytes" if isinstance(source, bytes) else str(source)
    try:
        if isinstance(source, Path) and source.exists() and not source.is_file():
            raise BadData("not a regular file")  # opening a FIFO would wait for ever
        Image.init()  # so that all formats, and their switches, are known
        with plain_pillow(), _still(), _file(source) as file, _opened(file, _limit()) as image:
            if image.format not in READ:
                raise BadData(f"{image.format} is not read here: save it as PNG or JPEG")
            if lacks_parts(getattr(image, "tag_v2", {})):
                raise BadData(
                    "its table of strips or tiles leaves out some of the picture: it was not written to its end"
                )
            content = _content(source)
            if why := misread(image, content):
                raise BadData(f"{why}, which would be read as something else: save it as PNG with 8 bits")
            if image.format in JPEGS and (scans := scans_of(content)) > MAX_SCANS:
                raise BadData(f"it is drawn in {scans} scans, more than {MAX_SCANS}: save it anew")
            deep = is_deep(image)
            image.load()
            if deep and not image.mode.startswith("I") and is_nearly_black(image):
                raise BadData(f"colours {ALL_LOW}")
            if why := damage(content, image.format):
                raise BadData(why)
            if without_colour(image):
                raise BadData("it has pixels whose colour its palette does not have: get it again")
            if image.format == "TGA" and not content[17] & 15:  # so many bits of transparency
                return image.convert("RGB")  # the byte that is there for it may hold anything
            return to_rgb(_upright(image), wide=image.format not in GRAY_16)
    except FileNotFoundError:
        reason = "no such file"
    except UnidentifiedImageError:
        reason = "not an image, or of an unknown format"
    except BadData as error:
        reason = str(error)
    except Exception as error:  # Pillow's decoders raise errors of any type on a broken file
        reason = f"can't be decoded: {' '.join(str(error).split()) or type(error).__name__}"
    raise BadData(f"{name}: {reason}")


@functools.cache
def readable_names() -> frozenset[str]:
    """Suffixes of files that `decode` may be able to read."""
    Image.init()
    return frozenset(suffix for suffix, kind in Image.registered_extensions().items() if kind in READ)


def _file(source: Path | bytes) -> BinaryIO:
    """Never a path: of those Pillow maps some into memory, in rows of another length if they are to be turned."""
    return io.BytesIO(source) if isinstance(source, bytes) else source.open("rb")


def _content(source: Path | bytes) -> bytes:
    return source if isinstance(source, bytes) else source.read_bytes()


def _limit() -> int:
    text = os.environ.get(LIMIT, str(MAX_PIXELS))
    if not (text.isascii() and text.isdecimal() and int(text)):
        raise BadData(f"can't be decoded: {LIMIT}={text} is not a number of pixels")
    return int(text)


@contextlib.contextmanager
def _still() -> Iterator[None]:
    """What Pillow warns of names no file: of images above its own limit (we have one), of broken EXIF beside sound
    pixels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@contextlib.contextmanager
def _opened(file: BinaryIO, limit: int) -> Iterator[Image.Image]:
    """The image with its header read and nothing else, so that what it would take can be looked at before."""
    if Image.MAX_IMAGE_PIXELS is not None:
        Image.MAX_IMAGE_PIXELS = max(Image.MAX_IMAGE_PIXELS, limit)  # or Pillow would refuse what the user allows
    advice = f"more than {limit:,}: set {LIMIT} to a larger number if it is what it should be"
    try:
        image = Image.open(file)  # of any format: TGA has no mark, and alone would take others' files for its own
    except Image.DecompressionBombError:
        raise BadData(f"it has far {advice}") from None
    with image:
        width, height = image.size
        if width * height > limit:
            raise BadData(f"it has {width:,} x {height:,} = {width * height:,} pixels, {advice}")
        yield image


def _upright(image: Image.Image) -> Image.Image:
    with contextlib.suppress(Exception):  # a broken EXIF block is no reason to reject sound pixels
        return ImageOps.exif_transpose(image)
    return image


def to_rgb(image: Image.Image, wide: bool = True) -> Image.Image:
    """Without transparency and in 8 bits. Raises `BadData` for values whose range can't be known, or if none is seen.

    Args:
        image: In any mode.
        wide: Mode "I" stands for a file of 32 bits. Pillow reads 16-bit gray of some formats into the same mode.
    """
    if image.mode == "F":
        raise BadData(f"a floating-point image, and what its values mean can't be known: {OTHERWISE}")
    if image.mode.startswith("I"):  # gray of more than 8 bits, which Pillow would clip at 255
        values = np.asarray(image)
        low, high = (int(values.min()), int(values.max())) if values.size else (0, 0)
        if low < 0 or high > 0xFFFF:
            raise BadData(
                f"a 32-bit image with values from {low} to {high}, and what they mean can't be known: {OTHERWISE}"
            )
        wider = wide and image.mode == "I"
        if wider and 0xFF < high <= 0x7FFF:  # of 10, 12 or 16 bits, and one photo may say something else than the next
            raise BadData(f"a 32-bit image with values up to {high}, and of how many bits can't be known: {OTHERWISE}")
        narrow = wider and high <= 0xFF
        if not narrow and low < high <= OF_12_BITS:
            raise BadData(f"gray {ALL_LOW}")
        return Image.fromarray((values if narrow else values >> 8).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        if image.getchannel("A").getextrema() == (0, 0):
            raise BadData("it is transparent all over, and would be white: save it without transparency")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")
