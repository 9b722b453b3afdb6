"""One scene: a place, one to six objects in it, and what is where."""

from __future__ import annotations

import math
from dataclasses import dataclass
from random import Random

from PIL import Image, ImageDraw

from tta_bench.datasets._scenes_objects import DRAWINGS
from tta_bench.datasets._scenes_pen import Pen
from tta_bench.datasets._scenes_places import AT_HOME, HORIZONS, HOW_OFTEN, IN_THE_AIR, PLACES, paint_place

SIDE = 128  # pixels of the finished image
OVERSAMPLE = 2  # drawn larger and averaged, because Pillow's drawing does not anti-alias
COUNTS = (0.14, 0.25, 0.25, 0.19, 0.11, 0.06)  # share of scenes with 1, 2, … 6 objects
SMALLEST, LARGEST = 0.12, 0.60  # an object's size, as a share of the side
ODD_ONE = 0.3  # chance that an object is not at home in its place
AGAIN = 0.05  # chance that an object repeats the class of another
COVERED = 0.3  # share of an object's square that later objects may hide
OUTSIDE = 0.12  # share of an object's size that may lie beyond the border

CLASS_NAMES = tuple(DRAWINGS)


@dataclass(frozen=True)
class Placed:
    """An object and the square it was drawn in, in shares of the side: it may reach beyond the border."""

    name: str
    x: float
    y: float
    size: float

    @property
    def box(self) -> tuple[float, float, float, float]:
        half = self.size / 2
        return self.x - half, self.y - half, self.x + half, self.y + half


@dataclass(frozen=True)
class Layout:
    """What is where, without a pixel: enough for labels and captions."""

    seed: str
    place: str
    horizon: float  # share of the height at which the ground begins
    objects: tuple[Placed, ...]  # from the back to the front


def lay_out(seed: str) -> Layout:
    """The scene of a seed. `random.Random` hashes text with SHA-512, so it is the same in every process."""
    rng = Random(f"{seed}/layout")
    place = rng.choices(PLACES, HOW_OFTEN)[0]
    horizon = rng.uniform(*HORIZONS[place])
    return Layout(seed, place, horizon, _arrange(place, horizon, rng))


def render(layout: Layout) -> Image.Image:
    """The clean image of a layout; colours, poses and clutter come from its seed too."""
    rng = Random(f"{layout.seed}/paint")
    canvas = paint_place(layout.place, layout.horizon, SIDE * OVERSAMPLE, rng)
    draw = ImageDraw.Draw(canvas)
    outline = rng.uniform(0.0, 3.5)
    for thing in layout.objects:
        _draw(draw, thing, outline, rng)
    return canvas.reduce(OVERSAMPLE)


def _draw(draw: ImageDraw.ImageDraw, thing: Placed, outline: float, rng: Random) -> None:
    pixels = SIDE * OVERSAMPLE
    pen = Pen(
        draw,
        centre=(thing.x * pixels, thing.y * pixels),
        radius=thing.size * pixels / 2,
        turn=rng.gauss(0, 0.14),
        stretch=rng.choice((-1, 1)) * rng.uniform(0.85, 1.1),
        outline=outline,
    )
    DRAWINGS[thing.name](pen, rng)


def _arrange(place: str, horizon: float, rng: Random) -> tuple[Placed, ...]:
    """Objects from the back (drawn first) to the front, none of them hidden too far."""
    wanted = rng.choices(range(1, 7), COUNTS)[0]
    placed: list[Placed] = []
    for _ in range(8 * wanted):
        if len(placed) == wanted:
            break
        size = rng.uniform(SMALLEST, LARGEST)
        name = _choose(place, placed, rng)
        thing = Placed(name, rng.uniform(*_span(size)), _height(name, horizon, size, rng), size)
        if all(_covered(other, [*placed[i + 1 :], thing]) <= COVERED for i, other in enumerate(placed)):
            placed.append(thing)
    return tuple(placed)


def _choose(place: str, placed: list[Placed], rng: Random) -> str:
    if placed and rng.random() < AGAIN:
        return rng.choice(placed).name
    return rng.choice(CLASS_NAMES if rng.random() < ODD_ONE else AT_HOME[place])


def _span(size: float) -> tuple[float, float]:
    """Where the centre of an object may lie along either axis."""
    margin = size * (0.5 - OUTSIDE)
    return margin, 1 - margin


def _height(name: str, horizon: float, size: float, rng: Random) -> float:
    """Things in the air hang above the horizon, others stand below it with their lower edge."""
    low, high = _span(size)
    if name in IN_THE_AIR:
        return rng.uniform(low, max(low, min(high, horizon)))
    standing = max(low, min(high, horizon + 0.05 - size / 2))
    return rng.uniform(standing if horizon < 1 else low, high)


def _covered(below: Placed, above: list[Placed]) -> float:
    """Upper bound of the share of `below` that is hidden: the sum of its overlaps with the squares above it."""
    ax0, ay0, ax1, ay1 = below.box
    hidden = 0.0
    for bx0, by0, bx1, by1 in (thing.box for thing in above):
        hidden += max(0.0, min(ax1, bx1) - max(ax0, bx0)) * max(0.0, min(ay1, by1) - max(ay0, by0))
    return hidden / math.pow(below.size, 2)
