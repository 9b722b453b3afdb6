"""What a function uses that is not in it: names, closures, late imports, and what it looks up by a name that it puts
together, in the module whose variables it uses."""

from __future__ import annotations

import dis
import functools
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

from tta_bench.system.data import PLAIN, is_data
from tta_bench.system.sources import absolute
from tta_bench.system.whose import is_outside

LOOKING_UP = {"globals", "eval", "exec", "vars", "locals", "__main__"}
SCRIPTS = {"__main__", "__mp_main__"}
SUBCLASSES = "__subclasses__"
DISPATCHED = {"dispatch_cache", "cache_token"}  # of `functools.singledispatch`
MODULES_BY_NAME = {"import_module", "__import__"}
ARGUMENTS = {"argv", "parse_args", "parse_known_args"}  # of the script that was started
OF_A_MODULE = {"LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL", "DELETE_GLOBAL"}
NOTEBOOKS_OWN = {"In", "Out", "exit", "quit", "get_ipython"}


def by_name(asked: Collection[str], names: Mapping[str, Any]) -> bool:
    """Whether a function that uses these words does so. Many have `modules` that are not Python's."""
    if not LOOKING_UP.isdisjoint(asked):
        return True
    known = ("sys" in asked, *(names.get(name) is sys or names.get(name) is sys.modules for name in asked))
    return "modules" in asked and any(known)


def what_it_may_find(names: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """A module's own functions and classes, and its variables that hold plain data; not what Python and notebooks keep
    there for themselves, which is something else after every cell."""
    for name, value in sorted(names.items()):
        own = not name.startswith("_") and name not in NOTEBOOKS_OWN
        if _is_defined_there(value, names) or (own and is_data(value)):
            yield name, value


def _is_defined_there(value: object, names: Mapping[str, Any]) -> bool:
    if isinstance(value, FunctionType):
        return value.__globals__ is names
    return isinstance(value, type) and value.__module__ == names.get("__name__")


def made_of(names: Mapping[str, Any]) -> dict[str, Any]:
    """The classes that are made of a module's own: Python hands them out in the order in which they came to be."""
    found: dict[str, Any] = {}
    todo = [value for value in names.values() if isinstance(value, type) and is_outside(value.__module__)]
    while todo:
        cls = todo.pop()
        made: list[type] = type.__subclasses__(cls)
        if made and f"{SUBCLASSES} {cls.__qualname__}" not in found:
            found[f"{SUBCLASSES} {cls.__qualname__}"] = made
            todo += made
    return found


def others_modules() -> dict[str, Any]:
    """The code and the plain values of the modules of somebody's own that were imported: one may be asked for by a name
    that is put together. What else they hold may be another thing after every run, and so may the script itself."""
    found = {}
    for name, module in sorted(sys.modules.copy().items()):
        file = getattr(module, "__file__", None)
        if name not in SCRIPTS and isinstance(file, str) and Path(file).is_absolute() and is_outside(name):
            plain = {key: value for key, value in vars(module).items() if type(value) in PLAIN and key[:2] != "__"}
            found[f"import {name}"] = [plain, *_codes(vars(module), name)]
    return found


def _codes(members: Mapping[str, Any], module: str) -> Iterator[CodeType]:
    for value in members.values():
        inner = getattr(value, "fget", None) or getattr(value, "__func__", value)
        if isinstance(inner, FunctionType) and inner.__module__ == module:
            yield inner.__code__
        elif isinstance(inner, type) and inner.__module__ == module:
            yield from _codes(vars(inner), module)


def names(code: CodeType) -> list[str]:
    """All names that the code has, attributes among them, and texts in it: they tell what it may be about to do."""
    return sorted({name for part in _parts(code) for name in (*part.co_names, *_texts(part))})


def used(code: CodeType, module: Mapping[str, Any]) -> dict[str, Any]:
    """What the code uses of its module's variables; and functions and classes whose names are texts in it, as one may
    look them up by these. An attribute is no variable: `self.seed` does not use a `seed` that a loop has set."""
    found = {name: module[name] for part in _parts(code) for name in _variables(part) if name in module}
    texts = {text for part in _parts(code) for text in _texts(part)}
    callables = {text: module[text] for text in texts if isinstance(module.get(text), FunctionType | type)}
    return dict(sorted((callables | found).items()))


@functools.lru_cache(maxsize=4096)
def _variables(code: CodeType) -> frozenset[str]:
    return frozenset(step.argval for step in dis.get_instructions(code) if step.opname in OF_A_MODULE)


def _texts(code: CodeType) -> Iterator[str]:
    return (text for text in code.co_consts if isinstance(text, str))


def _parts(code: CodeType) -> Iterator[CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _parts(constant)


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
            wanted = constants[1] if isinstance(constants[1], tuple) else ()
            base = absolute(level, step.argval, package)
            candidates = (base, *(f"{base}.{name}" for name in wanted))
            found |= {name: seen for name in candidates if (seen := loading.import_digest(name))}
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            found |= late_imports(constant, package)
    return found


def closed_over(function: FunctionType) -> Iterator[Iterator[Any]]:
    """What each cell of a closure holds, but for what Python remembers of earlier calls."""
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        if function.__globals__.get("__name__") != "functools" or name not in DISPATCHED:
            yield held_by(cell)


def held_by(cell: Any) -> Iterator[Any]:
    """What a closure's cell holds; nothing if it is not yet assigned."""
    try:
        yield cell.cell_contents
    except ValueError:
        return
