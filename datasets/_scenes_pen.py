"""A pen for drawing with Pillow: shapes in an object's own square, placed, turned and mirrored on the canvas."""

from __future__ import annotations

import colorsys
import math
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random

from PIL import ImageDraw

Colour = tuple[int, int, int]
Point = tuple[float, float]

CIRCLE = tuple((math.cos(math.tau * i / 24), math.sin(math.tau * i / 24)) for i in range(24))
INK: Colour = (35, 30, 35)


@dataclass(frozen=True)
class Pen:
    """Draws in coordinates from -1 to 1 (y points down) of a square with the given centre and half side, in pixels."""

    draw: ImageDraw.ImageDraw
    centre: Point
    radius: float
    turn: float = 0.0  # radians, clockwise
    stretch: float = 1.0  # width over height; negative mirrors
    outline: float = 0.0  # pixels

    def place(self, points: Sequence[Point]) -> list[Point]:
        """The points on the canvas."""
        cos, sin = self.radius * math.cos(self.turn), self.radius * math.sin(self.turn)
        (cx, cy), wide = self.centre, self.stretch
        return [(cx + cos * wide * x - sin * y, cy + sin * wide * x + cos * y) for x, y in points]

    def polygon(self, points: Sequence[Point], fill: Colour, outlined: bool = True) -> None:
        corners = self.place(points)
        self.draw.polygon(corners, fill=fill)
        if outlined and self.outline:
            self.draw.line([*corners, corners[0], corners[1]], fill=shade(fill, 0.45), width=round(self.outline))

    def ellipse(self, x: float, y: float, rx: float, ry: float, fill: Colour, outlined: bool = True) -> None:
        self.polygon([(x + rx * c, y + ry * s) for c, s in CIRCLE], fill, outlined)

    def box(self, x0: float, y0: float, x1: float, y1: float, fill: Colour, outlined: bool = True) -> None:
        self.polygon([(x0, y0), (x1, y0), (x1, y1), (x0, y1)], fill, outlined)

    def line(self, points: Sequence[Point], width: float, fill: Colour) -> None:
        """A stroke; its width is in the object's own unit and never thinner than the outline."""
        pixels = max(1, round(width * self.radius), round(self.outline))
        self.draw.line(self.place(points), fill=fill, width=pixels, joint="curve" if pixels > 3 else None)

    def arc(
        self, x: float, y: float, rx: float, ry: float, start: float, end: float, width: float, fill: Colour
    ) -> None:
        """A stroke along an ellipse, from one angle to another (in turns, clockwise from the right)."""
        self.line(sweep(x, y, rx, ry, start, end), width, fill)


def sweep(x: float, y: float, rx: float, ry: float, start: float, end: float, steps: int = 12) -> list[Point]:
    """Points along an ellipse, angles in turns."""
    angles = [math.tau * (start + (end - start) * i / steps) for i in range(steps + 1)]
    return [(x + rx * math.cos(a), y + ry * math.sin(a)) for a in angles]


def star_points(x: float, y: float, outer: float, inner: float, tips: int, turn: float = 0.0) -> list[Point]:
    """Corners of a star with its first tip up."""
    radii = (outer, inner)
    angles = [turn - math.pi / 2 + math.pi * i / tips for i in range(2 * tips)]
    return [(x + radii[i % 2] * math.cos(a), y + radii[i % 2] * math.sin(a)) for i, a in enumerate(angles)]


def shade(colour: Colour, factor: float) -> Colour:
    """Darker below 1, lighter above (towards white)."""
    if factor <= 1:
        r, g, b = (int(c * factor) for c in colour)
    else:
        r, g, b = (int(255 - (255 - c) / factor) for c in colour)
    return r, g, b


def hsv(hue: float, saturation: float, value: float) -> Colour:
    r, g, b = colorsys.hsv_to_rgb(hue % 1, saturation, value)
    return int(255 * r), int(255 * g), int(255 * b)


def paint(rng: Random) -> Colour:
    """Any colour that a painted thing may have."""
    if rng.random() < 0.15:
        return hsv(0, 0, rng.uniform(0.25, 0.95))
    return hsv(rng.random(), rng.uniform(0.45, 0.95), rng.uniform(0.55, 1.0))


def near(rng: Random, *choices: Colour) -> Colour:
    """One of the choices, slightly changed."""
    r, g, b = (max(0, min(255, c + rng.randint(-22, 22))) for c in rng.choice(choices))
    return r, g, b


def fur(rng: Random) -> Colour:
    return near(rng, (60, 55, 55), (150, 100, 55), (225, 150, 75), (165, 165, 170), (235, 225, 210), (110, 75, 50))


def wood(rng: Random) -> Colour:
    return near(rng, (140, 90, 45), (185, 130, 75), (95, 60, 35), (210, 165, 110))
