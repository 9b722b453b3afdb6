"""The five places of `scenes`: a background each, its clutter, and which objects are at home there."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

from tta_bench.datasets._scenes_pen import CIRCLE, Colour, Point, hsv, near, paint, shade

Draw = ImageDraw.ImageDraw
Map = np.ndarray[Any, np.dtype[np.float32]]

AT_HOME = {
    "sea": ("boat", "boat", "fish", "fish", "bird", "sun", "umbrella", "ball"),
    "meadow": ("tree", "flower", "butterfly", "dog", "mushroom", "mushroom", "apple", "kite", "cat"),
    "street": ("car", "car", "house", "house", "bicycle", "bicycle", "dog", "tree", "umbrella", "ladder", "cat"),
    "room": ("chair", "chair", "cup", "cup", "cat", "clock", "guitar", "guitar", "key", "key", "apple", "ladder"),
    "sky": ("sun", "bird", "kite", "star", "star", "butterfly"),
}
PLACES = tuple(AT_HOME)
HOW_OFTEN = (0.23, 0.23, 0.23, 0.23, 0.08)
HORIZONS = {"sea": (0.3, 0.6), "meadow": (0.35, 0.65), "street": (0.55, 0.75), "room": (0.6, 0.78), "sky": (1.0, 1.0)}
IN_THE_AIR = frozenset({"sun", "bird", "kite", "star", "butterfly", "clock"})


def paint_place(place: str, horizon: float, size: int, rng: Random) -> Image.Image:
    """The background of a place, `size` pixels wide and high."""
    above, below = _COLOURS[place](rng)
    half = size // 2  # surfaces are smooth: painted at half the size they look the same and cost a quarter
    image = _gradients(half, int(half * horizon), above, below, rng).resize((size, size), Image.Resampling.NEAREST)
    draw = ImageDraw.Draw(image)
    _CLUTTER[place](draw, size, horizon * size, rng)
    for _ in range(rng.randint(0, 7)):
        _distractor(draw, size, rng)
    return image


# ------------------------------------------------------------------------------------------------------- surfaces


def _daylight(rng: Random) -> Colour:
    return near(rng, (140, 195, 235), (175, 210, 235), (240, 190, 150), (190, 200, 215))


def _plain(rng: Random) -> Colour:
    return hsv(rng.random(), rng.uniform(0.05, 0.4), rng.uniform(0.6, 0.95))


_COLOURS: dict[str, Callable[[Random], tuple[Colour, Colour]]] = {
    "sea": lambda rng: (_daylight(rng), near(rng, (50, 110, 170), (60, 150, 165), (40, 80, 130))),
    "meadow": lambda rng: (_daylight(rng), near(rng, (120, 170, 80), (95, 140, 70), (180, 180, 95))),
    "street": lambda rng: (_daylight(rng), near(rng, (120, 120, 125), (150, 145, 140), (95, 95, 105))),
    "room": lambda rng: (_plain(rng), near(rng, (165, 120, 80), (190, 155, 115), (150, 150, 150), (120, 80, 60))),
    "sky": lambda rng: (_daylight(rng), _daylight(rng)),
}


def _gradients(size: int, horizon: int, above: Colour, below: Colour, rng: Random) -> Image.Image:
    """Two surfaces that change in brightness towards the horizon, with stains and a fine grain."""
    noise = np.random.default_rng(rng.getrandbits(64))
    rows = np.empty((size, 1, 3), np.float32)
    rows[:horizon] = np.array(above, np.float32) * np.linspace(0.88, 1.08, horizon, dtype=np.float32)[:, None, None]
    rest = size - horizon
    rows[horizon:] = np.array(below, np.float32) * np.linspace(1.08, 0.85, rest, dtype=np.float32)[:, None, None]
    texture = _stains(noise, rng.uniform(3, 14), size // 8, size) + _stains(noise, rng.uniform(1, 9), size // 2, size)
    return Image.fromarray((rows + texture[..., None]).clip(0, 255).astype(np.uint8))


def _stains(noise: np.random.Generator, strength: float, cells: int, size: int) -> Map:
    """Random brightness on a coarse grid, smoothly enlarged."""
    coarse = Image.fromarray(noise.standard_normal((cells, cells), np.float32) * np.float32(strength))
    return np.asarray(coarse.resize((size, size), Image.Resampling.BILINEAR))


# -------------------------------------------------------------------------------------------------------- clutter


def _blob(draw: Draw, x: float, y: float, rx: float, ry: float, fill: Colour) -> None:
    draw.polygon([(x + rx * c, y + ry * s) for c, s in CIRCLE], fill=fill)


def _clouds(draw: Draw, size: int, depth: float, rng: Random) -> None:
    for _ in range(rng.randint(0, 4)):
        x, y, r = rng.uniform(0, size), rng.uniform(0, depth), size * rng.uniform(0.03, 0.08)
        white = near(rng, (235, 238, 242))
        for dx, scale in ((-1.3, 0.8), (0.0, 1.2), (1.4, 0.7)):
            _blob(draw, x + dx * r, y, scale * r * 1.3, scale * r * 0.8, white)


def _sea(draw: Draw, size: int, horizon: float, rng: Random) -> None:
    _clouds(draw, size, horizon * 0.8, rng)
    for _ in range(rng.randint(8, 24)):
        x, y, r = rng.uniform(0, size), rng.uniform(horizon, size), size * rng.uniform(0.02, 0.06)
        crest = near(rng, (150, 195, 220), (45, 90, 140))
        draw.line([(x - r, y), (x - r / 2, y - r / 3), (x, y), (x + r / 2, y - r / 3), (x + r, y)], fill=crest, width=2)
    if rng.random() < 0.4:  # beach
        edge = rng.uniform(0.8, 0.92) * size
        sand = near(rng, (230, 205, 150))
        draw.polygon([(0, edge), (size, edge + rng.uniform(-0.1, 0.06) * size), (size, size), (0, size)], fill=sand)


def _meadow(draw: Draw, size: int, horizon: float, rng: Random) -> None:
    _clouds(draw, size, horizon * 0.8, rng)
    for _ in range(rng.randint(0, 3)):  # hills
        hill = near(rng, (100, 150, 85), (130, 165, 110), (140, 160, 175))
        x, wide = rng.uniform(0, size), size * rng.uniform(0.2, 0.5)
        top = horizon - size * rng.uniform(0.04, 0.15)
        draw.polygon([(x - wide, horizon), (x - wide / 3, top), (x + wide / 3, top), (x + wide, horizon)], fill=hill)
    for _ in range(rng.randint(10, 34)):  # tufts
        x, y, r = rng.uniform(0, size), rng.uniform(horizon, size), size * rng.uniform(0.012, 0.04)
        blade = near(rng, (75, 125, 50), (150, 190, 90))
        draw.line([(x - r / 2, y - r), (x, y), (x + r / 2, y - r)], fill=blade, width=2)


def _street(draw: Draw, size: int, horizon: float, rng: Random) -> None:
    x = -0.05 * size
    while x < size:  # tall blocks with rows of windows: a house stands alone and has a roof
        wide, high = size * rng.uniform(0.12, 0.3), size * rng.uniform(0.15, 0.5)
        wall = near(rng, (150, 145, 150), (170, 150, 135), (125, 135, 150))
        if rng.random() < 0.75:
            draw.rectangle((x, horizon - high, x + wide, horizon), fill=wall)
            step = size / 13
            for i in range(int(wide / step)):
                for j in range(int(high / step)):
                    a, b = x + (i + 0.3) * step, horizon - high + (j + 0.3) * step
                    draw.rectangle((a, b, a + step * 0.4, b + step * 0.45), fill=shade(wall, 0.7))
        x += wide
    y = (horizon + size) / 2
    for i in range(5):  # lane
        draw.rectangle((size * (i / 5 + 0.04), y, size * (i / 5 + 0.14), y + 0.015 * size), fill=(225, 220, 190))
    draw.rectangle((0, horizon, size, horizon + 0.03 * size), fill=near(rng, (180, 175, 170)))


def _room(draw: Draw, size: int, horizon: float, rng: Random) -> None:
    tone, stripes = _plain(rng), rng.randint(0, 9)
    for i in range(stripes):  # wallpaper
        x = size * i / stripes
        draw.rectangle((x, 0, x + 0.02 * size, horizon), fill=tone)
    for _ in range(rng.randint(0, 2)):  # pictures
        x, y = rng.uniform(0, 0.8) * size, rng.uniform(0, 0.4) * size
        w, h = rng.uniform(0.1, 0.22) * size, rng.uniform(0.1, 0.2) * size
        draw.rectangle((x, y, x + w, y + h), fill=_plain(rng), outline=near(rng, (90, 60, 40)), width=5)
        draw.line([(x + 0.2 * w, y + 0.8 * h), (x + 0.8 * w, y + 0.3 * h)], fill=paint(rng), width=4)
    draw.rectangle((0, horizon - 0.03 * size, size, horizon), fill=near(rng, (220, 215, 205), (110, 80, 60)))
    if rng.random() < 0.5:  # rug
        _blob(draw, rng.uniform(0.2, 0.8) * size, 0.9 * size, rng.uniform(0.15, 0.35) * size, 0.07 * size, paint(rng))
    if rng.random() < 0.35:  # table
        x, y, top = rng.uniform(0, 0.6) * size, horizon + rng.uniform(-0.05, 0.1) * size, near(rng, (150, 105, 65))
        draw.rectangle((x, y, x + 0.4 * size, y + 0.035 * size), fill=top)
        for dx in (0.02, 0.36):
            draw.rectangle((x + dx * size, y, x + (dx + 0.025) * size, y + 0.3 * size), fill=shade(top, 0.8))


def _sky(draw: Draw, size: int, horizon: float, rng: Random) -> None:
    _clouds(draw, size, horizon, rng)
    _clouds(draw, size, horizon, rng)


_CLUTTER: dict[str, Callable[[Draw, int, float, Random], None]] = {
    "sea": _sea, "meadow": _meadow, "street": _street, "room": _room, "sky": _sky,
}  # fmt: skip


def _distractor(draw: Draw, size: int, rng: Random) -> None:
    """A scrap that belongs to no class: a disc, a wedge, a slab or a squiggle."""
    x, y, r = rng.uniform(0, size), rng.uniform(0, size), size * rng.uniform(0.02, 0.075)
    colour, kind = paint(rng), rng.randrange(4)
    if kind == 0:
        _blob(draw, x, y, r * 0.7, r * 0.7, colour)
    elif kind == 1:
        draw.polygon([(x + r * rng.uniform(-1, 1), y + r * rng.uniform(-1, 1)) for _ in range(3)], fill=colour)
    elif kind == 2:
        draw.polygon(
            [(x - r, y - r / 3), (x + r, y - r / 2), (x + r * 0.8, y + r / 3), (x - r, y + r / 2)], fill=colour
        )
    else:
        path: list[Point] = [(x + i * r / 2, y + r * rng.uniform(-0.6, 0.6)) for i in range(5)]
        draw.line(path, fill=colour, width=rng.randint(2, 5))
