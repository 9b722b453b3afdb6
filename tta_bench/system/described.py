"""Live code and data in words that are equal when they are equal: what an identity of a notebook's class is made of.

A class that was typed into a notebook has no file, and a file may have been edited since it was imported. So what
counts is what will be executed: the byte code of the functions, their defaults, closures and the names that they use,
followed through everything that is neither ours nor a library's.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import sysconfig
from collections.abc import Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from tta_bench.system.sources import built_in_source, counts

LIBRARIES = tuple({sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")})
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis))


def described(value: object, above: tuple[int, ...] = ()) -> Any:
    """As JSON. `above` are the objects that are being described: a circle ends there."""
    if isinstance(value, PLAIN):
        return repr(value)
    if id(value) in above:
        return "…"
    above = (*above, id(value))
    if isinstance(value, list | tuple):
        return [type(value).__name__, *(described(item, above) for item in value)]
    if isinstance(value, set | frozenset):
        return ["set", *sorted(str(described(item, above)) for item in value)]
    if isinstance(value, Mapping):
        return {str(described(key, above)): described(item, above) for key, item in value.items()}
    array = _array(value)
    if array is not None:
        return array
    if isinstance(value, staticmethod | classmethod):
        return [type(value).__name__, described(value.__func__, above)]
    if isinstance(value, property):
        return ["property", *(described(f, above) for f in (value.fget, value.fset, value.fdel))]
    if isinstance(value, functools.partial):
        return ["partial", *(described(part, above) for part in (value.func, value.args, value.keywords))]
    if isinstance(value, FunctionType):
        return _function(value, above)
    if isinstance(value, type):
        return _class(value, above)
    if isinstance(value, ModuleType | BuiltinFunctionType):
        return f"{getattr(value, '__module__', None)}.{value.__name__}"
    return [described(type(value), above), described(getattr(value, "__dict__", {}), above)]


def is_outside(module: str | None) -> bool:
    """Whether a module is its user's own: neither ours nor a library's. A notebook's has no file."""
    if module is None or module.partition(".")[0] in ("tta_bench", "builtins"):
        return False
    file = getattr(sys.modules.get(module), "__file__", None)
    return module not in sys.builtin_module_names and (file is None or not str(file).startswith(LIBRARIES))


def _array(value: object) -> Any:
    """A numpy array or torch tensor by its content; None for anything else. Neither library is imported for it."""
    for module, name in (("torch", "Tensor"), ("numpy", "ndarray"), ("numpy", "generic")):
        kind = getattr(sys.modules.get(module), name, None)
        if kind is not None and isinstance(value, kind):
            if module == "torch":
                tensor: Any = value
                value = (tensor.float() if tensor.is_floating_point() else tensor).detach().cpu().numpy()
            plain: Any = value
            return [name, str(plain.dtype), list(plain.shape), hashlib.sha256(plain.tobytes()).hexdigest()]
    return None


def _named(thing: Any) -> str:
    """What is ours or a library's, by its name; of ours counts what it says as well."""
    name = f"{thing.__module__}.{thing.__qualname__}"
    return f"{name} {built_in_source(thing.__module__)}" if counts(str(thing.__module__)) else name


def _function(function: FunctionType, above: tuple[int, ...]) -> Any:
    if not is_outside(function.__module__):
        return _named(function)
    used = {name: function.__globals__[name] for name in _names(function.__code__) if name in function.__globals__}
    cells = [cell.cell_contents for cell in function.__closure__ or () if _filled(cell)]
    parts = (function.__defaults__, function.__kwdefaults__, cells, used)
    return ["function", _code(function.__code__, above), *(described(part, above) for part in parts)]


def _filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not None
    except ValueError:  # not yet assigned
        return False


def _names(code: CodeType) -> list[str]:
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _names(constant)]
    return sorted({*code.co_names, *inner})


def _code(code: CodeType, above: tuple[int, ...]) -> Any:
    constants = [_code(c, above) if isinstance(c, CodeType) else described(c, above) for c in code.co_consts]
    return [code.co_code.hex(), constants, list(code.co_names), list(code.co_varnames)]


def _class(cls: type, above: tuple[int, ...]) -> Any:
    if not is_outside(cls.__module__):
        return _named(cls)
    members = {
        name: described(member, above)
        for name, member in vars(cls).items()
        if not name.startswith("_abc") and (not name.startswith("__") or isinstance(member, FunctionType))
    }
    return ["class", cls.__qualname__, members, [described(base, above) for base in cls.__bases__]]
