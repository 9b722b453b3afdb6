"""The domain shifts of `scenes`: what the weather, the hour, the medium or the sensor does to a clean image.

Each takes pixels in [0, 1], [H, W, 3], and a generator for its strength and its grain.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image, ImageFilter

Pixels = np.ndarray[Any, np.dtype[np.float32]]
LUMA = np.array([0.299, 0.587, 0.114], np.float32)


def fog(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    """Scattered light: contrast fades towards the top, where things are far away, and in drifting banks."""
    height, width, _ = pixels.shape
    depth = np.linspace(1.0, 0.75, height, dtype=np.float32)[:, None]
    banks = _smooth(rng.random((4, 4)).astype(np.float32), (width, height))
    density = (rng.uniform(0.25, 0.6) * depth + 0.25 * (banks - 0.5)).clip(0, 0.9)[..., None]
    veil = np.float32(rng.uniform(0.75, 0.9))
    foggy: Pixels = (_blur(pixels, 0.8) * (1 - density) + veil * density).astype(np.float32)
    return foggy


def night(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    """Little and blue light, a lamp somewhere, and the sensor's grain."""
    height, width, _ = pixels.shape
    y, x = np.mgrid[0 : 1 : height * 1j, 0 : 1 : width * 1j].astype(np.float32)
    lamp_x, lamp_y = rng.uniform(0, 1, 2)
    lamp = np.exp(-((x - lamp_x) ** 2 + (y - lamp_y) ** 2) / 0.06).astype(np.float32)[..., None]
    moonlight = np.array([0.6, 0.75, 1.0], np.float32) * np.float32(rng.uniform(0.5, 0.9))
    lamplight = np.array([1.0, 0.85, 0.5], np.float32) * np.float32(rng.uniform(0.2, 0.5))
    grey = (pixels @ LUMA)[..., None]
    faded = 0.7 * pixels + 0.3 * grey  # dim light hides colour
    dark: Pixels = faded**1.2 * (moonlight + lamp * lamplight) + _grain(rng, pixels.shape, rng.uniform(0.005, 0.02))
    return dark


def sketch(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    """A pencil drawing: edges and some shading on paper, no colour."""
    grey = pixels @ LUMA
    dy, dx = np.gradient(grey)
    strokes = np.tanh(rng.uniform(4.0, 7.0) * np.hypot(dx, dy)) * rng.uniform(0.25, 0.45)
    tone = rng.uniform(0.5, 0.9) * (1 - grey)
    paper = 0.97 - strokes - tone + _grain(rng, grey.shape, 0.02)
    return np.repeat(paper[..., None], 3, axis=2).astype(np.float32)


def noise(pixels: Pixels, rng: np.random.Generator) -> Pixels:
    """A bad sensor: grain in every channel, two pixels wide as the interpolation of colours leaves it, and dead and hot
    pixels."""
    height, width, channels = pixels.shape
    coarse = _grain(rng, (height // 2, width // 2, channels), rng.uniform(0.05, 0.13))
    grainy: Pixels = pixels + coarse.repeat(2, axis=0).repeat(2, axis=1)
    broken = rng.random(pixels.shape[:2]) < rng.uniform(0.01, 0.04)
    grainy[broken] = rng.integers(0, 2, int(broken.sum()))[:, None]
    return grainy


SHIFTS: dict[str, Callable[[Pixels, np.random.Generator], Pixels]] = {
    "fog": fog, "night": night, "sketch": sketch, "noise": noise,
}  # fmt: skip


def apply_shift(shift: str, image: Image.Image, rng: np.random.Generator) -> Image.Image:
    """The image after the shift, in 8 bits as a camera would store it."""
    pixels = np.asarray(image, np.float32) / np.float32(255)
    shifted = SHIFTS[shift](pixels, rng)
    return Image.fromarray((shifted * 255 + 0.5).clip(0, 255).astype(np.uint8))


def _grain(rng: np.random.Generator, shape: tuple[int, ...], sigma: float) -> Pixels:
    return rng.standard_normal(shape, np.float32) * np.float32(sigma)


def _smooth(coarse: Pixels, size: tuple[int, int]) -> Pixels:
    """A coarse map, interpolated to full size."""
    return np.asarray(Image.fromarray(coarse).resize(size, Image.Resampling.BICUBIC))


def _blur(pixels: Pixels, radius: float) -> Pixels:
    image = Image.fromarray((pixels * 255).astype(np.uint8)).filter(ImageFilter.BoxBlur(radius))
    return np.asarray(image, np.float32) / np.float32(255)
