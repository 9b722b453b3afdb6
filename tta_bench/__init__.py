"""ttabench: encode every image once, replay every test-time-adaptation method over the stored features."""

from __future__ import annotations

import pluggy

__version__ = "0.1.0"
hookimpl = pluggy.HookimplMarker("ttabench")

__all__ = ["__version__", "hookimpl"]
