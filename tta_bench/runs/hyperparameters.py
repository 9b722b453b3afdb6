"""Hyper-parameters from the command line: `--set key=value` and `--preset NAME`, checked against a method's fields."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import yaml

from tta_bench.errors import UnknownName, UsageError
from tta_bench.interfaces import Method

Tag = Literal["paper", "default", "tuned"]


def parse_settings(settings: Sequence[str]) -> dict[str, str]:
    """["shots=5", "tda.alpha=1"] -> {"shots": "5", "tda.alpha": "1"}."""
    parsed: dict[str, str] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key.strip():
            raise UsageError(f"--set {setting}: write key=value, for example --set shots=5")
        parsed[key.strip()] = value.strip()
    return parsed


def build(cls: type[Method], settings: Mapping[str, str], preset: str | None = None) -> tuple[Method, Tag]:
    """The method with its hyper-parameters, and where they come from."""
    values: dict[str, Any] = {}
    tag: Tag = "default"
    if preset is not None:
        if preset not in cls.presets:
            has = f"It has: {', '.join(cls.presets) or 'none'}."
            raise UnknownName(f"preset of {cls.name}", preset, cls.presets, has)
        values.update(cls.presets[preset])
        tag = "paper"
    hints = typing.get_type_hints(cls)
    fields = [f.name for f in dataclasses.fields(cls) if f.init]
    for key, text in settings.items():
        if key not in fields:
            raise UnknownName(f"hyper-parameter of {cls.name}", key, fields, f"It has: {', '.join(fields) or 'none'}.")
        values[key] = _coerce(text, hints[key], f"{cls.name}.{key}")
        tag = "tuned"
    return cls(**values), tag


def settings_for(name: str, cls: type[Method], settings: Mapping[str, str]) -> dict[str, str]:
    """Of a grid's settings those that concern this method: `tda.shots` for one, `shots` for all that have the field."""
    fields = {f.name for f in dataclasses.fields(cls)}
    general = {k: v for k, v in settings.items() if "." not in k and k in fields}
    own = {k.partition(".")[2]: v for k, v in settings.items() if k.partition(".")[0] == name and "." in k}
    return general | own


def values_of(method: Method) -> dict[str, Any]:
    """The hyper-parameters as plain data, for the record."""
    return {f.name: getattr(method, f.name) for f in dataclasses.fields(method)}


def _coerce(text: str, hint: Any, where: str) -> Any:
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        value = text
    if isinstance(value, str):  # YAML reads 1e-3 as text
        try:
            value = float(value)
        except ValueError:
            value = text
    return _fit(value, text, hint, where)


def _fit(value: Any, text: str, hint: Any, where: str) -> Any:
    """`value` as the field's type wants it, or an error that says what is wanted."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is Literal:
        options = {str(option): option for option in arguments}
        if text not in options:
            raise UsageError(f"{where}={text}: choose one of {', '.join(options)}")
        return options[text]
    if origin in (typing.Union, types.UnionType):
        for option in arguments:
            try:
                return _fit(value, text, option, where)
            except UsageError:
                continue
    if origin is tuple and isinstance(value, list):
        kinds = [arguments[0]] * len(value) if arguments[-1] is Ellipsis else list(arguments)
        if len(kinds) == len(value):
            return tuple(_fit(v, str(v), kind, where) for v, kind in zip(value, kinds, strict=True))
    if hint is float and isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return float(value)
    if hint is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if hint is bool and isinstance(value, bool):
        return value
    if hint is str:
        return text
    if hint is type(None) and value is None:
        return None
    if hint is float:
        raise UsageError(f"{where}={text}: a finite number is wanted")
    wanted = "[a, b]" if origin is tuple else getattr(hint, "__name__", str(hint))
    raise UsageError(f"{where}={text}: a value of type {wanted} is wanted")
