"""ttabench: encode every image once, replay every test-time-adaptation method over the stored features."""

from __future__ import annotations

TYPE_CHECKING = False  # as in typing; nothing at all is imported before the command looks after Ctrl-C
if TYPE_CHECKING:
    from typing import Any

    import pluggy

    from tta_bench.api import grid, load_results, run
    from tta_bench.records import Results, RunRecord
    from tta_bench.runs.bench import Bench

    __version__: str
    hookimpl: pluggy.HookimplMarker

__all__ = ["Bench", "Results", "RunRecord", "__version__", "grid", "hookimpl", "load_results", "run"]

_LAZY = {
    "run": "tta_bench.api",
    "grid": "tta_bench.api",
    "load_results": "tta_bench.api",
    "Bench": "tta_bench.runs.bench",
    "Results": "tta_bench.records",
    "RunRecord": "tta_bench.records",
}


def __getattr__(name: str) -> Any:
    """The Python door opens when somebody comes to it: `import tta_bench` itself stays quick."""
    if name == "__version__":
        from importlib.metadata import version

        return version("ttabench")
    if name == "hookimpl":
        import pluggy

        marker = globals()["hookimpl"] = pluggy.HookimplMarker("ttabench")
        return marker
    if name not in _LAZY:
        raise AttributeError(f"module 'tta_bench' has no attribute '{name}'")
    from importlib import import_module

    return getattr(import_module(_LAZY[name]), name)


def __dir__() -> list[str]:
    return __all__
