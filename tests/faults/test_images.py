"""Images that are not what they seem: none may turn black in silence, fill the memory or stop the run."""

from __future__ import annotations

import io
import os
import struct
import sys
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image, ImageFile

from tta_bench.datasets.folder import Folder
from tta_bench.errors import BadData
from tta_bench.pixels.decode import MAX_PIXELS, decode, readable_names

Image.init()
needs_avif = pytest.mark.skipif("AVIF" not in Image.SAVE, reason="this Pillow knows no AVIF")


def tiff(values: Any, dtype: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(np.asarray(values, dtype)).save(buffer, "TIFF")
    return buffer.getvalue()


def refusal(source: Path | bytes) -> str:
    with pytest.raises(BadData) as caught:
        decode(source)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ---- whole or not


@pytest.mark.parametrize("kind", ["baseline", "progressive", "optimize"])
@pytest.mark.parametrize("left", [0.5, 0.75, 0.99])
def test_a_jpeg_whose_end_is_zeros_is_refused(kind: str, left: float) -> None:
    """As an interrupted copy leaves it, as long as it should be: its decoder takes zeros for grey."""
    noise = np.random.default_rng(0).integers(0, 255, (200, 300, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(noise).save(buffer, "JPEG", **({} if kind == "baseline" else {kind: True}))
    whole = buffer.getvalue()
    there = int(left * len(whole))
    refusal(whole[:there] + bytes(len(whole) - there))
    assert decode(whole + bytes(100)).size == (300, 200)  # some cameras fill up what is behind the end


def saved(pixels: Any, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind, **options)
    return buffer.getvalue()


def noise(height: int = 200, width: int = 300) -> Any:
    return np.random.default_rng(0).integers(0, 255, (height, width, 3), dtype=np.uint8)


# ---- what a notebook has switched on in Pillow


def test_a_truncated_photo_is_refused_whatever_pillow_may_load(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = saved(noise(), "JPEG")
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    assert "can't be decoded" in refusal(whole[: len(whole) // 3])
    assert ImageFile.LOAD_TRUNCATED_IMAGES  # as it was


@pytest.mark.parametrize(
    ("switch", "value"),
    [("BmpImagePlugin.USE_RAW_ALPHA", True), ("GifImagePlugin.LOADING_STRATEGY", 2)],
)
def test_no_switch_of_pillow_changes_a_picture(switch: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    rgba = np.dstack([noise(8, 8), np.full((8, 8), 9, np.uint8)])
    kind = "BMP" if "Bmp" in switch else "GIF"
    content = saved(rgba, kind)
    expected = np.asarray(decode(content))
    monkeypatch.setattr(f"PIL.{switch}", value)
    seen, opened = [], Image.open

    def looking(*arguments: Any, **options: Any) -> Any:
        seen.append(in_pillow(switch))
        return opened(*arguments, **options)

    monkeypatch.setattr(Image, "open", looking)
    np.testing.assert_array_equal(np.asarray(decode(content)), expected)
    assert seen != [value]
    assert in_pillow(switch) == value


def in_pillow(switch: str) -> Any:
    module, _, name = switch.partition(".")
    return getattr(sys.modules[f"PIL.{module}"], name)


def test_threads_that_decode_at_once_leave_pillow_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one that ends must not switch it on again for the others."""
    whole = saved(noise(), "JPEG")
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", True)
    with ThreadPoolExecutor(4) as pool:
        refused = list(pool.map(lambda left: "can't be decoded" in refusal(whole[:left]), range(3000, 3100)))
    assert all(refused)
    assert ImageFile.LOAD_TRUNCATED_IMAGES


def with_a_hole(whole: bytes, start: int, end: int) -> bytes:
    return whole[:start] + bytes(end - start) + whole[end:]


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "a hole": lambda whole: with_a_hole(whole, len(whole) // 2, len(whole) // 2 + 4096),
    "a small hole": lambda whole: with_a_hole(whole, len(whole) // 2, len(whole) // 2 + 100),
    "a right end": lambda whole: with_a_hole(whole, len(whole) // 2, len(whole) - 2048),
    "a new line": lambda whole: with_a_hole(whole, len(whole) // 2, len(whole)) + b"\n",
}


@pytest.mark.parametrize(
    "options", [{}, {"optimize": True}, {"quality": 95, "subsampling": 0}, {"restart_marker_rows": 1}]
)
@pytest.mark.parametrize("damage", DAMAGE)
def test_a_jpeg_with_zeros_in_it_is_refused(damage: str, options: dict[str, Any]) -> None:
    whole = saved(noise(), "JPEG", **options)
    assert decode(whole).size == (300, 200)
    line = refusal(DAMAGE[damage](whole))
    assert "a stretch of zeros" in line or "truncated" in line  # Pillow's own word, where it notices


def test_a_new_line_behind_the_zeros_is_no_end() -> None:
    """Also where the picture is so flat that zeros alone show nothing."""
    flat = np.full((1000, 1000, 3), 255, np.uint8)
    flat[:100, :100] = noise(100, 100)
    whole = saved(flat, "JPEG", optimize=True)
    assert decode(whole).size == (1000, 1000)
    assert "a stretch of zeros" in refusal(with_a_hole(whole, len(whole) - 1000, len(whole)) + bytes(50) + b"\r\n")


def test_zeros_of_a_progressive_jpeg_are_seen_where_they_can_be() -> None:
    whole = saved(noise(), "JPEG", progressive=True)
    scans = [i for i in range(len(whole)) if whole[i : i + 2] == b"\xff\xda"]
    start = next(i for i in scans if whole[i + 7 : i + 10] == bytes([6, 63, 2]))  # the first of most coefficients
    assert "a stretch of zeros" in refusal(with_a_hole(whole, start + 500, start + 1000))


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("progressive", [False, True])
@pytest.mark.parametrize("subsampling", [0, 2])
@pytest.mark.parametrize("pixels", ["white", "black", "gray", "a patch", "a ramp", "a pattern"])
def test_a_sound_jpeg_may_hold_zeros(
    pixels: str, subsampling: int, progressive: bool, optimize: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A flat area is a long row of the shortest codes, which are zeros."""
    monkeypatch.setattr(ImageFile, "MAXBLOCK", 2**22)  # Pillow's own is too small for some of them
    flat = np.full((1000, 1000, 3), {"black": 0, "gray": 128}.get(pixels, 255), np.uint8)
    if pixels == "a patch":
        flat[300:400, 300:400] = noise(100, 100)
    elif pixels == "a ramp":
        flat[:] = np.linspace(255, 0, 1000).astype(np.uint8)[:, None]
    elif pixels == "a pattern":
        flat[:] = np.tile(noise(8, 8), (125, 125, 1))
    for quality in (30, 75, 95):
        options = {"subsampling": subsampling, "progressive": progressive, "optimize": optimize, "quality": quality}
        assert decode(saved(flat, "JPEG", **options)).size == (1000, 1000)


def test_zeros_beside_the_picture_of_a_jpeg_are_none_in_it() -> None:
    """In a comment, in the preview of an EXIF block, behind the end."""
    whole = saved(noise(), "JPEG", comment=bytes(200), exif=b"Exif\0\0MM\0*\0\0\0\x08" + bytes(200))
    assert bytes(200) in whole
    assert decode(whole + bytes(200)).size == (300, 200)


@needs_avif
@pytest.mark.parametrize("options", [{}, {"save_all": True, "append_images": [Image.fromarray(255 - noise())]}])
@pytest.mark.parametrize("left", [0.5, 0.99])
def test_an_avif_whose_end_is_zeros_is_refused(left: float, options: dict[str, Any]) -> None:
    whole = saved(noise(), "AVIF", speed=10, **options)
    assert decode(whole).size == (300, 200)
    assert decode(whole + bytes(200)).size == (300, 200)
    assert "a stretch of zeros" in refusal(with_a_hole(whole, int(left * len(whole)), len(whole)))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        pytest.param("AVIF", {}, marks=needs_avif),
        pytest.param("AVIF", {"quality": 100}, marks=needs_avif),
        ("WEBP", {}),
        ("WEBP", {"lossless": True, "method": 0}),  # one ends in 86,548 zeros, so they show nothing there
    ],
)
def test_sound_files_of_flat_pictures_are_whole(kind: str, options: dict[str, Any]) -> None:
    flat = np.full((1000, 1000, 3), 255, np.uint8)
    flat[300:400, 300:400] = noise(100, 100)
    for pixels in (flat, flat * 0):
        assert decode(saved(pixels, kind, **options)).size == (1000, 1000)


CHECKSUMS = "its checksums are not those of what is in it"


@pytest.mark.parametrize("left", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("kind", ["noise", "a soft picture"])
def test_a_png_whose_end_is_zeros_is_refused(kind: str, left: float) -> None:
    """Pillow compares no checksum of the pixels; where the codes make a byte of zeros, the picture gets full of it."""
    pixels = noise() if kind == "noise" else np.cumsum(noise() % 5, axis=1).astype(np.uint8)
    whole = saved(pixels, "PNG")
    line = refusal(with_a_hole(whole, int(left * len(whole)), len(whole)))
    assert CHECKSUMS in line or "can't be decoded" in line  # Pillow's own word, where it notices


def test_a_png_is_as_its_checksums_say_up_to_its_end() -> None:
    whole = saved(noise(), "PNG")
    np.testing.assert_array_equal(np.asarray(decode(whole + bytes(100))), noise())
    assert CHECKSUMS in refusal(with_a_hole(whole, len(whole) - 16, len(whole) - 12))  # the last one of the pixels
    assert CHECKSUMS in refusal(with_a_hole(whole, len(whole) - 4, len(whole)))
    assert CHECKSUMS in refusal(whole[:-12])  # without the chunk that ends it


def test_a_sound_png_of_several_pictures_is_whole() -> None:
    whole = saved(noise(), "PNG", save_all=True, append_images=[Image.fromarray(255 - noise())])
    assert b"fdAT" in whole
    np.testing.assert_array_equal(np.asarray(decode(whole)), noise())


# ---- value ranges


@pytest.mark.parametrize(
    ("values", "shown"),
    [
        ([[0, 100], [200, 255]], [[0, 100], [200, 255]]),  # 8 bits in a wider file
        ([[0, 25_600], [51_200, 65_535]], [[0, 100], [200, 255]]),  # 16 bits
    ],
)
def test_integers_of_32_bits_are_read_by_the_range_that_they_use(values: list[Any], shown: list[Any]) -> None:
    decoded = decode(tiff(values, np.int32))
    assert decoded.mode == "RGB"
    np.testing.assert_array_equal(np.asarray(decoded)[..., 0], shown)


@pytest.mark.parametrize("values", [[[0, 65_536]], [[-1, 5]], [[2**31 - 1, 0]], [[-(2**31), 0]]])
def test_integers_beyond_16_bits_are_refused(values: list[Any]) -> None:
    line = refusal(tiff(values, np.int32))
    assert "32-bit" in line
    assert "save it with 8 or 16 bits" in line


@pytest.mark.parametrize("values", [[[0, 256]], [[0, 1020]], [[5, 4080]], [[0, 0x7FFF]]])
def test_integers_of_32_bits_that_may_be_of_10_or_12_are_refused(values: list[Any]) -> None:
    """They were nearly black, or not, as each photo's own maximum had it."""
    assert f"values up to {values[0][1]}, and of how many bits can't be known" in refusal(tiff(values, np.int32))


@pytest.mark.parametrize("values", [[[0.0, 1.0]], [[0.0, 255.0]], [[0.0, np.nan]], [[-1e30, np.inf]]])
def test_floats_have_no_range_that_could_be_known(values: list[Any]) -> None:
    line = refusal(tiff(values, np.float32))
    assert "floating-point" in line
    assert "save it with 8 or 16 bits" in line


@pytest.mark.parametrize("kind", ["PNG", "TIFF", "PPM"])
def test_gray_of_16_bits_is_16_bits_however_dark(kind: str) -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.full((4, 4), 255, np.uint16)).save(buffer, kind)
    assert np.asarray(decode(buffer.getvalue())).max() == 0
    buffer = io.BytesIO()
    Image.fromarray(np.full((4, 4), 0x80FF, np.uint16)).save(buffer, kind)
    assert np.asarray(decode(buffer.getvalue())).min() == 0x80


def gray_tiff(bits: int, photometric: int, sample_format: int) -> bytes:
    """2 x 1 pixels, uncompressed."""
    tags = [(256, 2), (257, 1), (258, bits), (259, 1), (262, photometric), (273, 8), (277, 1), (278, 1)]
    tags += [(279, 4), (339, sample_format)]
    entries = b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in tags)
    return (
        struct.pack("<2sHI4s", b"II", 42, 12, b"\x10\x20\x30\x40") + struct.pack("<H", len(tags)) + entries + bytes(4)
    )


@pytest.mark.parametrize(
    ("bits", "photometric", "sample_format", "said"),
    [
        (12, 1, 1, "gray of 12 bits"),
        (16, 0, 1, "0 is white"),
        (16, 1, 2, "signed values of 16 bits"),
        (8, 1, 2, "signed values of 8 bits"),
    ],
)
def test_gray_that_would_show_something_else_is_refused(
    bits: int, photometric: int, sample_format: int, said: str
) -> None:
    assert said in refusal(gray_tiff(bits, photometric, sample_format))
    decode(gray_tiff(16, 1, 1))
    decode(gray_tiff(8, 0, 1))


def palette_tiff(highest: int) -> bytes:
    """2 x 1 pixels of the lightest colour that the palette has, uncompressed."""
    tags = [(256, 2), (257, 1), (258, 8), (259, 1), (262, 3), (273, 8), (277, 1), (278, 1), (279, 2)]
    entries = b"".join(struct.pack("<HHIHH", tag, 3, 1, value, 0) for tag, value in tags)
    behind = 12 + 2 + 12 * (len(tags) + 1) + 4
    entries += struct.pack("<HHII", 320, 3, 3 * 256, behind)
    colours = struct.pack("<768H", *3 * [level * highest // 255 for level in range(256)])
    header = struct.pack("<2sHI4s", b"II", 42, 12, b"\xff\xff\0\0")
    return header + struct.pack("<H", len(tags) + 1) + entries + bytes(4) + colours


def test_a_palette_of_fewer_bits_than_a_tiff_has_is_refused() -> None:
    """Pillow takes the upper half of its 16 bits, which is zero."""
    assert "a palette of 8-bit values" in refusal(palette_tiff(255))
    assert decode(palette_tiff(65_535)).getpixel((0, 0)) == (255, 255, 255)
    assert decode(palette_tiff(0)).getpixel((0, 0)) == (0, 0, 0)


def test_a_transparent_value_of_16_bit_gray_is_refused() -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.zeros((4, 4), np.uint16)).save(buffer, "PNG", transparency=0)
    assert "16-bit gray with a transparent value" in refusal(buffer.getvalue())


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK", "I;16", "RGB"])
def test_an_uncompressed_tiff_is_turned_as_a_compressed_one(tmp_path: Path, mode: str) -> None:
    """Pillow maps a file into memory that it has the path of, in rows of the turned picture's length."""
    levels = np.random.default_rng(0).integers(0, 256, (6, 4, 3), dtype=np.uint8)
    picture = Image.fromarray(levels if mode != "I;16" else levels[..., 0].astype(np.uint16) << 8)
    if mode != "I;16":
        picture = picture.convert(mode)
    files = [tmp_path / f"{kind}.tif" for kind in ("raw", "tiff_lzw")]
    for file in files:
        picture.save(file, compression=file.stem, tiffinfo={274: 6})  # a quarter turn
    pictures = [np.asarray(decode(file)) for file in files]
    assert pictures[0].shape == (4, 6, 3)
    assert np.array_equal(pictures[0], pictures[1])


def test_a_tiff_that_begins_with_a_preview_is_refused(tmp_path: Path) -> None:
    photo, file = Image.new("L", (8, 8)), tmp_path / "a.tif"
    photo.resize((2, 2)).save(file, tiffinfo={254: 1}, save_all=True, append_images=[photo])
    assert "first page is a preview" in refusal(file)
    photo.save(file, save_all=True, append_images=[photo.resize((2, 2))])
    assert decode(file).size == (8, 8)


@pytest.mark.parametrize("bits", [1, 2, 4])
def test_a_transparent_value_of_narrow_gray_is_seen_or_refused(bits: int) -> None:
    """Pillow makes 8 bits of the pixels, but not of the value."""
    chunks = [
        (b"IHDR", struct.pack(">IIBBBBB", 4, 1, bits, 0, 0, 0, 0)),
        (b"tRNS", struct.pack(">H", 1)),
        (b"IDAT", zlib.compress(b"\0" + bytes([0b01010000 if bits == 1 else 0b00010001, 1][: (4 * bits + 7) // 8]))),
        (b"IEND", b""),
    ]
    framed = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    content = b"\x89PNG\r\n\x1a\n" + b"".join(framed)
    if bits > 1:
        assert "2, 4 or 16 bits with a transparent value" in refusal(content)
    else:
        assert np.asarray(decode(content))[0, :, 0].tolist() == [0, 255, 0, 255]


def test_a_transparent_value_of_16_bit_colours_is_refused() -> None:
    """Pillow compares its lower half with the upper halves of the pixels."""
    content = b"\x89PNG\r\n\x1a\n"
    for kind, data in (
        (b"IHDR", struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)),
        (b"tRNS", struct.pack(">HHH", 0, 0, 0)),
        (b"IDAT", zlib.compress(b"\0" + struct.pack(">HHH", 100, 100, 100))),
        (b"IEND", b""),
    ):
        content += struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    assert "16 bits with a transparent value" in refusal(content)


def tga(alpha_bits: int, fourth: int, depth: int = 32) -> bytes:
    """2 x 2 pixels of one colour; with 16 bits the highest is the transparency."""
    header = struct.pack("<BBBHHBHHHHBB", 0, 0, 2, 0, 0, 0, 0, 0, 2, 2, depth, 0x20 | alpha_bits)
    pixel = bytes([30, 60, 200, fourth]) if depth == 32 else struct.pack("<H", (25 << 10) | (7 << 5) | 4 | fourth << 15)
    return header + 4 * pixel


@pytest.mark.parametrize("fourth", [0, 255])
def test_a_tga_without_transparency_is_not_white(fourth: int) -> None:
    """Many tools leave its fourth byte at 0, and say that it means nothing."""
    assert decode(tga(0, fourth)).getpixel((0, 0)) == (200, 60, 30)
    red, green, blue = np.asarray(decode(tga(0, fourth // 255, depth=16)))[0, 0]
    assert (red > 180, green < 80, blue < 80) == (True, True, True)
    assert decode(tga(8, 255)).getpixel((0, 0)) == (200, 60, 30)
    assert decode(tga(8, 127)).getpixel((0, 0)) == (228, 158, 143)  # half of it is white


@pytest.mark.parametrize("kind", ["PNG", "WEBP", "GIF", "TGA"])
def test_a_picture_that_is_transparent_all_over_is_refused(kind: str) -> None:
    """It would be a white one in silence."""
    picture, buffer = Image.new("RGBA", (4, 4), (200, 60, 30, 0)), io.BytesIO()
    picture.save(buffer, kind)
    assert "transparent all over" in refusal(buffer.getvalue())
    picture.putpixel((0, 0), (200, 60, 30, 255))
    buffer = io.BytesIO()
    picture.save(buffer, kind)
    assert decode(buffer.getvalue()).getpixel((3, 3)) == (255, 255, 255)


# ---- sizes


def blank_png(width: int, height: int, rows: bool = True) -> bytes:
    def chunk(kind: bytes, content: bytes) -> bytes:
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", zlib.crc32(kind + content))

    packer = zlib.compressobj(9)
    pixels = b"".join(packer.compress(bytes(width + 1)) for _ in range(height if rows else 1)) + packer.flush()
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


@pytest.mark.parametrize("side", [10_001, 13_000, 60_000, 2**31 - 1])
def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(
    side: int, monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder
) -> None:
    monkeypatch.setattr("PIL.ImageFile.ImageFile.load", lambda _: pytest.fail("it was decoded"))
    monkeypatch.delenv("TTABENCH_MAX_PIXELS", raising=False)
    file = blank_png(min(side, 60_000), 1)
    file = file[:16] + struct.pack(">II", side, side) + file[24:29] + struct.pack(">I", 0) + file[33:]
    file = file[:29] + struct.pack(">I", zlib.crc32(file[12:29])) + file[33:]
    line = refusal(file)
    assert "TTABENCH_MAX_PIXELS" in line
    assert f"{MAX_PIXELS:,}" in line
    assert not recwarn.list  # Pillow would add its own words


def test_the_limit_can_be_raised_and_lowered(monkeypatch: pytest.MonkeyPatch, recwarn: pytest.WarningsRecorder) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # Pillow's own limit gives way to what the user said
    image = blank_png(100, 50)
    monkeypatch.setenv("TTABENCH_MAX_PIXELS", "5000")
    assert decode(image).size == (100, 50)
    monkeypatch.setenv("TTABENCH_MAX_PIXELS", "4999")
    assert "5,000 pixels" in refusal(image)
    assert not recwarn.list


@pytest.mark.parametrize("value", ["many", "0", "-5", "²", "1e9", " "])
def test_a_limit_that_is_no_number_is_named(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTABENCH_MAX_PIXELS", value)
    assert "TTABENCH_MAX_PIXELS" in refusal(blank_png(2, 2))


# ---- what is no file


def test_a_fifo_a_device_and_a_folder_are_no_images(tmp_path: Path) -> None:
    fifo = tmp_path / "fifo.png"
    os.mkfifo(fifo)
    link = tmp_path / "link.png"
    link.symlink_to(fifo)
    for path in (fifo, link, Path("/dev/zero"), Path("/dev/stdin"), tmp_path):
        assert "not a regular file" in refusal(path)


def test_a_fifo_in_a_folder_dataset_does_not_hang(tmp_path: Path) -> None:
    (tmp_path / "labels.csv").write_text("image,dog\na.png,1\n")
    os.mkfifo(tmp_path / "a.png")
    with pytest.raises(BadData, match=r"a\.png: not a regular file"):
        Folder.open(tmp_path)


def test_no_program_is_started_for_a_picture(tmp_path: Path) -> None:
    """Pillow hands EPS to Ghostscript, which runs what is in it."""
    file = tmp_path / "a.jpg"
    file.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n")
    assert "EPS is not read here: save it as PNG or JPEG" in refusal(file)


# ---- formats


def fits() -> bytes:
    """2 x 2 pixels of 16 bits, which stand for 32,768 more than is written: Pillow does not look at that."""
    cards = ["SIMPLE  = T", "BITPIX  = 16", "NAXIS   = 2", "NAXIS1  = 2", "NAXIS2  = 2", "BZERO   = 32768", "END"]
    return "".join(card.ljust(80) for card in cards).ljust(2880).encode() + bytes(2880)


@pytest.mark.parametrize("kind", ["FITS", "ICO", "PCX", "SGI", "DDS", "QOI"])
def test_formats_that_can_be_misread_are_refused(kind: str) -> None:
    content = fits() if kind == "FITS" else saved(noise(16, 16), kind)
    assert f"{kind} is not read here: save it as PNG or JPEG" in refusal(content)


def test_an_animation_is_not_taken_for_a_tga() -> None:
    """A TGA has no mark that it could be known by, and a header of these numbers may be one of 8 x 3 pixels."""
    size, depth, flags, milliseconds = 0x20000, 8, 3, 24
    header = struct.pack("<IHHHHHHI", size, 0xAF12, 1, 32, 20, depth, flags, milliseconds)
    assert "FLI is not read here" in refusal(header.ljust(size, b"\0"))


READ = ["JPEG", "MPO", "PNG", "WEBP", "GIF", "BMP", "DIB", "TIFF", "PPM", "TGA", "JPEG2000"]


@pytest.mark.parametrize("kind", [*READ, pytest.param("AVIF", marks=needs_avif)])
def test_the_usual_formats_are_read(kind: str) -> None:
    options = {"append_images": [Image.new("RGB", (16, 16))], "save_all": True} if kind == "MPO" else {}
    content = saved(np.full((16, 16, 3), 200, np.uint8), kind, **options)
    assert Image.open(io.BytesIO(content)).format == kind
    assert decode(content).size == (16, 16)


def test_names_are_those_of_the_formats_that_are_read() -> None:
    assert {".jpg", ".jpeg", ".mpo", ".png", ".webp", ".gif", ".bmp", ".tif", ".ppm", ".tga"} <= readable_names()
    assert not {".fits", ".psd", ".ico", ".qoi", ".pcx", ".sgi", ".dds", ".eps", ".pdf", ".txt"} & readable_names()


def tiff_with(offsets: dict[int, int] | int, rows: int, planes: int = 1) -> bytes:
    """32 x 32 in RGB, uncompressed, of strips of so many rows, whose table is cut to a length or has other entries."""
    pixels = np.random.default_rng(0).integers(1, 255, (32, 32, 3), dtype=np.uint8)
    data = pixels.transpose(2, 0, 1).tobytes() if planes == 2 else pixels.tobytes()
    count = -(-32 // rows) * (3 if planes == 2 else 1)
    size = len(data) // count
    starts = [8 + size * strip for strip in range(count)]
    if isinstance(offsets, int):
        starts = starts[:offsets]
    else:
        starts = [offsets.get(strip, start) for strip, start in enumerate(starts)]
    tags = {256: [32], 257: [32], 258: [8, 8, 8], 259: [1], 262: [2], 273: starts, 277: [3], 278: [rows]}
    tags |= {279: [size] * len(starts), 284: [planes]}
    place = 8 + len(data)
    table, beyond = struct.pack("<H", len(tags)), b""
    behind = place + 2 + 12 * len(tags) + 4
    for tag, values in sorted(tags.items()):
        packed = struct.pack(f"<{len(values)}I", *values)
        inline = packed if len(values) == 1 else struct.pack("<I", behind + len(beyond))
        beyond += b"" if len(values) == 1 else packed
        table += struct.pack("<HHI", tag, 4, len(values)) + inline
    return b"II*\0" + struct.pack("<I", place) + data + table + struct.pack("<I", 0) + beyond


@pytest.mark.parametrize(
    ("offsets", "rows", "planes"), [(1, 32, 2), (2, 32, 2), (1, 16, 1), ({2: 0}, 8, 1), ({1: 0, 2: 0}, 8, 1)]
)
def test_a_tiff_whose_table_leaves_out_strips_is_refused(offsets: dict[int, int] | int, rows: int, planes: int) -> None:
    """Colours were missing, or half of the picture, or the file's own header was shown as pixels."""
    whole = decode(tiff_with({}, rows, planes))
    assert whole.size == (32, 32)
    assert min(low for low, _ in whole.getextrema()) > 0  # type: ignore[misc,union-attr,unused-ignore]
    with pytest.raises(BadData, match="its table of strips or tiles leaves out some of the picture"):
        decode(tiff_with(offsets, rows, planes))
