"""What is offered, told without an import: entry points of the group `ttabench`, and what a source says of itself."""

from __future__ import annotations

import ast
import importlib.metadata
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from tta_bench.system import declared
from tta_bench.system.code import one_line

Kind = Literal["methods", "datasets", "backbones"]
KINDS: tuple[Kind, ...] = ("methods", "datasets", "backbones")


@dataclass(frozen=True)
class Plugin:
    """A name that somebody offers, and where its code is."""

    kind: Kind
    name: str
    module: str
    origin: str  # distribution and version, or the loose file's path
    distribution: str  # "" for a loose file

    @property
    def entry_point(self) -> str:
        return f"{self.kind}.{self.name}"

    @property
    def summary(self) -> str:
        """First line of the module's docstring, read without importing it."""
        doc = ast.get_docstring(declared.parsed(source_file(self.module)))
        return (doc or "").partition("\n")[0]

    @property
    def title(self) -> str:
        """Its name in print, read without importing it; empty if it has none."""
        title = declared.members(declared.parsed(source_file(self.module)), self.name, ("title",)).get("title", "")
        return title if isinstance(title, str) else ""

    @property
    def declared(self) -> dict[str, Any]:
        """What a method says about itself (`status`, `setting`, `paper`), read without importing it."""
        said = declared.members(declared.parsed(source_file(self.module)), self.name, ("status", "setting", "paper"))
        paper = said.get("paper")
        return {
            "status": said.get("status", "unstated"),
            "setting": said.get("setting", "unstated"),
            "paper": dict(zip(("title", "venue", "url"), (*paper, "", ""), strict=False)) if paper else None,
        }


def installed(warnings: list[str]) -> list[Plugin]:
    """Of all distributions; what can't be used is left out, with a warning."""
    found: dict[tuple[str, str, str], Plugin] = {}
    who = cache(_name_and_version)  # for each, all that is written about the distribution is parsed
    for entry in _entry_points(warnings):
        distribution, version = who(entry.dist)
        kind, _, name = entry.name.partition(".")
        if kind not in KINDS or not name:
            warnings.append(
                f"{distribution}: entry point '{entry.name}' is ignored: "
                "a name begins with methods., datasets. or backbones."
            )
            continue
        plugin = Plugin(kind, name, entry.value, f"{distribution} {version}".strip(), distribution)
        found[entry.name, entry.value, distribution] = plugin
    return list(found.values())


def _entry_points(warnings: list[str]) -> Iterable[importlib.metadata.EntryPoint]:
    try:
        return importlib.metadata.entry_points(group="ttabench")
    except Exception:  # the file of any distribution may be malformed, and would hide all others
        return list(_readable_entry_points(warnings))


def _readable_entry_points(warnings: list[str]) -> Iterator[importlib.metadata.EntryPoint]:
    for distribution in importlib.metadata.distributions():
        try:
            yield from distribution.entry_points.select(group="ttabench")
        except Exception as error:
            name = getattr(distribution, "_path", "a distribution")
            warnings.append(f"{name}: its entry_points.txt can't be read: {one_line(error, None)}")


def _name_and_version(distribution: importlib.metadata.Distribution | None) -> tuple[str, str]:
    return ("unknown", "") if distribution is None else (distribution.name, distribution.version)


def source_file(module: str) -> Path | None:
    """Where a module's source is, found part by part so that no package is executed on the way."""
    if module in sys.modules:
        file = getattr(sys.modules[module], "__file__", None)
        return Path(file) if file else None
    path: Sequence[str] | None = None
    spec = None
    parts = module.split(".")
    for depth in range(1, len(parts) + 1):
        name = ".".join(parts[:depth])
        finders = (finder.find_spec(name, path) for finder in sys.meta_path if hasattr(finder, "find_spec"))
        spec = next((found for found in finders if found is not None), None)
        if spec is None:
            return None
        path = spec.submodule_search_locations
    return Path(spec.origin) if spec is not None and spec.origin and spec.origin.endswith(".py") else None
