"""Extension modules: compiled code of somebody's own, of which there is no source. Its bytes count."""

from __future__ import annotations

import secrets
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType

from tta_bench.system.files import file_digest

LOADED = Path("/proc/self/maps")  # files that this process runs; Linux has it
_seen: dict[int, tuple[ModuleType, str]] = {}  # by id, with the module itself: ids of the dead are used again


def is_compiled(file: object) -> bool:
    return str(file).endswith(tuple(EXTENSION_SUFFIXES))


def content(module: object) -> str:
    """Digest of the file that an extension was loaded from, as it was when this was first asked for: Python loads it
    once, whatever becomes of the file. Empty for anything else."""
    file = getattr(module, "__file__", None)
    if not isinstance(module, ModuleType) or not isinstance(file, str) or not is_compiled(file):
        return ""
    if id(module) not in _seen:
        _seen[id(module)] = (module, _executed(Path(file)))
    return _seen[id(module)][1]


def _executed(file: Path) -> str:
    """What was rebuilt or deleted since it was loaded can't be looked into any more, and is like nothing else."""
    try:
        gone = LOADED.exists() and f"{file.resolve()} (deleted)" in LOADED.read_text(errors="replace")
        return secrets.token_hex(32) if gone else file_digest(file)
    except OSError:
        return secrets.token_hex(32)
