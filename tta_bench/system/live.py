"""Is what this process runs what our files say?

An identity counts our code by its source. A notebook can put something else in its place (`TDA.step = …`,
`metrics.TOLERANCE = 1`), and a file can be edited after it was imported. So each module that makes numbers is executed
a second time, from the very bytes that its digest was made of, and what it then holds is compared with what is there.
"""

from __future__ import annotations

import functools
import operator
import sys
from collections.abc import Collection, Iterator, Mapping
from types import FunctionType, GenericAlias, MemberDescriptorType, ModuleType
from typing import Any

from tta_bench.system import libraries
from tta_bench.system.data import PLAIN
from tta_bench.system.described import WRITTEN_BY_PYTHON, Description
from tta_bench.system.sources import OURS, source_of

FEATURES = ("datasets", "views", "generated", "pixels", "prompts", "backbones", "features", "interfaces")
AFTERWARDS = ("functional", "methods", "runs.replay", "runs.answers", "metrics")
NUMBERS = tuple(f"{OURS}.{room}." for room in (*FEATURES, *AFTERWARDS))
NO_FEATURES = tuple(f"{OURS}.{room}." for room in AFTERWARDS)
SILENT = {"_abc_impl", "__slotnames__", *WRITTEN_BY_PYTHON}  # Python's own, some of them written while it runs
GONE = "gone"
HOLDING: dict[type, str] = {
    **dict.fromkeys((staticmethod, classmethod), "__func__"),
    property: "fget",
    functools.cached_property: "func",
    functools._lru_cache_wrapper: "__wrapped__",
}
CHANGEABLE = (list, dict, set, bytearray)
_asked: dict[int, tuple[Any, Any]] = {}
_sound: dict[str, tuple[tuple[Any, ...], list[Any]]] = {}  # module -> what it held when all of it was as written


def replaced() -> dict[str, Any]:
    """What of our code that makes numbers is something else in this process than its source says, and what of the
    libraries is not their own, by its place."""
    found = libraries.replaced()
    ours = [name for name in tuple(sys.modules) if name.startswith(OURS)]  # one in twenty
    for name in sorted(name for name in ours if f"{name}.".startswith(NUMBERS)):
        held = _held(name)
        inside = [Twice().of(value) for value in held if isinstance(value, CHANGEABLE)]
        before = _sound.get(name)
        if before is not None and before[1] == inside and _is_same(held, before[0]):
            continue  # nothing has been put there since it was found to be as written
        differing = dict(_unlike_source(name))
        found |= differing
        if not differing:
            _sound[name] = (held, inside)
    return found


def making_features(replaced: Mapping[str, Any]) -> dict[str, Any]:
    """Of what is replaced that which features may come out of. Whoever patches a method need not encode again."""
    return {place: value for place, value in replaced.items() if not place.startswith(NO_FEATURES)}


def _is_same(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    return len(one) == len(other) and all(map(operator.is_, one, other))


def _held(name: str) -> tuple[Any, ...]:
    """What a module and its own classes hold."""
    live = [value for key, value in vars(sys.modules[name]).items() if not key.startswith("__")]
    classes = [value for value in live if isinstance(value, type) and value.__module__ == name]
    held = [*live, *(member for cls in classes for key, member in list(vars(cls).items()) if key not in SILENT)]
    for value in tuple(held):
        function = inner(value)
        if type(function) is FunctionType:  # which may become something else in itself
            held += (function.__code__, function.__defaults__, function.__kwdefaults__)
            held += (function.__kwdefaults__ or {}).values()
    return tuple(held)


def _unlike_source(name: str) -> Iterator[tuple[str, Any]]:
    live, written = vars(sys.modules[name]), _as_written(name)
    for key in _compared(live, written) if written else ():
        of_import = key.startswith("__") or isinstance(live.get(key), ModuleType)  # what a package has got since
        if not of_import:
            yield from _differing(f"{name}.{key}", live.get(key, GONE), written.get(key, GONE), name)


@functools.cache
def _as_written(name: str) -> dict[str, Any]:
    """What a module's source makes when it is executed; nothing if there is no source to execute."""
    source, module = source_of(name), sys.modules[name]
    if not source:
        return {}
    again = ModuleType(name)
    again.__dict__.update(__file__=module.__file__, __package__=module.__package__, __spec__=module.__spec__)
    exec(compile(source, str(module.__file__), "exec", dont_inherit=True), vars(again))
    return vars(again)


def _compared(live: Collection[str], written: Collection[str]) -> list[str]:
    return [name for name in dict.fromkeys([*written, *live]) if name not in SILENT]


def _differing(place: str, live: Any, written: Any, module: str) -> Iterator[tuple[str, Any]]:
    """Of a class the members that differ."""
    ours = isinstance(written, type) and written.__module__ == module
    if ours and isinstance(live, type) and (live.__module__, live.__qualname__) == (module, written.__qualname__):
        for name in _compared(vars(live), vars(written)):
            member, own = vars(live).get(name, GONE), vars(written).get(name, GONE)
            yield from _differing(f"{place}.{name}", member, own, module)
    elif not _same(inner(live), inner(written), module):
        yield place, live


def _same(live: Any, written: Any, module: str) -> bool:
    if live is written or isinstance(written, GenericAlias | MemberDescriptorType):
        return True
    if type(live) in PLAIN and type(written) in PLAIN:
        return type(live) is type(written) and repr(live) == repr(written)  # nan is not equal to itself
    if isinstance(written, FunctionType) and written.__module__ == module:
        return isinstance(live, FunctionType) and _words(live) == _words(written)
    return not isinstance(written, type) and bool(_words(live) == _words(written))


class Twice(Description):
    """A class that was made a second time is the same."""

    def is_another(self, cls: type) -> bool:
        return False


def _words(value: Any) -> Any:
    """What a value is; of one that stays as it is, asked for once."""
    if isinstance(value, FunctionType):
        return [value.__code__, *(part and _words(part) for part in (value.__defaults__, value.__kwdefaults__))]
    if isinstance(value, CHANGEABLE):
        return Twice().of(value)
    if id(value) not in _asked:
        _asked[id(value)] = (value, Twice().of(value))  # with the value itself: ids of the dead are used again
    return _asked[id(value)][1]


def inner(value: Any) -> Any:
    """The function in a static method, a property or a cache."""
    holding = HOLDING.get(type(value))
    return getattr(value, holding) if holding else value
