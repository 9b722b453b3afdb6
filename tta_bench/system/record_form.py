"""What a run.json may hold, field by field: types and ranges. Nothing here knows what the fields mean to a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from tta_bench.system.files import digest

SEAL = "seal"
LARGEST = 2**53  # whole numbers beyond it are not whole in every table
ROUNDING = 1e-6  # that a percentage may be beyond 0 or 100
SEALED = 2  # the schema from which on a record has a seal
SCORES = "scores.safetensors"
SHOWN = {"protocol": ("dataset", "backbone", "prompt", "n"), "config": ("method",), "replicate": ("seed", "order")}
MOST_METRICS = 1000  # each is a column of a table
COUNTS = ("classes_",)  # metrics whose names begin so are counts and no percentages


def seal(content: Mapping[str, Any]) -> str:
    """Digest of all that a record says, its own seal aside; of JSON's values, so that no layout of the file matters."""
    inside = {name: value for name, value in content.items() if name != SEAL}
    return digest(json.dumps(inside, sort_keys=True, separators=(",", ":"), default=str).encode())


def fault(content: Mapping[str, Any]) -> str:
    """The first field that is not what a run writes, and why; empty if there is none."""
    for name, wanted in REQUIRED.items():
        if name not in content:
            return f"'{name}' is missing"
        if why := wanted(content[name]):
            return f"'{name}' {why}"
    for name, wanted in OPTIONAL.items():
        if name in content and (why := wanted(content[name])):
            return f"'{name}' {why}"
    size = content.get("dataset_size")
    if size is not None and size < content["n"]:
        return "'dataset_size' is less than 'n'"
    if content["schema"] < SEALED:
        return ""
    return _unlike_identities(content) if SCORES in content.get("files", {}) else f"'files' does not name {SCORES}"


def _unlike_identities(content: Mapping[str, Any]) -> str:
    """What a table shows is what the identities are made of."""
    for kind, names in SHOWN.items():
        parts = content["identities"][kind]["parts"]
        for name in names:
            if name in parts and parts[name] != content[name]:
                return f"'{name}' is not that of its {kind}"
    config = content["identities"]["config"]["parts"]
    shown = {k: v for k, v in content["hyper_parameters"].items() if k not in config.get("files", {})}
    return "" if config.get("hyper_parameters", shown) == shown else "'hyper_parameters' are not those of its config"


Check = Callable[[Any], str]


def _text(value: Any) -> str:
    return "" if isinstance(value, str) else "is no text"


def _flag(value: Any) -> str:
    return "" if isinstance(value, bool) else "is neither true nor false"


def _whole(low: int, high: int = LARGEST) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, int) or isinstance(value, bool):
            return "is no whole number"
        return "" if low <= value <= high else f"is not between {low:,} and {high:,}"

    return check


def _number(low: float, high: float) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, int | float) or isinstance(value, bool):
            return "is no number"
        return "" if low <= value <= high else f"is not between {low:g} and {high:g}"  # nor is NaN

    return check


def _or_null(wanted: Check) -> Check:
    return lambda value: "" if value is None else wanted(value)


def _mapping(wanted: Check | None = None) -> Check:
    def check(value: Any) -> str:
        if not isinstance(value, Mapping):
            return "is no mapping"
        found = ((name, wanted(entry)) for name, entry in value.items()) if wanted else iter(())
        return next((f"holds '{name}', which {why}" for name, why in found if why), "")

    return check


def _metrics(value: Any) -> str:
    if not isinstance(value, Mapping):
        return "is no mapping"
    if len(value) > MOST_METRICS:
        return f"holds more than {MOST_METRICS:,}"
    for name, entry in value.items():
        why = (_or_null(_whole(0)) if name.startswith(COUNTS) else PERCENTAGE)(entry)
        if why:
            return f"holds '{name}', which {why}"
    return ""


def _texts(value: Any) -> str:
    return "" if isinstance(value, list) and all(isinstance(line, str) for line in value) else "is no list of texts"


def _files(value: Any) -> str:
    if why := _mapping(_text)(value):
        return why
    elsewhere = [name for name in value if "/" in name or "\\" in name or name in ("", ".", "..")]
    return f"holds '{elsewhere[0]}', which is no file beside it" if elsewhere else ""


def _provenance(value: Any) -> str:
    if why := _mapping()(value):
        return why
    why = _mapping(_text)(value.get("versions", {}))
    return f"holds 'versions', which {why}" if why else ""


def _identities(value: Any) -> str:
    if not isinstance(value, Mapping) or set(value) != {"protocol", "config", "replicate"}:
        return "are not protocol, config and replicate"
    for name, identity in value.items():
        if not isinstance(identity, Mapping) or not isinstance(identity.get("parts"), Mapping):
            return f"hold '{name}', which has no parts"
        if digest(dict(identity["parts"])) != identity.get("digest"):
            return f"hold '{name}', whose digest is not that of its parts"
    return ""


PERCENTAGE = _or_null(_number(-ROUNDING, 100 + ROUNDING))
REQUIRED: Mapping[str, Check] = {
    "schema": _whole(1),
    "identities": _identities,
    **dict.fromkeys(("method", "dataset", "backbone", "prompt", "order", "tag"), _text),
    "seed": _whole(-LARGEST),
    "n": _whole(1),
    "hyper_parameters": _mapping(),
    "changes": _mapping(),
    "metrics": _metrics,
    "per_class_ap": _mapping(PERCENTAGE),
    "counts": _mapping(_whole(0)),
    "speed": _mapping(_or_null(_number(0, 1e300))),
}
OPTIONAL: Mapping[str, Check] = {
    "run_id": _text,
    "hardware": _mapping(),
    "provenance": _provenance,
    "created": _text,
    "files": _files,
    "random_weights": _flag,
    "dataset_size": _or_null(_whole(1)),
    "setting": _text,
    "status": _text,
    "notes": _texts,
    "along": _mapping(_mapping(PERCENTAGE)),
}
