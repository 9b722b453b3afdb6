"""View recipes: what to cut from an image and how to augment it.

View i is drawn from hash(seed, recipe family, i, image id) and from nothing else. So it depends neither on the order of
the images nor on workers and batches, and AugMix(64) is AugMix(63) and one view more. The hash is turned into numbers
here and not by a library's generator, whose stream may change from version to version: stored features would go stale.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from tta_bench.errors import UnknownName, UsageError
from tta_bench.interfaces import Preprocess, ViewRecipe
from tta_bench.pixels import operations
from tta_bench.pixels.resize import crop_resize, crop_resize_levels, resize_centre_crop, to_image, to_tensor

Floats = np.ndarray[Any, np.dtype[np.float64]]

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
        return resize_centre_crop(to_tensor(image), preprocess)[None]


@dataclass(frozen=True)
class _Drawn:
    """What the seeded recipes share: a number of views."""

    n: int = 63

    def __post_init__(self) -> None:
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
        return _resized_crops(image, u, preprocess.size).float().div_(255)


@dataclass(frozen=True)
class AugMix(_Drawn):
    """Random resized crops, each mixed with three chains of mild operations on it: the views of TPT and TDA."""

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        u = uniforms(seed, "augmix", image_id, self.n, CROP_DRAWS + 34)
        crop, share, mix, depth, op, level, sign = np.split(u, np.cumsum((CROP_DRAWS, 1, 3, 3, 9, 9)), axis=1)
        crops = _resized_crops(image, crop, preprocess.size)  # [n, 3, S, S]
        chains = _run_chains(
            [crop for crop in crops for _ in range(3)],  # [3n] of [3, S, S]
            depth=1 + np.floor(3 * depth).reshape(-1),  # [3n] of 1, 2, 3
            ops=np.floor(len(OPERATIONS) * op).reshape(-1, 3),  # [3n, 3]
            strengths=((0.1 + 0.9 * level) * np.where(sign < 0.5, -1, 1)).reshape(-1, 3),  # [3n, 3]
        )
        # share ~ Beta(1, 1), which is uniform; the chains' weights ~ Dirichlet(1, 1, 1), i.e. normalised exponentials.
        weights = np.concatenate((share, (1 - share) * _dirichlet(mix)), 1)  # [n, 4]
        return _mix(crops, chains, weights)


@dataclass(frozen=True)
class Holistic(_Drawn):
    """The evaluation view, half of them mirrored, with jittered colours: ColorJitter(0.4, 0.4, 0.4, 0.1)."""

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        u = uniforms(seed, "holistic", image_id, self.n, 9)
        view = resize_centre_crop(to_tensor(image), preprocess)
        centre = to_image((view * 255).round().to(torch.uint8))
        mirrored = centre.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        views = [_jitter(mirrored if row[0] < 0.5 else centre, row[1:5], row[5:9]) for row in u]
        return torch.stack([to_tensor(view) for view in views]).float().div_(255)


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
        return crop_resize(to_tensor(image), boxes, preprocess.size, preprocess.interpolation, isolate=True)


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


def _dirichlet(u: Floats) -> Floats:
    exponential: Floats = -np.log1p(-u)
    weights: Floats = exponential / exponential.sum(1, keepdims=True)
    return weights


def _place(widths: Floats, heights: Floats, x: Floats, y: Floats, size: tuple[int, int]) -> Tensor:
    """Boxes [n, 4] of whole pixels, uniformly placed within the image."""
    left = np.floor(x * (size[0] - widths + 1))
    top = np.floor(y * (size[1] - heights + 1))
    return torch.from_numpy(np.stack((left, top, left + widths, top + heights), 1))


# ---------------------------------------------------------------------------------------------- random resized crops

TRIES = 10
CROP_DRAWS = 2 * TRIES + 3  # area and aspect of each try, position, mirror


def _resized_crops(image: Image.Image, u: Floats, size: int) -> Tensor:
    """torchvision's RandomResizedCrop and RandomHorizontalFlip, uint8 [n, 3, size, size]."""
    crops = crop_resize_levels(to_tensor(image), crop_boxes(u, image.size), size, "bilinear", isolate=True)
    for i in np.flatnonzero(u[:, -1] < 0.5):
        crops[i] = crops[i].flip(-1)
    return crops


def crop_boxes(u: Floats, size: tuple[int, int]) -> Tensor:
    """Boxes [n, 4] of area 0.08..1 and aspect 3/4..4/3: the first of ten tries that fits the (width, height)."""
    width, height = size
    area = (0.08 + 0.92 * u[:, :TRIES]) * (width * height)  # [n, 10]
    aspect = np.exp(np.log(3 / 4) + (np.log(4 / 3) - np.log(3 / 4)) * u[:, TRIES : 2 * TRIES])
    widths, heights = np.rint(np.sqrt(area * aspect)), np.rint(np.sqrt(area / aspect))
    fits = (widths >= 1) & (widths <= width) & (heights >= 1) & (heights <= height)
    first = np.arange(len(u)), fits.argmax(1)
    boxes = _place(widths[first], heights[first], u[:, -3], u[:, -2], size)
    boxes[torch.from_numpy(~fits.any(1))] = _fallback_box(width, height)
    return boxes


def _fallback_box(width: int, height: int) -> Tensor:
    """The largest centred box of a permitted aspect, for an image so long that no try fitted."""
    w = min(width, round(height * 4 / 3))
    h = min(height, round(width / (3 / 4)))
    left, top = (width - w) // 2, (height - h) // 2
    return torch.tensor([left, top, left + w, top + h], dtype=torch.float64)


# ---------------------------------------------------------------------------------------------------------- AugMix
# At severity 1 an operation's level is u in 0.1..1, out of 10. `strength` [m] is the level with a random sign.


def _degrees(strength: Tensor) -> Tensor:
    return (3 * strength).trunc()  # 30 degrees at level 10


def _pixels(strength: Tensor, size: int) -> Tensor:
    """A third of the image at level 10. The official 7.47 u is that at 224 pixels; the share holds at any size."""
    return (size / 30 * strength).trunc().long()


def _solarize(x: Tensor, strength: Tensor) -> Tensor:
    return operations.solarize(x, 256 - (25.6 * strength.abs()).floor())


def _rotate(x: Tensor, strength: Tensor) -> Tensor:
    return operations.affine(x, operations.rotation(_degrees(strength), x.shape[-1]))


def _shear_x(x: Tensor, strength: Tensor) -> Tensor:
    one, zero = torch.ones_like(strength), torch.zeros_like(strength)
    return operations.affine(x, torch.stack((one, 0.03 * strength, zero, zero, one, zero), 1))


def _shear_y(x: Tensor, strength: Tensor) -> Tensor:
    one, zero = torch.ones_like(strength), torch.zeros_like(strength)
    return operations.affine(x, torch.stack((one, zero, zero, 0.03 * strength, one, zero), 1))


def _translate_x(x: Tensor, strength: Tensor) -> Tensor:
    pixels = _pixels(strength, x.shape[-1])
    return operations.translate(x, pixels, torch.zeros_like(pixels))


def _translate_y(x: Tensor, strength: Tensor) -> Tensor:
    pixels = _pixels(strength, x.shape[-1])
    return operations.translate(x, torch.zeros_like(pixels), pixels)


OPERATIONS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "autocontrast": lambda x, _: operations.autocontrast(x),
    "equalize": lambda x, _: operations.equalize(x),
    "posterize": lambda x, _: operations.posterize(x, bits=4),  # 4 - floor(0.4 u) bits
    "rotate": _rotate,
    "solarize": _solarize,
    "shear_x": _shear_x,
    "shear_y": _shear_y,
    "translate_x": _translate_x,
    "translate_y": _translate_y,
}


def _run_chains(chains: list[Tensor], depth: Floats, ops: Floats, strengths: Floats) -> list[Tensor]:
    """Chain r applies its first `depth[r]` operations; chains that need the same one at the same place go together."""
    for place in range(3):
        for number, operation in enumerate(OPERATIONS.values()):
            users = np.flatnonzero((ops[:, place] == number) & (depth > place))
            if len(users):
                results = operation(torch.stack([chains[r] for r in users]), torch.from_numpy(strengths[users, place]))
                for r, result in zip(users, results, strict=True):
                    chains[r] = result
    return chains


def _mix(crops: Tensor, chains: list[Tensor], weights: Floats) -> Tensor:
    """Weighted mean of each crop and its three chains, [n, 3, S, S].

    The official code mixes normalised pixels. Normalising is affine and the weights sum to one, so mixing in [0, 1] and
    normalising in the backbone is the same.
    """
    mixed = torch.empty(crops.shape)
    for i, (own, *others) in enumerate((weights / 255).tolist()):
        torch.mul(crops[i], own, out=mixed[i])
        for chain, weight in zip(chains[3 * i : 3 * i + 3], others, strict=True):
            mixed[i].add_(chain, alpha=weight)
        mixed[i].clamp_(0, 1)  # the weights' sum may exceed one by a rounding error
    return mixed


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
