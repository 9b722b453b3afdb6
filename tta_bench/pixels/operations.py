"""The pixel operations of the view recipes, as Pillow has them: 8-bit levels between any two operations."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import cv2
import numpy as np
from PIL import Image, ImageEnhance

from tta_bench.pixels.resize import Levels

cv2.setNumThreads(0)  # views are rendered by many processes, and a pool of threads does not survive their fork

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]
Words = np.ndarray[Any, np.dtype[np.uint16]]

# --------------------------------------------------------------------------------------- operations on levels [S, S, 3]


def autocontrast(levels: Levels) -> Levels:
    """Stretch each channel to 0..255, as `ImageOps.autocontrast`."""
    planes = cv2.split(levels)
    low, high = np.array([cv2.minMaxLoc(plane)[:2] for plane in planes]).T[..., None]  # [3, 1] each
    if not low.any() and (high == 255).all():
        return levels  # nothing to stretch, as with most photos
    scale = 255 / np.maximum(high - low, 1)
    stretched = (np.arange(256) * scale - low * scale).clip(0, 255)  # [3, 256]
    return _look_up(planes, np.where(high > low, stretched, np.arange(256)))


def equalize(levels: Levels) -> Levels:
    """Flatten each channel's histogram, as `ImageOps.equalize`."""
    planes = cv2.split(levels)
    counts = np.stack([cv2.calcHist([p], [0], None, [256], (0, 256)).ravel() for p in planes]).astype(int)  # [3, 256]
    brightest = np.array([[row[row.nonzero()[0][-1]]] for row in counts])  # [3, 1]: pixels of that level
    step = (planes[0].size - brightest) // 255
    below = counts.cumsum(1) - counts
    flattened = (step // 2 + below) // np.maximum(step, 1)
    return _look_up(planes, np.where(step > 0, flattened.clip(max=255), np.arange(256)))


def _look_up(planes: Sequence[Levels], tables: Floats | Ints) -> Levels:
    """Replace each level by its entry in the channel's table [3, 256]."""
    return cv2.merge([cv2.LUT(plane, table) for plane, table in zip(planes, tables.astype(np.uint8), strict=True)])


def posterize(levels: Levels, bits: int) -> Levels:
    """Keep the upper bits, as `ImageOps.posterize`."""
    return levels & np.uint8(256 - (1 << (8 - bits)))


def solarize(levels: Levels, threshold: int) -> Levels:
    """Invert what is not below the threshold, 0..255, as `ImageOps.solarize`."""
    return levels ^ ((levels >= threshold) * np.uint8(255))


def translate(levels: Levels, dx: int, dy: int) -> Levels:
    """Output pixel (x, y) shows input pixel (x + dx, y + dy); black where there is none."""
    height, width = levels.shape[:2]
    result = np.zeros_like(levels)
    result[max(0, -dy) : height - max(0, dy), max(0, -dx) : width - max(0, dx)] = levels[
        max(0, dy) : height - max(0, -dy), max(0, dx) : width - max(0, -dx)
    ]
    return result


# Shears and rotations are Pillow's bilinear ones within a level. As there, what lies beyond the image's edge is black
# and does not shine in: OpenCV by itself would let the outermost pixels fade, which small encoders notice.


def shear_x(levels: Levels, slope: float) -> Levels:
    """Pixel (x, y) of a square shows (x + slope * y, y).

    A row moves as a whole, so that it is a weighted sum of two slices: less work than an affine map.
    """
    size, (whole, part, nearest) = len(levels), _moves(slope, len(levels))
    margin = int(abs(whole).max()) + 1
    wide = cv2.copyMakeBorder(levels, 0, 0, margin, margin, cv2.BORDER_REPLICATE)
    moved = np.empty((size, size + 1, 3), np.uint8)
    for rows, by in _runs(whole):
        moved[rows] = wide[rows, margin + by : margin + by + size + 1]
    flat = moved.reshape(size, -1)
    result = _blend(flat[:, :-3], flat[:, 3:], part[:, None]).reshape(levels.shape)
    for rows, by in _runs(nearest):
        result[rows, _vacated(by)] = 0
    return result


def shear_y(levels: Levels, slope: float) -> Levels:
    """Pixel (x, y) of a square shows (x, y + slope * x): the same with columns."""
    size, (whole, part, nearest) = len(levels), _moves(slope, len(levels))
    margin = int(abs(whole).max()) + 1
    tall = cv2.copyMakeBorder(levels, margin, margin, 0, 0, cv2.BORDER_REPLICATE)
    moved = np.empty((size + 1, size, 3), np.uint8)
    for columns, by in _runs(whole):
        moved[:, columns] = tall[margin + by : margin + by + size + 1, columns]
    flat = moved.reshape(size + 1, -1)
    result = _blend(flat[:-1], flat[1:], part.repeat(3)).reshape(levels.shape)
    for columns, by in _runs(nearest):
        result[_vacated(by), columns] = 0
    return result


def _moves(slope: float, size: int) -> tuple[Ints, Words, Ints]:
    """By how many pixels each row or column moves, by how many 256ths besides, and both rounded to pixels, [S] each."""
    moves = slope * (np.arange(size) + 0.5)
    whole = np.floor(moves).astype(int)
    return whole, np.rint((moves - whole) * 256).astype(np.uint16), np.floor(moves + 0.5).astype(int)


def _vacated(by: int) -> slice:
    """The pixels of a row that look beyond the image when all look `by` pixels on."""
    return slice(-by, None) if by > 0 else slice(0, -by)


def _runs(values: Ints) -> Iterator[tuple[slice, int]]:
    """Where a value stays the same, and the value."""
    borders = [0, *(np.flatnonzero(np.diff(values)) + 1).tolist(), len(values)]
    for start, end in itertools.pairwise(borders):
        yield slice(start, end), int(values[start])


def _blend(near: Levels, far: Levels, part: Words) -> Levels:
    """Between two levels, nearer the second by `part` of 256."""
    sum_, far_ = near.astype(np.uint16), far.astype(np.uint16)
    sum_ *= 256 - part
    far_ *= part
    sum_ += far_
    sum_ >>= 8  # drops fractions, as Pillow does
    return sum_.astype(np.uint8)


def rotate(levels: Levels, degrees: float) -> Levels:
    """A square about its centre, as `Image.rotate`."""
    centre = (len(levels) - 1) / 2
    turn = cv2.getRotationMatrix2D((centre, centre), degrees, 1)
    fine = cv2.cvtColor(levels, cv2.COLOR_RGB2RGBA).astype(np.uint16)  # four channels turn twice as fast as three
    fine <<= 8  # OpenCV rounds and Pillow drops fractions: an equalize would make much of the difference
    turned: Levels = cv2.warpAffine(fine, turn, levels.shape[1::-1], borderMode=cv2.BORDER_REPLICATE)
    turned[_turned_beyond(degrees, len(levels))] = 0
    turned >>= 8
    return cv2.cvtColor(turned.astype(np.uint8), cv2.COLOR_RGBA2RGB)


@functools.lru_cache(maxsize=16)  # AugMix knows four rotations
def _turned_beyond(degrees: float, size: int) -> tuple[Ints, Ints]:
    """Rows and columns of the pixels that look beyond the image's edge."""
    centre = (size - 1) / 2
    back = cv2.invertAffineTransform(cv2.getRotationMatrix2D((centre, centre), degrees, 1))
    rows, columns = np.mgrid[:size, :size]
    where = back @ np.stack((columns.ravel(), rows.ravel(), np.ones(size * size)))  # [2, S * S]
    outside = ((where < -0.5) | (where >= size - 0.5)).any(0).reshape(size, size)
    row, column = outside.nonzero()
    return row, column


# ------------------------------------------------------------------------------------------- colours of one image


def adjust_brightness(image: Image.Image, factor: float) -> Image.Image:
    return ImageEnhance.Brightness(image).enhance(factor)


def adjust_contrast(image: Image.Image, factor: float) -> Image.Image:
    return ImageEnhance.Contrast(image).enhance(factor)


def adjust_saturation(image: Image.Image, factor: float) -> Image.Image:
    return ImageEnhance.Color(image).enhance(factor)


def adjust_hue(image: Image.Image, shift: float) -> Image.Image:
    """Turn the colour circle by `shift` of a full turn."""
    hue, saturation, value = image.convert("HSV").split()
    turned = (np.asarray(hue).astype(np.int32) + int(shift * 255)).astype(np.uint8)  # wraps around, as a circle does
    return Image.merge("HSV", (Image.fromarray(turned), saturation, value)).convert("RGB")
