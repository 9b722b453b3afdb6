"""What runs of instances leave in this process, outside of the instances: on classes, in variables, in what these hold.

Whoever begins with something else than the first run in this process did may owe its number to another one: the one
before it, one that was interrupted, a run of another class that shares a variable, the look at a run that was found.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, Self

from tta_bench.interfaces import Method
from tta_bench.system import looked_up
from tta_bench.system.data import PLAIN, array_in_words
from tta_bench.system.described import WRITTEN_BY_PYTHON, Above, Description
from tta_bench.system.objects import attributes_of, inside
from tta_bench.system.whose import own_packages

Place = tuple[int, str]  # an object's id, and which of its variables; or none, for what it holds without names
Content = list[Any]

_at_first: dict[Place, Content] = {}  # of what a run was seen to change: what it was before the first one did
_at_last: dict[Place, Content] = {}  # and after the last one
_held: list[object] = []  # whose ids these are: no other object may have them


class LeftBehind:
    """Around a run: whether it begins with what another one has left, and what it leaves itself."""

    def __init__(self, method: Method) -> None:
        self._method = method
        self.found = False  # something of another run
        self.nothing = False  # is left by this one, as somebody has seen who looks closer

    def __enter__(self) -> Self:
        self._look = _Look(self._method)
        self._before = self._look.contents()
        self.found = any(_is_left(at, now) for at, now in self._before.items() if at in _at_first)
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        if kind is not None or not self.nothing or not _at_first.keys().isdisjoint(self._before):
            self.leaves_something()

    def leaves_something(self) -> bool:
        """So far; and whoever comes next is to know."""
        before, after = self._before, self._look.contents()
        changed = {
            at: before.get(at, []) for at in {**before, **after} if not _same(before.get(at, []), after.get(at, []))
        }
        if changed.keys() - _at_first.keys():
            _held.append(self._look)
        for at, was in changed.items():
            _at_first.setdefault(at, was)
            _at_last[at] = after.get(at, [])
        return bool(changed)


def _is_left(at: Place, now: Content) -> bool:
    """A variable that has a new value since, as by a cell that was run again, has nothing of a run. What holds
    something without names may have grown since, and still hold it."""
    by_name = at[1] != ""
    return not _same(_at_first[at], now) and (not by_name or _same(_at_last[at], now))


class _Look(Description):
    """Everything that a method's class leads to, as far as a description of its code goes."""

    def __init__(self, method: Method) -> None:
        super().__init__(own_packages(type(method).__module__))
        self._reached: dict[int, Any] = {}
        self.of(type(method))

    def first(self, value: Any, above: Above) -> Any:
        self._reached[id(value)] = value
        return super().first(value, above)

    def contents(self) -> dict[Place, Content]:
        return {at: content for value in list(self._reached.values()) for at, content in _contents(value)}


def _contents(value: Any) -> Iterator[tuple[Place, Content]]:
    """Whose replacement changes it, and not what is in that: everything has a place of its own."""
    kind = type(value)
    if isinstance(value, FunctionType):
        names = value.__globals__
        for name, used in looked_up.used(value.__code__, names).items():
            yield (id(names), name), [used]
        for cell in value.__closure__ or ():
            yield (id(cell), "cell"), list(_held_by(cell))
        yield (id(value), ""), [*_items(value.__dict__), value.__defaults__, *_items(value.__kwdefaults__ or {})]
    elif isinstance(value, type | ModuleType):
        for name, member in list(vars(value).items()):
            if name not in WRITTEN_BY_PYTHON and not name.startswith(("__", "_abc_")):
                yield (id(value), name), [member]
    elif (words := array_in_words(value)) is not None:
        yield (id(value), ""), [repr(words)]
    elif issubclass(kind, dict):
        yield (id(value), ""), _items(value)
    elif issubclass(kind, list | set):
        yield (id(value), ""), list(value)
    elif kind not in PLAIN and not issubclass(kind, tuple | frozenset):
        attributes = dict(attributes_of(value))
        parts = inside(value, attributes)
        kept = [*_leaves(parts[1:3]), *_flat(parts[3:])] if isinstance(parts, list) else []
        yield (id(value), ""), [*_items(attributes), *kept]


def _leaves(value: Any, depth: int = 4) -> Iterator[str]:
    """Numbers, texts and arrays by which something of C, as a generator of random numbers, would be made again."""
    if type(value) in PLAIN:
        yield repr(value)
    elif (words := array_in_words(value)) is not None:
        yield repr(words)
    elif depth and type(value) in (list, tuple, dict):
        for part in value.values() if isinstance(value, dict) else value:
            yield from _leaves(part, depth - 1)


def _flat(parts: list[Any]) -> Content:
    """Items and pairs, as of a deque."""
    return [one for part in parts for item in part for one in (item if isinstance(item, tuple) else (item,))]


def _items(mapping: Any) -> Content:
    return [part for pair in list(mapping.items()) for part in pair]


def _held_by(cell: Any) -> Iterator[Any]:
    try:
        yield cell.cell_contents
    except ValueError:  # it is empty yet
        return


def _same(one: Content, other: Content) -> bool:
    """Numbers and texts by what they are, everything else by which it is: what is in that has its own place."""
    return len(one) == len(other) and all(map(_alike, one, other))


def _alike(one: Any, other: Any) -> bool:
    return one is other or (type(one) is type(other) and type(one) in PLAIN and repr(one) == repr(other))
