"""What a command may write over: its own kind of file, and nothing that it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tta_bench.errors import UsageError

LONGEST_HEADER = 100_000_000  # bytes, of a safetensors file


def refuse_others(output: Path, kind: str, is_one: Callable[[Path], bool]) -> None:
    """A file of another kind may be all that somebody has of it: a corpus' captions, a dataset's labels, a photo."""
    empty = output.is_file() and output.stat().st_size == 0  # as mktemp leaves it
    if output.exists() and not empty and not (output.is_file() and is_one(output)):
        raise UsageError(f"{output} is there and is no {kind}, and is not written over: name another file")


def refuse_inputs(output: Path, inputs: Iterable[Path]) -> None:
    """`inputs`: files, and folders with all that is in them."""
    for each in inputs:
        if output.resolve().is_relative_to(each.resolve()):
            raise UsageError(f"-o {output}: {each} is read here, and nothing is written over it: name another file")


def has_metadata(file: Path, key: str) -> bool:
    """Whether it begins as a safetensors file with that key does, be it whole or not."""
    with file.open("rb") as content:
        length = int.from_bytes(content.read(8), "little")
        return length <= LONGEST_HEADER and f'"{key}"'.encode() in content.read(length)
