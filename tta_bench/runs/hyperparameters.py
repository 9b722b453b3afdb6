"""Hyper-parameters: `--set key=value`, `--preset NAME` or Python values, checked against a method's fields."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import math
import re
import types
import typing
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Literal

import yaml

from tta_bench.errors import PluginError, UnknownName, UsageError
from tta_bench.interfaces import Method
from tta_bench.system.described import described
from tta_bench.system.fields import types_of, unused_default
from tta_bench.system.files import digest
from tta_bench.system.text import visible

PLAIN_NUMBER = re.compile(r"[+-]?[0-9]+")
ODD_NUMBER = re.compile(r"(?<![\w.+-])[+-]?0[0-9]|[0-9]:[0-9]")  # to YAML 010 is 8, and 1:30 is 90, in lists as well
SHOWN = 100  # characters of a value that is refused
Tag = Literal["paper", "default", "tuned"]
# Types of several values, and what a list becomes for them.
SEVERAL: dict[Any, Any] = {list: list, tuple: tuple, set: set, frozenset: frozenset, Sequence: tuple, Collection: tuple}
ANYTHING = (Any, Any)  # what a list or a dict holds whose type does not say it


class Configured(typing.NamedTuple):
    """A method with its hyper-parameters, and where they come from."""

    method: Method
    tag: Tag
    changes: dict[str, str]  # what differs from the defaults, or from the preset that was named
    values: dict[str, Any]  # all hyper-parameters, as plain data
    uncopied: str = ""  # why an instance runs itself and not a copy of it


class Offer(typing.NamedTuple):
    """What a method can be asked for."""

    fields: frozenset[str]
    presets: frozenset[str]
    roles: frozenset[str]  # of its views

    @classmethod
    def of(cls, method: type[Method]) -> Offer:
        fields = frozenset(f.name for f in dataclasses.fields(method))
        return cls(fields, frozenset(method.presets), frozenset(method().recipes))


def build(cls: type[Method], settings: Mapping[str, Any], preset: str | None = None) -> Configured:
    """The method with these settings; texts are read as the field's type wants it."""
    values: dict[str, Any] = {}
    if preset is not None:
        if preset not in cls.presets:
            has = f"It has: {', '.join(cls.presets) or 'none'}."
            raise UnknownName(f"preset of {cls.name}", preset, cls.presets, has)
        values.update(cls.presets[preset])
    _refuse_unused_default(cls)
    hints = types_of(cls)
    fields = [f.name for f in dataclasses.fields(cls) if f.init]
    before = {f.name: _default(f) for f in dataclasses.fields(cls)} | values
    for key, given in settings.items():
        if key not in fields:
            raise UnknownName(f"hyper-parameter of {cls.name}", key, fields, f"It has: {', '.join(fields) or 'none'}.")
        where = f"{cls.name}.{key}"
        values[key] = _coerce(given, hints[key], where) if isinstance(given, str) else _typed(given, hints[key], where)
    method = cls(**values)
    changes = {  # as they were read, 010 is 8 in YAML, and then kept: a method may know better
        key: _shown(kept) for key in settings if not _equal(kept := _kept(method, key, values[key]), before[key])
    }
    if method.name != cls.name:  # tables would take it for another
        raise PluginError(f"method '{cls.name}' gives itself the name '{method.name}' when it is made")
    tag: Tag = "tuned" if changes else "default" if preset is None else "paper"
    known = {f.name for f in dataclasses.fields(cls)}
    passed_on = {name: value for name, value in values.items() if name not in known}  # by a preset, to `__init__`
    return Configured(method, tag, changes, passed_on | values_of(method))


def _kept(method: Method, key: str, given: Any) -> Any:
    """What a method made of a value, as long as it is a value of its kind."""
    kept = getattr(method, key, given)
    return kept if type(kept) is type(given) else given


def of_instance(method: Method) -> Configured:
    """A method that somebody made: what differs from its class's defaults is a change. A copy runs, so that the one
    that was made stays without the state of a run."""
    _refuse_unused_default(type(method))
    values = {f: getattr(method, f.name) for f in dataclasses.fields(method)}
    with flat_enough(method):
        changes = {f.name: _shown(value) for f, value in values.items() if not _equal(value, _default(f))}
        changes |= _given_to_its_init(method)
    uncopied = ""
    try:
        own = copy.deepcopy(method)  # with what it holds: a layer that it trains is state, too
        if _is_another(own, method):
            own, uncopied = copy.copy(method), "a copy would lose a hook or an attribute"
    except Exception as error:  # what can't be copied is shared
        own, uncopied = copy.copy(method), f"{type(error).__name__}: {error}"
    return Configured(own, "tuned" if changes else "default", changes, values_of(method), uncopied)


def _given_to_its_init(method: Method) -> dict[str, str]:
    """Of an `__init__` that somebody wrote by hand: arguments that it keeps under their names, unlike its defaults."""
    fields = {f.name for f in dataclasses.fields(method)}
    held = {name: value for name, value in vars(method).items() if name not in fields}
    try:
        arguments = inspect.signature(type(method)).parameters.values()
    except (TypeError, ValueError):  # it tells nobody what it takes
        return {}
    return {a.name: _shown(held[a.name]) for a in arguments if a.name in held and not _equal(held[a.name], a.default)}


@contextmanager
def flat_enough(method: object) -> Iterator[None]:
    """Names what an instance holds and nobody can go through to its end."""
    try:
        yield
    except RecursionError:
        for name, value in vars(method).items():
            try:
                described(value)
            except RecursionError:
                said = f"{getattr(method, 'name', method)}.{name} is nested too deep to be told from another"
                raise UsageError(f"{said}: keep it in flat lists") from None
        raise


def _refuse_unused_default(cls: type[Method]) -> None:
    if found := unused_default(cls):
        raise PluginError(f"method '{cls.name}': {found}")


def settings_for(name: str, fields: Collection[str], settings: Mapping[str, Any]) -> dict[str, Any]:
    """Of a grid's settings those that concern this method: `tda.shots` for one, `shots` for all that have the field.
    A method's name may have a dot, a field's can't."""
    general = {k: v for k, v in settings.items() if "." not in k and k in fields}
    own = {k.rpartition(".")[2]: v for k, v in settings.items() if k.rpartition(".")[0] == name and "." in k}
    return general | own


def attributes_of(method: Method) -> dict[str, Any]:
    """What an instance carries and the record's plain values do not tell: attributes besides its fields, e.g. set by
    an `__init__` of its own, fields that hold objects, whose code counts, and lists that are several fields at once."""
    fields = {f.name for f in dataclasses.fields(method)}
    lists = Counter(id(value) for value in vars(method).values() if type(value) is list)
    return {
        name: value
        for name, value in sorted(vars(method).items())
        if name not in fields or not _plain(value) or lists[id(value)] > 1
    }


def _is_another(own: Method, method: Method) -> bool:
    """Whether a copy is seen not to be what was copied; of what can't be looked into nothing is known."""
    before = attributes_digest(method)
    return before != attributes_digest(own) and before == attributes_digest(method)


def attributes_digest(method: Method) -> str | None:
    """Of what an instance carries; None if that is nothing."""
    carried = attributes_of(method)
    return digest(described(carried)) if carried else None


def _plain(value: object) -> bool:
    """Whether JSON tells all of it."""
    if type(value) in (list, tuple):
        return all(map(_plain, value))  # type: ignore[call-overload]
    return value is None or type(value) in (bool, int, float, str)


def values_of(method: Method) -> dict[str, Any]:
    """The hyper-parameters as plain data, for the record."""
    return {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}


def _shown(value: Any) -> str:
    """A set has another order in every process."""
    return str(sorted(value, key=repr)) if isinstance(value, set | frozenset) else str(value)


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default_factory() if f.default_factory is not dataclasses.MISSING else f.default


def _equal(a: Any, b: Any) -> bool:
    try:
        return bool(a == b)
    except (ValueError, RuntimeError):  # arrays and tensors have no single truth
        return False


def _coerce(text: str, hint: Any, where: str) -> Any:
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
            return kind(_fit(v, str(v), (arguments or ANYTHING)[0], where) for v in value)
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
