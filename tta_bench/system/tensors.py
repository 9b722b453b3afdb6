"""Arrays in a safetensors file, read only if they are what was written; tensors of other files. Imports no torch."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tta_bench.errors import BadData
from tta_bench.system.files import file_digest
from tta_bench.system.text import visible

ZIP = b"PK\x03\x04"

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor


def read_tensors(file: Path, written: str | None) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """A file's arrays and its metadata; `written` is its digest, where that is known."""
    from safetensors import safe_open

    try:
        if file.exists() and not file.is_file():
            raise BadData(f"{file} is no file")
        if written is not None and file_digest(file) != written:
            raise BadData(f"{file} is not what was written")
        with safe_open(file, framework="np") as content:
            return {key: content.get_tensor(key) for key in content.keys()}, content.metadata() or {}  # noqa: SIM118
    except BadData:
        raise
    except Exception as error:  # safetensors raises its own type, which is not exported
        raise BadData(f"{file}: can't be read ({getattr(error, 'strerror', None) or error})") from error


def as_safetensors(arrays: Mapping[str, np.ndarray[Any, Any]], metadata: dict[str, str] | None = None) -> bytes:
    """A file of these arrays. The library writes memory as it lies, and says nothing: a part of a larger array would be
    another one when it is read."""
    import numpy as np
    from safetensors.numpy import save

    return save({name: np.ascontiguousarray(array) for name, array in arrays.items()}, metadata)


def refuse_damaged(file: Path) -> None:
    """Raises `BadData` for a file of torch.save or torch.jit.save that is empty, cut short, or not what its own
    checksums are of: torch does not look at these. The format of before torch 1.6, which is no zip, has none."""
    with file.open("rb") as content:
        mark = content.read(len(ZIP))
    if not mark:
        raise BadData(f"{file} is empty")
    if mark != ZIP:
        return
    try:
        with zipfile.ZipFile(file) as archive:
            damaged = archive.testzip()
    except Exception as error:  # what is raised depends on the byte that is broken
        raise BadData(f"{file} is cut short or damaged: get it again") from error
    if damaged is not None:
        raise BadData(
            f"{file} is damaged: {visible(damaged)} in it is not what its checksum is of; get it again (or save it "
            "again, if it was saved with torch's checksums switched off)"
        )


def refuse_special(tensor: Tensor, what: str) -> None:
    """Of what torch calls a tensor, only plain ones hold numbers that can be copied."""
    layout = str(tensor.layout).removeprefix("torch.")
    if tensor.is_quantized:
        kind = "is quantised"
    elif tensor.is_meta:
        kind = "is a meta tensor, which has a shape and no values"
    elif layout != "strided" or tensor.is_nested:
        kind = f"is not a dense one ({'nested' if tensor.is_nested else layout})"
    else:
        return
    raise BadData(f"{what} {kind}: save the state_dict() of the floating-point model, its tensors dense")
