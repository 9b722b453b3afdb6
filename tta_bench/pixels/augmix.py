"""AugMix at severity 1: a crop mixed with three chains of mild operations on it, as TPT's official code has it.

An operation's level is u in 0.1..1, out of 10; its `strength` is the level with a random sign.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import cv2
import numpy as np

from tta_bench.pixels import operations
from tta_bench.pixels.resize import Levels

CHAINS, LONGEST = 3, 3
PLACES = CHAINS * LONGEST
MIX_DRAWS = 1 + CHAINS + CHAINS + 3 * PLACES  # the crop's share, weights, depths, operations, levels, signs


def augmix(crop: Levels, chance: Sequence[float]) -> Levels:
    """The crop mixed with its chains, [S, S, 3]. `chance` is MIX_DRAWS uniform numbers.

    The official code mixes normalised pixels. Normalising is affine and the weights sum to one, so mixing levels and
    normalising in the backbone is the same, but for the rounding to levels.
    """
    draws = iter(chance)
    share = next(draws)  # ~ Beta(1, 1), which is uniform
    weights = dirichlet([next(draws) for _ in range(CHAINS)])
    depths = [1 + int(LONGEST * next(draws)) for _ in range(CHAINS)]
    names = [NAMES[int(len(NAMES) * next(draws))] for _ in range(PLACES)]
    levels = [0.1 + 0.9 * next(draws) for _ in range(PLACES)]
    strengths = [-level if next(draws) < 0.5 else level for level in levels]

    images, shares = [crop], [share]
    for chain in range(CHAINS):
        image = crop
        for place in range(LONGEST * chain, LONGEST * chain + depths[chain]):
            image = OPERATIONS[names[place]](image, strengths[place])
        images.append(image)
        shares.append((1 - share) * weights[chain])
    return weighted_mean(images, shares)


def dirichlet(u: Sequence[float]) -> list[float]:
    """Weights ~ Dirichlet(1, ..., 1), i.e. normalised exponentials."""
    exponential = [-math.log1p(-x) for x in u]
    return [x / sum(exponential) for x in exponential]


def weighted_mean(images: Sequence[Levels], weights: Sequence[float]) -> Levels:
    """Of images [S, S, 3], by a running mean: OpenCV adds levels to floats that way in one pass over them."""
    mean, total = images[0].astype(np.float32), weights[0]
    for image, weight in zip(images[1:], weights[1:], strict=True):
        total += weight
        cv2.accumulateWeighted(image, mean, weight / total)
    return cv2.convertScaleAbs(mean)  # rounds


# ------------------------------------------------------------------------------------- operations by their strength


def _rotate(x: Levels, strength: float) -> Levels:
    degrees = int(3 * strength)  # 30 degrees at level 10
    return operations.rotate(x, degrees) if degrees else x


def _pixels(strength: float, size: int) -> int:
    """A third of the image at level 10. The official 7.47 u is that at 224 pixels; the share holds at any size."""
    return int(size / 30 * strength)


OPERATIONS: dict[str, Callable[[Levels, float], Levels]] = {
    "autocontrast": lambda x, _: operations.autocontrast(x),
    "equalize": lambda x, _: operations.equalize(x),
    "posterize": lambda x, _: operations.posterize(x, bits=4),  # 4 - floor(0.4 u) bits
    "rotate": _rotate,
    "solarize": lambda x, strength: operations.solarize(x, 256 - int(25.6 * abs(strength))),
    "shear_x": lambda x, strength: operations.shear_x(x, 0.03 * strength),
    "shear_y": lambda x, strength: operations.shear_y(x, 0.03 * strength),
    "translate_x": lambda x, strength: operations.translate(x, _pixels(strength, len(x)), 0),
    "translate_y": lambda x, strength: operations.translate(x, 0, _pixels(strength, len(x))),
}
NAMES = list(OPERATIONS)
