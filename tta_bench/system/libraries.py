"""Is what numbers are computed with the libraries' own? A notebook may have put a function of its own into torch."""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any

from tta_bench.system.data import PLAIN
from tta_bench.system.whose import BELOW_LIBRARIES, home_of, is_outside

# Where the functions are that methods, backbones and our own code call: modules, and classes in them.
PLACES = (
    *("torch", "torch.Tensor", "torch.nn.functional", "torch.nn.Module", "torch.linalg", "numpy", "numpy.linalg"),
    *("PIL.Image", "PIL.Image.Image", "PIL.ImageOps", "cv2"),
)
DEPTH = 3  # of wrappers in wrappers
OF_C = (*PLAIN, BuiltinFunctionType)
WRAPPERS = (staticmethod, classmethod, MethodType, property, functools.partial, functools._lru_cache_wrapper)
INNER = ("__func__", "__self__", "fget", "func", "args", "keywords", "__wrapped__")
_sound: dict[str, tuple[Any, ...]] = {}  # place -> what it held when all of it was the library's


def replaced() -> dict[str, Any]:
    """What of the libraries that are loaded is somebody else's, by its place."""
    found: dict[str, Any] = {}
    for place in PLACES:
        held = _held(place)
        values, before = tuple(held.values()), _sound.get(place, ())
        if len(values) == len(before) and all(map(operator.is_, values, before)):
            continue  # nothing has been put there since
        folders = _folders()
        called = {name: value for name, value in held.items() if callable(value) or isinstance(value, WRAPPERS)}
        own = {f"{place}.{name}": value for name, value in called.items() if _is_somebodys(value, folders, DEPTH)}
        found |= own
        if not own:
            _sound[place] = values
    hooks = {name: held for name, held in _global_hooks() if held}
    return found | hooks


def _global_hooks() -> Iterator[tuple[str, dict[Any, Any]]]:
    """That torch calls for every module."""
    place = "torch.nn.modules.module"
    for name, held in vars(sys.modules.get(place, sys)).items():
        if name.startswith("_global_") and name.endswith("_hooks") and isinstance(held, dict):
            yield f"{place}.{name}", held


def _held(place: str) -> dict[str, Any]:
    """A copy: another thread may import something."""
    if place in sys.modules:
        return vars(sys.modules[place]).copy()
    module, _, name = place.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return {} if found is None else dict(vars(found))


def _folders() -> tuple[str, ...]:
    """Where code of libraries is: one of those above may be a checkout."""
    files = (getattr(sys.modules.get(place), "__file__", None) for place in PLACES)
    return (*BELOW_LIBRARIES, *(str(Path(file).parent) for file in files if file))


def _is_somebodys(value: Any, folders: tuple[str, ...], depth: int) -> bool:
    """Told by the functions in it: a wrapper that a library has made of somebody's is somebody's as well."""
    if type(value) in OF_C or not depth:
        return False
    if isinstance(value, FunctionType):
        elsewhere = not value.__code__.co_filename.startswith(folders) and is_outside(home_of(value))
        return elsewhere or any(_is_somebodys(part, folders, depth - 1) for part in cells(value))
    if isinstance(value, WRAPPERS):
        parts: Iterable[Any] = (getattr(value, name, None) for name in INNER)
    elif isinstance(value, tuple | list):
        parts = value
    elif isinstance(value, dict):
        parts = value.values()
    else:
        kind = value if isinstance(value, type) else type(value)
        parts = (vars(kind).get("__init__"), vars(kind).get("__call__"))
    return any(_is_somebodys(part, folders, depth - 1) for part in parts)


def cells(function: FunctionType) -> Iterator[Any]:
    """What a wrapper was made with."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not yet assigned
            continue
