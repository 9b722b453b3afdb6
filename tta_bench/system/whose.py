"""Whose code is it: ours, a library's, or somebody's own?"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path
from types import FunctionType, MethodDescriptorType, WrapperDescriptorType
from typing import Any

from tta_bench.system import distributions

# An environment may see the packages of another one (--system-site-packages, a user's own): libraries as well.
SEEN = [path for path in sys.path if Path(path).name in ("site-packages", "dist-packages")]
LIBRARIES = tuple({*(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")), *SEEN})
BELOW_LIBRARIES = tuple(f"{folder}{os.sep}" for folder in LIBRARIES)
# A class that is made by a call passes as theirs.
MAKERS = ("abc", "builtins", "collections", "dataclasses", "enum", "types", "typing")
MAIN = ("__main__", "__mp_main__")
MADE_BY_PYTHON = 1 << 9  # Py_TPFLAGS_HEAPTYPE: by a class statement, mostly


def package_of(module: object) -> str:
    return str(module).partition(".")[0]


def own_packages(module: str) -> list[str]:
    """What of the libraries counts by its code, because something of somebody's own is from there."""
    package = package_of(module)
    return [] if is_outside(module) or distributions.is_common(package) else [package]


def is_outside(module: object) -> bool:
    """Whether a module is its user's own: neither ours nor a library's. A notebook's has no file, and a script's may
    pass as that of the tool that runs it (`python -m cProfile script.py`)."""
    if not isinstance(module, str) or module.partition(".")[0] in ("tta_bench", "builtins"):
        return False
    if module in MAIN:
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    return module not in sys.builtin_module_names and (file is None or not str(file).startswith(BELOW_LIBRARIES))


def home_of(function: FunctionType) -> str:
    """The module whose variables it uses. `functools.wraps` makes `__module__` another's, and `exec` leaves none."""
    return str(function.__globals__.get("__name__", ""))


def is_another(cls: type) -> bool:
    """Whether a class that says it is a library's or ours is not what has that name there: it was made elsewhere, and
    `functools.update_wrapper`, `exec`, `type` or `dataclasses.make_dataclass` has given it that name."""
    if not cls.__flags__ & MADE_BY_PYTHON or is_of_c(cls):
        return False
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is not cls if cls.__module__ in MAKERS else found is not None and found is not cls


def is_of_c(kind: type) -> bool:
    """Whether a class was written in C, whose objects may keep more than their attributes: a database in memory."""
    return any(isinstance(member, WrapperDescriptorType | MethodDescriptorType) for member in vars(kind).values())
