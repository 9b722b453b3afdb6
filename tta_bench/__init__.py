"""ttabench: encode every image once, replay every test-time-adaptation method over the stored features."""

from __future__ import annotations

import pluggy

__version__: str
hookimpl = pluggy.HookimplMarker("ttabench")

__all__ = ["__version__", "hookimpl"]


def __getattr__(name: str) -> str:
    """What is not needed at every import is found when it is asked for."""
    if name == "__version__":
        from importlib.metadata import version

        return version("ttabench")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
