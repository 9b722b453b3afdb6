"""Damage that decoders take without a word: a copy that was cut short may be as long as it should be.

Only PNG has checksums for all that is in it. JPEG and AVIF show zeros where no encoder writes them. Sound WebP files of
large flat pictures hold zeros as well, thousands of them at the end.
"""

from __future__ import annotations

import itertools
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping

JPEGS = ("JPEG", "MPO")
CHANGED = "its checksums are not those of what is in it, as in a damaged copy: get it again"
CUT_SHORT = "it holds a stretch of zeros, as a copy that was cut short: get it again"
AS_TEXT = "every line feed in it stands behind a carriage return, as after a transfer as text: get it again as binary"
TOO_FEW = "its pixels end before its last row: it was not written to its end"
NO_PALETTE = "it has lost its palette: get it again"
TEXT_PPM = (b"P1", b"P2", b"P3")
LINES = 8  # by chance, that many line feeds stand so in one of 256 ** 8 files
ZEROS = bytes(64)
FEW_ZEROS = bytes(16)  # enough where a file has no end, either
SPACE = b" \t\r\n"  # what an editor or a protocol may have put behind the zeros

PNG_SIGNATURE, HEADER, LAST_CHUNK = b"\x89PNG\r\n\x1a\n", b"IHDR", b"IEND"
COLOURS, DATA = b"PLTE", b"IDAT"
SAMPLES = {0: 1, 2: 3, 3: 1, 4: 2, 6: 4}  # by a PNG's colour type
INDEXED = 3
WHOLE = ((0, 0, 1, 1),)  # columns from and rows from, every so many columns and rows
ADAM7 = ((0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2))
AT_ONCE = 1 << 20  # bytes

SEGMENT = re.compile(rb"\xff+([\x01-\xfe])(..)", re.DOTALL)  # of a JPEG: its marker and how long it is
NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # those left out belong to the scan: stuffed bytes, restarts
TABLES, SCAN, END = b"\xc4", b"\xda", b"\xd9"
AC = 0x10  # in the name of a Huffman table
ALL_COEFFICIENTS, SIXTEEN_ZEROS = 63, 0xF0


def damage(content: bytes, kind: str) -> str:
    """What shows that a file of that format, which could be decoded, is not whole; nothing if nothing does."""
    if kind == "PNG":
        return _damage_of_png(content)
    is_text = kind == "PPM" and content[:2] in TEXT_PPM
    if not is_text and (lines := content.count(b"\n")) >= LINES and lines == content.count(b"\r\n"):
        return AS_TEXT
    if kind in JPEGS:
        cut = _has_no_end(content) or (ZEROS in content and _has_a_hole(content))
    else:
        cut = kind == "AVIF" and ZEROS in content and _data_end_in_zeros(content)
    return CUT_SHORT if cut else ""


# ------------------------------------------------------------------------------------------------------------- PNG


def _damage_of_png(content: bytes) -> str:
    """Pillow compares no checksum of what holds the pixels, and takes what is missing for black."""
    chunks: dict[bytes, list[bytes]] = {}
    at = len(PNG_SIGNATURE)
    while LAST_CHUNK not in chunks:
        start, end = at + 4, at + 8 + int.from_bytes(content[at : at + 4])  # of what is summed up: name and data
        at = end + 4
        if at > len(content) or zlib.crc32(content[start:end]) != int.from_bytes(content[end:at]):
            return CHANGED
        chunks.setdefault(content[start : start + 4], []).append(content[start + 4 : end])
    header = chunks[HEADER][0]
    if header[9] == INDEXED and COLOURS not in chunks:
        return NO_PALETTE
    return "" if _has_all_rows(header, chunks.get(DATA, [])) else TOO_FEW


def _has_all_rows(header: bytes, data: Iterable[bytes]) -> bool:
    width, height, bits, colour_type, interlaced = struct.unpack(">IIBBxxB", header[:13])
    wanted = 0
    for left, top, across, down in ADAM7 if interlaced else WHOLE:
        columns, rows = len(range(left, width, across)), len(range(top, height, down))
        wanted += rows * (1 + (columns * bits * SAMPLES[colour_type] + 7) // 8) * bool(columns)
    stream = zlib.decompressobj()
    for part in itertools.chain(data, [b""]):
        while wanted > 0 and (pixels := stream.decompress(part, AT_ONCE)):  # never all of them at once
            wanted -= len(pixels)
            part = stream.unconsumed_tail
    return wanted <= 0


# ------------------------------------------------------------------------------------------------------------ JPEG


def scans_of(content: bytes) -> int:
    return content.count(b"\xff" + SCAN)  # within a scan, a zero follows every 255


def _has_no_end(content: bytes) -> bool:
    return content.rstrip(SPACE).endswith(FEW_ZEROS) and content.rfind(b"\xff" + END) < content.rfind(b"\xff" + SCAN)


def _has_a_hole(content: bytes) -> bool:
    return any(content.find(ZEROS, start, end) >= 0 for start, end in _scans_without_zeros(content))


def _scans_without_zeros(content: bytes) -> Iterator[tuple[int, int]]:
    """Where the scans of the first picture are in which zeros can't go on: a preview or a second one is not decoded."""
    first_symbols: dict[int, int] = {}
    at = 2
    while (segment := SEGMENT.match(content, at)) and segment[1] != END:
        at = segment.start(2) + int.from_bytes(segment[2])
        body = content[segment.end() : at]
        if segment[1] == TABLES:
            first_symbols |= _first_symbols(body)
        elif segment[1] == SCAN:
            marker = NEXT_MARKER.search(content, at)
            end = marker.start() if marker else len(content)
            if _zeros_are_values(body, first_symbols):
                yield at, end
            at = end


def _first_symbols(body: bytes) -> Mapping[int, int]:
    """Of each Huffman table the symbol whose code is all zeros: codes are given out in order, from zero on."""
    found, at = {}, 0
    while at + 17 < len(body):  # the table's name, how many codes there are of 1 to 16 bits, the symbols
        found[body[at]] = body[at + 17]
        at += 17 + sum(body[at + 1 : at + 17])
    return found


def _zeros_are_values(scan: bytes, first_symbols: Mapping[int, int]) -> bool:
    """Whether zeros, read as codes, give every coefficient of a block a value: no picture has many such blocks.

    Optimised tables of flat pictures give that code to the end of a block; then zeros may go on for long. So they may
    in a progressive file's scans of mean values or of further bits.
    """
    count = scan[0] if scan else 0
    if len(scan) != 4 + 2 * count:
        return False
    last, approximation = scan[-2:]
    if last != ALL_COEFFICIENTS or approximation >> 4:
        return False
    symbols = [first_symbols.get(AC | component & 0x0F, 0) for component in scan[2:-3:2]]
    return any(symbol & 0x0F or symbol == SIXTEEN_ZEROS for symbol in symbols)


# ------------------------------------------------------------------------------------------------------------ AVIF


def _data_end_in_zeros(content: bytes) -> bool:
    """Whether the box of compressed data does. An EXIF block may stand last in it and end so: then nothing is known."""
    at = 0
    while content[at + 4 : at + 8] != b"mdat":
        size = int.from_bytes(content[at : at + 4])
        if size < 8:  # behind the last box, or of a kind that stands for something else
            return False
        at += size
    size = int.from_bytes(content[at : at + 4])
    return b"Exif" not in content[:at] and content.endswith(ZEROS, at, at + size if size else len(content))
