"""Finding plugins: names without importing, code only when a command needs it, failures named and survived.

An entry point of the group `ttabench` is called `methods.NAME`, `datasets.NAME` or `backbones.NAME` and points to a
module that implements the matching hook. Built-ins are found in exactly this way.
"""

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, cast

import pluggy

from tta_bench import hookspecs
from tta_bench.errors import PluginError, UnknownName, UsageError
from tta_bench.system import loading
from tta_bench.system.altered import LOOSE
from tta_bench.system.code import BUILT_IN, Origin, one_line
from tta_bench.system.files import digest
from tta_bench.system.offers import KINDS, Kind, Plugin, installed, source_file
from tta_bench.system.sources import built_in_source

if TYPE_CHECKING:
    from tta_bench.interfaces import Backbone, Dataset, Method

__all__ = ["KINDS", "Kind", "Plugin", "Registry", "get_backbone", "get_dataset", "get_method"]


class Registry:
    """The plugins that one command can see.

    Args:
        files: loose plugin files (`--plugin FILE.py`), loaded at once: who names a file wants to hear of its errors.
        without: names to leave out (`--no-plugin NAME`): a distribution, an entry point or, if no distribution has it,
            a plain name.
        only: outside distributions or entry points to admit (`TTABENCH_PLUGINS`, comma-separated); None admits all.
        ask: who tells what a loose file offers; by default it is loaded, and asked itself.
    """

    def __init__(
        self,
        files: Sequence[Path] = (),
        without: Sequence[str] = (),
        only: Sequence[str] | None = None,
        ask: Callable[[Path], list[tuple[Kind, str]]] | None = None,
    ) -> None:
        self.warnings: list[str] = []
        self._lock = threading.RLock()  # several threads may share a Bench
        self._manager = pluggy.PluginManager("ttabench")
        self._manager.add_hookspecs(hookspecs)
        self._loaded: dict[str, ModuleType] = {}
        self._sources: dict[str, str] = {}  # outsiders' modules -> digest of what was executed
        self.without, self.only = set(without), None if only is None else set(only)
        found = installed(self.warnings)
        self._distributions = {p.distribution for p in found}
        seen = {label for p in found for label in self._labels(p)}
        self._plugins = [p for p in found if self._admitted(p)]
        for file in {file.resolve(): file for file in files}.values():
            self._plugins += self._loose(Path(file), ask)
        for name in sorted(self.without - seen):
            self.warnings.append(f"--no-plugin {name}: there is no such plugin")

    # ------------------------------------------------------------------------------------------------ names

    def plugins(self, kind: Kind | None = None) -> list[Plugin]:
        """All plugins, or those of one kind, sorted by name."""
        return sorted((p for p in self._plugins if kind in (None, p.kind)), key=lambda p: (p.kind, p.name, p.origin))

    def names(self, kind: Kind) -> list[str]:
        return sorted({p.name for p in self._plugins if p.kind == kind})

    def find(self, kind: Kind, name: str) -> Plugin:
        """The one plugin of that name.

        Raises:
            UnknownName: nobody offers the name.
            PluginError: two plugins do.
        """
        matches = [p for p in self.plugins(kind) if p.name == name]
        if not matches:
            hint = (
                f"`ttabench list {kind}` shows what there is; "
                "a plugin added to a pyproject.toml needs `pip install -e .` again."
            )
            raise UnknownName(kind[:-1], name, self.names(kind), hint)
        if len(matches) > 1:
            offers = " and ".join(f"{p.module} ({p.origin})" for p in matches)
            raise PluginError(f"two plugins offer the {kind[:-1]} '{name}': {offers}. Leave one out with --no-plugin.")
        return matches[0]

    # ------------------------------------------------------------------------------------------------- code

    def method(self, name: str) -> type[Method]:
        from tta_bench.interfaces import Method

        cls = self._load("methods", name)
        if not (isinstance(cls, type) and issubclass(cls, Method)):
            raise PluginError(f"method '{name}' is not a class derived from tta_bench.interfaces.Method")
        return cls

    def dataset(self, name: str) -> type[Dataset]:
        return cast("type[Dataset]", self._load("datasets", name))

    def backbone(self, name: str) -> type[Backbone]:
        """NAME, or NAME:ARGUMENT for a plugin that makes backbones to order with its `named(argument)`."""
        from tta_bench.interfaces import BackboneExtras

        plain, colon, argument = name.partition(":")
        cls = self._load("backbones", plain)
        if not colon:
            return cast("type[Backbone]", cls)
        named = BackboneExtras.of(cls).named
        if named is None:
            raise UsageError(f"backbone '{plain}' takes nothing behind a colon")
        return cast("type[Backbone]", named(argument))

    def origin(self, kind: Kind, name: str) -> Origin:
        """Whose code the plugin of that name is. It is loaded for that, so that the digest is of what runs."""
        plugin = self.find(kind, name.partition(":")[0])
        if plugin.distribution == BUILT_IN:
            return Origin(plugin.origin, built_in_source(plugin.module), built_in=True)
        self._import(plugin)
        label = plugin.origin if plugin.distribution else Path(plugin.origin).name
        origin = Origin(label, self._sources.get(plugin.module, ""))
        # A method's process was started with its files as they are, and a run goes on with what it has begun with.
        altered = {} if kind == "methods" else loading.altered_since(plugin.module)
        return replace(origin.with_more(altered), altered=", ".join(altered)) if altered else origin

    def _load(self, kind: Kind, name: str) -> Any:
        plugin = self.find(kind, name)
        offered = self._offers(plugin.kind, self._import(plugin))
        matches = list({id(cls): cls for cls in offered if cls.name == name}.values())
        if not matches:
            has = ", ".join(dict.fromkeys(cls.name for cls in offered)) or "nothing"
            raise PluginError(
                f"{plugin.module} ({plugin.origin}) should offer the {kind[:-1]} '{name}' but offers {has}"
            )
        if len(matches) > 1:
            places = " and ".join(f"{cls.__module__}.{getattr(cls, '__qualname__', cls.name)}" for cls in matches)
            raise PluginError(f"two classes offer the {kind[:-1]} '{name}': {places} ({plugin.origin}). Rename one.")
        return matches[0]

    def _import(self, plugin: Plugin) -> ModuleType:
        with self._lock:
            module = self._import_once(plugin)
        if complaint := loading.mixed_up(plugin.module):
            raise PluginError(f"plugin {plugin.entry_point} ({plugin.origin}) can't be used: {complaint}")
        return module

    def _import_once(self, plugin: Plugin) -> ModuleType:
        if plugin.module not in self._loaded:
            try:
                module = self._imported(plugin)
                self._register(module, plugin.module)
            except KeyboardInterrupt:
                raise
            except BaseException as error:  # a plugin may raise anything on import, SystemExit included
                reason = one_line(error, source_file(plugin.module))
                raise PluginError(f"plugin {plugin.entry_point} ({plugin.origin}) can't be loaded: {reason}") from error
        return self._loaded[plugin.module]

    def _imported(self, plugin: Plugin) -> ModuleType:
        if plugin.distribution == BUILT_IN:
            return importlib.import_module(plugin.module)
        if not plugin.distribution:
            module = loading.load_file(plugin.module, Path(plugin.origin))
        else:
            with loading.freshly(plugin.module.partition(".")[0]):
                module = importlib.import_module(plugin.module)
        self._sources[plugin.module] = loading.source_digest(plugin.module)
        return module

    def _register(self, module: ModuleType, name: str) -> None:
        self._manager.register(module, name)
        try:
            self._manager.check_pending()  # a hook of a wrong name would otherwise be ignored in silence
        except pluggy.PluginValidationError as error:
            self._manager.unregister(module)  # or every later check would fail for this plugin's fault
            raise (_misnamed_hook(module) or error) from None
        self._loaded[name] = module

    def _offers(self, kind: Kind, module: ModuleType) -> list[Any]:
        hook = getattr(self._manager.hook, f"ttabench_{kind}")
        offers: list[Any] = []
        for implementation in hook.get_hookimpls():
            if implementation.plugin is module:
                try:
                    offered = implementation.function()
                    if not isinstance(offered, list | tuple):
                        raise TypeError(f"it must return a list of classes, not {type(offered).__name__}")
                    offers += offered
                except KeyboardInterrupt:
                    raise
                except BaseException as error:
                    reason = one_line(error, getattr(module, "__file__", None))
                    raise PluginError(f"{module.__name__}: ttabench_{kind} fails: {reason}") from error
        for cls in offers:
            if not isinstance(getattr(cls, "name", None), str):
                raise PluginError(f"{module.__name__}: {cls!r} has no `name`")
        return offers

    # ------------------------------------------------------------------------------------------------ sources

    def _admitted(self, plugin: Plugin) -> bool:
        if self.without & self._labels(plugin):
            return False
        return self.only is None or plugin.distribution == BUILT_IN or bool(self.only & self._labels(plugin))

    def _labels(self, plugin: Plugin) -> set[str]:
        """The words that mean a plugin. What is the name of a distribution means that one alone."""
        return {plugin.entry_point, plugin.distribution} | ({plugin.name} - self._distributions)

    def _loose(self, file: Path, ask: Callable[[Path], list[tuple[Kind, str]]] | None) -> list[Plugin]:
        if file.is_dir():
            raise UsageError(f"--plugin {file}: a folder; name one file, or install it (pip install -e {file})")
        if not file.is_file():
            raise UsageError(f"--plugin {file}: no such file")
        module_name = f"{LOOSE}{file.stem}_{digest(str(file.resolve()))[:8]}"  # two files may share a name
        if file.suffix != ".py":
            raise UsageError(f"--plugin {file}: not a Python file")
        offers = self._offers_of(file, module_name) if ask is None else ask(file)
        if not offers:
            raise PluginError(
                f"--plugin {file}: no hook found. Write @hookimpl def ttabench_methods(): return [MyMethod]"
            )
        return [Plugin(kind, name, module_name, str(file), "") for kind, name in offers]

    def _offers_of(self, file: Path, module_name: str) -> list[tuple[Kind, str]]:
        try:
            module = loading.load_file(module_name, file)
            self._sources[module_name] = loading.source_digest(module_name)
            self._register(module, module_name)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise PluginError(f"--plugin {file} can't be loaded: {one_line(error, file)}") from error
        return [(kind, cls.name) for kind in KINDS for cls in self._offers(kind, module)]

    # ------------------------------------------------------------------------------------------------ health

    def failures(self) -> dict[Plugin, str]:
        """Imports everything, for `ttabench doctor`: which plugins can't be used, and why."""
        failed: dict[Plugin, str] = {}
        for plugin in self._plugins:
            try:
                self._load(plugin.kind, plugin.name)
            except PluginError as error:
                failed[plugin] = str(error)
        return failed


def _misnamed_hook(module: ModuleType) -> NameError | None:
    """A hook that nobody would call, with its line and the name that was probably meant."""
    known = [f"ttabench_{kind}" for kind in KINDS]
    for name, found in vars(module).items():
        if hasattr(found, "ttabench_impl") and name not in known:
            place = f"{Path(module.__file__ or '').name}, line {found.__code__.co_firstlineno}"
            unknown = UnknownName("hook", name, known, f"There are {', '.join(known)}")
            return NameError(f"{unknown} ({place})")
    return None


def only_from_environment() -> list[str] | None:
    """What `TTABENCH_PLUGINS` admits; None when it is not set."""
    value = os.environ.get("TTABENCH_PLUGINS")
    return None if value is None else [name.strip() for name in value.split(",") if name.strip()]


@cache
def default_registry() -> Registry:
    """Everything that is installed, as limited by the environment."""
    return Registry(only=only_from_environment())


def get_method(name: str) -> type[Method]:
    return default_registry().method(name)


def get_dataset(name: str) -> type[Dataset]:
    return default_registry().dataset(name)


def get_backbone(name: str) -> type[Backbone]:
    return default_registry().backbone(name)
