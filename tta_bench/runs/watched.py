"""What a method's code reaches for outside of what it is handed: files, connections, programs, the environment.

Python's audit events tell it, and a hook can't be taken away again. They see what goes through Python: a library in C
that opens a file itself is not seen, and neither is what lies in the Python installation. There is no such event for
the environment's variables; those count that the method's own code asks for. A guest's process is the plugin's from
the beginning; what an instance does in its caller's process is told apart in watched_instances.py.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from tta_bench.system import distributions, loading
from tta_bench.system.whose import LIBRARIES, is_outside, package_of

ASKING = ("get", "getenv", "__contains__", "__getitem__", "expandvars")  # for a variable that somebody else names
MAPPINGS = ("os", "collections", "string")  # packages through which `items`, `copy` and others ask
FILES = ("open", "sqlite3.connect", "ctypes.dlopen")
OTHERS = ("socket.connect", "subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")
METADATA = (".egg-info", ".dist-info")  # of what is installed: entry points are looked up there
SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr")  # libraries look there for processors, time zones, locales
LABELS = "tta_bench.datasets."  # modules that know them


class Reached(NamedTuple):
    """What a plugin's code reached for."""

    outside: list[str]  # files, connections and programs
    unknown: list[str]  # those of them that no identity knows: what is installed with a plugin counts in its own
    variables: list[str]  # of the environment, there or not
    datasets: list[str]  # of ours, imported


class Seen:
    """What was reached for. Everything is kept in its order, each once."""

    def __init__(self) -> None:
        self._files: dict[Path, None] = {}
        self._others: dict[str, None] = {}
        self._variables: dict[str, None] = {}
        self._datasets: dict[str, None] = {}

    def note(self, event: str, arguments: tuple[Any, ...]) -> None:
        if event in FILES and isinstance(arguments[0], str | bytes | os.PathLike):
            file = Path(os.fsdecode(arguments[0]))
            if file.exists():  # importing asks for many that are not there
                self._files[file.resolve()] = None
        elif event in OTHERS:
            self._others[f"{event} {arguments[1] if event == 'socket.connect' else arguments[0]}"] = None
        elif event == "import" and str(arguments[0]).startswith(LABELS):
            self._datasets[str(arguments[0])] = None

    def note_variable(self, name: str) -> None:
        self._variables[name] = None

    def all_but(self, known: Collection[Path]) -> Reached:
        """What was reached for, files that are known left out."""
        files = [file for file in list(self._files) if not _known(file, known)]
        unknown = [file for file in files if _library_of(file) is None]
        shown, unseen = ([*map(str, those), *self._others] for those in (files, unknown))
        return Reached(shown, unseen, list(self._variables), list(self._datasets))


class Watch(Seen):
    """Of this process, from now on."""

    def __init__(self) -> None:
        super().__init__()
        sys.addaudithook(self.note)
        watch_environment(lambda name, asker: self.note_variable(name) if is_own(asker) else None)

    def reached(self, allowed: Collection[str]) -> Reached:
        """So far; files that are allowed left out."""
        return self.all_but(own_code() | loading.files() | {Path(name).resolve() for name in allowed})


def watch_environment(note: Callable[[str, FrameType], None]) -> Callable[[], None]:
    """Has every variable noted that is asked for, with who asks. Returns what ends that."""
    kind: Any = type(os.environ)
    answer = kind.__getitem__

    def noting(environment: Any, name: Any) -> Any:
        asker = sys._getframe(1)
        while asker.f_back is not None and _asks_for_others(asker) and not is_own(asker):
            asker = asker.f_back  # whoever says `get` or `in`
        if isinstance(name, str | bytes):
            note(os.fsdecode(name), asker)
        return answer(environment, name)

    def end() -> None:
        if kind.__getitem__ is noting:  # and not something that was put there meanwhile
            kind.__getitem__ = answer

    kind.__getitem__ = noting
    return end


def _asks_for_others(frame: FrameType) -> bool:
    return frame.f_code.co_name in ASKING or package_of(frame.f_globals.get("__name__")) in MAPPINGS


def is_own(frame: FrameType, packages: Collection[str] = ()) -> bool:
    """Whether a frame is of somebody's own code: a file that is neither ours nor a library's, a notebook's cell, or
    what is installed with a plugin."""
    file, module = frame.f_code.co_filename, frame.f_globals.get("__name__")
    outside = is_outside(module) and not file.startswith("<frozen") if file.startswith("<") else _is_outside_file(file)
    return outside or package_of(module) in distributions.offering() or package_of(module) in packages


_is_outside_file = functools.lru_cache(maxsize=4096)(loading.is_outside_file)  # asked for every frame


def _known(file: Path, code: Collection[Path]) -> bool:
    """Code that was imported is part of a method's identity, and so are files that it declares."""
    if any(file.is_relative_to(folder) for folder in (*SYSTEM, *map(str, loading.OURS))):
        return True
    library = _library_of(file)
    if library is not None and file.relative_to(library).parts[0] not in distributions.offering():
        return True  # not what is installed with a plugin, nor all of the environment: a project's folder may be one
    if file.parent.name == "__pycache__":
        file = file.parent.parent / f"{file.name.partition('.')[0]}.py"
    return file in code or file.parent.suffix in METADATA


def own_code() -> set[Path]:
    """Files of the modules that are neither ours nor a library's."""
    offering = distributions.offering()
    modules = [(name, getattr(module, "__file__", None)) for name, module in list(sys.modules.items())]
    own = [file for name, file in modules if is_outside(name) or package_of(name) in offering]
    return {Path(file).resolve() for file in own if isinstance(file, str)}


def _library_of(file: Path) -> Path | None:
    """The folder of libraries that a file lies in, of several the innermost."""
    folders = [Path(folder) for folder in LIBRARIES if file.is_relative_to(folder)]
    return max(folders, key=lambda folder: len(folder.parts), default=None)
