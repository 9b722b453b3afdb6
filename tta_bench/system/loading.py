"""Loading an outsider's code so that what is hashed is what is executed.

Python runs a cached file of byte code if the source has the same size and the same second of change: an edit may go
unnoticed. So a plugin's module, and every module that it brings along, is compiled from the bytes that were hashed.
"""

from __future__ import annotations

import ast
import importlib.util
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from tta_bench.system.described import LIBRARIES, described
from tta_bench.system.files import digest

_loaded: dict[str, tuple[Path, bytes]] = {}  # module -> its file and the bytes that were executed


class FreshLoader(SourceFileLoader):
    """Compiles the source itself, and remembers it."""

    def get_code(self, fullname: str) -> CodeType:
        content = self.get_data(self.path)
        _loaded[fullname] = (Path(self.path), content)
        code: CodeType = self.source_to_code(content, self.path)
        return code


class _Finder:
    """Finds what Python finds, and loads it freshly if it belongs to the plugin."""

    def __init__(self, package: str) -> None:
        self.package = package

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target)
        if spec is None or spec.origin is None or type(spec.loader) is not SourceFileLoader:
            return None
        if name.partition(".")[0] == self.package or is_outside_file(spec.origin):
            spec.loader = FreshLoader(name, spec.origin)
        return spec


def is_outside_file(file: str) -> bool:
    ours = str(Path(__file__).resolve().parent.parent)
    return not str(Path(file).resolve()).startswith((ours, *LIBRARIES))


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
    """A loose file as a module of that name. Modules beside it are found as if it were run as a script's helper."""
    spec = importlib.util.spec_from_file_location(name, file, loader=FreshLoader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look their module up
    with freshly(name):
        spec.loader.exec_module(module)
    return module


def source_digest(module: str) -> str:
    """Of what was executed for a module: its own bytes, and those of the modules that it uses and brings along."""
    if module not in _loaded:  # somebody else has imported it before, or it is an extension
        live = vars(sys.modules[module]).items()
        return digest({name: described(value) for name, value in live if getattr(value, "__module__", "") == module})
    own = _loaded[module][1]
    helpers = {name: digest(_loaded[name][1]) for name in sorted(_used(module) - {module})}
    return digest([digest(own), helpers]) if helpers else digest(own)


def _used(module: str) -> set[str]:
    """The modules, among those that were loaded freshly, that a module imports anywhere, and those that they import."""
    found, todo = {module}, [module]
    while todo:
        name = todo.pop()
        for used in _imports(name, _loaded[name][1]):
            if used in _loaded and used not in found:
                found.add(used)
                todo.append(used)
    return found


def _imports(module: str, content: bytes) -> Iterator[str]:
    package = module if _loaded[module][0].name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(content)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parts = package.split(".")
            above = ".".join(parts[: len(parts) - node.level + 1]) if node.level else ""
            base = ".".join(part for part in (above, node.module or "") if part)
            yield base
            yield from (f"{base}.{alias.name}" for alias in node.names)
