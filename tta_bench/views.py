"""View recipes: what to cut from an image and how to augment it.

View i is drawn from hash(seed, recipe family, i, image id) and from nothing else. So it depends neither on the order of
the images nor on workers and batches, and AugMix(64) is AugMix(63) and one view more. The hash is turned into numbers
here and not by a library's generator, whose stream may change from version to version: stored features would go stale.
"""

from __future__ import annotations

import hashlib
import operator
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import cv2
import numpy as np
from PIL import Image
from torch import Tensor

from tta_bench.errors import UnknownName, UsageError
from tta_bench.interfaces import Preprocess, ViewRecipe
from tta_bench.pixels import operations
from tta_bench.pixels.augmix import MIX_DRAWS, augmix
from tta_bench.pixels.operations import Floats
from tta_bench.pixels.resize import Boxes, Levels, crop_resize, resize_centre_crop, to_levels, to_pixels

MAX_COUNT = 10_000


# --------------------------------------------------------------------------------------------------------- recipes


@dataclass(frozen=True)
class Original:
    """The image as the backbone's evaluation shows it."""

    @property
    def name(self) -> str:
        return "image"

    @property
    def count(self) -> int:
        return 1

    @property
    def seeded(self) -> bool:
        return False

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        return to_pixels([resize_centre_crop(image, preprocess)], 1, preprocess.size)


@dataclass(frozen=True)
class _Drawn:
    """What the seeded recipes share: a number of views."""

    n: int = 63

    def __post_init__(self) -> None:
        try:
            object.__setattr__(self, "n", int(operator.index(self.n)))  # numpy's numbers have another repr
        except TypeError:
            raise UsageError(f"a view recipe makes a whole number of views per image, not {self.n!r}") from None
        if not 1 <= self.n <= MAX_COUNT:
            raise UsageError(f"a view recipe makes between 1 and {MAX_COUNT} views per image, not {self.n}")

    @property
    def name(self) -> str:
        return f"{type(self).__name__.lower()}{self.n}"

    @property
    def count(self) -> int:
        return self.n

    @property
    def seeded(self) -> bool:
        return True


@dataclass(frozen=True)
class Plain(_Drawn):
    """Random resized crops of the whole image, half of them mirrored: BoostAdapter's views."""

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        u = uniforms(seed, "plain", image_id, self.n, CROP_DRAWS)
        return to_pixels(_resized_crops(image, u, preprocess.size), self.n, preprocess.size)


@dataclass(frozen=True)
class AugMix(_Drawn):
    """Random resized crops, each mixed with three chains of mild operations on it: the views of TPT and TDA."""

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        u = uniforms(seed, "augmix", image_id, self.n, CROP_DRAWS + MIX_DRAWS)
        crops = _resized_crops(image, u[:, :CROP_DRAWS], preprocess.size)
        views = (augmix(crop, row) for crop, row in zip(crops, u[:, CROP_DRAWS:].tolist(), strict=True))
        return to_pixels(views, self.n, preprocess.size)


@dataclass(frozen=True)
class Holistic(_Drawn):
    """The evaluation view, half of them mirrored, with jittered colours: ColorJitter(0.4, 0.4, 0.4, 0.1)."""

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        u = uniforms(seed, "holistic", image_id, self.n, 9)
        centre = Image.fromarray(resize_centre_crop(image, preprocess))
        mirrored = centre.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        views = (_jitter(mirrored if row[0] < 0.5 else centre, row[1:5], row[5:9]) for row in u)
        return to_pixels(map(to_levels, views), self.n, preprocess.size)


@dataclass(frozen=True)
class RandomCrops(_Drawn):
    """Square regions, not mirrored. `side` is the range of their side as a share of the image's short side."""

    n: int = 50
    side: tuple[float, float] = (0.5, 0.8)

    def __post_init__(self) -> None:
        super().__post_init__()
        low, high = float(self.side[0]), float(self.side[1])
        if not 0 < low <= high <= 1:
            raise UsageError(f"the sides of crops must be a range within 0..1, not {low}-{high}")
        object.__setattr__(self, "side", (low, high))  # (0.5, 1) and (0.5, 1.0) are one recipe and have one repr

    @property
    def name(self) -> str:
        own_sides = "" if self.side == (0.5, 0.8) else f"@{self.side[0]}-{self.side[1]}"
        return f"crops{self.n}{own_sides}"

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        share, x, y = uniforms(seed, "crops", image_id, self.n, 3).T  # [n] each
        low, high = self.side
        side = np.maximum(1, np.floor((low + (high - low) * share) * min(image.size)))
        boxes = _place(side, side, x, y, image.size)
        regions = crop_resize(image, boxes, preprocess.size, preprocess.interpolation)
        return to_pixels(regions, self.n, preprocess.size)


FAMILIES: dict[str, Callable[[int], ViewRecipe]] = {
    "augmix": AugMix,
    "plain": Plain,
    "holistic": Holistic,
    "crops": RandomCrops,
}


def parse_recipe(text: str) -> ViewRecipe:
    """The recipe of a name such as "augmix63", "plain15" or "crops20@0.4-0.9"."""
    if text == Original().name:
        return Original()
    parts = re.fullmatch(r"([a-z]+)(-?\d{1,18})(?:@(\d*\.?\d+(?:e-\d+)?)-(\d*\.?\d+(?:e-\d+)?))?", text)
    if parts is None or parts[1] not in FAMILIES or (parts[3] and parts[1] != "crops"):
        known = ["augmix63", "plain63", "holistic63", "crops50", "crops50@0.4-0.9", "image"]
        raise UnknownName("view recipe", text, known, hint=f"A recipe is a family and a count: {', '.join(known)}.")
    if parts[3]:
        return RandomCrops(int(parts[2]), (float(parts[3]), float(parts[4])))
    return FAMILIES[parts[1]](int(parts[2]))


# --------------------------------------------------------------------------------------------------------- drawing


def uniforms(seed: int, family: str, image_id: str, count: int, draws: int) -> Floats:
    """Uniform numbers in [0, 1), [count, draws]: row i is all the chance that view i has."""
    rows = []
    for i in range(count):
        key = f"{seed}/{family}/{i}/{image_id}".encode("utf-8", "surrogatepass")  # file names may hold surrogates
        rows.append(hashlib.shake_256(key).digest(8 * draws))
    whole = np.frombuffer(b"".join(rows), dtype="<u8").reshape(count, draws)
    return (whole >> 11).astype(np.float64) * 2.0**-53


def _place(widths: Floats, heights: Floats, x: Floats, y: Floats, size: tuple[int, int]) -> Boxes:
    """Boxes [n, 4] of whole pixels, uniformly placed within the image."""
    left = np.floor(x * (size[0] - widths + 1))
    top = np.floor(y * (size[1] - heights + 1))
    return np.stack((left, top, left + widths, top + heights), 1).astype(np.int64)


# ---------------------------------------------------------------------------------------------- random resized crops

TRIES = 10
CROP_DRAWS = 2 * TRIES + 3  # area and aspect of each try, position, mirror


def _resized_crops(image: Image.Image, u: Floats, size: int) -> Iterator[Levels]:
    """torchvision's RandomResizedCrop and RandomHorizontalFlip, arrays [size, size, 3]."""
    crops = crop_resize(image, crop_boxes(u, image.size), size, "bilinear")
    return (cv2.flip(crop, 1) if mirror else crop for crop, mirror in zip(crops, u[:, -1] < 0.5, strict=True))


def crop_boxes(u: Floats, size: tuple[int, int]) -> Boxes:
    """Boxes [n, 4] of area 0.08..1 and aspect 3/4..4/3: the first of ten tries that fits the (width, height)."""
    width, height = size
    area = (0.08 + 0.92 * u[:, :TRIES]) * (width * height)  # [n, 10]
    aspect = np.exp(np.log(3 / 4) + (np.log(4 / 3) - np.log(3 / 4)) * u[:, TRIES : 2 * TRIES])
    widths, heights = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
    fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)
    first = np.arange(len(u)), fits.argmax(1)
    boxes = _place(widths[first], heights[first], u[:, -3], u[:, -2], size)
    boxes[~fits.any(1)] = _fallback_box(width, height)
    return boxes


def _fallback_box(width: int, height: int) -> tuple[int, int, int, int]:
    """The largest centred box of a permitted aspect, for an image so long that no try fitted."""
    w = min(width, round(height * 4 / 3))
    h = min(height, round(width / (3 / 4)))
    left, top = (width - w) // 2, (height - h) // 2
    return left, top, left + w, top + h


# --------------------------------------------------------------------------------------------------- colour jitter


def _jitter(image: Image.Image, amounts: Floats, order: Floats) -> Image.Image:
    """torchvision's ColorJitter(0.4, 0.4, 0.4, 0.1): four adjustments in a random order."""
    brightness, contrast, saturation = (0.6 + 0.8 * amounts[:3]).tolist()
    hue = -0.1 + 0.2 * float(amounts[3])
    adjustments: list[Callable[[Image.Image], Image.Image]] = [
        lambda x: operations.adjust_brightness(x, brightness),
        lambda x: operations.adjust_contrast(x, contrast),
        lambda x: operations.adjust_saturation(x, saturation),
        lambda x: operations.adjust_hue(x, hue),
    ]
    for which in np.argsort(order):
        image = adjustments[which](image)
    return image
