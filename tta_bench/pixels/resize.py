"""Cut and resize many boxes of an image in one go.

Everything here gives Pillow's result, because the official codes of the methods work on Pillow images: 8-bit levels,
and antialiased resizing in which a filter's support grows with the reduction.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image
from torch import Tensor

from tta_bench.interfaces import Preprocess
from tta_bench.pixels.decode import to_rgb

Interpolation = Literal["bicubic", "bilinear"]

# Floats between the two passes of a resize: few enough to stay in a core's cache, enough to hide the calls' overhead.
CHUNK = 1_300_000


def to_tensor(image: Image.Image) -> Tensor:
    """Levels 0..255, uint8 [3, H, W]."""
    return torch.from_numpy(np.array(image if image.mode == "RGB" else to_rgb(image))).permute(2, 0, 1)


def to_image(levels: Tensor) -> Image.Image:
    """The inverse of `to_tensor`."""
    return Image.fromarray(levels.permute(1, 2, 0).contiguous().numpy())


def crop_resize(
    image: Tensor, boxes: Tensor, size: int, interpolation: Interpolation, *, isolate: bool = False
) -> Tensor:
    """What `crop_resize_levels` gives, in [0, 1]: float32 [n, 3, size, size]."""
    return crop_resize_levels(image, boxes, size, interpolation, isolate=isolate).float().div_(255)


def crop_resize_levels(
    image: Tensor, boxes: Tensor, size: int, interpolation: Interpolation, *, isolate: bool = False
) -> Tensor:
    """Many boxes of one image, each resized to a square, uint8 [n, 3, size, size], on the image's device.

    A resize is a weighted sum of columns and then one of rows, i.e. an embedding bag. A bag is summed in a fixed order,
    so a box's pixels depend neither on the other boxes nor on the number of threads. Columns always come first. Pillow
    13 begins with the rows where that is less work, which shows at hard edges of tall images, where bicubic overshoots.

    Args:
        image: [3, H, W], uint8 or float in [0, 1].
        boxes: [n, 4] left, top, right, bottom in pixels; fractions count.
        size: Side of the result.
        interpolation: "bicubic" or "bilinear".
        isolate: Cut the box out first, as torchvision's crops do: no pixel beyond the box shines in at its edge.
            Otherwise as in `Image.resize(..., box=box)`.
    """
    channels, height, width = image.shape
    boxes = boxes.to("cpu", torch.float64)
    limits = torch.tensor([width, height], dtype=torch.float64)
    if not ((boxes[:, :2] >= 0) & (boxes[:, :2] < boxes[:, 2:]) & (boxes[:, 2:] <= limits)).all():
        raise ValueError(f"every box must have an area and lie within the image of {width} x {height} pixels")
    columns, across = _taps(boxes[:, 0], boxes[:, 2], width, size, interpolation, isolate)  # [n, size, K]
    rows, down = _taps(boxes[:, 1], boxes[:, 3], height, size, interpolation, isolate)  # [n, size, L]
    levels = image.float() if image.dtype == torch.uint8 else image.float() * 255
    table = levels.permute(2, 0, 1).contiguous().view(width, channels * height)  # one entry per column

    result = torch.empty(len(boxes), channels, size, size, dtype=torch.uint8, device=image.device)
    chunk = max(1, CHUNK // (size * channels * height))
    for start in range(0, len(boxes), chunk):
        some = slice(start, start + chunk)
        narrow = _weighted_sums(table, columns[some], across[some])  # [b, size, channels * height]
        narrow = narrow.transpose(1, 2).contiguous().view(-1, size)  # one entry per box, channel and row
        planes = height * torch.arange(len(narrow) // height).view(-1, channels, 1, 1)  # where each one begins
        own_rows = (rows[some, None] + planes).flatten(0, 1)  # [b * channels, size, L]
        small = _weighted_sums(narrow, own_rows, down[some].repeat_interleave(channels, 0))
        result[some] = small.view(-1, channels, size, size)
    return result


def _weighted_sums(table: Tensor, entries: Tensor, weights: Tensor) -> Tensor:
    """Sums of the table's entries, [n, size, K] of [E, X] -> [n, size, X]. As in Pillow every pass ends in levels."""
    sums = F.embedding_bag(
        entries.flatten(0, 1).to(table.device),
        table,
        per_sample_weights=weights.flatten(0, 1).to(table.device),
        mode="sum",
    )
    return sums.add_(0.5).clamp_(0, 255).floor_().view(*entries.shape[:2], -1)


def _taps(
    low: Tensor, high: Tensor, length: int, size: int, interpolation: Interpolation, isolate: bool
) -> tuple[Tensor, Tensor]:
    """Which of an axis's pixels enter each output pixel and with what weight, both [n, size, K]."""
    filter_, support = (_cubic, 2.0) if interpolation == "bicubic" else (_triangle, 1.0)
    scale = ((high - low) / size)[:, None]  # [n, 1]
    spread = scale.clamp(min=1)  # > 1 when reducing: that is the antialiasing
    centre = low[:, None] + (torch.arange(size, dtype=torch.float64) + 0.5) * scale  # [n, size]
    first = (centre - support * spread + 0.5).floor().clamp(min=0)
    last = (centre + support * spread + 0.5).floor().clamp(max=length)
    if isolate:
        first = first.maximum(low.floor()[:, None])
        last = last.minimum(high.ceil()[:, None])
    taps = first[..., None] + torch.arange(int((last - first).max()))  # [n, size, K]
    weights = filter_((taps + 0.5 - centre[..., None]) / spread[..., None]) * (taps < last[..., None])
    weights /= weights.cumsum(-1)[..., -1:]  # in order, so that trailing zeros change nothing
    weights = (weights * 2**22).round_() / 2**22  # Pillow's fixed point, so that ties are broken as there
    return taps.clamp_(max=length - 1).long(), weights.float()


def _triangle(x: Tensor) -> Tensor:
    return (1 - x.abs()).clamp(min=0)


def _cubic(x: Tensor, a: float = -0.5) -> Tensor:
    x = x.abs().clamp(max=2)  # at 2 the outer piece is 0
    inner = ((a + 2) * x - (a + 3)) * x * x + 1
    outer = (((x - 5) * x + 8) * x - 4) * a
    return torch.where(x < 1, inner, outer)


def resize_centre_crop(image: Tensor, preprocess: Preprocess) -> Tensor:
    """The backbone's evaluation view, float32 [3, S, S]."""
    _, height, width = image.shape
    box = centre_box(height, width, preprocess)
    return crop_resize(image, box, preprocess.size, preprocess.interpolation)[0]


def centre_box(height: int, width: int, preprocess: Preprocess) -> Tensor:
    """The part of the image that the evaluation view shows, [1, 4]: cropping what was resized is resizing this box."""
    if preprocess.resize == "squash":
        return torch.tensor([[0.0, 0.0, width, height]], dtype=torch.float64)
    size, short = preprocess.size, min(height, width)
    start, end = [], []
    for length in (width, height):
        resized = int(size * length / short)  # torchvision's rounding of the long side
        offset = round((resized - size) / 2)  # and of the crop's corner: half to even
        start.append(offset * length / resized)
        end.append(min((offset + size) * length / resized, length))
    return torch.tensor([start + end], dtype=torch.float64)
