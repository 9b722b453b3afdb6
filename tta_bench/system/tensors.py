"""Arrays in a safetensors file, read only if they are what was written; tensors of other files. Imports no torch."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from tta_bench.errors import BadData
from tta_bench.system.files import file_digest

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
