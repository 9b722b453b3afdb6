"""The pixel operations of the view recipes, as Pillow has them: 8-bit levels between any two operations."""

from __future__ import annotations

import math

import numpy as np
import torch
import torch.nn.functional as F
from PIL import Image, ImageEnhance
from torch import Tensor

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
