"""Loading an outsider's code so that what is hashed is what is executed.

Python runs a cached file of byte code if the source has the same size and the same second of change: an edit may go
unnoticed. So a plugin's module, and every module that it brings along, is compiled from the bytes that were hashed.
What it imports only later, within a function, is read and hashed with it and kept until then: an edit in between
changes neither. Names that are put together while it runs can't be seen, and don't count: `unhashed` finds them after.
An extension counts by its bytes, and is refused if it is rebuilt before it is imported: there is no source to keep.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from importlib.machinery import ExtensionFileLoader, ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any

from tta_bench.system import altered, compiled, distributions
from tta_bench.system.described import described
from tta_bench.system.files import digest
from tta_bench.system.sources import Source, built_in_source, counts
from tta_bench.system.stamps import content_or_gone
from tta_bench.system.whose import LIBRARIES, is_outside, own_packages, package_of

PACKAGE = Path(__file__).parent.parent
OURS = [(PACKAGE / room).resolve() for room in (".", "methods", "datasets", "backbones")]  # links in a checkout
BESIDE = "which lies beside it: write sys.path.insert(0, str(Path(__file__).parent)) above the import"
NOTEBOOK = ""  # in place of a plugin's name
_loaded: dict[str, Source] = {}  # module -> what was executed
_brought: dict[str, list[str]] = {}  # plugin -> outsiders' modules that its digest knows, its own first
_hashed: set[Path] = set()  # files of modules that some digest knows
_kept: dict[str, tuple[str, Source]] = {}  # module -> the plugin that may import it, and what will be executed then
_folders: dict[str, str] = {}  # what a loose file has put on Python's path -> that file's module
_under_way: ContextVar[frozenset[str]] = ContextVar("under_way", default=frozenset())  # modules that are described
_mixed_up: dict[str, str] = {}  # loose file's module -> what it would use of another's


class FreshLoader(SourceFileLoader):
    """Compiles the source itself, and remembers it."""

    def get_code(self, fullname: str) -> CodeType:
        for name in [name for name, (plugin, _) in _kept.items() if plugin == fullname]:
            del _kept[name]  # the plugin begins anew
        kept = _kept.pop(fullname, None)
        file = Path(self.path).resolve()
        source = kept[1] if kept and kept[1].file == file else Source(file, self.get_data(self.path))
        _loaded[fullname] = source
        altered.forget(fullname)
        code: CodeType = self.source_to_code(source.content, self.path)
        return code

    def exec_module(self, module: ModuleType) -> None:
        super().exec_module(module)
        altered.note_birth(module.__name__)


class FreshExtension(ExtensionFileLoader):
    """Remembers what was in the file that Python loads."""

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        file, kept = Path(self.path).resolve(), _kept.get(self.name)
        if kept is not None and kept[1].file == file and kept[1] != Source.read(file):
            raise ImportError(f"{file.name} was rebuilt after its digest was taken for the run: run it again")
        _kept.pop(self.name, None)
        return super().create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        _loaded[self.name] = Source(Path(self.path).resolve(), compiled.content(module).encode())
        super().exec_module(module)


class _Finder:
    """Finds what Python finds, and loads it freshly if it belongs to the plugin."""

    def __init__(self, package: str) -> None:
        self.packages = distributions.beside(package)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = _file_spec(name, path)
        return spec if spec is not None and _is_plugins(name, str(spec.origin), self.packages) else None


class _KeptFinder:
    """Finds what Python finds, and loads what is kept of it."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = _file_spec(name, path) if name in _kept else None
        return spec if spec is not None and Path(str(spec.origin)).resolve() == _kept[name][1].file else None


_kept_finder: Any = _KeptFinder()


def _file_spec(name: str, path: Sequence[str] | None) -> ModuleSpec | None:
    """Of a module of source or an extension, to be loaded freshly."""
    spec = PathFinder.find_spec(name, path)
    if spec is None or not _has_file(spec):
        return None
    fresh = FreshLoader if type(spec.loader) is SourceFileLoader else FreshExtension
    spec.loader = fresh(name, str(spec.origin))
    return spec


def _has_file(spec: ModuleSpec) -> bool:
    return bool(spec.origin) and type(spec.loader) in (SourceFileLoader, ExtensionFileLoader)


def _is_plugins(name: str, file: str, packages: Collection[str]) -> bool:
    """An extension among the libraries counts with all that is installed with it."""
    return is_outside_file(file) or (package_of(name) in packages and not compiled.is_compiled(file))


def is_outside_file(file: str) -> bool:
    path = Path(file).resolve()
    return not any(path.is_relative_to(folder) for folder in [*OURS, *map(Path, LIBRARIES)])


@contextmanager
def freshly(package: str) -> Iterator[None]:
    """Within it, modules of the package and of nobody's library are compiled from their source."""
    finder: Any = _Finder(package)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)


def load_file(name: str, file: Path) -> ModuleType:
    """A loose file as a module of that name. Modules beside it are found if it puts its folder on Python's path."""
    spec = importlib.util.spec_from_file_location(name, file, loader=FreshLoader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    before = _Before()
    with freshly(name):
        try:
            spec.loader.exec_module(module)
        except ModuleNotFoundError as error:
            missing = error.name or ""
            if missing.isidentifier() and PathFinder.find_spec(missing, [str(file.parent)]) is not None:
                error.msg += f", {BESIDE}"
            raise
    _folders.update({folder: name for folder in sys.path if folder not in before.path})
    _mixed_up[name] = _of_another(name, before)
    if _mixed_up[name]:
        before.restore()
    return module


def mixed_up(module: str) -> str:
    """Why a loose file can't be used in this process: a helper of its own has the name of another's, and Python has one
    module of a name. Empty if it can."""
    return _mixed_up.get(module, "")


class _Before:
    """What others had brought along, or will, when a loose file was loaded."""

    def __init__(self) -> None:
        self.path, self.modules, self.loaded, self.kept = list(sys.path), dict(sys.modules), dict(_loaded), dict(_kept)

    def file(self, name: str, plugin: str) -> Path | None:
        """Of an outsider's module that is not there for this plugin alone."""
        if name not in self.modules:
            owner, source = self.kept.get(name, (plugin, None))
            return None if source is None or owner == plugin else source.file
        if name in self.loaded:
            return self.loaded[name].file
        file = getattr(self.modules[name], "__file__", None)
        return Path(file).resolve() if isinstance(file, str) and is_outside_file(file) else None

    def restore(self) -> None:
        """Or what the others import later would be this file's."""
        sys.path[:] = self.path
        for name in (_loaded.keys() & sys.modules.keys()) - self.modules.keys() - _mixed_up.keys():
            del sys.modules[name]
        _kept.update(self.kept)


def _of_another(plugin: str, before: _Before) -> str:
    """Says what a loose file imports, or what that imports, and would find elsewhere if it were alone."""
    beside = str(_loaded[plugin].file.parent)
    folders = [folder for folder in sys.path if _folders.get(folder, plugin) == plugin]
    found, todo = {plugin}, [(plugin, _loaded[plugin])]
    while todo:
        name, source = todo.pop()
        for used in sorted(source.imports(name) - found):
            found.add(used)
            own, other = _file_of(used, beside, folders), before.file(used, plugin)
            if own is None or not is_outside_file(str(own)):
                continue
            if other not in (None, own):
                return f"its helper {used} is {own}, but {other} has that name in this process: rename one"
            with suppress(OSError):
                todo.append((used, Source.read(own)))
    return ""


def source_digest(module: str) -> str:
    """Of what was executed for a module: its own bytes, what it brings along or uses of ours, and all that is installed
    with it or that it rests on."""
    if module not in _loaded:  # somebody else has imported it before
        _remember(module, [module])
        return digest([_live_digest(module), distributions.content(package_of(module))])
    own = digest(_loaded[module].content)
    helpers = dict(sorted(_helpers(module)))
    _hashed.add(_loaded[module].file)
    _remember(module, [module, *(name for name in helpers if is_outside(name))])
    return digest([own, helpers]) if helpers else own


def _remember(plugin: str, modules: list[str]) -> None:
    _brought[plugin] = modules
    for name in modules:
        altered.remember(name)


def altered_since(plugin: str) -> dict[str, Any]:
    """What of a plugin and its helpers is no longer what was loaded, by its place: in this process, or in a file."""
    found: dict[str, Any] = {}
    for name in _brought.get(plugin, ()):
        altered.remember(name)  # imported only now
        found |= altered.since_loaded(name)
        source = _loaded.get(name) if name in sys.modules else None
        if source is not None and (now := content_or_gone(source.file)) != source.own_digest:
            found[str(source.file)] = now
    return found


def contents() -> dict[str, str]:
    """Digests of the files that the modules were read from that were compiled here, or will be."""
    return {str(source.file): source.own_digest for source in _sources()}


def loaded() -> Collection[str]:
    """The modules of outsiders that were compiled here: plugins and what they brought along."""
    return _loaded.keys()


def files() -> set[Path]:
    """What the modules that were compiled here, or will be, were read from."""
    return {source.file for source in _sources()}


def _sources() -> list[Source]:
    return [*_loaded.values(), *(source for _, source in _kept.values())]


def unhashed(before: Collection[str]) -> list[str]:
    """Outsiders' modules that were imported since then and whose file no digest knows: under a name that was put
    together while the code ran, or from a folder that it has put on Python's path."""
    new = {name: _file_executed(name) for name in sys.modules.copy() if name not in before}
    return sorted(name for name, file in new.items() if file and file not in _hashed and is_outside_file(str(file)))


def _file_executed(module: str) -> Path | None:
    file = getattr(sys.modules.get(module), "__file__", None)
    return Path(file).resolve() if isinstance(file, str) else None


def import_digest(module: str) -> str:
    """Of what an import within a notebook's function will find, and then executes; empty for what is ours or counts as
    a library's name."""
    if module in _loaded:
        own, learnt = digest(_loaded[module].content), altered.learnt(module)
        return digest([own, learnt]) if learnt else own
    if module in sys.modules:
        return _live_digest(module) if is_outside(module) else distributions.content(package_of(module))
    if module in _kept and _kept[module][0] == NOTEBOOK:
        del _kept[module]  # it may have been edited since
    helper = _outsider(module, NOTEBOOK, str(Path.cwd()), frozenset())
    return distributions.content(package_of(module)) if helper is None else digest(helper.content)


def _live_digest(module: str) -> str:
    """Of its own functions and classes, and of its variables; of an extension also by its bytes."""
    above = _under_way.get()
    if module in above:  # a function of its own imports it
        return "itself"
    live = {name: value for name, value in vars(sys.modules[module]).items() if not name.startswith("__")}
    own = {name: value for name, value in live.items() if _is_own(value, module)}
    before = _under_way.set(above | {module})
    try:
        words = {name: described(value, own_packages(module)) for name, value in own.items()}
    finally:
        _under_way.reset(before)
    executed = compiled.content(sys.modules[module])
    return digest([words, executed] if executed else words)


def _is_own(value: object, module: str) -> bool:
    if isinstance(value, FunctionType | BuiltinFunctionType | type):
        return getattr(value, "__module__", "") == module
    return not isinstance(value, ModuleType)


def _helpers(plugin: str) -> Iterator[tuple[str, str]]:
    """The modules that a plugin imports anywhere, and those that they import, with digests: outsiders' and ours."""
    beside = str(_loaded[plugin].file.parent)
    packages = distributions.beside(package_of(plugin))
    installed = {package_of(plugin)} & distributions.offering()
    found, todo = {plugin}, [(plugin, _loaded[plugin])]
    while todo:
        name, source = todo.pop()
        for used in source.imports(name) - found:
            found.add(used)
            if counts(used):
                yield used, built_in_source(used)
            elif (helper := _outsider(used, plugin, beside, packages)) is not None:
                _hashed.add(helper.file)
                yield used, digest(helper.content)
                todo.append((used, helper))
            elif used in sys.modules and is_outside(used):
                _hashed.update(filter(None, [_file_executed(used)]))
                yield used, _live_digest(used)
            else:
                installed.add(package_of(used))
    for package in installed:
        if content := distributions.content(package):
            yield f"all of {package}", content


def _outsider(name: str, plugin: str, beside: str, packages: frozenset[str]) -> Source | None:
    """The source of a plugin's helper: as executed, or as it will be; None for anything else."""
    if name in sys.modules:
        return _loaded.get(name)
    if name in _kept:
        return _kept[name][1]
    file = _file_of(name, beside)
    if file is None or not _is_plugins(name, str(file), packages):
        return None
    try:
        source = Source.read(file)
    except OSError:
        return None
    _kept[name] = (plugin, source)
    if _kept_finder not in sys.meta_path:
        sys.meta_path.insert(0, _kept_finder)
    return source


def _file_of(module: str, beside: str, folders: Sequence[str] | None = None) -> Path | None:
    """Where Python would find a module's file, or would once the plugin's folder is on its path; nothing is run.
    `folders` stand for that path."""
    path: Sequence[str] | None = None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        name = parts[
            depth - 1
        ]  # alone: of a folder without an __init__.py Python would ask the package above, not yet there
        spec = PathFinder.find_spec(name, folders if depth == 1 else path)
        if spec is None and depth == 1:
            spec = PathFinder.find_spec(name, [beside]) or _found_elsewhere(name)
        if spec is None:
            return None
        path = None if spec.submodule_search_locations is None else list(spec.submodule_search_locations)
        if path is None and depth < len(parts):
            return None  # what is in a module is no module
    assert spec is not None
    return Path(str(spec.origin)).resolve() if _has_file(spec) else None


def _found_elsewhere(package: str) -> ModuleSpec | None:
    """As an editable installation is found, whose finder is no path."""
    try:
        return importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):  # some finder's own fault, or a module without a spec
        return None
