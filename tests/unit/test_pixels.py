"""Pillow and torchvision are the oracles: what the official codes of the methods did to their pixels."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps
from torch import Tensor
from torchvision import transforms
from torchvision.transforms import functional as tvf

from tta_bench.errors import BadData
from tta_bench.interfaces import Preprocess
from tta_bench.pixels import operations
from tta_bench.pixels.decode import decode
from tta_bench.pixels.resize import crop_resize, crop_resize_levels, resize_centre_crop, to_image, to_tensor

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


def random_boxes(rng: np.random.Generator, n: int, width: int, height: int) -> Tensor:
    x = np.sort(rng.uniform(0, width, (n, 2)), 1)
    y = np.sort(rng.uniform(0, height, (n, 2)), 1)
    boxes = np.stack((x[:, 0], y[:, 0], x[:, 1], y[:, 1]), 1)
    boxes[0] = 0, 0, width, height
    return torch.from_numpy(boxes)


def pillow_resize(image: Image.Image, box: list[float], size: int, interpolation: Interpolation) -> Tensor:
    """One axis at a time, because Pillow's versions differ in which comes first when both are asked for at once."""
    left, top, right, bottom = box
    narrow = image.resize((size, image.height), RESAMPLE[interpolation], box=(left, 0, right, image.height))
    return to_tensor(narrow.resize((size, size), RESAMPLE[interpolation], box=(0, top, size, bottom))).float() / 255


def levels_apart(a: Tensor, b: Tensor) -> int:
    """Largest difference of two images, in levels."""
    return round(float((a - b).abs().max()) * 255)


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


@pytest.mark.parametrize(
    ("image", "colour"),
    [
        (Image.new("L", (3, 3), 100), (100, 100, 100)),
        (Image.new("1", (3, 3), 1), (255, 255, 255)),
        (Image.new("LA", (3, 3), (0, 0)), (255, 255, 255)),
        (Image.new("RGBA", (3, 3), (255, 0, 0, 0)), (255, 255, 255)),
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


def test_tensor_and_back(rng: np.random.Generator) -> None:
    image = noise(rng, 7, 5)
    tensor = to_tensor(image)
    assert tensor.shape == (3, 5, 7)
    assert tensor.dtype == torch.uint8
    assert np.array_equal(np.asarray(to_image(tensor)), np.asarray(image))
    assert to_tensor(Image.new("L", (7, 5), 3)).shape == (3, 5, 7)


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
            ours = crop_resize(to_tensor(image), boxes, size, interpolation)
            assert ours.shape == (12, 3, size, size)
            assert ours.dtype == torch.float32
            for view, box in zip(ours, boxes.tolist(), strict=True):
                assert levels_apart(view, pillow_resize(image, box, size, interpolation)) <= 1


@both
def test_nearly_all_levels_are_pillows_own(rng: np.random.Generator, interpolation: Interpolation) -> None:
    image = noise(rng, 160, 120)
    boxes = random_boxes(rng, 20, 160, 120)
    ours = crop_resize(to_tensor(image), boxes, 48, interpolation)
    pillow = torch.stack([pillow_resize(image, box, 48, interpolation) for box in boxes.tolist()])
    assert ((ours - pillow).abs() > 1e-6).float().mean() < 0.001


@both
@pytest.mark.parametrize(("width", "height"), [(160, 120), (120, 160)])
def test_where_nothing_overshoots_the_order_of_axes_is_no_matter(
    width: int, height: int, interpolation: Interpolation
) -> None:
    image = waves(width, height)
    box = (3.3, 5.5, 101.2, 99.9)
    at_once = to_tensor(image.resize((64, 64), RESAMPLE[interpolation], box=box)).float() / 255
    ours = crop_resize(to_tensor(image), torch.tensor([box]), 64, interpolation)[0]
    assert levels_apart(ours, at_once) <= 1


@both
def test_an_isolated_box_is_cut_out_before_it_is_resized(
    rng: np.random.Generator, interpolation: Interpolation
) -> None:
    image = noise(rng, 60, 40)
    boxes = torch.tensor([[3, 4, 20, 30], [0, 0, 60, 40], [59, 39, 60, 40], [10, 0, 50, 2]])
    isolated = crop_resize(to_tensor(image), boxes, 32, interpolation, isolate=True)
    for view, box in zip(isolated, boxes.tolist(), strict=True):
        cut = image.crop(tuple(box))
        assert levels_apart(view, pillow_resize(cut, [0, 0, *cut.size], 32, interpolation)) <= 1
    assert levels_apart(isolated, crop_resize(to_tensor(image), boxes, 32, interpolation)) > 1


@both
def test_a_boxs_bits_depend_on_nothing_else(
    rng: np.random.Generator, interpolation: Interpolation, restored_threads: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    image = to_tensor(noise(rng, 90, 70))
    boxes = random_boxes(rng, 30, 90, 70)
    torch.set_num_threads(1)
    together = crop_resize(image, boxes, 32, interpolation)
    one_by_one = torch.cat([crop_resize(image, box[None], 32, interpolation) for box in boxes])
    assert torch.equal(together, one_by_one)
    torch.set_num_threads(3)
    assert torch.equal(together, crop_resize(image, boxes, 32, interpolation))
    monkeypatch.setattr("tta_bench.pixels.resize.CHUNK", 50_000)
    assert torch.equal(together, crop_resize(image, boxes, 32, interpolation))


def test_float_images_give_the_same_as_levels(rng: np.random.Generator) -> None:
    image = to_tensor(noise(rng, 50, 40))
    boxes = random_boxes(rng, 5, 50, 40)
    assert levels_apart(crop_resize(image, boxes, 24, "bicubic"), crop_resize(image / 255, boxes, 24, "bicubic")) <= 1
    assert torch.equal(crop_resize_levels(image, boxes, 24, "bicubic") / 255, crop_resize(image, boxes, 24, "bicubic"))


@pytest.mark.parametrize("box", [[0, 0, 11, 5], [-1, 0, 5, 5], [3, 3, 3, 5], [5, 0, 2, 5], [0, 0, float("nan"), 5]])
def test_a_box_that_is_none_is_refused(box: list[float]) -> None:
    with pytest.raises(ValueError, match="within the image of 10 x 5"):
        crop_resize(torch.zeros(3, 5, 10, dtype=torch.uint8), torch.tensor([box]), 8, "bicubic")


@both
@pytest.mark.parametrize("shape", [(64, 64), (97, 60), (60, 97), (31, 200), (640, 480), (33, 32), (45, 46)])
def test_the_evaluation_view_is_torchvisions(shape: tuple[int, int], interpolation: Interpolation) -> None:
    width, height = shape
    tall = height > width  # Pillow's versions differ in the order of axes: no hard edges then, and a level for rounding
    image = waves(width, height) if tall else noise(np.random.default_rng(1), width, height)
    mode = transforms.InterpolationMode(interpolation)
    for size in (32, 45, 64):
        official = transforms.Compose([transforms.Resize(size, mode), transforms.CenterCrop(size)])(image)
        ours = resize_centre_crop(to_tensor(image), Preprocess(size, interpolation))
        assert ours.shape == (3, size, size)
        assert levels_apart(ours, to_tensor(official) / 255) <= 1 + tall
        squashed = resize_centre_crop(to_tensor(image), Preprocess(size, interpolation, "squash"))
        official = transforms.Resize((size, size), mode)(image)
        assert levels_apart(squashed, to_tensor(official) / 255) <= 1 + tall


@pytest.mark.parametrize("shape", [(1, 1), (5000, 1), (1, 5000), (2, 3)])
def test_the_evaluation_view_of_odd_images_exists(shape: tuple[int, int]) -> None:
    view = resize_centre_crop(to_tensor(Image.new("RGB", shape, (255, 0, 51))), Preprocess(64))
    assert torch.allclose(view, torch.tensor([1.0, 0.0, 0.2]).view(3, 1, 1).expand(3, 64, 64))


# ------------------------------------------------------------------------------------------------- pixel operations


def gallery() -> list[Image.Image]:
    rng = np.random.default_rng(3)
    narrow = Image.fromarray(rng.integers(90, 140, (32, 32, 3), dtype=np.uint8))
    steps = Image.fromarray(rng.choice(np.array([17, 200], np.uint8), (32, 32, 3)))
    flat = [Image.new("RGB", (32, 32), colour) for colour in ((0, 0, 0), (255, 255, 255), (7, 128, 250))]
    nearly_flat = flat[2].copy()
    nearly_flat.putpixel((5, 5), (8, 127, 255))
    return [noise(rng, 32, 32), ramps(32, 32), narrow, steps, nearly_flat, *flat]


def stacked(images: list[Image.Image]) -> Tensor:
    return torch.stack([to_tensor(image) for image in images])


def test_autocontrast_is_exactly_pillows() -> None:
    images = gallery()
    assert torch.equal(operations.autocontrast(stacked(images)), stacked([ImageOps.autocontrast(i) for i in images]))


def test_autocontrast_is_exact_for_every_range_of_levels() -> None:
    for low in range(0, 255, 7):
        images = [Image.fromarray(np.arange(low, high + 1, dtype=np.uint8)[None]).convert("RGB") for high in (low, 255)]
        images += [Image.fromarray(np.arange(low, (low + 255) // 2 + 1, dtype=np.uint8)[None]).convert("RGB")]
        for image in images:
            assert torch.equal(operations.autocontrast(stacked([image])), stacked([ImageOps.autocontrast(image)]))


def test_equalize_is_exactly_pillows() -> None:
    images = gallery()
    assert torch.equal(operations.equalize(stacked(images)), stacked([ImageOps.equalize(i) for i in images]))


@pytest.mark.parametrize("bits", [1, 4, 8])
def test_posterize_is_exactly_pillows(bits: int) -> None:
    images = gallery()
    assert torch.equal(
        operations.posterize(stacked(images), bits), stacked([ImageOps.posterize(i, bits) for i in images])
    )


def test_solarize_is_exactly_pillows() -> None:
    images = gallery()
    thresholds = torch.tensor([0, 1, 128, 200, 231, 254, 255, 7])
    official = [ImageOps.solarize(i, int(t)) for i, t in zip(images, thresholds, strict=True)]
    assert torch.equal(operations.solarize(stacked(images), thresholds), stacked(official))


def pillow_affine(image: Image.Image, matrix: list[float]) -> Image.Image:
    return image.transform(image.size, Image.Transform.AFFINE, matrix, Image.Resampling.BILINEAR)


def test_translate_is_exactly_pillows() -> None:
    images = gallery()
    dx = torch.tensor([0, 1, -1, 7, -7, 0, 3, 31])
    dy = torch.tensor([0, 0, 2, -3, 0, 5, 4, -31])
    official = [pillow_affine(i, [1, 0, x, 0, 1, y]) for i, x, y in zip(images, dx.tolist(), dy.tolist(), strict=True)]
    assert torch.equal(operations.translate(stacked(images), dx, dy), stacked(official))


def test_affine_is_pillows_within_a_level(rng: np.random.Generator) -> None:
    images = [noise(rng, 56, 56) for _ in range(40)] + [ramps(56, 56), Image.new("RGB", (56, 56), (255, 1, 100))] * 20
    matrices = [[1, a, 0, 0, 1, 0] for a in rng.uniform(-0.03, 0.03, 27)]
    matrices += [[1, 0, 0, a, 1, 0] for a in rng.uniform(-0.03, 0.03, 27)]
    matrices += [[1, a, b, c, 1, d] for a, b, c, d in rng.uniform(-0.4, 0.4, (26, 4))]
    ours = operations.affine(stacked(images), torch.tensor(matrices)).int()
    official = stacked([pillow_affine(i, m) for i, m in zip(images, matrices, strict=True)]).int()
    assert (ours - official).abs().max() <= 1
    assert (ours != official).float().mean() < 0.002


def test_rotation_is_pillows_within_a_level(rng: np.random.Generator) -> None:
    degrees = torch.tensor([-2, -1, 0, 1, 2, 30, 179])
    for size in (33, 64):
        images = [noise(rng, size, size) for _ in degrees]
        ours = operations.affine(stacked(images), operations.rotation(degrees, size)).int()
        official = [i.rotate(int(d), Image.Resampling.BILINEAR) for i, d in zip(images, degrees, strict=True)]
        assert (ours - stacked(official).int()).abs().max() <= 1


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
