"""How many views one core renders per second, beside the field's own pipeline: torchvision and Pillow, view by view.

    python benchmarks/views.py

Both render the same views of the same photos, 640 x 480 to 224 pixels, from the same draws, as floats in [0, 1] into
memory that is there; their mean difference is printed too. Normalising is left out of both: the backbone does it. The
two take turns, and processor time is counted, so that other programs fall on neither of them alone.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision.transforms import InterpolationMode
from torchvision.transforms import functional as tvf

from tta_bench.interfaces import Preprocess, ViewRecipe
from tta_bench.pixels.augmix import MIX_DRAWS, OPERATIONS
from tta_bench.pixels.operations import Floats
from tta_bench.pixels.resize import to_floats
from tta_bench.views import CROP_DRAWS, AugMix, Plain, RandomCrops, crop_boxes, uniforms

WIDTH, HEIGHT = 640, 480
PREPROCESS = Preprocess(224)
PHOTOS, ROUNDS, SEED = 3, 7, 0
Pipeline = Callable[[Image.Image, str, Tensor], None]  # photo, its id, where its views go [n, 3, S, S]


def make_photo(number: int) -> Image.Image:
    """Smooth patches, edges and grain."""
    rng = np.random.default_rng(number)
    patches = Image.fromarray(rng.integers(0, 256, (12, 16, 3), dtype=np.uint8))
    smooth = np.asarray(patches.resize((WIDTH, HEIGHT), Image.Resampling.BICUBIC)).astype(np.int64)
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    edges = np.where((x // 40 + y // 60 + number) % 5 == 0, 60, 0)[..., None]
    return Image.fromarray((smooth + edges + rng.integers(-12, 13, smooth.shape)).clip(0, 255).astype(np.uint8))


# ---------------------------------------------------------------------------------------------- the field's pipeline


def field_crops(photo: Image.Image, u: Floats) -> list[Image.Image]:
    """RandomResizedCrop and RandomHorizontalFlip, as TPT and those after it call them."""
    crops = []
    for (left, top, right, bottom), mirror in zip(crop_boxes(u, photo.size).tolist(), u[:, -1] < 0.5, strict=True):
        size = [PREPROCESS.size, PREPROCESS.size]
        crop = tvf.resized_crop(photo, top, left, bottom - top, right - left, size, InterpolationMode.BILINEAR)
        crops.append(tvf.hflip(crop) if mirror else crop)
    return crops


def field_plain(photo: Image.Image, name: str, views: Tensor) -> None:
    u = uniforms(SEED, "plain", name, len(views), CROP_DRAWS)
    for view, crop in zip(views, field_crops(photo, u), strict=True):
        view.copy_(tvf.to_tensor(crop))


def field_regions(photo: Image.Image, name: str, views: Tensor) -> None:
    low, high = RandomCrops().side
    for view, (share, x, y) in zip(views, uniforms(SEED, "crops", name, len(views), 3).tolist(), strict=True):
        side = int((low + (high - low) * share) * min(photo.size))
        left, top = int(x * (photo.width - side + 1)), int(y * (photo.height - side + 1))
        size = [PREPROCESS.size, PREPROCESS.size]
        region = tvf.resized_crop(photo, top, left, side, side, size, InterpolationMode.BICUBIC)
        view.copy_(tvf.to_tensor(region))


def field_augmix(photo: Image.Image, name: str, views: Tensor) -> None:
    u = uniforms(SEED, "augmix", name, len(views), CROP_DRAWS + MIX_DRAWS)
    crops = field_crops(photo, u[:, :CROP_DRAWS])
    for view, crop, row in zip(views, crops, u[:, CROP_DRAWS:].tolist(), strict=True):
        exponential = -np.log1p(-np.array(row[1:4]))
        mixed = row[0] * tvf.to_tensor(crop)
        for j, weight in enumerate((exponential / exponential.sum()).tolist()):
            chain = crop
            for place in range(3 * j, 3 * j + 1 + int(3 * row[4 + j])):
                sign = -1 if row[25 + place] < 0.5 else 1
                operation = list(OPERATIONS)[int(9 * row[7 + place])]
                chain = field_operation(operation, chain, 0.1 + 0.9 * row[16 + place], sign)
            mixed += (1 - row[0]) * weight * tvf.to_tensor(chain)
        view.copy_(mixed)


def field_operation(name: str, image: Image.Image, u: float, sign: int) -> Image.Image:
    """The official operations at severity 1; u is the level out of 10."""

    def affine(*matrix: float) -> Image.Image:
        return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)

    match name:
        case "autocontrast":
            return ImageOps.autocontrast(image)
        case "equalize":
            return ImageOps.equalize(image)
        case "posterize":
            return ImageOps.posterize(image, 4 - int(u * 4 / 10))
        case "rotate":
            return image.rotate(sign * int(u * 30 / 10), Image.Resampling.BILINEAR)
        case "solarize":
            return ImageOps.solarize(image, 256 - int(u * 256 / 10))
        case "shear_x":
            return affine(1, sign * u * 0.3 / 10, 0, 0, 1, 0)
        case "shear_y":
            return affine(1, 0, 0, sign * u * 0.3 / 10, 1, 0)
        case "translate_x":
            return affine(1, 0, sign * int(u * image.width / 3 / 10), 0, 1, 0)
        case _:
            return affine(1, 0, 0, 0, 1, sign * int(u * image.width / 3 / 10))


# --------------------------------------------------------------------------------------------------------- measuring


RECIPES: dict[str, tuple[Pipeline, ViewRecipe]] = {
    "augmix": (field_augmix, AugMix()),
    "plain": (field_plain, Plain()),
    "regions": (field_regions, RandomCrops()),
}


def ours(recipe: ViewRecipe) -> Pipeline:
    def render(photo: Image.Image, name: str, views: Tensor) -> None:
        to_floats(recipe.render(photo, name, SEED, PREPROCESS), out=views)

    return render


def seconds(pipeline: Pipeline, photos: list[Image.Image], views: Tensor) -> float:
    begin = time.process_time()
    for i, photo in enumerate(photos):
        pipeline(photo, f"photo {i}", views)
    return time.process_time() - begin


def measure(field: Pipeline, recipe: ViewRecipe, photos: list[Image.Image]) -> tuple[list[float], list[float], float]:
    """Seconds of the field's rounds and of ours, and how many levels they are apart."""
    fields, own = torch.zeros(2, recipe.count, 3, PREPROCESS.size, PREPROCESS.size)
    seconds(field, photos[:1], fields), seconds(ours(recipe), photos[:1], own)  # and both are warm
    apart = float((fields - own).abs().mean()) * 255
    rounds = [(seconds(field, photos, fields), seconds(ours(recipe), photos, own)) for _ in range(ROUNDS)]
    return [a for a, _ in rounds], [b for _, b in rounds], apart


def ratios() -> dict[str, float]:
    """Recipe -> how many times as fast we are, the median of the rounds; prints the rest."""
    torch.set_num_threads(1)
    photos = [make_photo(number) for number in range(PHOTOS)]
    found: dict[str, float] = {}
    print(f"{'recipe':<10}{'field/s':>9}{'ours/s':>9}{'ratio':>8}{'of rounds':>14}{'levels apart':>14}")
    for name, (field, recipe) in RECIPES.items():
        field_seconds, own_seconds, apart = measure(field, recipe, photos)
        of_rounds = sorted(a / b for a, b in zip(field_seconds, own_seconds, strict=True))
        field_speed, own_speed = (PHOTOS * recipe.count / statistics.median(s) for s in (field_seconds, own_seconds))
        found[name], spread = statistics.median(of_rounds), f"{of_rounds[0]:.1f}-{of_rounds[-1]:.1f}"
        print(f"{name:<10}{field_speed:>9.0f}{own_speed:>9.0f}{found[name]:>7.1f}x{spread:>14}{apart:>14.2f}")
    return found


if __name__ == "__main__":
    ratios()
