"""Is what an outsider's module holds still what it was when it was loaded?

A dataset's module lives in the runner's process, where a notebook may reload it, set its variables or patch its
classes. Functions and constants are compared; what the module's own code assigns is a memory, and what is within
lists, dicts and objects may be one.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

from tta_bench.system.data import PLAIN, is_data
from tta_bench.system.described import Description, described
from tta_bench.system.libraries import cells
from tta_bench.system.live import GONE, SILENT, inner
from tta_bench.system.objects import UNTOLD
from tta_bench.system.whose import is_outside

LOOSE = "ttabench_loose_"  # modules of files that have no name of their own
ASSIGNING = {"STORE_GLOBAL", "DELETE_GLOBAL", "STORE_ATTR", "DELETE_ATTR"}


class _Loaded(NamedTuple):
    """A module as it was."""

    held: Mapping[str, Any]
    words: Mapping[str, Any]
    memories: frozenset[str]  # names that its own code assigns


_loaded: dict[str, _Loaded] = {}
_born: dict[str, dict[str, Any]] = {}  # module -> what its variables held when it had just been executed


def remember(module: str) -> None:
    """As it is now, unless that was done when it was loaded."""
    if module not in _loaded and module in sys.modules:
        held = dict(_held(sys.modules[module]))
        functions = [part for part in map(inner, held.values()) if isinstance(part, FunctionType)]
        memories = frozenset(name for function in functions for name in _assigned(function.__code__))
        _loaded[module] = _Loaded(held, {place: _words(value) for place, value in held.items()}, memories)


def note_birth(module: str) -> None:
    _born[module] = dict(_told_variables(module))


def learnt(module: str) -> dict[str, Any]:
    """What its variables hold by now that they did not hold when it had just been executed, memories as well."""
    if module not in _born or module not in sys.modules:
        return {}
    now, born = dict(_told_variables(module)), _born[module]
    return {place: now.get(place, GONE) for place in sorted({**born, **now}) if born.get(place) != now.get(place)}


def _told_variables(module: str) -> Iterator[tuple[str, Any]]:
    """Data, and objects of somebody's own; code counts by its source."""
    for place, value in _held(sys.modules[module]):
        if is_data(value) or is_outside(type(value).__module__):
            words = described(value)
            if UNTOLD not in str(words):  # it would never be the same
                yield place, words


def forget(module: str) -> None:
    """It is loaded anew."""
    _loaded.pop(module, None)


def since_loaded(module: str) -> dict[str, Any]:
    """What is something else by now, by its place."""
    if module not in _loaded or module not in sys.modules:
        return {}
    before, now = _loaded[module], dict(_held(sys.modules[module]))
    places = [place for place in {**before.held, **now} if place.rpartition(".")[2] not in before.memories]
    shown = Path(str(sys.modules[module].__file__)).stem if module.startswith(LOOSE) else module
    return {
        f"{shown}.{place}": _told(now.get(place, GONE))
        for place in sorted(places)
        if _differs(before, place, now.get(place, GONE))
    }


def _held(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """What a module and its own classes hold."""
    for name, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == module.__name__:
            yield from ((f"{name}.{key}", member) for key, member in list(vars(value).items()) if key not in SILENT)
        elif not name.startswith("__") and not isinstance(value, ModuleType):
            yield name, value


def _differs(before: _Loaded, place: str, value: Any) -> bool:
    if place in before.held and _words(value) == before.words[place]:
        known = before.held[place]
        return value is not known and is_data(value) and described(value) != described(known)
    return place in before.held or isinstance(inner(value), FunctionType) or _is_fixed(value)


def _words(value: Any) -> Any:
    """What a value is, as far as it stays that by itself; of anything else its kind."""
    function = inner(value)
    if isinstance(function, FunctionType):
        given = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).items(), *cells(function)]
        return [Description().code(function.__code__), *map(_kind, given)]
    return _kind(value)


def _kind(value: Any) -> Any:
    if isinstance(value, FunctionType):
        return Description().code(value.__code__)
    return described(value) if _is_fixed(value) else type(value).__qualname__


def _told(value: Any) -> Any:
    return described(value) if is_data(value) else _words(value)


def _is_fixed(value: Any) -> bool:
    return all(map(_is_fixed, value)) if isinstance(value, tuple | frozenset) else type(value) in PLAIN


@functools.lru_cache(maxsize=4096)
def _assigned(code: CodeType) -> frozenset[str]:
    own = {step.argval for step in dis.get_instructions(code) if step.opname in ASSIGNING}
    within = [_assigned(constant) for constant in code.co_consts if isinstance(constant, CodeType)]
    return frozenset(own).union(*within)
