"""What a guest's process reaches for outside of what it is handed: files, connections, other programs.

Python's audit events tell it, and a hook can't be taken away again. They see what goes through Python: a library in C
that opens a file itself is not seen, and neither is what lies in the Python installation.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import tta_bench
from tta_bench.system.described import LIBRARIES

FILES = ("open", "sqlite3.connect")
OTHERS = ("socket.connect", "subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")
METADATA = (".egg-info", ".dist-info")  # of what is installed: entry points are looked up there
SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr")  # libraries look there for processors, time zones, locales


def watch() -> Callable[[Collection[str]], list[str]]:
    """From now on. Returns who tells what was reached for, files that are allowed left out."""
    files: dict[Path, None] = {}  # in their order, each once
    others: dict[str, None] = {}

    def note(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FILES and isinstance(arguments[0], str | bytes | os.PathLike):
            file = Path(os.fsdecode(arguments[0]))
            if file.exists():  # importing asks for many that are not there
                files[file.resolve()] = None
        elif event in OTHERS:
            others[f"{event} {arguments[1] if event == 'socket.connect' else arguments[0]}"] = None

    sys.addaudithook(note)
    return lambda allowed: [*(str(file) for file in list(files) if not _known(file, allowed)), *others]


def _known(file: Path, allowed: Collection[str]) -> bool:
    """Code that was imported is part of a method's identity, and so are files that it declares."""
    package = Path(tta_bench.__file__).parent
    ours = [str(folder.resolve()) for folder in (package, *(package / d for d in ("methods", "datasets", "backbones")))]
    if any(file.is_relative_to(folder) for folder in (*LIBRARIES, *SYSTEM, *ours)):  # not all of the environment:
        return True  # a project's own folder may be one
    loaded = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    code = {Path(name).resolve() for name in (*loaded, *allowed) if isinstance(name, str)}
    if file.parent.name == "__pycache__":
        file = file.parent.parent / f"{file.name.partition('.')[0]}.py"
    return file in code or file.parent.suffix in METADATA
