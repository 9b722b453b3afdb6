"""Live code and data in words that are equal when they are equal: what an identity of a notebook's class is made of.

A class that was typed into a notebook has no file, and a file may have been edited since it was imported. So what
counts is what will be executed: the byte code of the functions, their defaults, closures and the names that they use,
followed through everything that is neither ours nor a library's. Two runs that differ must never be taken for one, so
what can't be looked into is like nothing else.
"""

from __future__ import annotations

import functools
import gc
import inspect
import io
import re
import sys
import threading
import weakref
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

from tta_bench.system import compiled, distributions, looked_up
from tta_bench.system.data import PLAIN, array_in_words, is_archive, is_array, is_data
from tta_bench.system.files import digest
from tta_bench.system.memory import Memory, strides
from tta_bench.system.objects import (
    SILENT,
    attributes_of,
    hooks_in_place,
    inside,
    learning,
    like_nothing_else,
    of_archive,
    of_pandas,
    place_in,
)
from tta_bench.system.sources import built_in_source, counts
from tta_bench.system.whose import home_of, is_another, is_outside, package_of

# What Python writes into every class, and a dataclass into its own: it says nothing that another member does not say.
WRITTEN_BY_PYTHON = {"__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__slots__"}
WRITTEN_BY_PYTHON |= {"__abstractmethods__", "__orig_bases__", "__parameters__", "__firstlineno__"}
WRITTEN_BY_PYTHON |= {"__static_attributes__", "__dataclass_fields__", "__dataclass_params__", "__slotnames__"}
# Kinds of which everything is told where they are met; a class of somebody's own that is made of one may hold more.
TOLD = (
    *(list, tuple, dict, set, frozenset, staticmethod, classmethod, property, MethodType, functools.partial),
    *(GeneratorType, weakref.ref, threading.local, io.BytesIO, io.StringIO),
)
ADDRESS = re.compile(r" at 0x[0-9a-f]+")
Above = tuple[int, ...]


def described(value: object, own: Collection[str] = ()) -> Any:
    """As JSON. `own` are top-level packages that count by their code though they lie among the libraries."""
    description = Description(own)
    words, shared = description.of(value), description.memory.shared()
    return [words, shared] if shared else words


def forget_caches(value: object, own: Collection[str]) -> None:
    """Empties what functions of somebody's own have kept with `functools.cache` of earlier calls."""
    description = Description(own)
    description.of(value)
    for function in description.caches:
        function.cache_clear()


class Description:
    """What may change, or leads elsewhere, stands in it once and is a number from then on: who calls whom is a net, and
    one object in two places is not the same as two that are equal."""

    def __init__(self, own: Collection[str] = ()) -> None:
        self.own = own
        self.memory = Memory()  # of the arrays that were met
        self.caches: list[Any] = []  # of functions that were met
        self._met: dict[int, tuple[str, object]] = {}  # by id, with the object itself: ids of the dead are used again

    def of(self, value: object, above: Above = ()) -> Any:
        """`above` are the objects that are being described: a circle ends there."""
        if type(value) in PLAIN:
            return repr(value)
        if id(value) in self._met:
            return self._met[id(value)][0]
        if id(value) in above:
            return "…"
        if self.stands_once(value):
            self._met[id(value)] = (f"#{len(self._met)}", value)
        if is_archive(value):  # here, because those who look elsewhere into what lives take it for a mapping
            return [self.of(type(value), above), *(self.of(part, above) for part in of_archive(value))]
        return self.first(value, (*above, id(value)))

    def has_met(self, value: object) -> bool:
        return self._met.get(id(value), ("", None))[1] is value

    def stands_once(self, value: object) -> bool:
        return not issubclass(type(value), (tuple, frozenset, PurePath, *SILENT)) and not is_array(value)

    def is_another(self, cls: type) -> bool:
        return is_another(cls)

    def looks_into(self, module: object) -> bool:
        """Whether what is in a module counts, and not only its name."""
        return is_outside(module) or package_of(module) in self.own

    def first(self, value: Any, above: Above) -> Any:
        if isinstance(value, list | tuple):
            return [type(value).__name__, *(self.of(item, above) for item in value), *self.more(value, above)]
        if isinstance(value, set | frozenset):
            return ["set", *self._members(value, above), *self.more(value, above)]
        if issubclass(type(value), Mapping):  # the value itself may refuse to say what it is
            pairs = [
                [self.of(key, above), self.of(item, above)] for key, item in list(value.items())
            ]  # in order: it may count
            return [type(value).__name__, *pairs, *self.more(value, above)]
        array = array_in_words(value)
        if array is not None:
            self.memory.note(value)
            words = [self.of(type(value), above), self.of(array, above), strides(value)]
            return [*words, *self.more(value, above), *(self.of(part, above) for part in learning(value))]
        if isinstance(value, FunctionType):
            return self._function(value, above)
        if isinstance(value, type):
            return self._class(value, above)
        if isinstance(value, ModuleType):
            return self._module(value, above)
        if isinstance(value, BuiltinFunctionType):
            return self._built_in_function(value, above)
        if isinstance(value, staticmethod | classmethod | property | functools.partial | MethodType):
            return self._wrapper(value, above)
        return self.thing(value, above)

    def _members(self, value: Collection[Any], above: Above) -> list[str]:
        """Sorted by what they say, and then told as those which they are; but none may have a number that depends on
        the order of those that say the same."""
        said = sorted(((str(type(self)(self.own).of(item, above)), item) for item in value), key=lambda pair: pair[0])
        words = [word for word, _ in said]
        alike = len(set(words)) < len(words) and not any(id(item) in self._met for _, item in said)
        return words if alike else sorted(str(self.of(item, above)) for _, item in said)

    def more(self, container: Any, above: Above) -> list[str]:
        """What a container of somebody's own has besides its items: its code, and attributes."""
        if type(container) in TOLD:
            return []
        kind = type(container)  # is asked first: attributes of somebody's own dictionary may be its keys
        if hasattr(kind, "is_nested") and container.is_nested:  # its attributes are torch's count of such tensors
            return []
        more = dict(attributes_of(container))
        if isinstance(container, PurePath):  # what it was asked for is in its slots
            more = dict(getattr(container, "__dict__", {}))
        if self.looks_into(kind.__module__):
            more["its class"] = kind
        if hasattr(kind, "default_factory") and container.default_factory is not None:
            more["default_factory"] = container.default_factory
        return [str(self.of(more, above))] if more else []

    def _wrapper(self, value: Any, above: Above) -> Any:
        inner = ("__func__", "__self__", "fget", "fset", "fdel", "func", "args", "keywords")
        parts = [getattr(value, name, None) for name in inner]
        parts += [vars(value)] if isinstance(value, functools.partial) else []
        return [type(value).__name__, *(self.of(part, above) for part in parts), *self.more(value, above)]

    def _built_in_function(self, value: BuiltinFunctionType, above: Above) -> Any:
        module = getattr(value, "__module__", None)
        code = self._compiled(module)
        name = f"{module}.{value.__qualname__}{_installed(module)}{code}"
        bound = value.__self__
        nothing_more = bound is None or isinstance(bound, ModuleType | type)
        nothing_more = nothing_more or (bool(code) and type(bound).__name__ == "PyCapsule")  # an address in that code
        return name if nothing_more else [name, self.of(bound, above)]

    def _compiled(self, module: object) -> str:
        """What else counts of whatever an extension of somebody's own holds: its bytes."""
        found = compiled.content(sys.modules.get(str(module))) if self.looks_into(module) else ""
        return f" {found}" if found else ""

    def _function(self, function: FunctionType, above: Above) -> Any:
        cells = [list(held) for held in looked_up.closed_over(function)]
        if not self.looks_into(home_of(function)):  # one that a library has made holds what it was made with
            return [_named(function), self.of(cells, above)] if cells else _named(function)
        code, names = function.__code__, function.__globals__
        asked = looked_up.names(code)
        used = looked_up.used(code, names)
        if looked_up.by_name(asked, names):  # which may be put together
            used |= dict(looked_up.what_it_may_find(names))
        if looked_up.SUBCLASSES in asked:
            used |= looked_up.made_of(names)
        if not looked_up.MODULES_BY_NAME.isdisjoint(asked):
            used |= looked_up.others_modules()
        if not looked_up.ARGUMENTS.isdisjoint(asked):
            used["sys.argv"] = sys.argv
        imports = looked_up.late_imports(code, str(names.get("__package__") or ""))
        noted = {name: note for name, note in function.__annotations__.items() if is_data(note)}
        parts = (
            function.__name__,
            function.__defaults__,
            function.__kwdefaults__,
            cells,
            used,
            function.__dict__,
            imports,
            noted,
        )
        return ["function", self.code(code, above), *(self.of(part, above) for part in parts)]

    def code(self, code: CodeType, above: Above = ()) -> Any:
        constants = [self.code(c, above) if isinstance(c, CodeType) else self.of(c, above) for c in code.co_consts]
        names = [*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars]
        form = [code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount]
        return [code.co_code.hex(), code.co_exceptiontable.hex(), form, constants, names]

    def _class(self, cls: type, above: Above) -> Any:
        if not self.looks_into(cls.__module__) and not self.is_another(cls):
            return _named(cls)
        members = {
            name: name if isinstance(member, MemberDescriptorType) else self.of(member, above)
            for name, member in list(
                vars(cls).items()
            )  # an instance that is looked into may write `__slotnames__` there
            if name != "_abc_impl" and name not in WRITTEN_BY_PYTHON
        }
        kind = f"class{self._compiled(cls.__module__)}"
        bases = [self.of(other, above) for other in (*cls.__bases__, type(cls))]
        return [kind, cls.__qualname__, members, bases, *(self.of(part, above) for part in _written_beside(cls))]

    def _module(self, module: ModuleType, above: Above) -> Any:
        if not self.looks_into(module.__name__):
            return f"{module.__name__}{_installed(module.__name__)}"
        live = {name: value for name, value in sorted(vars(module).items()) if not name.startswith("__")}
        return [f"module{self._compiled(module.__name__)}", self.of(live, above)]

    def generator(self, value: GeneratorType[Any, Any, Any], above: Above) -> Any:
        """Under way, it holds iterators where nobody can look."""
        under_way = inspect.getgeneratorstate(value) not in (inspect.GEN_CREATED, inspect.GEN_CLOSED)
        return like_nothing_else() if under_way else self.of(inspect.getgeneratorlocals(value), above)

    def thing(self, value: Any, above: Above) -> Any:
        kind = type(value)
        if (kind.__module__, kind.__name__) == ("torch._C", "Generator"):  # its attribute is an address
            return [kind.__name__, str(value.device), digest(value.get_state().cpu().numpy().tobytes())]
        is_pandas = package_of(kind.__module__) == "pandas"
        is_column = hasattr(kind, "to_numpy") and (hasattr(kind, "dtype") or hasattr(kind, "dtypes"))  # no moment
        if is_pandas and is_column:
            return [kind.__name__, *(self.of(part, above) for part in of_pandas(value))]
        content = self.content(value, above)
        if content is not None:
            return [kind.__name__, content, *self.more(value, above)]
        if issubclass(kind, SILENT) and not is_outside(kind.__module__):
            return f"{kind.__module__}.{kind.__qualname__}"
        if kind.__name__ == "ufunc":  # of numpy, made of somebody's function
            return [value.__name__, self.of(gc.get_referents(value), above)]
        if kind.__name__ == "_lru_cache_wrapper" and self.looks_into(getattr(value, "__module__", None)):
            self.caches.append(value)
        attributes = dict(sorted(attributes_of(value), key=lambda named: str(named[0])))
        if is_pandas:  # what a period was asked for stays with it
            attributes.pop("_cache", None)
        if isinstance(value, PLAIN):  # of a class of its own
            plain: Any = next(plain for plain in PLAIN if isinstance(value, plain))
            attributes["value"] = plain.__repr__(value)
        code = self._compiled(getattr(value, "__module__", None)) if callable(value) else ""  # a function of Cython's
        parts = (kind, hooks_in_place(attributes), inside(value, attributes))
        return [*(self.of(part, above) for part in parts), *filter(None, [code])]

    def content(self, value: Any, above: Above) -> Any:
        """Of what keeps it where neither attributes nor a copy would tell it rightly; None of anything else."""
        if isinstance(value, io.BytesIO | io.StringIO):  # data that looks like a file
            return [repr(value.getvalue()), value.tell()]
        if issubclass(type(value), io.IOBase) and not is_outside(type(value).__module__):
            return [str(getattr(value, "name", "")), place_in(value)]
        if isinstance(value, PurePath):  # it keeps what it was asked for
            return str(value)
        if isinstance(value, CodeType):
            return self.code(value, above)
        if isinstance(value, GeneratorType):
            return [self.code(value.gi_code, above), self.generator(value, above)]
        if type(value).__name__ == "Pattern" and hasattr(value, "flags"):  # compiled as Python's hashes happen to be
            return self.of([value.pattern, value.flags, getattr(value, "named_lists", {})], above)
        if isinstance(value, weakref.ref):
            return [self.of(value(), above)]
        if isinstance(value, threading.local):
            return self.of(vars(value), above)
        return None


def _written_beside(cls: type) -> Iterator[Any]:
    """What somebody may have written for code to read: of a dataclass's fields, and the types, by which it may cast."""
    fields = vars(cls).get("__dataclass_fields__", {})
    yield from (metadata for field in fields.values() if (metadata := dict(field.metadata)))
    notes = vars(cls).get("__annotations__")
    if notes and isinstance(notes, dict):  # of C's classes it is something else, and whoever asks for it makes one
        yield {name: ADDRESS.sub("", repr(note)) for name, note in notes.items()}


def _named(thing: Any) -> str:
    """What is ours or a library's, by its name; of ours counts what it says as well. A function that a library has made
    for somebody's class (`__repr__` of a dataclass) has that one's name, and is the library's all the same."""
    name = f"{thing.__module__}.{thing.__qualname__}"
    home = home_of(thing) if isinstance(thing, FunctionType) else str(thing.__module__)
    return f"{name} {built_in_source(home)}" if counts(home) else f"{name}{_installed(home)}"


def _installed(module: object) -> str:
    """What else counts of something of a library's: what its distribution holds, unless ttabench needs it itself."""
    found = distributions.content(package_of(module))
    return f" {found}" if found else ""
