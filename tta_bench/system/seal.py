"""Seals: a file that is trusted later says what its bytes were and which code wrote them.

They show accidents (a flipped bit, a swapped or half-copied file, code that has changed since) and not intent: whoever
can write a file can seal it as well.
"""

from __future__ import annotations

import re

from tta_bench.errors import BadData
from tta_bench.system.files import digest

# At the end, so that what reads the content by its own format still can.
LINE = re.compile(rb"\nttabench seal 1 ([0-9a-f]{64}) ([0-9a-f]{64})\n")
LENGTH = len(b"\nttabench seal 1  \n") + 2 * 64


def sealed(content: bytes, writer: str) -> bytes:
    """`content` with a last line: a digest of `writer` (whoever may read it again) and one of all bytes."""
    return content + f"\nttabench seal 1 {digest(writer)} {digest(content)}\n".encode()


def opened(content: bytes, writer: str) -> bytes:
    """What was sealed by the same writer. Raises `BadData` that says in a few words why it is not to be trusted."""
    seal = LINE.fullmatch(content[-LENGTH:])
    if seal is None:
        raise BadData("it carries no seal")
    inside = content[:-LENGTH]
    if digest(inside) != seal[2].decode():
        raise BadData("it is not what was written")
    if digest(writer) != seal[1].decode():
        raise BadData("other code or another run wrote it")
    return inside
