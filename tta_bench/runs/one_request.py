"""A backbone that was loaded once stays the answer to that one request."""

from __future__ import annotations

import weakref
from typing import Any

from tta_bench.errors import PluginError

_asked: weakref.WeakKeyDictionary[Any, tuple[Any, ...]] = weakref.WeakKeyDictionary()


def refuse_another(name: str, backbone: Any, request: tuple[Any, ...]) -> None:
    """Raises `PluginError` if `load` has given the same object for other weights, or another precision: a cache of its
    own that does not ask for what."""
    try:
        before = _asked.setdefault(backbone, request)
    except TypeError:  # one that can't be held without keeping it
        return
    if before != request:
        raise PluginError(
            f"backbone '{name}': `load` gives the very object that it gave for other weights or another precision; "
            "its numbers would stand under both: let it load again"
        )
