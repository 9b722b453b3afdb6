"""Hyper-parameters: `--set key=value`, `--preset NAME` or Python values, checked against a method's fields."""

from __future__ import annotations

import copy
import dataclasses
import inspect
import typing
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np

from tta_bench.errors import PluginError, UnknownName, UsageError
from tta_bench.interfaces import Method
from tta_bench.runs.values import fitted
from tta_bench.system.data import PLAIN, is_archive
from tta_bench.system.described import Description, described
from tta_bench.system.fields import types_of, unused_default
from tta_bench.system.files import digest
from tta_bench.system.sources import OURS
from tta_bench.system.whose import is_another, own_packages, package_of

Tag = Literal["paper", "default", "tuned"]


class Configured(typing.NamedTuple):
    """A method with its hyper-parameters, and where they come from."""

    method: Method
    tag: Tag
    changes: dict[str, str]  # what differs from the defaults, or from the preset that was named
    values: dict[str, Any]  # all hyper-parameters, as plain data
    uncopied: str = ""  # why an instance runs itself and not a copy of it
    carried: str | None = None  # digest of what it holds, or an instance that was given, besides plain values


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
        values[key] = fitted(given, hints[key], f"{cls.name}.{key}")
    method = cls(**values)
    changes = {  # as they were read, 010 is 8 in YAML, and then kept: a method may know better
        key: _shown(kept) for key in settings if not _equal(kept := _kept(method, key, values[key]), before[key])
    }
    if method.name != cls.name:  # tables would take it for another
        raise PluginError(f"method '{cls.name}' gives itself the name '{method.name}' when it is made")
    tag: Tag = "tuned" if changes else "default" if preset is None else "paper"
    known = {f.name for f in dataclasses.fields(cls)}
    passed_on = {name: value for name, value in values.items() if name not in known}  # by a preset, to `__init__`
    unusual = {f.name: kept for f in dataclasses.fields(cls) if _unusual(kept := getattr(method, f.name), f)}
    carried = digest(described(unusual)) if unusual else None
    return Configured(method, tag, changes, passed_on | values_of(method), carried=carried)


def _kept(method: Method, key: str, given: Any) -> Any:
    """What a method made of a value, as long as it is a value of its kind."""
    kept = getattr(method, key, given)
    return kept if type(kept) is type(given) else given


def of_instance(method: Method) -> Configured:
    """A method that somebody made: what differs from its class's defaults is a change. A copy runs, so that the one
    that was made stays without the state of a run."""
    _refuse_unused_default(type(method))
    built_in = package_of(type(method).__module__) == OURS and not is_another(type(method))
    values = {f: getattr(method, f.name) for f in dataclasses.fields(method)}
    if built_in:
        values = {f: _pythons_number(value) for f, value in values.items()}
    with flat_enough(method):
        changes = {f.name: _shown(value) for f, value in values.items() if not _equal(value, _default(f))}
        changes |= _given_to_its_init(method)
        carried = attributes_digest(method)
    own, uncopied = method, ""
    try:
        twin = copy.deepcopy(method)  # with what it holds: a layer that it trains is state, too
        if attributes_digest(twin) != carried == attributes_digest(method):  # else nothing is known of what it holds
            uncopied = "a copy would lose a hook or an attribute"
        elif _leads_to(twin, method):
            uncopied = "a copy would lead back to it, by a closure, a hook or a registry"
        else:
            own = twin
            for f in values if built_in else ():
                setattr(twin, f.name, _pythons_number(getattr(twin, f.name)))
    except Exception as error:
        uncopied = f"{type(error).__name__}: {error}"
    plain = {f.name: value for f, value in values.items()}
    return Configured(own, "tuned" if changes else "default", changes, plain, uncopied, carried)


def _pythons_number(value: Any) -> Any:
    """For one of numpy's, which a loop over `np.linspace` gives: what is ours does the same with both."""
    if type(value) is tuple:
        return tuple(map(_pythons_number, value))
    return value.item() if isinstance(value, np.number | np.bool_) else value


def _leads_to(twin: Method, original: Method) -> bool:
    """Whether a copy's own code, or what it holds, comes upon the object that it was made of."""
    description = Description(own_packages(type(twin).__module__))
    description.of([type(twin), vars(twin)])
    return description.has_met(original)


@contextmanager
def given_back(configured: Configured) -> Iterator[None]:
    """An instance that runs itself has its attributes back afterwards, as if a copy had run."""
    attributes = vars(configured.method)
    before = dict(attributes)
    try:
        yield
    finally:
        if configured.uncopied:
            attributes.clear()
            attributes.update(before)


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
    fields = {f.name: f for f in dataclasses.fields(method)}
    lists = Counter(id(value) for value in vars(method).values() if type(value) is list)
    return {
        name: value
        for name, value in sorted(vars(method).items())
        if name not in fields or not _plain(value) or lists[id(value)] > 1 or _unusual(value, fields[name])
    }


def attributes_digest(method: Method) -> str | None:
    """Of what an instance carries; None if that is nothing."""
    carried = attributes_of(method)
    return digest(described(carried)) if carried else None


def _plain(value: object) -> bool:
    """Whether JSON tells all of it."""
    if type(value) in (list, tuple):
        return all(map(_plain, value))  # type: ignore[call-overload]
    return value is None or type(value) in (bool, int, float, str)


def _unusual(value: object, field: dataclasses.Field[Any]) -> bool:
    """Whether there are other tuples or lists than the default has, or the type says, or members of an enumeration: the
    record's plain values know no difference."""
    usual = _kinds(_default(field)) or {tuple if "tuple" in str(field.type).lower() else list}
    return not _kinds(value) <= usual


def _kinds(value: Any) -> set[type]:
    """Lists and tuples that a value is made of, and its numbers and texts that are more than that."""
    if issubclass(type(value), Mapping) and not is_archive(value):
        return set().union(*map(_kinds, value.values()))
    if isinstance(value, list | tuple):
        return {type(value)}.union(*map(_kinds, value))
    return {type(value)} if isinstance(value, int | float | str) and type(value) not in PLAIN else set()


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
    except Exception:  # arrays and tensors have no single truth, and others raise whatever they like
        return False
