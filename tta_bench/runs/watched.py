"""What a method's code reaches for outside of what it is handed: files, connections, programs, the environment.

Python's audit events tell it, and a hook can't be taken away again. They see what goes through Python: a library in C
that opens a file itself is not seen, and neither is what lies in the Python installation. There is no such event for
the environment's variables; those count that the method's own code asks for. A guest's process is the plugin's from
the beginning; what an instance does in its caller's process is told apart in watched_instances.py.
"""

from __future__ import annotations

import functools
import importlib
import json
import multiprocessing.process
import os
import sys
import tempfile
import threading
import weakref
from collections.abc import Callable, Collection
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, NamedTuple

from tta_bench.system import distributions, loading
from tta_bench.system.whose import LIBRARIES, is_outside, package_of

ASKING = ("get", "getenv", "__contains__", "__getitem__", "expandvars")  # for a variable that somebody else names
MAPPINGS = ("os", "collections", "string")  # packages through which `items`, `copy` and others ask
READERS = ("configparser", "decouple", "dotenv", "environ", "environs", "omegaconf", "pydantic_settings")  # likewise
FILES = ("open", "sqlite3.connect", "ctypes.dlopen")
OTHERS = ("socket.connect", "subprocess.Popen", "os.system", "os.posix_spawn", "os.exec")
NOTED = frozenset((*FILES, *OTHERS, "import"))
NO_FILES = (":memory:", "")  # as sqlite3 calls what it keeps in memory
PYTHONS_MEMORY = "/dev/shm/pym-"  # of multiprocessing
PYTHONS_OWN = "/pymp-"  # folders of multiprocessing, for a few moments
SPAWNING = frozenset(("multiprocessing.popen_spawn_posix", "multiprocessing.popen_forkserver"))
IMPORTING = "<frozen importlib._bootstrap"
KINDS = ("files", "others", "variables", "datasets", "packages", "loaded")
METADATA = (".egg-info", ".dist-info")  # of what is installed: entry points are looked up there
# Libraries look there for processors, time zones, locales. Elsewhere below /usr a project may lie.
SYSTEM = ("/proc", "/sys", "/dev", "/etc", "/usr/bin", "/usr/lib", "/usr/lib64", "/usr/libexec", "/usr/share")
SHARED_MEMORY = "/dev/shm"
PACKAGE = "the installed package "
LABELS = "tta_bench.datasets."  # modules that know them


class Reached(NamedTuple):
    """What a plugin's code reached for."""

    outside: list[str]  # files, connections and programs
    unknown: list[str]  # those of them that no identity knows: what is installed with a plugin counts in its own
    variables: list[str]  # of the environment, there or not
    datasets: list[str]  # of ours, imported


class Seen:
    """What was reached for, by this process or by children that it has forked. In its order, each once."""

    def __init__(self) -> None:
        self._found: dict[str, dict[str, None]] = {kind: {} for kind in KINDS}
        self._processes = processes_begun()
        self.belong_here()

    def belong_here(self) -> None:
        """This process, and no other that was forked from it so far, is the one that will ask."""
        self._owner, self._told_by_children = os.getpid(), tempfile.TemporaryFile(buffering=0)  # noqa: SIM115
        weakref.finalize(self, self._told_by_children.close)

    def note(self, event: str, arguments: tuple[Any, ...], asker: FrameType) -> None:
        if only_writes(event, arguments):  # whoever reads it later is noted then
            return
        if event in FILES and isinstance(arguments[0], str | bytes | os.PathLike):
            file = Path(os.fsdecode(arguments[0]))
            if str(file) in NO_FILES or str(file) in sys.path or str(file).startswith(PYTHONS_MEMORY):
                return
            if event == "ctypes.dlopen" and os.sep not in str(file):
                return  # the system's own, wherever it lies
            # A folder is opened for a file in it that has no name.
            if not file.is_dir() and _is_asked_for(file := file.resolve(), asker):
                self._note("files", str(file))
        elif event in OTHERS:
            name = f"{event} {arguments[1] if event == 'socket.connect' else arguments[0]}"
            if PYTHONS_OWN not in name:
                self._note("others", name)
        elif event == "import":
            if str(arguments[0]).startswith(LABELS):
                self._note("datasets", str(arguments[0]))
            elif "__import__" in asker.f_code.co_names and is_own(asker):  # not by a statement, which can be read
                self._note("packages", package_of(arguments[0]))

    def note_variable(self, name: str) -> None:
        self._note("variables", name)

    def told(self) -> str:
        """All of it, for whoever goes on in another process."""
        self._listen()
        return json.dumps({kind: list(names) for kind, names in self._found.items()})

    def recall(self, told: str) -> None:
        for kind, names in json.loads(told).items():
            self._found[kind] |= dict.fromkeys(names)

    def _note(self, kind: str, name: str) -> None:
        if name not in self._found[kind]:
            self._found[kind][name] = None
            if os.getpid() != self._owner:
                os.write(self._told_by_children.fileno(), f"{json.dumps([kind, name])}\n".encode())

    def _listen(self) -> None:
        """What children have told so far; a line that is being written comes next time."""
        size = os.fstat(self._told_by_children.fileno()).st_size
        for line in os.pread(self._told_by_children.fileno(), size, 0).split(b"\n")[:-1]:
            kind, name = json.loads(line)
            self._found[kind][name] = None
        if processes_begun() != self._processes and not SPAWNING.isdisjoint(sys.modules):
            self._found["others"]["processes that multiprocessing has spawned"] = None

    def __len__(self) -> int:
        self._listen()
        return sum(len(names) for names in self._found.values())

    def all_but(self, known: Collection[Path]) -> Reached:
        """What was reached for, files that are known left out."""
        self._listen()
        files = [file for file in map(Path, self._found["files"]) if not _known(file, known)]
        unknown = [file for file in files if not _is_counted(file)]
        packages, loaded = (
            [f"{PACKAGE}{name}" for name in self._found[kind] if distributions.content(name)]
            for kind in ("packages", "loaded")
        )
        others = [*self._found["others"], *packages]
        shown, unseen = ([*map(str, those), *others] for those in (files, unknown))
        unseen += [name for name in loaded if name not in packages]  # by a library, and not by the plugin
        return Reached(shown, unseen, list(self._found["variables"]), list(self._found["datasets"]))


class Watch(Seen):
    """Of this process, from now on."""

    def __init__(self) -> None:
        super().__init__()
        self._looking: set[int] = set()  # threads
        self._before = frozenset(sys.modules)
        self._of_everybodys: set[str] = set()  # packages that only libraries of everybody's have asked for
        self.came_along: dict[str, str] = {}  # packages that the plugin's code has loaded -> content
        sys.addaudithook(self._hook)
        watch_environment(lambda name, asker: self.note_variable(name) if is_own(asker) else None)
        self._watch_imports()

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        thread = threading.get_ident()
        if event not in NOTED or thread in self._looking:
            return
        self._looking.add(thread)  # what is looked up here is nobody's
        try:
            if event == "import":
                self._note_who_imports(package_of(arguments[0]), sys._getframe(1))
            self.note(event, arguments, sys._getframe(1))
        finally:
            self._looking.discard(thread)

    def _watch_imports(self) -> None:
        """There is no event for those of importlib."""
        importing = importlib.import_module

        @functools.wraps(importing)
        def noting(name: str, package: str | None = None) -> ModuleType:
            if is_own(sys._getframe(1)):
                self._note("packages", package_of(package if package and name.startswith(".") else name))
            self._note_who_imports(package_of(name), sys._getframe(1))
            return importing(name, package)

        importlib.import_module = noting

    def _note_who_imports(self, package: str, asker: FrameType) -> None:
        """What a library of everybody's uses if it is there is its own matter; Python and the runner import for
        others."""
        importer = package_of(asker.f_globals.get("__name__"))
        for_others = importer in sys.stdlib_module_names or importer == "tta_bench"
        if for_others or package in distributions.EVERYBODYS or package in sys.modules:
            return
        if importer in self._of_everybodys or distributions.is_common(importer):
            self._of_everybodys.add(package)

    def note_loaded(self) -> None:
        """What libraries have imported so far though they don't declare it counts from now on."""
        self.came_along = {name: found for name in self._uncounted() if (found := distributions.content(name))}

    def _uncounted(self) -> list[str]:
        """Packages of what was imported here since this was last asked, and that no identity knows."""
        new = [getattr(sys.modules.get(name), "__file__", None) for name in [*sys.modules] if name not in self._before]
        self._before = frozenset(sys.modules)
        files = [Path(file).resolve() for file in new if isinstance(file, str)]
        common = {*distributions.EVERYBODYS, *self._of_everybodys}
        packages = [(_package_among_libraries(file), file) for file in files]
        return sorted({name for name, file in packages if name and name not in common and not _is_counted(file)})

    def _listen(self) -> None:
        super()._listen()
        self._found["loaded"] |= dict.fromkeys(self._uncounted())

    def reached(self, allowed: Collection[str]) -> Reached:
        """So far; files that are allowed left out."""
        return self.all_but(own_code() | loading.files() | {Path(name).resolve() for name in allowed})


def only_writes(event: str, arguments: tuple[Any, ...]) -> bool:
    return event == "open" and isinstance(arguments[2], int) and arguments[2] & os.O_ACCMODE == os.O_WRONLY


def processes_begun() -> str:
    """A number that is another one after Python has begun a process for somebody."""
    return repr(getattr(multiprocessing.process, "_process_counter", ""))


def _is_importing(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(IMPORTING)


def _is_asked_for(file: Path, asker: FrameType) -> bool:
    """Importing asks for many that are not there, and what a library reads of its own is its own matter."""
    package = _package_among_libraries(file)
    if package is None or package in distributions.plugins_own():
        return file.exists() or _own_asks(asker)
    return _own_asks(asker, package)


def _own_asks(frame: FrameType | None, but_for: str = "") -> bool:
    """Whether it is somebody's own code that asks, through whatever library but one, and none that is being
    imported."""
    while frame is not None and not _is_importing(frame) and package_of(frame.f_globals.get("__name__")) != but_for:
        if is_own(frame):
            return True
        frame = frame.f_back
    return False


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
    return frame.f_code.co_name in ASKING or package_of(frame.f_globals.get("__name__")) in (*MAPPINGS, *READERS)


def is_own(frame: FrameType, packages: Collection[str] = ()) -> bool:
    """Whether a frame is of somebody's own code: a file that is neither ours nor a library's, a notebook's cell, or
    what is installed with a plugin."""
    file, module = frame.f_code.co_filename, frame.f_globals.get("__name__")
    outside = is_outside(module) and not file.startswith("<frozen") if file.startswith("<") else _is_outside_file(file)
    return outside or package_of(module) in distributions.plugins_own() or package_of(module) in packages


_is_outside_file = functools.lru_cache(maxsize=4096)(loading.is_outside_file)  # asked for every frame


def _known(file: Path, code: Collection[Path]) -> bool:
    """Code that was imported is part of a method's identity, and so are files that it declares."""
    system = not file.is_relative_to(SHARED_MEMORY) and any(file.is_relative_to(folder) for folder in SYSTEM)
    if system or any(file.is_relative_to(folder) for folder in loading.OURS):
        return True
    library, package = _library_of(file), _package_among_libraries(file)
    if library is not None and package is None:
        return True  # Python's own
    if package is not None and package not in distributions.plugins_own() and _is_counted(file):
        return True  # of what is installed with a plugin all is told
    if file.parent.name == "__pycache__":
        file = file.parent.parent / f"{file.name.partition('.')[0]}.py"
    return file in code or file.parent.suffix in METADATA


def own_code() -> set[Path]:
    """Files of the modules that are neither ours nor a library's."""
    installed = distributions.plugins_own()
    modules = [(name, getattr(module, "__file__", None)) for name, module in sys.modules.copy().items()]
    own = [file for name, file in modules if is_outside(name) or package_of(name) in installed]
    return {Path(file).resolve() for file in own if isinstance(file, str)}


def _library_of(file: Path) -> Path | None:
    """The folder of libraries that a file lies in, of several the innermost."""
    folders = [Path(folder) for folder in LIBRARIES if file.is_relative_to(folder)]
    return max(folders, key=lambda folder: len(folder.parts), default=None)


def _package_among_libraries(file: Path) -> str | None:
    """The top-level package that an installed file lies in. An environment may be a project's folder, too."""
    library = _library_of(file)
    if library is None or library.name not in distributions.LIBRARIES:
        return None
    return package_of(file.relative_to(library).parts[0])


def _is_counted(file: Path) -> bool:
    package = _package_among_libraries(file)
    return package is not None and distributions.is_counted(file, package)
