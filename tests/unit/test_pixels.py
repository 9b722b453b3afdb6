"""Pillow and torchvision are the oracles: what the official codes of the methods did to their pixels."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import cv2
import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torchvision import transforms
from torchvision.transforms import functional as tvf

from tta_bench.errors import BadData
from tta_bench.interfaces import Preprocess
from tta_bench.pixels import operations
from tta_bench.pixels.decode import decode
from tta_bench.pixels.resize import Boxes, Levels, crop_resize, resize_centre_crop, to_floats, to_levels, to_pixels

RESAMPLE = {"bicubic": Image.Resampling.BICUBIC, "bilinear": Image.Resampling.BILINEAR}
Interpolation = Literal["bicubic", "bilinear"]
both = pytest.mark.parametrize("interpolation", ["bicubic", "bilinear"])


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(0)


@pytest.fixture
def restored_threads() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def noise(rng: np.random.Generator, width: int, height: int) -> Image.Image:
    """Hard edges everywhere: the overshoot of bicubic is clipped in many places."""
    levels = rng.integers(0, 256, (height, width, 3))
    return Image.fromarray(np.where(levels < 64, 0, np.where(levels > 192, 255, levels)).astype(np.uint8))


def ramps(width: int, height: int) -> Image.Image:
    y, x = np.mgrid[:height, :width]
    planes = (127 + 120 * np.sin(x / 9 + y / 17), (3 * x + y) % 256, 255 * y / max(1, height - 1))
    return Image.fromarray(np.stack(planes, -1).astype(np.uint8))


def waves(width: int, height: int) -> Image.Image:
    """No edges, and far from black and white: nothing is clipped."""
    y, x = np.mgrid[:height, :width]
    planes = [127 + 80 * np.sin(x / a + y / b) for a, b in ((9, 17), (20, 8), (-15, 15))]
    return Image.fromarray(np.stack(planes, -1).astype(np.uint8))


def random_boxes(rng: np.random.Generator, n: int, width: int, height: int) -> Boxes:
    x = np.sort([rng.choice(width + 1, 2, replace=False) for _ in range(n)], 1)
    y = np.sort([rng.choice(height + 1, 2, replace=False) for _ in range(n)], 1)
    boxes = np.stack((x[:, 0], y[:, 0], x[:, 1], y[:, 1]), 1)
    boxes[0] = 0, 0, width, height
    return boxes


def pillow_crop(image: Image.Image, box: list[int], size: int, interpolation: Interpolation) -> Image.Image:
    """One axis at a time, because Pillow's versions differ in which comes first when both are asked for at once."""
    left, top, right, bottom = box
    cut = image.crop((left, top, right, bottom))
    return cut.resize((size, cut.height), RESAMPLE[interpolation]).resize((size, size), RESAMPLE[interpolation])


def levels_apart(a: Levels | Image.Image, b: Levels | Image.Image) -> int:
    """Largest difference of two images."""
    return int(np.abs(np.asarray(a).astype(int) - np.asarray(b)).max())


# -------------------------------------------------------------------------------------------------------- decoding


def encoded(image: Image.Image, format: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format, **options)
    return buffer.getvalue()


def test_a_path_and_its_bytes_decode_alike(tmp_path: Path) -> None:
    image = ramps(20, 10)
    path = tmp_path / "a.png"
    image.save(path)
    assert np.array_equal(np.asarray(decode(path)), np.asarray(image))
    assert np.array_equal(np.asarray(decode(path.read_bytes())), np.asarray(image))


def test_exif_rotation_is_applied() -> None:
    image = Image.new("RGB", (4, 2))
    image.putpixel((0, 0), (255, 0, 0))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be shown turned by 90 degrees clockwise
    upright = decode(encoded(image, "PNG", exif=exif))
    assert upright.size == (2, 4)
    assert upright.getpixel((1, 0)) == (255, 0, 0)


CORNER = Image.frombytes("L", (3, 3), bytes([255] + [0] * 8))  # all that is seen


@pytest.mark.parametrize(
    ("image", "colour"),
    [
        (Image.new("L", (3, 3), 100), (100, 100, 100)),
        (Image.new("1", (3, 3), 1), (255, 255, 255)),
        (Image.merge("LA", (Image.new("L", (3, 3)), CORNER)), (255, 255, 255)),
        (Image.merge("RGBA", (*3 * [Image.new("L", (3, 3))], CORNER)), (255, 255, 255)),
        (Image.new("RGBA", (3, 3), (255, 0, 0, 255)), (255, 0, 0)),
        (Image.new("RGBA", (3, 3), (0, 0, 0, 51)), (204, 204, 204)),
        (Image.new("RGB", (3, 3), (10, 20, 30)).quantize(4), (10, 20, 30)),
        (Image.fromarray(np.full((3, 3), 0x8123, np.uint16)), (0x81, 0x81, 0x81)),
    ],
    ids=["gray", "bilevel", "gray+alpha", "transparent", "opaque", "faint black", "palette", "16 bit"],
)
def test_every_mode_becomes_rgb(image: Image.Image, colour: tuple[int, int, int]) -> None:
    decoded = decode(encoded(image, "PNG"))
    assert decoded.mode == "RGB"
    assert decoded.getpixel((1, 1)) == colour


def test_palette_transparency_becomes_white() -> None:
    image = Image.new("P", (3, 3), 0)
    image.putpalette([9, 9, 9, 50, 60, 70])
    image.putpixel((1, 1), 1)
    decoded = decode(encoded(image, "PNG", transparency=0))
    assert (decoded.getpixel((0, 0)), decoded.getpixel((1, 1))) == ((255, 255, 255), (50, 60, 70))


def test_cmyk_becomes_rgb() -> None:
    decoded = decode(encoded(Image.new("CMYK", (8, 8), (0, 255, 255, 0)), "JPEG", quality=100))
    red, green, blue = np.asarray(decoded)[4, 4].tolist()
    assert decoded.mode == "RGB"
    assert red > 245
    assert max(green, blue) < 10


def test_broken_files_are_named_in_one_line(tmp_path: Path) -> None:
    whole = {f: encoded(ramps(64, 64), f) for f in ("JPEG", "PNG", "GIF", "WEBP")}
    broken = {f"cut.{f}": data[: len(data) // 2] for f, data in whole.items()}
    broken |= {
        "empty.jpg": b"",
        "text.jpg": b"hello",
        "header.png": whole["PNG"][:20],
        "bits.png": flipped(whole["PNG"]),
    }
    for name, data in broken.items():
        path = tmp_path / name
        path.write_bytes(data)
        with pytest.raises(BadData) as caught:
            decode(path)
        assert name in str(caught.value)
        assert "\n" not in str(caught.value)
        assert caught.value.__cause__ is None
        assert caught.value.__context__ is None
    with pytest.raises(BadData, match=r"absent\.jpg: no such file"):
        decode(tmp_path / "absent.jpg")
    with pytest.raises(BadData, match="5 bytes"):
        decode(b"hello")


def flipped(data: bytes) -> bytes:
    middle = len(data) // 2
    return data[:middle] + bytes(b ^ 0xFF for b in data[middle : middle + 8]) + data[middle + 8 :]


@pytest.mark.filterwarnings("ignore:Corrupt EXIF")
def test_a_broken_exif_block_does_not_cost_the_image() -> None:
    data = encoded(ramps(16, 16), "JPEG", exif=b"Exif\x00\x00MM\x00\x2a\xff\xff\xff\xff")
    assert decode(data).size == (16, 16)


def test_levels_become_what_encoders_take(rng: np.random.Generator) -> None:
    images = [noise(rng, 6, 6), ramps(6, 6)]
    pixels = to_pixels(map(to_levels, images), 2, 6)
    assert pixels.dtype == torch.uint8
    assert pixels.is_contiguous()
    assert torch.equal(to_floats(pixels), torch.stack([tvf.to_tensor(image) for image in images]))
    floats = torch.rand(2, 3, 6, 6)
    assert torch.equal(to_floats(floats), floats)
    memory = torch.full((2, 3, 6, 6), 9.0)
    assert to_floats(pixels, out=memory) is memory
    assert torch.equal(memory, to_floats(pixels))
    assert to_levels(Image.new("L", (7, 5), 3)).shape == (5, 7, 3)


# -------------------------------------------------------------------------------------------------------- resizing


@both
@pytest.mark.parametrize(
    ("width", "height"), [(1, 1), (2, 1), (200, 1), (1, 90), (3, 5), (37, 53), (96, 96), (160, 120), (500, 31)]
)
def test_boxes_are_resized_as_by_pillow(width: int, height: int, interpolation: Interpolation) -> None:
    rng = np.random.default_rng(width * height)
    for image in (noise(rng, width, height), ramps(width, height)):
        boxes = random_boxes(rng, 12, width, height)
        for size in (1, 16, 33, 64):
            for view, box in zip(crop_resize(image, boxes, size, interpolation), boxes.tolist(), strict=True):
                assert view.shape == (size, size, 3)
                assert levels_apart(view, pillow_crop(image, box, size, interpolation)) <= 2


@both
def test_nearly_all_levels_are_pillows_own(rng: np.random.Generator, interpolation: Interpolation) -> None:
    image = noise(rng, 160, 120)
    boxes = random_boxes(rng, 20, 160, 120)
    ours = np.stack(list(crop_resize(image, boxes, 48, interpolation)))
    pillow = np.stack([np.asarray(pillow_crop(image, box, 48, interpolation)) for box in boxes.tolist()])
    assert (ours != pillow).mean() < 0.02


@both
@pytest.mark.parametrize(("width", "height"), [(160, 120), (120, 160)])
def test_where_nothing_overshoots_the_order_of_axes_is_no_matter(
    width: int, height: int, interpolation: Interpolation
) -> None:
    image = waves(width, height)
    at_once = image.crop((3, 5, 101, 99)).resize((64, 64), RESAMPLE[interpolation])
    (ours,) = crop_resize(image, np.array([[3, 5, 101, 99]]), 64, interpolation)
    assert levels_apart(ours, at_once) <= 1


@both
def test_a_boxs_bits_depend_on_nothing_else(
    rng: np.random.Generator, interpolation: Interpolation, restored_threads: None
) -> None:
    image = noise(rng, 90, 70)
    boxes = random_boxes(rng, 30, 90, 70)
    torch.set_num_threads(1)
    together = np.stack(list(crop_resize(image, boxes, 32, interpolation)))
    one_by_one = np.stack([next(crop_resize(image, box[None], 32, interpolation)) for box in boxes])
    assert np.array_equal(together, one_by_one)
    torch.set_num_threads(3)
    assert np.array_equal(together, np.stack(list(crop_resize(image, boxes, 32, interpolation))))


@pytest.mark.parametrize("box", [[0, 0, 11, 5], [-1, 0, 5, 5], [3, 3, 3, 5], [5, 0, 2, 5], [0, 0, 5, 6]])
def test_a_box_that_is_none_is_refused(box: list[int]) -> None:
    with pytest.raises(ValueError, match="within the image of 10 x 5"):
        list(crop_resize(Image.new("RGB", (10, 5)), np.array([box]), 8, "bicubic"))


@both
@pytest.mark.parametrize("shape", [(64, 64), (97, 60), (60, 97), (31, 200), (640, 480), (480, 640), (33, 32), (45, 46)])
def test_the_evaluation_view_is_torchvisions(shape: tuple[int, int], interpolation: Interpolation) -> None:
    """Of photos it was off by up to 7 levels: of a part Pillow takes the axes in another order."""
    image = noise(np.random.default_rng(1), *shape)
    mode = transforms.InterpolationMode(interpolation)
    for size in (32, 45, 64):
        official = transforms.Compose([transforms.Resize(size, mode), transforms.CenterCrop(size)])(image)
        ours = resize_centre_crop(image, Preprocess(size, interpolation))
        assert ours.shape == (size, size, 3)
        assert levels_apart(ours, official) == 0
        squashed = resize_centre_crop(image, Preprocess(size, interpolation, "squash"))
        assert levels_apart(squashed, transforms.Resize((size, size), mode)(image)) == 0


@both
@pytest.mark.parametrize("shape", [(16, 300), (300, 16)])
def test_the_evaluation_view_of_a_strip_is_cut_first(shape: tuple[int, int], interpolation: Interpolation) -> None:
    image = waves(*shape)
    mode = transforms.InterpolationMode(interpolation)
    official = transforms.Compose([transforms.Resize(64, mode), transforms.CenterCrop(64)])(image)
    assert levels_apart(resize_centre_crop(image, Preprocess(64, interpolation)), official) <= 2


@pytest.mark.parametrize("shape", [(1, 1), (5000, 1), (1, 5000), (2, 3)])
def test_the_evaluation_view_of_odd_images_exists(shape: tuple[int, int]) -> None:
    view = resize_centre_crop(Image.new("RGB", shape, (255, 0, 51)), Preprocess(64))
    assert view.shape == (64, 64, 3)
    assert (view == (255, 0, 51)).all()


# ------------------------------------------------------------------------------------------------- pixel operations


def gallery() -> list[Image.Image]:
    rng = np.random.default_rng(3)
    narrow = Image.fromarray(rng.integers(90, 140, (32, 32, 3), dtype=np.uint8))
    steps = Image.fromarray(rng.choice(np.array([17, 200], np.uint8), (32, 32, 3)))
    flat = [Image.new("RGB", (32, 32), colour) for colour in ((0, 0, 0), (255, 255, 255), (7, 128, 250))]
    nearly_flat = flat[2].copy()
    nearly_flat.putpixel((5, 5), (8, 127, 255))
    return [noise(rng, 32, 32), ramps(32, 32), narrow, steps, nearly_flat, *flat]


Operation = Callable[[Levels], Levels]


def assert_exact(ours: Operation, pillows: Callable[[Image.Image], Image.Image], images: list[Image.Image]) -> None:
    for image in images:
        before = to_levels(image)
        assert levels_apart(ours(before), pillows(image)) == 0
        assert np.array_equal(before, np.asarray(image))  # chains share their crop


def test_autocontrast_is_exactly_pillows() -> None:
    whole = ramps(256, 256)  # every level in every channel: nothing to stretch
    assert_exact(operations.autocontrast, ImageOps.autocontrast, [*gallery(), whole])


def test_autocontrast_is_exact_for_every_range_of_levels() -> None:
    for low in range(0, 255, 7):
        ranges = [np.arange(low, high + 1, dtype=np.uint8)[None] for high in (low, 255, (low + 255) // 2)]
        images = [Image.fromarray(levels).convert("RGB") for levels in ranges]
        assert_exact(operations.autocontrast, ImageOps.autocontrast, images)


def test_equalize_is_exactly_pillows() -> None:
    assert_exact(operations.equalize, ImageOps.equalize, gallery())


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_posterize_is_exactly_pillows(bits: int) -> None:
    assert_exact(lambda x: operations.posterize(x, bits), lambda i: ImageOps.posterize(i, bits), gallery())


@pytest.mark.parametrize("threshold", [0, 1, 128, 200, 231, 254, 255])
def test_solarize_is_exactly_pillows(threshold: int) -> None:
    assert_exact(lambda x: operations.solarize(x, threshold), lambda i: ImageOps.solarize(i, threshold), gallery())


def pillow_affine(image: Image.Image, matrix: Sequence[float]) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


@pytest.mark.parametrize(("dx", "dy"), [(0, 0), (1, 0), (-1, 2), (7, -3), (-7, 0), (0, 5), (3, 4), (31, -31)])
def test_translate_is_exactly_pillows(dx: int, dy: int) -> None:
    assert_exact(lambda x: operations.translate(x, dx, dy), lambda i: pillow_affine(i, (1, 0, dx, 0, 1, dy)), gallery())


def assert_close(ours: Levels, pillow: Image.Image, matrix: Sequence[float]) -> None:
    """A level of Pillow, and black where the map looks beyond the image; on the very edge it may be either."""
    a, b, c, d, e, f = matrix
    size = len(ours)
    y, x = np.mgrid[:size, :size] + 0.5
    where = np.stack((a * x + b * y + c, d * x + e * y + f))
    depth = np.minimum(where, size - where).min(0)  # pixels from the edge, [S, S]
    difference = np.abs(ours.astype(int) - np.asarray(pillow)).max(-1)
    assert difference[depth > 1e-6].max() <= 1
    assert (difference[depth > 1e-6] > 0).mean() < 0.5  # fractions are dropped on both sides
    assert not ours[depth < -1e-6].any()


@pytest.mark.parametrize("slope", [0.03, -0.03, 0.017, -0.0031, 0.0001, 0.4])
def test_shears_are_pillows_within_a_level(rng: np.random.Generator, slope: float) -> None:
    for image in (noise(rng, 56, 56), noise(rng, 224, 224), ramps(57, 57), Image.new("RGB", (56, 56), (255, 1, 100))):
        for shear, matrix in (
            (operations.shear_x, (1, slope, 0, 0, 1, 0)),
            (operations.shear_y, (1, 0, 0, slope, 1, 0)),
        ):
            assert_close(shear(to_levels(image), slope), pillow_affine(image, matrix), matrix)


@pytest.mark.parametrize("degrees", [-2, -1, 1, 2, 30, 179])
@pytest.mark.parametrize("size", [33, 64, 224])
def test_rotation_is_pillows_within_a_level(rng: np.random.Generator, degrees: int, size: int) -> None:
    image = noise(rng, size, size)
    cos, sin, centre = math.cos(-math.radians(degrees)), math.sin(-math.radians(degrees)), size / 2
    matrix = (cos, sin, centre * (1 - cos - sin), -sin, cos, centre * (1 - cos + sin))
    official = image.rotate(degrees, Image.Resampling.BILINEAR)
    assert_close(operations.rotate(to_levels(image), degrees), official, matrix)


def test_opencv_starts_no_threads() -> None:
    """Its pool would not survive the fork of the processes that render views."""
    assert cv2.getNumThreads() == 1


@pytest.mark.parametrize("factor", [0.6, 0.93, 1.0, 1.4])
def test_colours_are_adjusted_as_by_torchvision(factor: float) -> None:
    for image in gallery():
        for ours, official in (
            (operations.adjust_brightness(image, factor), tvf.adjust_brightness(image, factor)),
            (operations.adjust_contrast(image, factor), tvf.adjust_contrast(image, factor)),
            (operations.adjust_saturation(image, factor), tvf.adjust_saturation(image, factor)),
            (operations.adjust_hue(image, (factor - 1) / 4), tvf.adjust_hue(image, (factor - 1) / 4)),
        ):
            assert np.array_equal(np.asarray(ours), np.asarray(official))
