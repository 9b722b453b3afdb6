"""Settings as a record holds them: plain data, and what is none by its content."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tta_bench.system.described import described
from tta_bench.system.files import digest


def as_plain(value: Any) -> Any:
    """As JSON would give it back, so that an identity is the same before and after a round trip."""
    if hasattr(value, "__dataclass_fields__"):
        value = asdict(value)
    return json.loads(json.dumps(_keyed_by_text(value), default=_stated))


def _keyed_by_text(value: Any) -> Any:
    """JSON makes one key of 1 and "1"."""
    if isinstance(value, list | tuple):
        return [_keyed_by_text(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        key if isinstance(key, str) else f"{type(key).__name__} {key}": _keyed_by_text(inner)
        for key, inner in value.items()
    }


def _stated(value: object) -> str:
    """What JSON can't hold, by its content: the text of an array leaves its middle out, a function's is an address."""
    return str(value) if isinstance(value, Path) else f"{type(value).__name__} {digest(described(value))[:16]}"
