"""Whose code is it, has it changed, and where in it did something go wrong?"""

from __future__ import annotations

import importlib.metadata
import inspect
import sys
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType

from tta_bench.system.files import digest, file_digest

BUILT_IN = "ttabench"


@dataclass(frozen=True)
class Origin:
    """Whose code something is."""

    label: str  # distribution and version, the loose file's name, or "notebook"
    source: str = ""  # digest of the code; empty for a built-in, whose own version counts

    @property
    def built_in(self) -> bool:
        return not self.source


def origin_of(thing: object) -> Origin:
    """Whose code an object is that did not come through the registry: the source of its class counts."""
    cls = type(thing)
    if cls.__module__.startswith("tta_bench."):
        return Origin(f"{BUILT_IN} {importlib.metadata.version(BUILT_IN)}")
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    if file is not None and Path(file).is_file():
        return Origin(Path(file).name, file_digest(Path(file)))
    outside = [c for c in cls.__mro__ if not c.__module__.startswith(("tta_bench.", "builtins", "abc", "typing"))]
    return Origin("notebook", digest([_class_source(c) for c in outside]))


def _class_source(cls: type) -> list[str]:
    """The text of its functions (a notebook knows no text of a whole class), or where none is kept their byte code."""
    functions = sorted((name, f) for name, f in vars(cls).items() if isinstance(f, FunctionType))
    return [cls.__qualname__, *(f"{name}: {_function_source(f)}" for name, f in functions)]


def _function_source(function: FunctionType) -> str:
    try:
        return inspect.getsource(function)
    except (OSError, TypeError):
        return repr(_code(function.__code__))


def _code(code: CodeType) -> tuple[object, ...]:
    constants = [_code(c) if isinstance(c, CodeType) else repr(c) for c in code.co_consts]
    return code.co_code, constants, code.co_names


def own_line(error: BaseException, module_file: str | Path | None) -> str:
    """Where in a plugin's own file an error comes from: "my_method.py, line 17"; "" if it never was there.

    That is the innermost frame in that file: what the author can look at, wherever the library below it gave up.
    """
    if module_file is None:
        return ""
    file, raised = Path(module_file).resolve(), error
    while True:
        frames = traceback.walk_tb(raised.__traceback__)
        lines = [line for frame, line in frames if Path(frame.f_code.co_filename).resolve() == file]
        if isinstance(raised, SyntaxError) and raised.lineno and Path(raised.filename or "").resolve() == file:
            lines.append(raised.lineno)
        if lines:
            return f"{Path(module_file).name}, line {lines[-1]}"
        if raised.__cause__ is None:
            return ""
        raised = raised.__cause__  # somebody has caught it and said it in other words
