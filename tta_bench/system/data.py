"""Plain data: numbers, texts and arrays, and what is made of these."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Mapping
from typing import Any

PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))
ARRAYS = (("torch", "Tensor"), ("numpy", "ndarray"), ("numpy", "generic"))
DEPTH = 10  # of data in data


def is_data(value: object, depth: int = DEPTH) -> bool:
    if type(value) in PLAIN:
        return True
    if is_archive(value):  # which may be closed
        return True
    if issubclass(type(value), Mapping):  # the value itself may refuse to say what it is
        pairs: Any = value
        value = [*pairs.keys(), *pairs.values()]
    if isinstance(value, list | tuple | set | frozenset):
        return depth > 0 and all(is_data(item, depth - 1) for item in value)
    return is_array(value)


def is_array(value: object) -> bool:
    kinds = (getattr(sys.modules.get(module), name, ()) for module, name in ARRAYS)
    return any(isinstance(value, kind) for kind in kinds)


def is_archive(value: object) -> bool:
    """Whether it is what numpy makes of a .npz file: a mapping whose arrays are read when they are asked for."""
    return issubclass(type(value), getattr(sys.modules.get("numpy.lib.npyio"), "NpzFile", ()))


def array_in_words(value: object) -> list[Any] | None:
    """A numpy array or torch tensor by its content; None for anything else. Neither library is imported for it."""
    for module, name in ARRAYS:
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(value, kind):
            array: Any = value
            beside = getattr(array.dtype, "metadata", None)  # of numpy's, for code to read
            dtype = f"{array.dtype} {beside}" if beside else str(array.dtype)
            if module == "torch" and array.is_nested:
                return [f"nested {name}", dtype, *(array_in_words(part) for part in array.unbind())]
            if module == "torch" and array.is_meta:
                return [f"meta {name}", dtype, list(array.shape)]  # there is nothing in it
            if module == "torch":
                dense = array.detach().dequantize() if array.is_quantized else array.detach().to_dense()
                plain = dense.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
                plain = plain.as_strided(plain.shape, (1,))  # a single number may keep the step of its column
                content = plain.view(sys.modules["torch"].uint8).numpy()  # bfloat16 is unknown to numpy
                name = f"{name} with a gradient" if array.requires_grad else name
            elif array.dtype.hasobject:  # its bytes are addresses
                return [name, dtype, list(array.shape), array.tolist()]
            else:
                content = array.tobytes()
            return [name, dtype, list(array.shape), hashlib.sha256(content).hexdigest()]
    return None
