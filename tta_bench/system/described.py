"""Live code and data in words that are equal when they are equal: what an identity of a notebook's class is made of.

A class that was typed into a notebook has no file, and a file may have been edited since it was imported. So what
counts is what will be executed: the byte code of the functions, their defaults, closures and the names that they use,
followed through everything that is neither ours nor a library's. Two runs that differ must never be taken for one, so
what can't be looked into is like nothing else.
"""

from __future__ import annotations

import copyreg
import dis
import functools
import gc
import inspect
import io
import logging
import os
import secrets
import sys
import threading
import types
import weakref
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GeneratorType,
    MemberDescriptorType,
    MethodDescriptorType,
    MethodType,
    ModuleType,
    WrapperDescriptorType,
)
from typing import Any

from tta_bench.system import compiled, distributions, looked_up
from tta_bench.system.data import PLAIN, array_in_words, is_array, is_data
from tta_bench.system.memory import Memory
from tta_bench.system.sources import absolute, built_in_source, counts
from tta_bench.system.whose import home_of, is_another, is_of_c, is_outside, package_of

# They hold nothing that a number could depend on, and most can't be looked into.
LOCKS = (type(threading.Lock()), type(threading.RLock()))
SILENT = (io.IOBase, logging.Logger, logging.Handler, *LOCKS)
# What Python writes into every class, and a dataclass into its own: it says nothing that another member does not say.
WRITTEN_BY_PYTHON = {"__module__", "__doc__", "__dict__", "__weakref__", "__annotations__", "__slots__"}
WRITTEN_BY_PYTHON |= {"__abstractmethods__", "__orig_bases__", "__parameters__", "__firstlineno__"}
WRITTEN_BY_PYTHON |= {"__static_attributes__", "__dataclass_fields__", "__dataclass_params__", "__slotnames__"}
# Of C, and yet their attributes are all that there is to them, or nothing tells more.
ALL_TOLD = (
    *(types.FrameType, types.GetSetDescriptorType, types.ClassMethodDescriptorType, types.MethodWrapperType),
    *(MemberDescriptorType, MethodDescriptorType, WrapperDescriptorType),
)
UNTOLD = "like nothing else"
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
        return self.first(value, (*above, id(value)))

    def stands_once(self, value: object) -> bool:
        return not isinstance(value, (tuple, frozenset, PurePath, *SILENT)) and not is_array(value)

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
        if isinstance(value, Mapping):
            pairs = [
                [self.of(key, above), self.of(item, above)] for key, item in value.items()
            ]  # in order: it may count
            return [type(value).__name__, *pairs, *self.more(value, above)]
        array = array_in_words(value)
        if array is not None:
            self.memory.note(value)
            learning = [self.of(part, above) for part in _learning(value) if part is not None]
            return [self.of(array, above), *self.more(value, above), *learning]
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
        if type(container) in (list, tuple, dict, set, frozenset):
            return []
        if getattr(container, "is_nested", False):  # a tensor whose attributes are torch's count of such tensors
            return []
        more = dict(attributes_of(container))
        if self.looks_into(type(container).__module__):
            more["its class"] = type(container)
        factory = getattr(container, "default_factory", None)
        if factory is not None:
            more["default_factory"] = factory
        return [str(self.of(more, above))] if more else []

    def _wrapper(self, value: Any, above: Above) -> Any:
        inner = ("__func__", "__self__", "fget", "fset", "fdel", "func", "args", "keywords")
        more = vars(value) if isinstance(value, functools.partial) else {}
        return [
            type(value).__name__,
            *(self.of(part, above) for part in (*(getattr(value, n, None) for n in inner), more)),
        ]

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
        cells = [list(_content(cell)) for cell in function.__closure__ or ()]
        if not self.looks_into(home_of(function)):  # one that a library has made holds what it was made with
            return [_named(function), self.of(cells, above)] if cells else _named(function)
        code, names = function.__code__, function.__globals__
        asked = _names(code)
        used = {name: names[name] for name in asked if name in names}
        if looked_up.by_name(asked, names):  # which may be put together
            used |= dict(looked_up.what_it_may_find(names))
        if not looked_up.ARGUMENTS.isdisjoint(asked):
            used["sys.argv"] = sys.argv
        imports = late_imports(code, str(names.get("__package__") or ""))
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
            for name, member in vars(cls).items()
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
        if isinstance(value, io.BytesIO | io.StringIO):  # data that looks like a file
            return [type(value).__name__, repr(value.getvalue()), value.tell()]
        if isinstance(value, io.IOBase) and not is_outside(type(value).__module__):
            return [type(value).__name__, str(getattr(value, "name", "")), place_in(value)]
        if isinstance(value, PurePath):  # it keeps what it was asked for
            return [type(value).__name__, str(value)]
        if isinstance(value, GeneratorType):
            return ["generator", self.code(value.gi_code, above), self.generator(value, above)]
        if isinstance(value, weakref.ref):
            return ["weakref", self.of(value(), above)]
        if isinstance(value, SILENT) and not is_outside(type(value).__module__):
            return f"{type(value).__module__}.{type(value).__qualname__}"
        if isinstance(value, threading.local):
            return ["threading.local", self.of(vars(value), above)]
        if type(value).__name__ == "ufunc":  # of numpy, made of somebody's function
            return [value.__name__, self.of(gc.get_referents(value), above)]
        if type(value).__name__ == "_lru_cache_wrapper" and self.looks_into(getattr(value, "__module__", None)):
            self.caches.append(value)
        attributes = dict(sorted(attributes_of(value), key=lambda named: str(named[0])))
        if isinstance(value, PLAIN):  # of a class of its own
            kind: Any = next(kind for kind in PLAIN if isinstance(value, kind))
            attributes["value"] = kind.__repr__(value)
        try:
            inside = _inside(value, attributes)
        except Exception:  # whoever can't be copied may raise anything
            opaque = any(map(is_of_c, type(value).__mro__[:-1])) and not isinstance(value, ALL_TOLD)
            told = attributes and not opaque
            inside = None if told else like_nothing_else()
        code = self._compiled(getattr(value, "__module__", None)) if callable(value) else ""  # a function of Cython's
        return [self.of(type(value), above), self.of(attributes, above), self.of(inside, above), *filter(None, [code])]


def _learning(array: Any) -> Iterator[Any]:
    """What decides how a tensor is trained, besides its numbers: its gradient, and hooks that are called with it."""
    if getattr(array, "is_leaf", False):
        yield array.grad
        yield from (getattr(array, name, None) for name in ("_backward_hooks", "_post_accumulate_grad_hooks"))


def _written_beside(cls: type) -> Iterator[Any]:
    """What somebody may have written for code to read: of a dataclass's fields, and beside the types."""
    fields = vars(cls).get("__dataclass_fields__", {})
    yield from (metadata for field in fields.values() if (metadata := dict(field.metadata)))
    if isinstance(notes := vars(cls).get("__annotations__"), dict):  # of C's classes it is something else
        yield from (repr(note) for note in notes.values() if "Annotated" in repr(note))


def place_in(file: io.IOBase) -> int:
    """How far a file has been read; one that is written to is nobody's memory."""
    try:
        return -1 if file.closed or file.writable() else os.lseek(file.fileno(), 0, os.SEEK_CUR)
    except (OSError, ValueError):
        return -1


def like_nothing_else() -> str:
    """Of what can't be looked into."""
    return f"{UNTOLD}: {secrets.token_hex(8)}"


def attributes_of(value: object) -> Iterator[tuple[str, Any]]:
    """By name, from `__dict__` and from slots."""
    kind: Any = type(value)
    yield from ((name, getattr(value, name)) for name in _slots(kind) if hasattr(value, name))
    yield from getattr(value, "__dict__", {}).items()


@functools.lru_cache(maxsize=256)  # a tensor's class alone has hundreds of members, none of which is a slot
def _slots(kind: type) -> tuple[str, ...]:
    members = [item for cls in kind.__mro__ for item in vars(cls).items()]
    return tuple(name for name, member in members if isinstance(member, MemberDescriptorType))


def _inside(value: Any, attributes: Mapping[str, Any]) -> Any:
    """What an object of a library keeps where Python does not look: asked for as if to copy it."""
    by_library = copyreg.dispatch_table.get(type(value))
    parts = value.__reduce_ex__(4) if by_library is None else by_library(value)
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


def late_imports(code: CodeType, package: str) -> dict[str, str]:
    """Modules that a function of somebody's own imports when it is called, with digests of what that will be."""
    from tta_bench.system import loading  # which stands on this

    found: dict[str, str] = {}
    constants: list[Any] = [None, None]  # those loaded last: the level and the names, before each import
    for step in dis.get_instructions(code):
        if step.opname == "LOAD_CONST":
            constants = [constants[1], step.argval]
        elif step.opname == "IMPORT_NAME":
            level = constants[0] if isinstance(constants[0], int) else 0
            names = constants[1] if isinstance(constants[1], tuple) else ()
            base = absolute(level, step.argval, package)
            candidates = (base, *(f"{base}.{name}" for name in names))
            found |= {name: seen for name in candidates if (seen := loading.import_digest(name))}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= late_imports(constant, package)
    return found


def _content(cell: Any) -> Iterator[Any]:
    """What a closure's cell holds; nothing if it is not yet assigned."""
    try:
        yield cell.cell_contents
    except ValueError:
        return


def _names(code: CodeType) -> list[str]:
    """Names that the code uses, and texts in it: one may look a function up by its name."""
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _names(constant)]
    return sorted({*code.co_names, *inner, *(text for text in code.co_consts if isinstance(text, str))})
