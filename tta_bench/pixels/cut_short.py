"""Zeros where no encoder writes them: a copy that was cut short is as long as it should be, and decodes without a word.

Only JPEG and AVIF show it. Sound WebP files of large flat pictures hold zeros as well, thousands of them at the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

JPEGS = ("JPEG", "MPO")
SHOW_A_CUT = (*JPEGS, "AVIF")  # by Pillow's names
ZEROS = bytes(64)
FEW_ZEROS = bytes(16)  # enough where a file has no end, either
SPACE = b" \t\r\n"  # what an editor or a protocol may have put behind the zeros

SEGMENT = re.compile(rb"\xff+([\x01-\xfe])(..)", re.DOTALL)  # of a JPEG: its marker and how long it is
NEXT_MARKER = re.compile(rb"\xff[^\x00\xd0-\xd7\xff]")  # those left out belong to the scan: stuffed bytes, restarts
TABLES, SCAN, END = b"\xc4", b"\xda", b"\xd9"
AC = 0x10  # in the name of a Huffman table
ALL_COEFFICIENTS, SIXTEEN_ZEROS = 63, 0xF0


def is_cut_short(content: bytes, kind: str | None) -> bool:
    """Whether a file of that format, which could be decoded, holds zeros that show that it is not whole."""
    if kind in JPEGS:
        return _has_no_end(content) or (ZEROS in content and _has_a_hole(content))
    return kind == "AVIF" and ZEROS in content and _data_end_in_zeros(content)


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
