"""The fields of a dataclass: of which type they are, and whether a class's own defaults are used."""

from __future__ import annotations

import dataclasses
from typing import Any, get_type_hints


def types_of(cls: type) -> dict[str, Any]:
    """The type of each annotated name; `Any` for one that only type checkers can know."""
    try:
        return get_type_hints(cls)
    except Exception:  # whatever an annotation may raise: each one by itself
        return {name: _type(name, base) for base in reversed(cls.__mro__) for name in _annotated(base)}


def _annotated(cls: type) -> dict[str, Any]:
    found: dict[str, Any] = vars(cls).get("__annotations__", {})
    return found


def _type(name: str, cls: type) -> Any:
    alone = type("Alone", (), {"__annotations__": {name: _annotated(cls)[name]}, "__module__": cls.__module__})
    try:
        return get_type_hints(alone, localns=dict(vars(cls)))[name]
    except Exception:
        return Any


def unused_default(cls: type) -> str:
    """Which field a class without the decorator gives another default, in a sentence: `__init__` is still that of the
    class above, with its default."""
    fields = {f.name for f in dataclasses.fields(cls)}
    for base in cls.__mro__:
        if "__dataclass_fields__" in vars(base) or "__init__" in vars(base):
            return ""
        for name, value in vars(base).items():
            if name in fields and not hasattr(value, "__set__"):  # a property has its own ways
                found = f"{base.__name__} gives {name} another default, which is not used"
                return f"{found}: put @dataclass above the class"
    return ""
