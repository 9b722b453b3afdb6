"""Whose code is it, has it changed, and where in it did something go wrong?"""

from __future__ import annotations

import importlib.metadata
import itertools
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from types import FunctionType, ModuleType
from typing import Any

from tta_bench.errors import PluginError, Raised, TTABenchError
from tta_bench.system import distributions
from tta_bench.system.data import PLAIN, array_in_words
from tta_bench.system.described import described
from tta_bench.system.files import digest
from tta_bench.system.loading import is_outside_file
from tta_bench.system.objects import attributes_of
from tta_bench.system.progress import TTABenchWarning
from tta_bench.system.sources import OURS, built_in_source
from tta_bench.system.whose import is_another, own_packages, package_of

BUILT_IN = "ttabench"
LARGEST_ARRAY = 16_000_000  # bytes
LONGEST_LIST = 1000  # items
DEPTH = 5  # of objects in objects whose parameters count
LONGEST = 1000  # characters of what an error says


@dataclass(frozen=True)
class Origin:
    """Whose code something is."""

    label: str  # distribution and version, the loose file's name, or "notebook"
    source: str  # digest of the code
    built_in: bool = False
    altered: str = ""  # what of it is no longer what was loaded

    def with_more(self, more: object) -> Origin:
        """Of something that has more to it than this code: it is no built-in any more."""
        return replace(self, source=digest([self.source, described(more)]), built_in=False)


def origin_of(thing: object) -> Origin:
    """Whose code an object is that did not come through the registry: what its class would execute counts."""
    if isinstance(stated := getattr(thing, "origin", None), Origin):  # it stands for something in another process
        return stated
    cls = type(thing)
    if cls.__module__.startswith(f"{OURS}.") and not is_another(cls):
        label = f"{BUILT_IN} {importlib.metadata.version(BUILT_IN)}"
        return Origin(label, built_in_source(cls.__module__), built_in=True)
    file = getattr(sys.modules.get(cls.__module__), "__file__", None)
    source = [described(cls, own_packages(cls.__module__)), distributions.content(package_of(cls.__module__))]
    return Origin(Path(file).name if file else "notebook", digest(source))


def origin_of_made(thing: object) -> Origin:
    """Of a dataset or backbone that somebody has made: its parameters count as well, whatever its fingerprint says."""
    origin = origin_of(thing)
    if origin.built_in:
        return origin
    return replace(origin, source=digest([origin.source, _parameters(thing, DEPTH)]))


def _parameters(value: Any, depth: int) -> Any:
    """Numbers, texts, functions and what is made of them, in objects too. What is private may be a memory that fills
    up: there a single one only; and what long lists and large arrays hold, a fingerprint has to tell."""
    if type(value) in PLAIN or isinstance(value, PurePath | FunctionType):
        return described(value)
    if isinstance(value, Mapping):
        first = itertools.islice(value.items(), LONGEST_LIST if depth else 0)
        return [len(value), {str(key): _parameters(item, depth - 1) for key, item in first}]
    if isinstance(value, list | tuple):
        return [len(value), *(_parameters(item, depth - 1) for item in value[: LONGEST_LIST if depth else 0])]
    if getattr(value, "nbytes", LARGEST_ARRAY) < LARGEST_ARRAY and (array := array_in_words(value)) is not None:
        return described(array)
    if isinstance(value, type | ModuleType) or not depth:
        return ""
    shown = {name: item for name, item in attributes_of(value) if not name.startswith("_") or type(item) in PLAIN}
    return [type(value).__qualname__, {name: _parameters(item, depth - 1) for name, item in sorted(shown.items())}]


def overridden(thing: object) -> dict[str, Any]:
    """What an object has in the place of its class's own methods, and hooks on the torch modules that it holds."""
    cls = type(thing)
    name_of = f"{cls.__module__}.{cls.__qualname__}"
    found = {f"{name_of}.{name}": value for name, value in attributes_of(thing) if callable(getattr(cls, name, None))}
    for name, value in attributes_of(thing):
        for path, module in value.named_modules() if hasattr(value, "named_modules") else ():
            kinds = [vars(module).get(kind, {}) for kind in ("_forward_pre_hooks", "_forward_hooks")]
            own = [hook for hooks in kinds for hook in hooks.values()]
            own += [vars(module)["forward"]] if "forward" in vars(module) else []
            found |= {f"{name_of}.{name}.{path}": own} if own else {}
    return found


def told(recipe: object) -> str:
    """A view recipe in words that differ when its views do. One of somebody's own may say nothing of what it holds."""
    origin = origin_of(recipe)
    if origin.built_in or getattr(recipe, "origin", None) is origin:
        return repr(recipe)
    return f"{re.sub(' at 0x[0-9a-f]+', '', repr(recipe))} {digest(described(recipe))[:16]}"


def author_line(error: BaseException) -> str:
    """The innermost line of an error in a file of a user's own: "my_dataset.py, line 17"; "" if it never was there."""
    installed = distributions.offering()
    place = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        file = Path(frame.f_code.co_filename).resolve()
        if is_outside_file(str(file)) or str(frame.f_globals.get("__name__")).partition(".")[0] in installed:
            place = f"{file.name}, line {line}"
    return place


@contextmanager
def blamed(where: str) -> Iterator[None]:
    """Whatever a plugin raises, SystemExit included, becomes one line that says where. Ctrl-C stays what it is, and so
    does a warning of ours that the caller has made an error."""
    try:
        yield
    except (TTABenchError, TTABenchWarning, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise PluginError(f"{where}: {in_words(error, author_line(error))}") from error


def in_words(error: BaseException, place: str) -> str:
    """Its kind, what it says, and where it comes from."""
    if isinstance(error, Raised):
        return str(error)
    said = str(error).partition("\nException raised from")[0]  # torch adds frames of its own
    said = said if len(said) <= LONGEST else f"{said[:LONGEST]} …"
    return f"{type(error).__name__}: {said}{f' ({place})' if place else ''}"


def one_line(error: BaseException, file: str | Path | None) -> str:
    """An error in words, with its line in a plugin's own file."""
    text = " ".join((error.msg if isinstance(error, SyntaxError) else str(error)).split())
    where = own_line(error, file)
    return f"{type(error).__name__}{f': {text}' if text else ''}{f' ({where})' if where else ''}"


def own_line(error: BaseException, module_file: str | Path | None) -> str:
    """Where in a plugin's own file an error comes from: "my_method.py, line 17"; "" if it never was there.

    That is the innermost frame in that file: what the author can look at, wherever the library below it gave up.
    """
    if module_file is None:
        return ""
    file, raised = Path(module_file).resolve(), error
    while True:
        frames = traceback.walk_tb(raised.__traceback__)
        lines = [line for frame, line in frames if Path(frame.f_code.co_filename).resolve() == file]
        if isinstance(raised, SyntaxError) and raised.lineno and Path(raised.filename or "").resolve() == file:
            lines.append(raised.lineno)
        if lines:
            return f"{Path(module_file).name}, line {lines[-1]}"
        if raised.__cause__ is None:
            return ""
        raised = raised.__cause__  # somebody has caught it and said it in other words
