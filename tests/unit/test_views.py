"""The recipes: their chance, their strengths and their names."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torchvision import transforms
from torchvision.transforms import functional as tvf

from benchmarks.views import field_operation
from tta_bench import views
from tta_bench.errors import UnknownName, UsageError
from tta_bench.interfaces import Preprocess, ViewRecipe
from tta_bench.pixels.augmix import MIX_DRAWS, OPERATIONS, augmix, dirichlet, weighted_mean
from tta_bench.pixels.operations import Floats
from tta_bench.pixels.resize import Levels, resize_centre_crop, to_floats, to_levels
from tta_bench.views import AugMix, Holistic, Original, Plain, RandomCrops, parse_recipe

SMALL = Preprocess(32)
SEEDED: list[type[AugMix] | type[Plain] | type[Holistic] | type[RandomCrops]] = [AugMix, Plain, Holistic, RandomCrops]
every_family = pytest.mark.parametrize("family", SEEDED, ids=lambda f: f.__name__)


@pytest.fixture(scope="module")
def photo() -> Image.Image:
    """Colourful, not symmetric, and different in every corner."""
    y, x = np.mgrid[:90, :120]
    planes = (127 + 100 * np.sin(x / 9), 255 * x / 119, np.where((x // 10 + y // 10) % 2, 40, 2 * y))
    return Image.fromarray(np.stack(planes, -1).astype(np.uint8))


def levels_apart(a: Levels, b: Levels | Image.Image) -> int:
    """Largest difference of two images."""
    return int(np.abs(np.asarray(a).astype(int) - np.asarray(b)).max())


@pytest.fixture
def restored_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


# -------------------------------------------------------------------------------------------------- what all share


@every_family
def test_views_are_levels(family: type[Plain], photo: Image.Image) -> None:
    recipe: ViewRecipe = family(7)
    for preprocess in (SMALL, Preprocess(40, "bilinear", "squash")):
        pixels = recipe.render(photo, "a", 0, preprocess)
        assert pixels.shape == (7, 3, preprocess.size, preprocess.size)
        assert pixels.dtype == torch.uint8
        assert pixels.is_contiguous()
        assert to_floats(pixels).std() > 0.1
    assert isinstance(recipe, ViewRecipe)
    assert recipe.seeded
    assert recipe.count == 7


@every_family
def test_a_larger_count_extends_a_smaller_one(family: type[Plain], photo: Image.Image) -> None:
    few, many = family(9).render(photo, "a", 3, SMALL), family(14).render(photo, "a", 3, SMALL)
    assert torch.equal(few, many[:9])
    assert torch.equal(few[:1], family(1).render(photo, "a", 3, SMALL))


@every_family
def test_views_depend_on_seed_and_image_and_on_nothing_else(
    family: type[Plain], photo: Image.Image, restored_threads: None
) -> None:
    first = family(6).render(photo, "a", 0, SMALL)
    assert not torch.equal(first, family(6).render(photo, "a", 1, SMALL))
    assert not torch.equal(first, family(6).render(photo, "b", 0, SMALL))
    np.random.seed(5)  # noqa: NPY002 (the global generators must have no say)
    torch.manual_seed(5)
    torch.set_num_threads(3)
    assert torch.equal(first, family(6).render(photo, "a", 0, SMALL))


@every_family
def test_views_of_one_image_differ(family: type[Plain], photo: Image.Image) -> None:
    pixels = family(20).render(photo, "a", 0, SMALL).flatten(1)
    assert len(torch.unique(pixels, dim=0)) == 20


@every_family
@pytest.mark.parametrize("size", [(1, 1), (1, 40), (300, 1), (2, 3), (1000, 4)])
def test_odd_images_have_views_too(family: type[Plain], size: tuple[int, int]) -> None:
    pixels = family(12).render(Image.new("RGB", size, (200, 100, 50)), "a", 0, SMALL)
    assert pixels.shape == (12, 3, 32, 32)


def test_the_original_is_the_evaluation_view(photo: Image.Image) -> None:
    recipe: ViewRecipe = Original()
    assert (recipe.name, recipe.count, recipe.seeded) == ("image", 1, False)
    view = recipe.render(photo, "a", 0, SMALL)[0].permute(1, 2, 0).numpy()
    assert np.array_equal(view, resize_centre_crop(photo, SMALL))


def test_draws_are_pinned() -> None:
    """Stored features are only as good as this stream: it must never change."""
    u = views.uniforms(0, "plain", "000001", 2, 2)
    assert u.tolist() == [[0.775502874992646, 0.29799026533686956], [0.0320816674388027, 0.81334069751479]]


def test_draws_are_uniform_and_independent() -> None:
    u = views.uniforms(0, "augmix", "x", 4000, 6)
    assert u.min() >= 0
    assert u.max() < 1
    assert np.abs(u.mean(0) - 0.5).max() < 0.02
    assert np.abs(u.var(0) - 1 / 12).max() < 0.005
    assert np.abs(np.corrcoef(u.T) - np.eye(6)).max() < 0.06
    assert len(np.unique(u)) == u.size


def test_names_cannot_run_into_each_other() -> None:
    assert not np.array_equal(views.uniforms(1, "plain", "1", 1, 3), views.uniforms(11, "plain", "", 1, 3))
    assert views.uniforms(0, "plain", "caf\udce9.jpg", 1, 3).shape == (1, 3)  # a file name that isn't UTF-8


# ----------------------------------------------------------------------------------------------------------- names


@pytest.mark.parametrize(
    ("recipe", "name", "shown"),
    [
        (AugMix(), "augmix63", "AugMix(n=63)"),
        (Plain(15), "plain15", "Plain(n=15)"),
        (Holistic(63), "holistic63", "Holistic(n=63)"),
        (RandomCrops(), "crops50", "RandomCrops(n=50, side=(0.5, 0.8))"),
        (RandomCrops(20, (0.4, 0.9)), "crops20@0.4-0.9", "RandomCrops(n=20, side=(0.4, 0.9))"),
        (RandomCrops(20, (0.5, 1)), "crops20@0.5-1.0", "RandomCrops(n=20, side=(0.5, 1.0))"),
        (
            RandomCrops(5, (1e-5, 0.123456789)),
            "crops5@1e-05-0.123456789",
            "RandomCrops(n=5, side=(1e-05, 0.123456789))",
        ),
        (Original(), "image", "Original()"),
    ],
)
def test_names_and_reprs_are_stable_and_round_trip(recipe: ViewRecipe, name: str, shown: str) -> None:
    assert recipe.name == name
    assert repr(recipe) == shown
    assert parse_recipe(name) == recipe


def test_a_default_side_may_be_spelt_out() -> None:
    assert parse_recipe("crops50@0.5-0.8").name == "crops50"
    assert parse_recipe("crops20@.5-1") == RandomCrops(20, (0.5, 1.0))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "augmix",
        "63",
        "augmxi63",
        "AugMix63",
        "plain15@0.4-0.9",
        "crops50@",
        "crops50@0.4",
        "crops5@a-b",
        "plain6.3",
    ],
)
def test_unknown_recipes_are_refused(text: str) -> None:
    with pytest.raises(UnknownName, match="view recipe"):
        parse_recipe(text)


def test_a_near_miss_is_recognised() -> None:
    with pytest.raises(UnknownName, match="Did you mean augmix63"):
        parse_recipe("augmx63")


@pytest.mark.parametrize(
    "text",
    ["augmix0", "plain-3", "crops10001", "holistic99999999999", "crops5@0-0.5", "crops5@0.8-0.5", "crops5@0.5-1.1"],
)
def test_absurd_recipes_are_refused(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_recipe(text)
    assert not isinstance(caught.value, UnknownName)


# ---------------------------------------------------------------------------------------------- random resized crops


def one_box(row: Floats, width: int, height: int) -> list[float]:
    """RandomResizedCrop of one image, step by step."""
    for area, aspect in zip(row[:10], row[10:20], strict=True):
        pixels = width * height * (0.08 + 0.92 * area)
        ratio = math.exp(math.log(3 / 4) + (math.log(4 / 3) - math.log(3 / 4)) * aspect)
        w, h = round(math.sqrt(pixels * ratio)), round(math.sqrt(pixels / ratio))
        if 0 < w <= width and 0 < h <= height:
            left, top = int(row[20] * (width - w + 1)), int(row[21] * (height - h + 1))
            return [left, top, left + w, top + h]
    w, h = width, height
    if width / height < 3 / 4:
        h = round(width / (3 / 4))
    elif width / height > 4 / 3:
        w = round(height * (4 / 3))
    left, top = (width - w) // 2, (height - h) // 2
    return [left, top, left + w, top + h]


@pytest.mark.parametrize("size", [(1, 1), (120, 90), (90, 200), (300, 40), (7, 900), (900, 1), (3, 4)])
def test_crop_boxes_follow_the_recipe(size: tuple[int, int]) -> None:
    u = views.uniforms(0, "plain", "x", 200, views.CROP_DRAWS)
    assert views.crop_boxes(u, size).tolist() == [one_box(row, *size) for row in u]


def test_crop_boxes_are_distributed_as_torchvisions() -> None:
    width, height = 400, 300
    u = views.uniforms(0, "plain", "x", 3000, views.CROP_DRAWS)
    ours = views.crop_boxes(u, (width, height))
    torch.manual_seed(0)
    image = Image.new("RGB", (width, height))
    drawn = np.array(
        [transforms.RandomResizedCrop.get_params(image, (0.08, 1.0), (3 / 4, 4 / 3)) for _ in range(3000)]
    )  # top, left, height, width
    theirs = np.stack((drawn[:, 1], drawn[:, 0], drawn[:, 1] + drawn[:, 3], drawn[:, 0] + drawn[:, 2]), 1)
    for quantile in (0.1, 0.5, 0.9):
        assert np.abs(np.quantile(ours, quantile, 0) - np.quantile(theirs, quantile, 0)).max() < 16
    shares = [(b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1]) / (width * height) for b in (ours, theirs)]
    assert shares[0].min() >= 0.079
    assert abs(shares[0].mean() - shares[1].mean()) < 0.02


@pytest.mark.parametrize("size", [(900, 10), (10, 900)])
def test_the_fallback_is_torchvisions(size: tuple[int, int]) -> None:
    never = np.full((1, views.CROP_DRAWS), 0.999)  # the whole area at aspect 4/3 fits in no long image
    top, left, height, width = transforms.RandomResizedCrop.get_params(
        Image.new("RGB", size), (1.0, 1.0), (3 / 4, 4 / 3)
    )
    assert views.crop_boxes(never, size).tolist() == [[left, top, left + width, top + height]]


def test_plain_views_are_torchvisions_crops_of_the_boxes(photo: Image.Image) -> None:
    u = views.uniforms(0, "plain", "a", 30, views.CROP_DRAWS)
    boxes = views.crop_boxes(u, photo.size).tolist()
    mirrored = 0
    for view, row, (left, top, right, bottom) in zip(Plain(30).render(photo, "a", 0, SMALL), u, boxes, strict=True):
        official = tvf.resized_crop(photo, top, left, bottom - top, right - left, [32, 32])
        if row[-1] < 0.5:
            official = tvf.hflip(official)
            mirrored += 1
        assert levels_apart(view.permute(1, 2, 0).numpy(), official) <= 1
    assert 8 <= mirrored <= 22


def test_half_of_the_views_are_mirrored() -> None:
    ramp = Image.fromarray(np.tile(np.arange(0, 240, 2, dtype=np.uint8), (120, 1))).convert("RGB")
    for recipe in (Plain(400), Holistic(400)):
        pixels = recipe.render(ramp, "a", 0, Preprocess(8)).float()
        share = (pixels[..., 0].mean((1, 2)) > pixels[..., -1].mean((1, 2))).float().mean()
        assert 0.42 < share < 0.58


# ----------------------------------------------------------------------------------------------------------- crops


def coordinates(width: int, height: int) -> Image.Image:
    """Red tells the column, green the row."""
    y, x = np.mgrid[:height, :width]
    return Image.fromarray(np.stack((x, y, 0 * x), -1).astype(np.uint8))


def test_regions_are_square_upright_and_of_the_right_side() -> None:
    for preprocess in (Preprocess(16, "bilinear"), Preprocess(16)):
        pixels = RandomCrops(300).render(coordinates(200, 100), "a", 0, preprocess).float()
        width = (pixels[:, 0, 8, -1] - pixels[:, 0, 8, 0]) * 16 / 15
        height = (pixels[:, 1, -1, 8] - pixels[:, 1, 0, 8]) * 16 / 15
        assert (width - height).abs().max() < 2.5
        assert width.min() > 47  # 0.5 and 0.8 of the short side, and never negative: not mirrored
        assert width.max() < 82
        assert abs(float(width.mean()) - 64.5) < 2
        centre = pixels[:, 0].mean((1, 2))
        assert abs(float(centre.mean()) - 99.5) < 5
        assert centre.min() < 40
        assert centre.max() > 160


def test_regions_use_the_backbones_interpolation(photo: Image.Image) -> None:
    both = (RandomCrops(3).render(photo, "a", 0, Preprocess(32, i)) for i in ("bicubic", "bilinear"))
    bicubic, bilinear = map(to_floats, both)
    assert not torch.equal(bicubic, bilinear)
    assert (bicubic - bilinear).abs().mean() < 0.02


def test_a_region_of_the_whole_short_side_is_the_whole_square(photo: Image.Image) -> None:
    square = photo.crop((0, 0, 90, 90))
    region = RandomCrops(1, (1, 1)).render(square, "a", 0, SMALL)
    original = Original().render(square, "a", 0, SMALL)
    assert levels_apart(region.numpy(), original.numpy()) <= 2


# ---------------------------------------------------------------------------------------------------------- AugMix


@pytest.fixture(scope="module")
def crop() -> Levels:
    return np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)


@pytest.mark.parametrize(
    ("strength", "degrees", "threshold", "shift"),
    [(0.1, 0, 254, 0), (0.32, 0, 248, 2), (0.34, 1, 248, 2), (0.6, 1, 241, 4), (0.67, 2, 239, 5), (0.999, 2, 231, 7)],
)
@pytest.mark.parametrize("sign", [1, -1])
def test_strengths_of_operations_by_hand(
    crop: Levels, strength: float, degrees: int, threshold: int, shift: int, sign: int
) -> None:
    """u -> floor(3u) degrees, threshold 256 - floor(25.6u), shear 0.03u, floor(7.47u) pixels of 224."""
    image, u = Image.fromarray(crop), sign * strength

    def affine(*matrix: float) -> Image.Image:
        return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)

    for name, official in (
        ("autocontrast", ImageOps.autocontrast(image)),
        ("equalize", ImageOps.equalize(image)),
        ("posterize", ImageOps.posterize(image, 4)),
        ("solarize", ImageOps.solarize(image, threshold)),
        ("translate_x", affine(1, 0, sign * shift, 0, 1, 0)),
        ("translate_y", affine(1, 0, 0, 0, 1, sign * shift)),
    ):
        assert levels_apart(OPERATIONS[name](crop, u), official) == 0
    for name, official in (
        ("rotate", image.rotate(sign * degrees, Image.Resampling.BILINEAR)),
        ("shear_x", affine(1, 0.03 * u, 0, 0, 1, 0)),
        ("shear_y", affine(1, 0, 0, 0.03 * u, 1, 0)),
    ):
        assert levels_apart(OPERATIONS[name](crop, u), official) <= 1


def test_a_translation_is_the_same_share_of_smaller_images(crop: Levels) -> None:
    small = crop[:64, :64]  # 64 / 30 * 0.99 is 2.1 pixels
    moved = OPERATIONS["translate_x"](small, 0.99)
    assert np.array_equal(moved[:, :-2], small[:, 2:])
    assert not moved[:, -2:].any()


def test_chains_apply_their_operations_in_order(crop: Levels) -> None:
    chance = [0.0] * MIX_DRAWS  # the crop has no share
    chance[1] = 0.5  # and the first chain has all the weight
    names = list(OPERATIONS)
    chance[7:10] = [(names.index(name) + 0.5) / 9 for name in ("solarize", "equalize", "posterize")]
    chance[16:19] = [4 / 9] * 3  # level 0.5
    solarized = OPERATIONS["solarize"](crop, 0.5)
    equalized = OPERATIONS["equalize"](solarized, 0.5)
    for depth, expected in ((0.1, solarized), (0.5, equalized), (0.9, OPERATIONS["posterize"](equalized, 0.5))):
        chance[4] = depth
        assert np.array_equal(augmix(crop, chance), expected)


def test_mixing_is_the_weighted_mean(crop: Levels) -> None:
    images = [crop, *(crop // k for k in (1, 2, 3))]
    weights = [0.1, 0.2, 0.3, 0.4]
    expected = sum(weight * image for weight, image in zip(weights, images, strict=True))
    assert np.abs(weighted_mean(images, weights) - expected).max() <= 0.501


def test_augmix_follows_the_official_chain(photo: Image.Image) -> None:
    """One view at a time, with Pillow, from the same draws."""
    n, draws = 12, views.CROP_DRAWS
    u = views.uniforms(4, "augmix", "a", n, draws + 34)
    crops = views._resized_crops(photo, u[:, :draws], 64)
    rendered = AugMix(n).render(photo, "a", 4, Preprocess(64)).permute(0, 2, 3, 1).numpy()
    for view, crop, row in zip(rendered, crops, u[:, draws:], strict=True):
        share, exponential = row[0], -np.log1p(-row[1:4])
        chains = []
        for j in range(3):
            chain = Image.fromarray(crop)
            for k in range(1 + int(3 * row[4 + j])):
                place = 3 * j + k
                name = list(OPERATIONS)[int(9 * row[7 + place])]
                sign = -1 if row[25 + place] < 0.5 else 1
                chain = field_operation(name, chain, 0.1 + 0.9 * row[16 + place], sign)
            chains.append(np.asarray(chain).astype(float))
        w = exponential / exponential.sum()
        mixed = share * crop + (1 - share) * sum(weight * chain for weight, chain in zip(w, chains, strict=True))
        difference = np.abs(view - mixed)
        assert difference.mean() < 1
        assert np.quantile(difference, 0.99) < 2  # a level that rounds differently before an equalize may come to more


def test_the_weights_of_chains_are_dirichlet() -> None:
    w = np.array([dirichlet(row) for row in views.uniforms(0, "augmix", "x", 4000, 3).tolist()])
    assert np.allclose(w.sum(1), 1)
    assert np.abs(w.mean(0) - 1 / 3).max() < 0.02
    assert np.abs(w.var(0) - 1 / 18).max() < 0.004  # a (s - a) / (s² (s + 1)) with a = 1, s = 3


# -------------------------------------------------------------------------------------------------------- holistic


def test_holistic_views_are_jittered_evaluation_views(photo: Image.Image) -> None:
    u = views.uniforms(0, "holistic", "a", 10, 9)
    centre = Image.fromarray(resize_centre_crop(photo, SMALL))
    for view, row in zip(Holistic(10).render(photo, "a", 0, SMALL), u, strict=True):
        official = tvf.hflip(centre) if row[0] < 0.5 else centre
        for which in np.argsort(row[5:9]):
            adjust = (tvf.adjust_brightness, tvf.adjust_contrast, tvf.adjust_saturation, tvf.adjust_hue)[which]
            official = adjust(official, -0.1 + 0.2 * row[4] if which == 3 else 0.6 + 0.8 * row[1 + which])
        assert np.array_equal(view.permute(1, 2, 0).numpy(), to_levels(official))
