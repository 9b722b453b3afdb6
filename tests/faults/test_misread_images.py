"""Pictures that other decoders refuse or read otherwise than Pillow does: they are refused, not black in silence."""

from __future__ import annotations

import io
import re
import struct
import tracemalloc
import zlib
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from tests.faults.test_images import refusal
from tta_bench.pixels.decode import MAX_SCANS, decode


def png(
    colour_type: int, rows: bytes, *more: tuple[bytes, bytes], size: tuple[int, int] = (4, 4), way: int = 0
) -> bytes:
    """Of 8 bits, with checksums that hold."""
    header = struct.pack(">IIBBBBB", *size, 8, colour_type, 0, 0, way)
    return framed((b"IHDR", header), *more, (b"IDAT", zlib.compress(rows)), (b"IEND", b""))


def framed(*chunks: tuple[bytes, bytes]) -> bytes:
    content = (
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    )
    return b"\x89PNG\r\n\x1a\n" + b"".join(content)


@pytest.mark.parametrize("rows", [1, 3])
def test_a_png_that_ends_before_its_last_row_is_refused(rows: int) -> None:
    row = b"\0" + bytes(range(100, 112))
    assert "end before its last row" in refusal(png(2, row * rows))
    assert decode(png(2, row * 4)).getpixel((3, 3)) == (109, 110, 111)
    assert decode(png(2, row * 4 + b"more")).getpixel((3, 3)) == (109, 110, 111)


def test_an_interlaced_png_has_rows_of_seven_kinds() -> None:
    passes = [(1, 1), (1, 1), (1, 2), (2, 2), (2, 4)]  # rows and columns of those that 4 x 4 pixels have
    rows = b"".join((b"\0" + b"\x50" * columns) * count for count, columns in passes)
    assert np.asarray(decode(png(0, rows, way=1))).min() == 0x50
    assert "end before its last row" in refusal(png(0, rows[:-5], way=1))


def test_a_png_that_has_lost_its_palette_is_refused() -> None:
    rows = b"".join(b"\0" + bytes([0, 1, 1, 0]) for _ in range(4))
    assert "lost its palette" in refusal(png(3, rows))
    assert "palette does not have" in refusal(png(3, rows, (b"PLTE", b"\xff\x80\x40")))
    assert decode(png(3, rows, (b"PLTE", b"\xff\x80\x40" * 2))).getpixel((1, 1)) == (255, 128, 64)


def test_what_a_png_holds_beyond_its_rows_is_not_unpacked() -> None:
    """A file of 2 MB took 4 GB."""
    content = png(2, (b"\0" + bytes(range(12))) * 4 + bytes(100_000_000))
    tracemalloc.start()
    try:
        assert decode(content).size == (4, 4)
        assert tracemalloc.get_traced_memory()[1] < 10_000_000
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("size", [97, 4096])
def test_a_png_may_be_in_many_chunks(size: int) -> None:
    rng = np.random.default_rng(0)
    rows = b"".join(b"\0" + rng.integers(0, 256, 900, np.uint8).tobytes() for _ in range(300))
    whole = zlib.compress(rows)
    for content, sound in ((whole, True), (zlib.compress(rows[:-901]), False)):
        parts = [(b"IDAT", content[at : at + size]) for at in range(0, len(content), size)]
        header = (b"IHDR", struct.pack(">IIBBBBB", 300, 300, 8, 2, 0, 0, 0))
        made = framed(header, *parts, (b"IEND", b""))
        if sound:
            assert decode(made).size == (300, 300)
        else:
            assert re.search("end before its last row|is truncated", refusal(made))


def planar_tiff(bits: int) -> bytes:
    """2 x 1 orange pixels, each colour in a strip of its own, uncompressed."""
    one = bits // 8
    planes = b"".join(struct.pack("<" + "BH"[one - 1] * 2, *[level >> (16 - bits)] * 2) for level in (65535, 32896, 0))
    behind = 8 + 2 + 12 * 10 + 4
    lists = {258: [bits] * 3, 273: [behind + 18 + 2 * one * k for k in range(3)], 279: [2 * one] * 3}
    tags = {256: 2, 257: 1, 258: 0, 259: 1, 262: 2, 273: 0, 277: 3, 278: 1, 279: 0, 284: 2}
    places = {tag: behind + 6 * k for k, tag in enumerate(lists)}
    entries = b"".join(
        struct.pack("<HHII", tag, 3, 3, places[tag]) if tag in lists else struct.pack("<HHIHH", tag, 3, 1, value, 0)
        for tag, value in tags.items()
    )
    listed = b"".join(struct.pack("<3H", *values) for values in lists.values())
    return struct.pack("<2sHI", b"II", 42, 8) + struct.pack("<H", len(tags)) + entries + bytes(4) + listed + planes


def test_16_bit_planes_of_a_tiff_are_refused() -> None:
    """Pillow reads each as if it had 8."""
    assert "colours of 16 bits in planes" in refusal(planar_tiff(16))
    assert decode(planar_tiff(8)).getpixel((1, 0)) == (255, 128, 0)


def test_jpeg_2000_of_more_than_8_bits_is_refused() -> None:
    """Pillow makes its white black."""
    sound, written = cv2.imencode(".jp2", np.full((40, 40, 3), 65_535, np.uint16))
    assert sound
    assert "colours of 16 bits" in refusal(written.tobytes())
    buffer = io.BytesIO()
    Image.new("RGB", (40, 40), "white").save(buffer, "JPEG2000")
    assert decode(buffer.getvalue()).getpixel((9, 9)) == (255, 255, 255)
    size = buffer.getvalue().find(b"\xff\x4f\xff\x51") + 4 + 38
    twelve = bytearray(buffer.getvalue())
    twelve[size] = 11
    assert "colours of 8 and 12 bits" in refusal(bytes(twelve))


def test_jpeg_2000_gray_of_16_bits_is_read() -> None:
    buffer = io.BytesIO()
    Image.fromarray(np.full((40, 40), 0x80FF, np.uint16)).save(buffer, "JPEG2000")
    assert decode(buffer.getvalue()).getpixel((9, 9)) == (0x80, 0x80, 0x80)


def noisy_jpeg(**options: object) -> bytes:
    buffer = io.BytesIO()
    rng = np.random.default_rng(0)
    Image.fromarray(rng.integers(0, 256, (64, 64, 3), np.uint8)).save(buffer, "JPEG", quality=95, **options)
    return buffer.getvalue()


def test_a_jpeg_that_was_transferred_as_text_is_refused() -> None:
    """As by FTP or git: most decode to something."""
    sound = noisy_jpeg()
    assert sound.count(b"\n") > 8
    decode(sound)
    assert "as after a transfer as text" in refusal(sound.replace(b"\n", b"\r\n"))


def test_cmyk_that_does_not_say_what_0_is_is_refused() -> None:
    buffer = io.BytesIO()
    Image.new("CMYK", (16, 16), (0, 0, 0, 0)).save(buffer, "JPEG")
    content = buffer.getvalue()
    decode(content)
    at = content.find(b"\xff\xee")
    unsaid = content[:at] + content[at + 2 + int.from_bytes(content[at + 2 : at + 4]) :]
    assert "0 is no ink or all of it" in refusal(unsaid)


def test_a_jpeg_of_a_thousand_scans_is_refused_before_it_is_decoded() -> None:
    content = noisy_jpeg(progressive=True)
    decode(content)
    last = content[content.rfind(b"\xff\xda") : -2]
    assert f"more than {MAX_SCANS}" in refusal(content[:-2] + last * 1000 + content[-2:])


def test_a_gif_that_leaves_some_of_its_canvas_free_is_refused(tmp_path: Path) -> None:
    """It is transparent there in every browser, and has a colour of the palette here."""
    Image.new("P", (40, 40), 1).save(tmp_path / "a.gif")
    content = bytearray((tmp_path / "a.gif").read_bytes())
    decode(bytes(content))
    content[6:10] = struct.pack("<HH", 80, 80)
    assert "leaves a part of its canvas free" in refusal(bytes(content))


@pytest.mark.parametrize("kind", ["PNG", "TIFF"])
def test_gray_of_16_bits_that_holds_8_is_refused(kind: str) -> None:
    """Levels up to 255 that somebody saved as they were: black, and every such picture alike."""
    levels = np.arange(256, dtype=np.uint16).reshape(16, 16)
    for values, sound in ((levels, False), (levels * 16, False), (levels * 257, True), (levels * 0, True)):
        buffer = io.BytesIO()
        Image.fromarray(values).save(buffer, kind)
        if sound:
            assert np.asarray(decode(buffer.getvalue())).max() == values.max() >> 8
        else:
            assert "of which none is above 4095" in refusal(buffer.getvalue())


@pytest.mark.parametrize(("colour_type", "samples"), [(2, 3), (6, 4), (4, 2)])
def test_colours_of_16_bits_that_hold_8_are_refused(colour_type: int, samples: int) -> None:
    """As cv2.imwrite writes what somebody has made 16 bits of."""
    for highest, sound in ((255, False), (4095, False), (65_535, True)):
        levels = np.full((4, 4, samples), highest, ">u2")
        if samples % 2 == 0:
            levels[..., -1] = 65_535  # seen through nowhere
        rows = b"".join(b"\0" + row.tobytes() for row in levels)
        header = (b"IHDR", struct.pack(">IIBBBBB", 4, 4, 16, colour_type, 0, 0, 0))
        content = framed(header, (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
        if sound:
            assert decode(content).getpixel((0, 0)) == (255, 255, 255)
        else:
            assert "of which none is above 4095" in refusal(content)


def test_a_ppm_of_16_bits_that_holds_8_is_refused() -> None:
    assert "of which none is above 4095" in refusal(b"P6\n4 4\n65535\n" + np.arange(48, dtype=">u2").tobytes())
    decode(b"P6\n4 4\n65535\n" + np.arange(0, 48_000, 1000, dtype=">u2").tobytes())


def test_a_gif_may_be_transparent_beyond_its_palette() -> None:
    image = Image.new("P", (8, 8), 1)
    image.putpalette([255, 0, 0, 0, 0, 255])
    image.putpixel((0, 0), 3)
    buffer = io.BytesIO()
    image.save(buffer, "GIF", transparency=3, optimize=False)
    assert decode(buffer.getvalue()).getpixel((0, 0)) == (255, 255, 255)
    assert decode(buffer.getvalue()).getpixel((5, 5)) == (0, 0, 255)


def test_a_ppm_that_is_text_may_have_any_lines() -> None:
    content = b"P3\r\n4 4\r\n255\r\n" + b"10 20 30\r\n" * 16
    assert decode(content).getpixel((1, 1)) == (10, 20, 30)


def test_a_tiff_that_says_how_far_its_16_bits_go_is_refused() -> None:
    levels = np.arange(0, 16_384, 64, dtype=np.uint16).reshape(16, 16)
    for most, sound in ((16_383, False), (65_535, True), (0, True)):
        buffer = io.BytesIO()
        Image.fromarray(levels).save(buffer, "TIFF", tiffinfo={281: most} if most else {})
        if sound:
            decode(buffer.getvalue())
        else:
            assert "values of 16 bits up to 16383" in refusal(buffer.getvalue())


def pages(*made: Image.Image, **options: object) -> bytes:
    buffer = io.BytesIO()
    made[0].save(buffer, "TIFF", save_all=True, append_images=made[1:], **options)
    return buffer.getvalue()


def test_a_tiff_of_several_pages_is_refused() -> None:
    """As microscopes write the channels of one picture: the first alone was read."""
    whole, other, small = (Image.new("L", size, 99) for size in ((16, 16), (16, 16), (4, 4)))
    assert "a TIFF of several pages" in refusal(pages(whole, other))
    assert decode(pages(whole, small)).getpixel((0, 0)) == (99, 99, 99)  # a preview of it
    assert decode(pages(whole)).size == (16, 16)
    described = {270: "ImageJ=1.53\nimages=3\nchannels=3\n"}
    assert "a stack of pictures" in refusal(pages(whole, tiffinfo=described))
