"""All that is visible of a method at one moment, its own state or not, so that two moments can be compared.

A plugin may keep what it learns in a module's variable, an attribute of its class, a closure or a cache: nothing of
that is in a checkpoint. Whether a run that goes on has it all again is seen by comparing fingerprints, which are the
same in two processes. What can't be looked into is like nothing else: better to begin anew than to go on otherwise.
"""

from __future__ import annotations

import decimal
import gc
import io
import os
import signal
import stat
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path, PurePath
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tta_bench.features import global_rngs
from tta_bench.interfaces import Method, TextEncoder
from tta_bench.system import distributions, loading
from tta_bench.system.compiled import is_compiled
from tta_bench.system.data import PLAIN, array_in_words
from tta_bench.system.described import WRITTEN_BY_PYTHON, Above, Description
from tta_bench.system.files import digest
from tta_bench.system.memory import strides
from tta_bench.system.objects import attributes_of, like_nothing_else, place_in
from tta_bench.system.whose import MAIN, is_outside, own_packages, package_of

RUNNERS = ("tta_bench.runs.", "tta_bench.features.")  # what a method is handed leads there, and it is not the method's
DATA = (*PLAIN, list, dict, set, Tensor, np.ndarray)
MEMORY = "memory that is shared"
# What may differ between two processes if neither changed it: the time of an import, a path, and code that uses it.
FROM_THE_START = (*PLAIN, PurePath, FunctionType, ModuleType, type, staticmethod, classmethod, property)
ENVIRONMENT = "the environment"  # another shell has another one
FIXED = "fixed "


def fingerprint(method: Method, modules: list[str]) -> dict[str, str]:
    """Digests by where something is: in variables of the modules, on the method, on its classes, in the process."""
    look = _Look(own_packages(type(method).__module__))
    seen: dict[str, str] = {}
    for place, value in [*sorted(_places(method, modules), key=_code_comes_last), *_settings()]:
        try:
            kind = FIXED if isinstance(value, FROM_THE_START) or place == ENVIRONMENT else ""
            seen[place] = kind + digest([seen.get(place), look.of(value)])  # a class and its base may have one name
        except Exception:  # a plugin's objects may raise anything, or be nested too deeply
            seen[place] = digest(os.urandom(16))
    # What an extension keeps can't be seen.
    remembering = {f"the extension {name}": like_nothing_else() for name in _own_extensions(look.own)}
    return seen | remembering | {MEMORY: digest(look.memory.shared())}


def nameless_files() -> set[tuple[int, int]]:
    """What this process has open and no path leads to: files that were deleted or never had a name, pipes, sockets."""
    found = set()
    for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208  # names, of which each is a number
        with suppress(OSError):  # one of them was this listing
            seen = os.fstat(number)
            if stat.S_ISFIFO(seen.st_mode) or stat.S_ISSOCK(seen.st_mode) or not seen.st_nlink:
                found.add((seen.st_dev, seen.st_ino))
    return found


def difference(one: Mapping[str, str], other: Mapping[str, str]) -> str:
    """The first place that is not the same; the others may only follow from it. Empty if all are."""
    return next((place for place in {**one, **other} if one.get(place) != other.get(place)), "")


def own_modules() -> list[str]:
    """The modules of the plugin that this process is for: its own, its helpers, its distribution's."""
    with_file = [name for name, module in sys.modules.copy().items() if getattr(module, "__file__", None)]
    return sorted(name for name in with_file if _is_plugins(name) and not _is_runners(name))


def _own_extensions(packages: Collection[str]) -> list[str]:
    """An author's own, that were imported; what comes with a package that offers plugins is the author's, too."""
    own = {name for package in packages for name in distributions.beside(package)}
    modules = [(name, getattr(module, "__file__", None)) for name, module in sys.modules.copy().items()]
    found = [name for name, file in modules if is_compiled(file)]
    return sorted(name for name in found if _is_plugins(name) or package_of(name) in own)


def _places(method: Method, modules: list[str]) -> Iterator[tuple[str, Any]]:
    for module in modules:
        for name, value in sorted(vars(sys.modules[module]).items()):
            if not name.startswith("__"):
                yield f"variable {module}.{name}", value
    for name, value in sorted(attributes_of(method)):
        yield f"attribute {name}", value
    for cls in type(method).__mro__[:-1]:
        for name, value in sorted(vars(cls).items()):
            if name != "_abc_impl" and name not in WRITTEN_BY_PYTHON:
                yield f"class attribute {cls.__module__}.{cls.__qualname__}.{name}", value


def _code_comes_last(place: tuple[str, Any]) -> bool:
    """What functions use is met at its own place before, and is called by its own name."""
    return not isinstance(place[1], DATA)


def _settings() -> list[tuple[str, Any]]:
    """What a step may have changed for the whole process."""
    torchs = [str(torch.get_default_dtype()), torch.get_num_threads(), torch.get_float32_matmul_precision()]
    modes = [torch.are_deterministic_algorithms_enabled(), torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")]
    return [
        ("the process's random numbers", global_rngs.state()),
        ("torch's settings", [*torchs, *modes]),
        ("numpy's settings", np.geterr()),
        ("Python's settings", repr([_decimals(), sys.getrecursionlimit(), _are_denormals_kept()])),
        ("the working folder", _working_folder()),
        ("the rights of new files", _umask()),
        ("the handlers of signals", repr(_handlers())),
        (ENVIRONMENT, dict(os.environ)),
    ]


def _decimals() -> str:
    """How they are computed; the flags only tell what was computed."""
    context = decimal.getcontext().copy()
    context.clear_flags()
    return repr(context)


def _are_denormals_kept() -> bool:
    return sys.float_info.min / 2 > 0


def _working_folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # somebody has removed it
        return ""


def _umask() -> int:
    os.umask(mask := os.umask(0o077))  # it can't be read without being set
    return mask


def _handlers() -> dict[str, str]:
    found = {number: signal.getsignal(number) for number in signal.valid_signals()}
    return {str(number): getattr(how, "__qualname__", repr(how)) for number, how in sorted(found.items())}


def _is_plugins(module: object) -> bool:
    """Whether it is an author's own, also where it lies among the libraries. Some of a library's have no file."""
    return module in loading.loaded() or (is_outside(module) and is_outside(package_of(module)))


def _is_runners(module: str) -> bool:
    """Also the guest's process itself, whose module has other names there; a notebook's has no file."""
    if module not in MAIN:
        return module.startswith(RUNNERS)
    file = getattr(sys.modules.get(module), "__file__", None)
    return file is not None and not loading.is_outside_file(file)


class _Look(Description):
    """Unlike a description of code it looks into what lives: caches, graphs, files that are being read."""

    def __init__(self, own: Collection[str] = ()) -> None:
        super().__init__(own)
        self._words: dict[int, tuple[Any, Any]] = {}  # of an array by its id, with the array, which must not be freed
        self._order_counts = True

    def looks_into(self, module: object) -> bool:
        return _is_plugins(module) or package_of(module) in self.own

    def first(self, value: Any, above: Above) -> Any:
        kind = type(value)
        if isinstance(value, Tensor | np.ndarray):
            return self._array(value, above)
        if isinstance(value, Mapping):
            return self._mapping(value, above)
        if kind is TextEncoder or _is_runners(kind.__module__):
            return kind.__qualname__
        return super().first(value, above)

    def _array(self, array: Any, above: Above) -> Any:
        self.memory.note(array)
        if id(array) not in self._words:
            self._words[id(array)] = (array_in_words(array), array)
        if isinstance(array, Tensor) and not array.is_leaf:  # its graph leads to what no checkpoint has
            return like_nothing_else()
        gradient = array.grad if isinstance(array, Tensor) else None
        more = dict(sorted(attributes_of(array)))
        words = [*self._words[id(array)][0], strides(array), gradient, more]
        return [type(array).__name__, *(self.of(part, above) for part in words)]

    def _mapping(self, value: Mapping[Any, Any], above: Above) -> Any:
        items = [[self.of(key, above), self.of(item, above)] for key, item in value.items()]
        ordered = items if self._order_counts else sorted(items, key=str)
        return [type(value).__name__, *ordered, *self.more(value, above)]

    def thing(self, value: Any, above: Above) -> Any:
        kind = type(value).__name__
        match value:
            case torch.optim.Optimizer():  # loading its state puts its settings into another order
                before, self._order_counts = self._order_counts, False
                try:
                    return super().thing(value, above)
                finally:
                    self._order_counts = before
            case ContextVar():
                return [kind, self.of(value.get(None), above)]
            case io.IOBase() if not isinstance(value, io.BytesIO | io.StringIO):
                return [kind, place_in(value)]
            case threading.Thread() | Executor():  # what it is about to do can't be seen
                return like_nothing_else()
        if kind == "_lru_cache_wrapper":
            return [kind, self.of(gc.get_referents(value), above)]
        if kind == "_lru_list_elem":  # a link in such a cache, whose content is told beside it
            return kind
        return super().thing(value, above)
