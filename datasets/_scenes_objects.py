"""The object classes of `scenes`: one drawing function each, in the square from -1 to 1 (y points down).

Shape, colour and proportions vary from one drawing to the next, so that no single cue gives a class away.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random

from tta_bench.datasets._scenes_pen import INK, Pen, fur, near, paint, shade, star_points, sweep, wood

WHITE = (245, 245, 240)
LEAF = (70, 140, 60)


def sun(p: Pen, r: Random) -> None:
    c = near(r, (255, 215, 50), (255, 170, 40), (250, 235, 110))
    rays = r.randint(8, 14)
    if r.random() < 0.5:
        p.polygon(star_points(0, 0, 1.0, 0.62, rays), shade(c, 0.93))
    else:
        for i in range(rays):
            a = math.tau * i / rays
            p.line([(0.7 * math.cos(a), 0.7 * math.sin(a)), (math.cos(a), math.sin(a))], 0.1, shade(c, 0.9))
    p.ellipse(0, 0, 0.6, 0.6, c)


def tree(p: Pen, r: Random) -> None:
    green = near(r, (60, 130, 55), (95, 155, 60), (40, 100, 60), (200, 130, 50))
    p.box(-0.13, 0.2, 0.13, 1.0, wood(r))
    if r.random() < 0.45:  # fir
        tiers = r.randint(2, 4)
        for i in range(tiers):
            bottom = 0.65 - 1.2 * i / tiers * 0.9
            width = 0.8 - 0.45 * i / tiers
            p.polygon([(-width, bottom), (0, max(-1.0, bottom - 0.95)), (width, bottom)], green)
    else:
        for x, y, size in ((-0.4, -0.1, 0.42), (0.4, -0.1, 0.42), (0, -0.5, 0.5), (0, 0.0, 0.45)):
            p.ellipse(x, y, size, size * r.uniform(0.85, 1.05), green)
        p.ellipse(0, -0.2, 0.5, 0.45, green, outlined=False)


def house(p: Pen, r: Random) -> None:
    wall, roof = near(r, (235, 220, 190), (220, 150, 120), (200, 205, 215), (240, 210, 120)), paint(r)
    eaves = r.uniform(-0.25, 0.0)
    p.box(0.4, -0.9, 0.6, -0.3, shade(roof, 0.7))
    p.box(-0.8, eaves, 0.8, 1.0, wall)
    p.polygon([(-1.0, eaves), (-0.1 + 0.2 * r.random(), -1.0), (1.0, eaves)], roof)
    door = r.choice((-0.45, 0.0, 0.45))
    p.box(door - 0.18, 0.35, door + 0.18, 1.0, wood(r))
    glass = near(r, (150, 200, 230), (250, 235, 150))
    for x in (-0.5, 0.0, 0.5):
        if abs(x - door) > 0.3:
            p.box(x - 0.17, 0.25, x + 0.17, 0.62, glass)
            p.line([(x, 0.25), (x, 0.62)], 0.04, INK)


def car(p: Pen, r: Random) -> None:
    c, glass = paint(r), near(r, (180, 215, 235))
    roof, front = r.uniform(-0.62, -0.45), r.uniform(0.35, 0.6)
    p.polygon([(-0.7, -0.05), (-0.45, roof), (front - 0.2, roof), (front + 0.1, -0.05)], c)
    p.polygon([(-0.55, -0.06), (-0.38, roof + 0.1), (-0.06, roof + 0.1), (-0.06, -0.06)], glass)
    p.polygon([(0.04, -0.06), (0.04, roof + 0.1), (front - 0.26, roof + 0.1), (front - 0.05, -0.06)], glass)
    p.polygon([(-1, -0.02), (-0.9, -0.1), (0.85, -0.1), (1, 0.1), (1, 0.4), (-1, 0.4)], c)
    p.ellipse(0.92, 0.1, 0.08, 0.08, (255, 245, 170))
    for x in (-0.55, 0.55):
        p.ellipse(x, 0.4, 0.25, 0.25, INK)
        p.ellipse(x, 0.4, 0.11, 0.11, (190, 190, 190))


def boat(p: Pen, r: Random) -> None:
    hull, sail = paint(r), near(r, WHITE, (240, 210, 150), (220, 90, 80), (120, 170, 220))
    p.line([(0, 0.5), (0, -1.0)], 0.08, (100, 70, 50))
    p.polygon([(0.08, -0.95), (0.08, 0.3), (r.uniform(0.6, 0.85), 0.3)], sail)
    if r.random() < 0.7:
        p.polygon([(-0.08, -0.8), (-0.08, 0.3), (r.uniform(-0.7, -0.5), 0.3)], shade(sail, 0.9))
    p.polygon([(-1, 0.42), (1, 0.42), (0.68, 0.95), (-0.7, 0.95)], hull)
    p.line([(-0.92, 0.55), (0.92, 0.55)], 0.06, shade(hull, 1.8))


def fish(p: Pen, r: Random) -> None:
    c = paint(r)
    high = r.uniform(0.4, 0.6)
    p.polygon([(0.4, 0.0), (1.0, -0.5), (0.85, 0.0), (1.0, 0.5)], shade(c, 0.8))
    p.polygon([(-0.3, -high * 0.8), (0.1, -high - 0.3), (0.35, -high * 0.6)], shade(c, 0.8))
    p.ellipse(-0.25, 0, 0.75, high, c)
    if r.random() < 0.5:
        for x in (-0.25, 0.0, 0.25):
            p.arc(x - 0.1, 0, 0.15, high * 0.75, -0.2, 0.2, 0.07, shade(c, 1.9))
    else:
        p.polygon([(-0.2, 0.05), (0.15, 0.3), (0.15, -0.05)], shade(c, 0.75))
    p.ellipse(-0.68, -0.12, 0.12, 0.12, WHITE)
    p.ellipse(-0.7, -0.12, 0.06, 0.06, INK, outlined=False)
    p.arc(-0.95, 0.12, 0.2, 0.12, 0.0, 0.25, 0.05, shade(c, 0.4))


def cat(p: Pen, r: Random) -> None:
    c = fur(r)
    p.arc(0.55, 0.5, 0.38, 0.5, 0.3, -0.22, 0.16, shade(c, 0.85))
    p.ellipse(0.1, 0.5, 0.52, 0.5, c)
    for x in (-0.2, 0.2):
        p.ellipse(x - 0.05, 0.92, 0.16, 0.1, shade(c, 1.3))
    p.polygon([(-0.78, -0.3), (-0.72, -1.0), (-0.22, -0.65)], c)
    p.polygon([(0.48, -0.3), (0.42, -1.0), (-0.08, -0.65)], c)
    p.polygon([(-0.66, -0.55), (-0.66, -0.85), (-0.42, -0.66)], (235, 160, 160), outlined=False)
    p.polygon([(0.36, -0.55), (0.36, -0.85), (0.12, -0.66)], (235, 160, 160), outlined=False)
    p.ellipse(-0.15, -0.25, 0.63, 0.5, c)
    eye = near(r, (150, 210, 70), (240, 200, 60), (120, 190, 230))
    for x in (-0.4, 0.1):
        p.ellipse(x, -0.33, 0.14, 0.14, eye)
        p.ellipse(x, -0.33, 0.05, 0.13, INK, outlined=False)
    p.polygon([(-0.22, -0.15), (-0.08, -0.15), (-0.15, -0.05)], (230, 120, 130))
    whisker = shade(c, 0.35) if sum(c) > 330 else WHITE
    for y in (-0.1, 0.05):
        p.line([(-0.35, -0.05), (-0.95, y)], 0.03, whisker)
        p.line([(0.05, -0.05), (0.65, y)], 0.03, whisker)


def dog(p: Pen, r: Random) -> None:
    c = fur(r)
    ear = shade(c, 0.6)
    p.line([(-0.65, 0.05), (-0.85, -0.3), (-0.95, -0.55)], 0.15, c)
    for x in (-0.6, -0.35, 0.15, 0.38):
        p.box(x - 0.1, 0.3, x + 0.1, 1.0, shade(c, 0.9))
    p.ellipse(-0.12, 0.22, 0.65, 0.36, c)
    p.polygon([(0.1, 0.1), (0.2, -0.4), (0.6, -0.2), (0.5, 0.3)], c, outlined=False)
    p.ellipse(0.42, -0.42, 0.38, 0.36, c)
    p.ellipse(0.75, -0.28, 0.25, 0.19, shade(c, 1.25))
    p.ellipse(0.93, -0.36, 0.09, 0.08, INK)
    p.ellipse(0.52, -0.5, 0.06, 0.06, INK, outlined=False)
    if r.random() < 0.7:
        p.ellipse(0.16, -0.32, 0.15, 0.36, ear)
    else:
        p.polygon([(0.1, -0.6), (0.22, -1.0), (0.45, -0.7)], ear)
    if r.random() < 0.5:
        p.line([(0.18, -0.02), (0.5, 0.02)], 0.1, paint(r))
    if r.random() < 0.5:
        p.polygon([(0.72, -0.12), (0.85, -0.12), (0.8, 0.08)], (230, 100, 110))


def bird(p: Pen, r: Random) -> None:
    c, beak = paint(r), near(r, (250, 180, 40), (90, 80, 70))
    p.polygon([(0.4, 0.1), (1.0, -0.2), (1.0, 0.25)], shade(c, 0.75))
    for x in (-0.05, 0.15):
        p.line([(x, 0.5), (x - 0.05, 0.95), (x - 0.2, 0.95)], 0.06, beak)
    p.polygon([(-0.8, -0.5), (-1.0, -0.32), (-0.75, -0.28)], beak)
    p.ellipse(0.05, 0.15, 0.6, 0.45, c)
    p.ellipse(-0.5, -0.4, 0.34, 0.32, c)
    p.ellipse(-0.2, -0.05, 0.4, 0.3, c, outlined=False)
    p.ellipse(-0.6, -0.46, 0.07, 0.07, WHITE)
    p.ellipse(-0.6, -0.46, 0.035, 0.035, INK, outlined=False)
    if r.random() < 0.5:
        p.polygon([(-0.15, 0.0), (0.5, 0.05), (0.3, -0.95), (-0.05, -0.6)], shade(c, 0.8))
    else:
        p.polygon([(-0.15, -0.02), (0.55, 0.1), (0.15, 0.42)], shade(c, 0.75))


def ball(p: Pen, r: Random) -> None:
    c, second = paint(r), near(r, WHITE, (240, 200, 60), (60, 70, 150))
    kind = r.randrange(3)
    p.ellipse(0, 0, 1, 1, WHITE if kind == 2 else c)
    if kind == 0:  # beach ball
        for i in range(3):
            a = i / 3
            p.polygon([(0, 0), *sweep(0, 0, 0.97, 0.97, a, a + 1 / 6, 6)], second)
        p.ellipse(0, 0, 0.16, 0.16, WHITE)
    elif kind == 1:  # basketball
        for points in ([(-0.97, 0), (0.97, 0)], [(0, -0.97), (0, 0.97)]):
            p.line(points, 0.07, shade(c, 0.3))
        p.arc(-1.1, 0, 0.65, 0.9, -0.2, 0.2, 0.07, shade(c, 0.3))
        p.arc(1.1, 0, 0.65, 0.9, 0.3, 0.7, 0.07, shade(c, 0.3))
    else:  # football
        p.polygon(star_points(0, 0, 0.36, 0.3, 5), INK)
        for i in range(5):
            a = math.tau * i / 5 - math.pi / 2
            x, y = math.cos(a), math.sin(a)
            p.line([(0.34 * x, 0.34 * y), (0.7 * x, 0.7 * y)], 0.05, INK)
            p.polygon([(0.97 * x, 0.97 * y), (0.78 * x - 0.24 * y, 0.78 * y + 0.24 * x), (0.62 * x, 0.62 * y),
                       (0.78 * x + 0.24 * y, 0.78 * y - 0.24 * x)], INK)  # fmt: skip


def flower(p: Pen, r: Random) -> None:
    c, petals = paint(r), r.randint(5, 8)
    p.line([(0, -0.3), (r.uniform(-0.1, 0.1), 0.35), (0, 1.0)], 0.1, LEAF)
    p.polygon([(0, 0.75), (0.3, 0.3), (0.6, 0.3), (0.35, 0.65)], LEAF)
    p.polygon([(0, 0.9), (-0.3, 0.5), (-0.6, 0.5), (-0.35, 0.82)], LEAF)
    for i in range(petals):
        a = math.tau * i / petals
        p.ellipse(0.4 * math.cos(a), -0.4 + 0.4 * math.sin(a), 0.22, 0.22, c)
    p.ellipse(0, -0.4, 0.22, 0.22, near(r, (250, 210, 60), (120, 75, 40), WHITE))


def umbrella(p: Pen, r: Random) -> None:
    c = paint(r)
    second = r.choice((c, shade(c, 0.75), WHITE))
    p.line([(0, -0.95), (0, 0.8)], 0.08, INK)
    p.arc(0.16, 0.8, 0.16, 0.18, 0.5, 0.0, 0.08, INK)
    edge = r.uniform(-0.05, 0.12)
    p.polygon(sweep(0, edge, 1.0, 0.85 + edge, 0.5, 1.0), c)
    p.polygon([*sweep(0, edge, 0.36, 0.85 + edge, 0.5, 1.0)], second)
    for x in (-0.68, 0.0, 0.68):
        p.polygon(sweep(x, edge + 0.01, 0.33, 0.15, 0.5, 1.0, 6), shade(c, 0.5), outlined=False)


def kite(p: Pen, r: Random) -> None:
    c, second = paint(r), paint(r)
    tail = [(0.0, 0.3), (0.2, 0.5), (0.0, 0.68), (0.2, 0.84), (0.05, 1.0)]
    p.line(tail, 0.05, INK)
    for x, y in tail[1:4]:
        p.polygon([(x - 0.16, y - 0.08), (x - 0.16, y + 0.08), (x + 0.16, y - 0.08), (x + 0.16, y + 0.08)], second)
    wide, cross = r.uniform(0.6, 0.75), r.uniform(-0.5, -0.3)
    p.polygon([(0, -1), (wide, cross), (0, 0.4), (-wide, cross)], c)
    p.polygon([(0, -1), (wide, cross), (0, cross)], second)
    p.polygon([(0, 0.4), (-wide, cross), (0, cross)], second)


def cup(p: Pen, r: Random) -> None:
    c = paint(r)
    foot = r.uniform(0.4, 0.58)
    p.arc(0.55, 0.15, 0.38, 0.36, -0.25, 0.25, 0.14, shade(c, 0.8))
    p.polygon([(-0.8, -0.45), (0.62, -0.45), (foot, 0.85), (-foot - 0.15, 0.85)], c)
    p.ellipse(-0.09, -0.45, 0.71, 0.17, shade(c, 1.5))
    p.ellipse(-0.09, -0.42, 0.58, 0.11, near(r, (85, 50, 30), (150, 90, 40)))
    if r.random() < 0.5:
        for x in (-0.3, 0.1):
            p.line([(x, -0.62), (x + 0.08, -0.75), (x - 0.05, -0.87), (x + 0.03, -1.0)], 0.05, (225, 225, 225))
    if r.random() < 0.4:
        p.line([(-0.72, 0.2), (0.52, 0.2)], 0.14, shade(c, 0.6))


def clock(p: Pen, r: Random) -> None:
    c = paint(r)
    if r.random() < 0.4:  # alarm clock
        for x in (-0.6, 0.6):
            p.ellipse(x, -0.72, 0.28, 0.25, shade(c, 0.8))
            p.line([(x * 0.7, 0.6), (x, 1.0)], 0.14, shade(c, 0.6))
    p.ellipse(0, 0.05, 0.92, 0.92, c)
    p.ellipse(0, 0.05, 0.74, 0.74, near(r, WHITE, (250, 240, 210)))
    for i in range(12):
        a = math.tau * i / 12
        x, y = math.cos(a), math.sin(a)
        p.line([(0.58 * x, 0.05 + 0.58 * y), (0.7 * x, 0.05 + 0.7 * y)], 0.07, INK)
    for length, width in ((0.36, 0.11), (0.55, 0.07)):
        a = math.tau * r.random()
        p.line([(0, 0.05), (length * math.cos(a), 0.05 + length * math.sin(a))], width, INK)
    p.ellipse(0, 0.05, 0.07, 0.07, INK, outlined=False)


def star(p: Pen, r: Random) -> None:
    c = near(r, (255, 220, 60), (250, 240, 190), (240, 90, 90), (120, 170, 240))
    p.polygon(star_points(0, 0.05, 1.0, r.uniform(0.38, 0.46), 5), c)
    if r.random() < 0.4:
        p.polygon(star_points(0, 0.05, 0.55, 0.24, 5), shade(c, 1.7), outlined=False)


def key(p: Pen, r: Random) -> None:
    c = near(r, (225, 180, 60), (180, 185, 195), (150, 95, 55))
    p.line([(0, -0.3), (0, 1.0)], 0.2, c)
    for y in (0.55, 0.85):
        p.box(0.05, y - 0.08, r.uniform(0.35, 0.5), y + 0.08, c)
    if r.random() < 0.5:
        p.ellipse(0, -0.55, 0.45, 0.45, c)
        p.ellipse(0, -0.55, 0.24, 0.24, shade(c, 0.3))
    else:
        for x, y in ((-0.25, -0.45), (0.25, -0.45), (0.0, -0.72)):
            p.ellipse(x, y, 0.27, 0.27, c)
            p.ellipse(x, y, 0.12, 0.12, shade(c, 0.3))


def apple(p: Pen, r: Random) -> None:
    c = near(r, (215, 45, 45), (130, 185, 60), (235, 200, 70), (190, 30, 60))
    p.line([(0, -0.5), (0.1, -0.98)], 0.1, (95, 60, 35))
    p.polygon([(0.1, -0.65), (0.3, -0.95), (0.7, -0.92), (0.45, -0.65)], LEAF)
    for x in (-0.36, 0.36):
        p.ellipse(x, 0.15, 0.58, 0.72, c)
    p.ellipse(0, 0.2, 0.6, 0.68, c, outlined=False)
    p.polygon([(-0.28, -0.58), (0.0, -0.32), (0.28, -0.58), (0.0, -0.5)], shade(c, 0.55), outlined=False)
    p.ellipse(-0.5, -0.12, 0.13, 0.22, shade(c, 1.9), outlined=False)


def chair(p: Pen, r: Random) -> None:
    c = wood(r) if r.random() < 0.6 else paint(r)
    for x in (-0.5, 0.35):
        p.line([(x + 0.2, 0.1), (x + 0.2, 0.8)], 0.11, shade(c, 0.6))
    p.line([(-0.6, -1.0), (-0.6, 1.0)], 0.14, c)
    p.line([(0.6, 0.2), (0.6, 1.0)], 0.14, c)
    if r.random() < 0.5:
        p.polygon([(-0.6, -1.0), (-0.2, -0.92), (-0.2, -0.1), (-0.6, 0.1)], shade(c, 1.25))
    else:
        p.line([(-0.2, -0.95), (-0.2, 0.0)], 0.12, c)
        for y in (-0.85, -0.55, -0.25):
            p.line([(-0.6, y), (-0.2, y + 0.05)], 0.12, shade(c, 1.25))
    p.polygon([(-0.67, 0.1), (-0.25, -0.08), (0.75, -0.05), (0.67, 0.22), (-0.67, 0.26)], c)


def ladder(p: Pen, r: Random) -> None:
    c = wood(r) if r.random() < 0.6 else paint(r)
    top, foot, rungs = r.uniform(0.28, 0.4), r.uniform(0.42, 0.55), r.randint(4, 6)
    for i in range(rungs):
        share = (i + 0.6) / rungs
        x = top + (foot - top) * share
        p.line([(-x, 2 * share - 1), (x, 2 * share - 1)], 0.11, shade(c, 0.75))
    for side in (-1, 1):
        p.line([(side * top, -1.0), (side * foot, 1.0)], 0.14, c)


def guitar(p: Pen, r: Random) -> None:
    c = wood(r) if r.random() < 0.5 else paint(r)
    p.box(-0.09, -0.85, 0.09, 0.1, (90, 60, 40))
    p.box(-0.16, -1.0, 0.16, -0.76, shade(c, 0.6))
    p.ellipse(0, 0.12, 0.4, 0.32, c)
    p.ellipse(0, 0.6, 0.55, 0.4, c)
    p.ellipse(0, 0.35, 0.34, 0.3, c, outlined=False)
    p.ellipse(0, 0.32, 0.17, 0.16, INK)
    p.box(-0.2, 0.68, 0.2, 0.76, INK, outlined=False)
    p.line([(0, -0.8), (0, 0.7)], 0.03, WHITE)


def mushroom(p: Pen, r: Random) -> None:
    c = near(r, (205, 50, 45), (150, 100, 60), (220, 150, 70), (190, 120, 190))
    foot, brim = r.uniform(0.28, 0.4), r.uniform(0.0, 0.2)
    p.polygon([(-0.25, brim), (0.25, brim), (foot, 0.9), (0.2, 1.0), (-0.2, 1.0), (-foot, 0.9)], (240, 230, 205))
    p.polygon([*sweep(0, brim, 0.95, 0.9 + brim, 0.5, 1.0), *sweep(0, brim, 0.95, 0.15, 0.0, 0.5)], c)
    for x, y, size in ((-0.5, -0.2, 0.14), (0.0, -0.5, 0.18), (0.45, -0.25, 0.16), (0.05, -0.05, 0.11)):
        p.ellipse(x, y + 0.6 * brim, size, size * 0.85, shade(c, 2.6), outlined=False)


def butterfly(p: Pen, r: Random) -> None:
    c, spot = paint(r), paint(r)
    for side in (-1, 1):
        p.polygon([(0, 0), (side * 0.45, -0.85), (side * 0.95, -0.8), (side * 0.9, -0.2), (side * 0.4, 0.1)], c)
        p.polygon([(0, 0.05), (side * 0.6, 0.1), (side * 0.75, 0.5), (side * 0.45, 0.85), (side * 0.15, 0.5)],
                  shade(c, 0.75))  # fmt: skip
        p.ellipse(side * 0.64, -0.5, 0.17, 0.17, spot)
        p.ellipse(side * 0.45, 0.42, 0.12, 0.12, spot)
        p.line([(0, -0.4), (side * 0.12, -0.75), (side * 0.25, -0.95)], 0.05, INK)
    p.ellipse(0, 0.08, 0.09, 0.55, INK)


def bicycle(p: Pen, r: Random) -> None:
    c = paint(r)
    grey = (120, 120, 125)
    for x in (-0.58, 0.58):
        for i in range(3):
            a = math.pi * i / 3
            dx, dy = 0.4 * math.cos(a), 0.4 * math.sin(a)
            p.line([(x - dx, 0.35 - dy), (x + dx, 0.35 + dy)], 0.02, grey)
        p.arc(x, 0.35, 0.4, 0.4, 0.0, 1.0, 0.09, INK)
    p.line([(-0.58, 0.35), (-0.25, -0.25), (0.38, -0.25), (-0.05, 0.35), (-0.58, 0.35)], 0.1, c)
    p.line([(-0.33, -0.45), (-0.05, 0.35)], 0.1, c)
    p.line([(0.58, 0.35), (0.33, -0.55)], 0.1, c)
    p.line([(0.15, -0.62), (0.33, -0.55), (0.5, -0.62)], 0.08, INK)
    p.line([(-0.5, -0.47), (-0.18, -0.47)], 0.14, INK)


DRAWINGS: dict[str, Callable[[Pen, Random], None]] = {
    draw.__name__: draw
    for draw in (
        sun, tree, house, car, boat, fish, cat, dog, bird, ball, flower, umbrella,
        kite, cup, clock, star, key, apple, chair, ladder, guitar, mushroom, butterfly, bicycle,
    )
}  # fmt: skip
