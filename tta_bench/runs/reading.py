"""What a plugin's own views rest on besides its code and their fields. The features are kept, so it has to be known.

What was read until the recipe was made counts by its content. What is read only while views are drawn would be known
too late, and perhaps only in another process: it is refused.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

from tta_bench.runs.watched import PACKAGE, Reached, Watch
from tta_bench.system import distributions, loading
from tta_bench.system.files import digest, file_digest


class Reading:
    """Of this process, which is a plugin's."""

    def __init__(self, watch: Watch, before: Collection[str]) -> None:
        """`before`: the modules that were there before the plugin's code was loaded."""
        self._watch, self._before = watch, before
        self._known: frozenset[str] = frozenset()
        self._looked = (0, 0)

    def contents(self, declared: Collection[str]) -> dict[str, str]:
        """Of all that was read so far, files that are declared left out. It is known from now on."""
        found = contents(self._watch.reached(declared)) | self._modules()
        self._known = frozenset(found)
        return found

    def more(self, declared: Collection[str]) -> list[str]:
        """What was read since then."""
        size = len(self._watch), len(sys.modules)
        if size == self._looked:
            return []
        self._looked = size
        return sorted({*contents(self._watch.reached(declared)), *self._modules()} - self._known)

    def _modules(self) -> dict[str, str]:
        """Those that were imported in a way that nobody could foresee."""
        files = (getattr(sys.modules[name], "__file__", None) for name in loading.unhashed(self._before))
        return {file: _digest(Path(file)) for file in files if file}


def contents(reached: Reached) -> dict[str, str]:
    """Name -> content, of files and variables; of a connection or a program there is none that stays the same."""
    return present([*reached.unknown, *(f"${name}" for name in reached.variables)])


def present(names: Collection[str]) -> dict[str, str]:
    return {name: _content(name) for name in names}


def _content(name: str) -> str:
    if name.startswith("$"):
        return repr(os.environ.get(name[1:]))
    if name.startswith(PACKAGE):
        return distributions.content(name.removeprefix(PACKAGE))
    return _digest(Path(name))


def refusal(names: Collection[str]) -> str:
    """For an author whose views can't be kept."""
    shown = ", ".join(sorted(names)[:3])
    return (
        f"it asks for {shown} while it draws views, which nothing that is kept with them would know: "
        "read it when the recipe is made, and keep what it says in a field, or name the file in `digests`"
    )


def kept_with(text: str, read: Mapping[str, str], declared: Mapping[str, str]) -> str:
    """A recipe's own words, and what it rests on if there is anything."""
    return f"{text} {digest([sorted(read.items()), sorted(declared.items())])[:16]}" if read or declared else text


def _digest(file: Path) -> str:
    return file_digest(file) if file.is_file() else ""
