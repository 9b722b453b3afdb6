"""What an object holds, wherever Python keeps it: attributes, slots, and what only copying it would tell.

Better like nothing else than taken for another: whoever was written in C may keep what nobody can ask for.
"""

from __future__ import annotations

import copyreg
import functools
import io
import logging
import os
import secrets
import threading
import types
from collections.abc import Iterator, Mapping
from types import MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

from tta_bench.system.data import array_in_words
from tta_bench.system.files import digest
from tta_bench.system.whose import is_of_c

# They hold nothing that a number could depend on, and most can't be looked into.
LOCKS = (type(threading.Lock()), type(threading.RLock()))
SILENT = (io.IOBase, logging.Logger, logging.Handler, *LOCKS)
# Of C, and yet their attributes are all that there is to them, or nothing tells more.
ALL_TOLD = (
    *(types.FrameType, types.GetSetDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType),
    *(MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType),
)
# Of torch's optimisers: whether a warning was given, which a copy forgets.
FORGOTTEN = "_warned_capturable_if_run_uncaptured"
UNTOLD = "like nothing else"
# Of a .npz file that numpy has opened: where it lies, how far it was read, and names that its content tells.
PLACE_OF_ARCHIVE = ("zip", "fid", "f", "files", "_files")


def attributes_of(value: object) -> Iterator[tuple[str, Any]]:
    """By name, from `__dict__` and from slots."""
    kind: Any = type(value)
    yield from ((name, getattr(value, name)) for name in _slots(kind) if hasattr(value, name))
    yield from ((name, held) for name, held in getattr(value, "__dict__", {}).items() if name != FORGOTTEN)


@functools.lru_cache(maxsize=256)  # a tensor's class alone has hundreds of members, none of which is a slot
def _slots(kind: type) -> tuple[str, ...]:
    members = [item for cls in kind.__mro__ for item in vars(cls).items()]
    found = (name for name, member in members if isinstance(member, MemberDescriptorType))
    return tuple(name for name in found if not name.endswith("offset__"))  # an address, of Python's own functions


def hooks_in_place(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """A layer's hooks have numbers that the whole process counts: their order is what counts."""
    found = dict(attributes)
    for name, held in attributes.items():
        whose = name.removesuffix("_with_kwargs").removesuffix("_always_called")
        if whose.endswith("_hooks") and isinstance(held, dict):
            numbers = list(attributes.get(whose) or held)
            found[name] = [[numbers.index(key) if key in numbers else key, hook] for key, hook in held.items()]
    return found


def inside(value: Any, attributes: Mapping[str, Any]) -> Any:
    """What an object keeps where Python does not look, asked for as if to copy it; None if its attributes are all."""
    by_library = copyreg.dispatch_table.get(type(value))
    try:
        parts = value.__reduce_ex__(4) if by_library is None else by_library(value)
    except Exception:  # whoever can't be copied may raise anything
        opaque = any(map(is_of_c, type(value).__mro__[:-1])) and not isinstance(value, ALL_TOLD)
        return None if attributes and not opaque else like_nothing_else()
    if isinstance(parts, str):  # its name
        return parts
    maker, arguments, state, items, pairs = (*parts, None, None, None)[:5]
    return [maker, arguments, None if _is_known(state, attributes) else state, list(items or ()), list(pairs or ())]


def _is_known(state: Any, attributes: Mapping[str, Any]) -> bool:
    """Whether a state is nothing but the attributes, from `__dict__` or a pair of it and the slots."""
    parts = state if isinstance(state, tuple) and len(state) == 2 else (state,)
    if not all(part is None or isinstance(part, dict) for part in parts):
        return False
    named = {name: value for part in parts for name, value in (part or {}).items()}
    return all(name in attributes and attributes[name] is value for name, value in named.items())


def of_pandas(value: Any) -> Iterator[Any]:
    """A series, table or index: names, types, axes and values. What it is made of inside can't be looked into."""
    yield value.name if hasattr(type(value), "name") else None
    columns = hasattr(type(value), "columns")
    yield [_of_dtype(kind) for kind in value.dtypes] if columns else _of_dtype(value.dtype)
    for axis in getattr(value, "axes", ()):
        yield [list(axis.names), [_of_dtype(level.dtype) for level in getattr(axis, "levels", [axis])], axis.tolist()]
    numbers = value.to_numpy()
    yield numbers.tolist() if numbers.dtype == object else array_in_words(numbers)
    yield getattr(value, "attrs", {})


def _of_dtype(kind: Any) -> list[Any]:
    """Categories have codes, which go by their order."""
    categories = getattr(kind, "categories", None)
    return [str(kind)] if categories is None else [str(kind), str(categories.dtype), categories.tolist(), kind.ordered]


def of_archive(value: Any) -> Iterator[Any]:
    """Names and contents of a .npz file, read anew: numpy would refuse objects. Of a closed one nobody reads more."""
    try:
        yield [[name, digest(value.zip.read(name))] for name in value.zip.namelist()]
    except (AttributeError, ValueError):
        yield list(value.files)
    yield {name: held for name, held in attributes_of(value) if name not in PLACE_OF_ARCHIVE}


def learning(array: Any) -> list[Any]:
    """What decides how a tensor is trained, besides its numbers: its gradient, and hooks that are called with it."""
    if not getattr(array, "is_leaf", False):
        return []
    hooks = (getattr(array, name, None) for name in ("_backward_hooks", "_post_accumulate_grad_hooks"))
    return [part for part in (array.grad, *hooks) if part is not None]


def place_in(file: io.IOBase) -> int:
    """How far a file has been read; one that is written to is nobody's memory."""
    try:
        return -1 if file.closed or file.writable() else os.lseek(file.fileno(), 0, os.SEEK_CUR)
    except (OSError, ValueError):
        return -1


def like_nothing_else() -> str:
    """Of what can't be looked into."""
    return f"{UNTOLD}: {secrets.token_hex(8)}"
