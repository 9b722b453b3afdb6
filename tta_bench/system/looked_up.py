"""What a function may look up by a name that it puts together, in the module whose variables it uses."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from types import FunctionType
from typing import Any

from tta_bench.system.data import is_data

LOOKING_UP = {"globals", "eval", "exec", "vars", "locals", "__main__"}
ARGUMENTS = {"argv", "parse_args", "parse_known_args"}  # of the script that was started
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
