"""Cut and resize boxes of an image.

The official codes of the methods work on Pillow images: 8-bit levels, and antialiased resizing in which a filter's
support grows with the reduction. The evaluation view is exactly torchvision's on such an image; crops, of which there
are many, are Pillow's within two levels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Literal

import cv2
import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from tta_bench.interfaces import Preprocess
from tta_bench.pixels.decode import to_rgb

Interpolation = Literal["bicubic", "bilinear"]
Levels = np.ndarray[Any, np.dtype[Any]]  # uint8 [H, W, 3], as Pillow and OpenCV hold an image; stubs don't say uint8
Boxes = np.ndarray[Any, np.dtype[np.int64]]  # [n, 4]: left, top, right, bottom

LONGEST = 8  # times the short side
RESAMPLING = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}


def to_levels(image: Image.Image) -> Levels:
    return np.array(image if image.mode == "RGB" else to_rgb(image))


def to_pixels(views: Iterable[Levels], count: int, size: int) -> Tensor:
    """Square images as encoders take them, but in levels: uint8 [count, 3, size, size]."""
    pixels = np.empty((count, 3, size, size), np.uint8)
    for planes, view in zip(pixels, views, strict=True):
        planes[:] = cv2.split(view)  # twice as fast as transposing
    return torch.from_numpy(pixels)


def to_floats(pixels: Tensor, out: Tensor | None = None) -> Tensor:
    """What a recipe rendered, as encoders take it: levels become float32 in [0, 1]. `out` is memory to do it in."""
    floats = torch.empty(pixels.shape) if out is None else out
    for target, source in zip(floats, pixels, strict=True):  # view by view, which stays in the cache
        target.copy_(source)
        if pixels.dtype == torch.uint8:
            target.div_(255)
    return floats


def crop_resize(image: Image.Image, boxes: Boxes, size: int, interpolation: Interpolation) -> Iterator[Levels]:
    """The boxes, cut out and each resized to a square: arrays [size, size, 3].

    A box is cut out first, as torchvision's crops are: no pixel beyond it shines in at its edge. torch resizes levels
    in fixed point, columns first, and several times as fast as Pillow. Pillow 13 begins with the rows where that is
    less work, which shows at hard edges of tall boxes, where bicubic overshoots.
    """
    levels = to_levels(image)
    height, width = levels.shape[:2]
    if not ((boxes[:, :2] >= 0) & (boxes[:, :2] < boxes[:, 2:]) & (boxes[:, 2:] <= (width, height))).all():
        raise ValueError(f"every box must have an area and lie within the image of {width} x {height} pixels")
    for left, top, right, bottom in boxes.tolist():
        yield _resize(np.ascontiguousarray(levels[top:bottom, left:right]), size, interpolation)


def _resize(levels: Levels, size: int, interpolation: Interpolation) -> Levels:
    channels_last = torch.from_numpy(levels)[None].permute(0, 3, 1, 2)  # [1, 3, H, W]: torch's fast path
    resized = F.interpolate(channels_last, (size, size), mode=interpolation, align_corners=False, antialias=True)
    result: Levels = resized.permute(0, 2, 3, 1)[0].numpy()
    return result


def resize_centre_crop(image: Image.Image, preprocess: Preprocess) -> Levels:
    """The backbone's evaluation view [S, S, 3], by Pillow itself: one view of many, and every score rests on it."""
    rgb = image if image.mode == "RGB" else to_rgb(image)
    size, resampling = preprocess.size, RESAMPLING[preprocess.interpolation]
    if preprocess.resize == "squash":
        return np.array(rgb.resize((size, size), resampling))
    short = min(rgb.size)
    width, height = (int(size * length / short) for length in rgb.size)  # torchvision's rounding of the long side
    left, top = round((width - size) / 2), round((height - size) / 2)  # and of the crop's corner: half to even
    if max(width, height) > LONGEST * size:  # a strip would take any amount of memory
        box = _part(left, size, width, rgb.width), _part(top, size, height, rgb.height)
        return np.array(rgb.resize((size, size), resampling, box=(box[0][0], box[1][0], box[0][1], box[1][1])))
    return np.array(rgb.resize((width, height), resampling).crop((left, top, left + size, top + size)))


def _part(offset: int, size: int, resized: int, length: int) -> tuple[float, float]:
    """Where in a side the crop begins and ends: resizing that is cropping what was resized, but for Pillow's choice of
    which axis goes first."""
    return offset * length / resized, min((offset + size) * length / resized, length)
