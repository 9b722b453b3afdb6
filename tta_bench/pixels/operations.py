"""Pixels: decode an image, cut and resize many boxes of it in one go, and the pixel operations of the view recipes.

Everything here gives Pillow's result, because the official codes of the methods work on Pillow images: 8-bit levels
between any two operations, and antialiased resizing in which a filter's support grows with the reduction.
"""

from __future__ import annotations

import contextlib
import io
import math
from pathlib import Path
from typing import Literal

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance, ImageOps, UnidentifiedImageError
from torch import Tensor

from tta_bench.errors import BadData
from tta_bench.interfaces import Preprocess

Interpolation = Literal["bicubic", "bilinear"]

# Floats between the two passes of a resize: few enough to stay in a core's cache, enough to hide the calls' overhead.
CHUNK = 1_300_000


# -------------------------------------------------------------------------------------------------------- decoding


def decode(source: Path | bytes) -> Image.Image:
    """The image in RGB and upright; transparency shows white. Raises `BadData` for a file that can't be decoded."""
    name = f"image of {len(source)} bytes" if isinstance(source, bytes) else str(source)
    try:
        with Image.open(io.BytesIO(source) if isinstance(source, bytes) else source) as image:
            image.load()
            return _to_rgb(_upright(image))
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


def _to_rgb(image: Image.Image) -> Image.Image:
    if image.mode.startswith("I"):  # 16-bit gray, which Pillow would clip at 255
        return Image.fromarray((np.asarray(image) >> 8).clip(0, 255).astype(np.uint8)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
    return image.convert("RGB")


def to_tensor(image: Image.Image) -> Tensor:
    """Levels 0..255, uint8 [3, H, W]."""
    return torch.from_numpy(np.array(image if image.mode == "RGB" else _to_rgb(image))).permute(2, 0, 1)


def to_image(levels: Tensor) -> Image.Image:
    """The inverse of `to_tensor`."""
    return Image.fromarray(levels.permute(1, 2, 0).contiguous().numpy())


# -------------------------------------------------------------------------------------------------------- resizing


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


# ------------------------------------------------------------------------- operations on levels, uint8 [m, 3, S, S]


def autocontrast(levels: Tensor) -> Tensor:
    """Stretch each channel to 0..255, as `ImageOps.autocontrast`."""
    flat = levels.flatten(2)  # [m, 3, P]
    low, high = flat.amin(-1, keepdim=True).double(), flat.amax(-1, keepdim=True).double()  # [m, 3, 1]
    scale = torch.full_like(low, 255) / (high - low).clamp(min=1)  # `255 / x` would multiply by a reciprocal
    stretched = (torch.arange(256) * scale - low * scale).clamp(0, 255)
    return _look_up(levels, torch.where(high > low, stretched, torch.arange(256.0).double()))


def equalize(levels: Tensor) -> Tensor:
    """Flatten each channel's histogram, as `ImageOps.equalize`."""
    m, channels = levels.shape[:2]
    planes = levels.reshape(m * channels, -1)
    counts = torch.stack([torch.bincount(plane, minlength=256) for plane in planes])  # [m * 3, 256]
    brightest = counts.gather(1, planes.amax(1, keepdim=True).long())  # [m * 3, 1]
    step = (planes.shape[1] - brightest) // 255
    below = counts.cumsum(1) - counts
    flattened = (step // 2 + below) // step.clamp(min=1)
    return _look_up(levels, torch.where(step > 0, flattened.clamp(max=255), torch.arange(256)).view(m, channels, 256))


def _look_up(levels: Tensor, table: Tensor) -> Tensor:
    """Replace each level by its entry in the channel's table [m, 3, 256]."""
    return table.to(torch.uint8).gather(2, levels.flatten(2).long()).view_as(levels)


def posterize(levels: Tensor, bits: int) -> Tensor:
    """Keep the upper bits, as `ImageOps.posterize`."""
    return levels & (256 - (1 << (8 - bits)))


def solarize(levels: Tensor, thresholds: Tensor) -> Tensor:
    """Invert what is not below the image's threshold [m], 0..255, as `ImageOps.solarize`."""
    invert = (levels >= thresholds.to(torch.uint8).view(-1, 1, 1, 1)).to(torch.uint8) * 255
    return levels ^ invert


def translate(levels: Tensor, dx: Tensor, dy: Tensor) -> Tensor:
    """Output pixel (x, y) shows input pixel (x + dx, y + dy); black where there is none. Whole pixels [m]."""
    height, width = levels.shape[-2:]
    result = torch.zeros_like(levels)
    for target, source, x, y in zip(result, levels, dx.tolist(), dy.tolist(), strict=True):
        target[:, max(0, -y) : height - max(0, y), max(0, -x) : width - max(0, x)] = source[
            :, max(0, y) : height - max(0, -y), max(0, x) : width - max(0, -x)
        ]
    return result


def affine(levels: Tensor, matrices: Tensor) -> Tensor:
    """`Image.transform(size, AFFINE, (a, b, c, d, e, f), BILINEAR)` for square images and matrices [m, 6].

    Output pixel (x, y) shows (ax + by + c, dx + ey + f), black beyond the edge. Within one level of Pillow, which works
    in double precision and drops fractions; the small summand keeps float32 from dropping a level where it is flat.
    """
    size = levels.shape[-1]
    unit = (torch.arange(size) + 0.5) * (2 / size) - 1  # pixel centres where -1 and 1 are the image's edges
    along_x, along_y, shift = matrices.float().view(-1, 2, 3, 1, 1).unbind(2)  # [m, 2, 1, 1] each
    offset = along_x + along_y - 1 + shift * (2 / size)
    where = along_x * unit + (along_y * unit.view(size, 1) + offset)  # [m, 2, size, size]
    sampled = F.grid_sample(
        levels.float(), where.permute(0, 2, 3, 1), mode="bilinear", padding_mode="border", align_corners=False
    )
    inside = where[:, :1].abs().maximum(where[:, 1:].abs()) <= 1  # [m, 1, size, size]
    return sampled.add_(1e-3).to(torch.uint8).mul_(inside)


def rotation(degrees: Tensor, size: int) -> Tensor:
    """Matrices of `Image.rotate` about the centre of a square image, [m, 6]."""
    angle = degrees.double() * (-math.pi / 180)
    cos, sin, centre = angle.cos(), angle.sin(), size / 2
    return torch.stack((cos, sin, centre * (1 - cos - sin), -sin, cos, centre * (1 - cos + sin)), 1)


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
