"""A hyper-parameter's value: a text that is read, or a Python value, as the field's type wants it."""

from __future__ import annotations

import math
import re
import types
import typing
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import yaml

from tta_bench.errors import UsageError
from tta_bench.system.text import visible

PLAIN_NUMBER = re.compile(r"[+-]?[0-9]+")
ODD_NUMBER = re.compile(r"(?<![\w.+-])[+-]?0[0-9]|[0-9]:[0-9]")  # to YAML 010 is 8, and 1:30 is 90, in lists as well
SHOWN = 100  # characters of a value that is refused
# Types of several values, and what a list becomes for them.
SEVERAL: dict[Any, Any] = {list: list, tuple: tuple, set: set, frozenset: frozenset, Sequence: tuple, Collection: tuple}
ANYTHING = (Any, Any)  # what a list or a dict holds whose type does not say it


def fitted(given: Any, hint: Any, where: str) -> Any:
    """What was given, as a field of this type wants it. Raises `UsageError` that says what is wanted."""
    return _read(given, hint, where) if isinstance(given, str) else _typed(given, hint, where)


def _read(text: str, hint: Any, where: str) -> Any:
    try:
        odd = ODD_NUMBER.search(text) or (":" in text and not text.startswith("{"))
        value = int(text) if PLAIN_NUMBER.fullmatch(text) else text if odd else yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError):  # a date or a number that can't be, too many brackets
        value = text
    if isinstance(value, str):  # YAML reads 1e-3 as text
        try:
            value = float(value)
        except ValueError:
            value = text
    return _fit(value, text, hint, where)


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond every float
        return False


def _typed(value: Any, hint: Any, where: str) -> Any:
    """A Python value: a list may stand for a tuple, a whole number for a float, numpy's and torch's numbers for
    Python's; objects are for fields of another type."""
    plain: Any = _number(value)
    if hint is Any:
        return plain
    if isinstance(value, list | tuple | set | frozenset):
        plain = [_number(part) for part in value]
    elif isinstance(value, Mapping):
        plain = {key: _number(part) for key, part in value.items()}
    parts = list(plain.values()) if isinstance(plain, dict) else plain if isinstance(plain, list) else [plain]
    if _takes_plain(hint) or all(isinstance(part, bool | int | float | str) for part in parts):
        kept = set(plain) if isinstance(value, set | frozenset) else plain
        return _fit(kept, str(tuple(parts) if isinstance(value, tuple) else kept), hint, where)
    return value


def _number(value: Any) -> Any:
    """Python's own number for one of numpy or torch: a record and a table show it as it is."""
    return value.item() if getattr(value, "ndim", None) == 0 and hasattr(value, "item") else value


def _takes_plain(hint: Any) -> bool:
    """Whether a field holds numbers and texts and nothing else, so that an object in it can only be a mistake."""
    if typing.get_origin(hint) is Literal:
        return True
    arguments = [argument for argument in typing.get_args(hint) if argument is not Ellipsis]
    return all(map(_takes_plain, arguments)) if arguments else hint in (bool, int, float, str, types.NoneType)


def _fit(value: Any, text: str, hint: Any, where: str) -> Any:
    """`value` as the field's type wants it, or an error that says what is wanted."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        options = {str(option): option for option in arguments}
        if text not in options:
            raise _refusal(where, text, f"choose one of {', '.join(options)}")
        return options[text]
    if origin in (typing.Union, types.UnionType):
        # What the value is already comes first, and a text last: it may be anything.
        for option in sorted(arguments, key=lambda option: (type(value) is not option, option is str)):
            try:
                return _fit(value, text, option, where)
            except UsageError:
                continue
    if hint is Any:
        return value
    if origin is tuple and isinstance(value, list) and arguments[1:] != (Ellipsis,):
        if len(arguments) == len(value):
            return tuple(_fit(v, str(v), kind, where) for v, kind in zip(value, arguments, strict=True))
    elif kind := SEVERAL.get(origin or hint):
        if isinstance(value, list) or (isinstance(value, set) and kind in (set, frozenset)):
            of_item = (arguments or ANYTHING)[0]
            if of_item is str and any(type(v) in (bool, float, type(None)) for v in value):
                raise _refusal(
                    where, text, "texts are wanted: YAML reads no, null and 1.10 as something else; quote them"
                )
            return kind(_fit(v, str(v), of_item, where) for v in value)
    elif (origin or hint) in (dict, Mapping) and isinstance(value, dict):
        of_key, of_value = arguments or ANYTHING
        return {_fit(k, str(k), of_key, where): _fit(v, str(v), of_value, where) for k, v in value.items()}
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool) and _is_finite(value):
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str:
        return text
    if hint is type(None) and value is None:
        return None
    raise _refusal(where, text, f"{_in_words(hint)} is wanted")


def _refusal(where: str, text: str, what: str) -> UsageError:
    """One line, however wild the value."""
    shown = text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
    return UsageError(f"{where}={visible(shown)}: {what}")


def _in_words(hint: Any) -> str:
    """What a field's type allows, as in "fp32, fp16 or a finite number"."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        return ", ".join(map(str, arguments))
    if origin in (typing.Union, types.UnionType):
        return " or ".join(map(_in_words, arguments))
    known = {float: "a finite number", types.NoneType: "null"}
    kind, name = origin or hint, getattr(hint, "__name__", str(hint))
    shape = "[a, b]" if kind in SEVERAL else "{a: b}" if kind in (dict, Mapping) else name
    return known.get(hint) or f"a value of type {shape}"
