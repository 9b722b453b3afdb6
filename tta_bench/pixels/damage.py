"""Damage that decoders take without a word: a copy that was cut short may be as long as it should be.

Only PNG has checksums for all that is in it. JPEG and AVIF show zeros where no encoder writes them. Sound WebP files of
large flat pictures hold zeros as well, thousands of them at the end.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator, Mapping

JPEGS = ("JPEG", "MPO")
SHOW_DAMAGE = ("PNG", *JPEGS, "AVIF")  # by Pillow's names
CHANGED = "its checksums are not those of what is in it, as in a damaged copy: get it again"
CUT_SHORT = "it holds a stretch of zeros, as a copy that was cut short: get it again"
ZEROS = bytes(64)
FEW_ZEROS = bytes(16)  # enough where a file has no end, either
SPACE = b" \t\r\n"  # what an editor or a protocol may have put behind the zeros

PNG_SIGNATURE, LAST_CHUNK = b"\x89PNG\r\n\x1a\n", b"IEND"

SEGMENT = re.compile(rb"\xff+([\x01-\xfe])(..)", re.DOTALL)  # of a JPEG: its marker and how long it is
NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # those left out belong to the scan: stuffed bytes, restarts
TABLES, SCAN, END = b"\xc4", b"\xda", b"\xd9"
AC = 0x10  # in the name of a Huffman table
ALL_COEFFICIENTS, SIXTEEN_ZEROS = 63, 0xF0


def damage(content: bytes, kind: str) -> str:
    """What shows that a file of that format, which could be decoded, is not whole; nothing if nothing does."""
    if kind == "PNG":
        return "" if _checksums_hold(content) else CHANGED
    if kind in JPEGS:
        cut = _has_no_end(content) or (ZEROS in content and _has_a_hole(content))
    else:
        cut = kind == "AVIF" and ZEROS in content and _data_end_in_zeros(content)
    return CUT_SHORT if cut else ""


# ------------------------------------------------------------------------------------------------------------- PNG


def _checksums_hold(content: bytes) -> bool:
    """Of all chunks up to the last, which must be there: Pillow compares none of those that hold the pixels."""
    at, kind = len(PNG_SIGNATURE), b""
    while kind != LAST_CHUNK:
        start, end = at + 4, at + 8 + int.from_bytes(content[at : at + 4])  # of what is summed up: name and data
        kind, at = content[start : start + 4], end + 4
        if at > len(content) or zlib.crc32(content[start:end]) != int.from_bytes(content[end:at]):
            return False
    return True


# ------------------------------------------------------------------------------------------------------------ JPEG


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
