"""Test sessions in forked processes: one that watches which functions each test enters, and one for each mutant.

The process that forks imports nothing of the project, and runs no autograd, which does not survive a fork.
"""

from __future__ import annotations

import functools
import gc
import importlib
import os
import pickle
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NoReturn, TypeAlias

import hypothesis
import pytest

from tests.mutants.mutations import Mutant

BROKEN = 99  # exit code of a session that says nothing about its mutant
PRELOADED = (
    "torch",
    "torchvision",
    "open_clip",
    "scipy.stats",
    "sklearn.metrics",
    "pandas",
    "cv2",
    "rich.console",
    "typer",
)
QUIET = ("--quiet", "--tb=no", "--no-header", "--no-summary", "-p", "no:cacheprovider")
Tests: TypeAlias = tuple[str, ...]  # by pytest's ids


def preload() -> None:
    """What takes long to import, and hypothesis as every session needs it: the same examples, and no file of them."""
    for name in PRELOADED:
        importlib.import_module(name)
    hypothesis.settings.register_profile(
        "mutants",
        derandomize=True,
        database=None,
        deadline=None,
        max_examples=20,
        phases=(hypothesis.Phase.explicit, hypothesis.Phase.generate),  # a failure need not be made smaller
    )
    hypothesis.settings.load_profile("mutants")
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # no test needs one, and to import them takes half a second


def module_of(file: str) -> str:
    """The name that a file is imported under."""
    parts = Path(file).with_suffix("").parts
    return ".".join(("tta_bench", *(part for part in parts if part not in ("tta_bench", "__init__"))))


# ------------------------------------------------------------------------------------------- which tests concern what


@dataclass
class Entered:
    """The functions that each test enters, and how long it takes."""

    functions: dict[str, set[tuple[str, str]]] = field(default_factory=dict)  # of module and outermost function
    seconds: dict[str, float] = field(default_factory=dict)

    def sessions(self, mutant: Mutant) -> list[Tests]:
        """The tests that enter the mutant's function, or any function of its file for what runs at import.

        Unit tests come first, in a session of their own: most mutants end there, and no other test is imported.
        """
        module = module_of(mutant.file)
        function = {(module, mutant.function)}
        tests = [
            test
            for test, entered in self.functions.items()
            if (entered >= function if mutant.function else any(of == module for of, _ in entered))
        ]
        unit = tuple(test for test in tests if test.startswith("tests/unit/"))
        other = tuple(test for test in tests if test not in unit)
        return [session for session in (unit, other) if session]

    def time_limit(self, sessions: Sequence[Tests]) -> float:
        return 20 + 10 * sum(self.seconds[test] for tests in sessions for test in tests)


def profile(tests: Sequence[str], modules: set[str], folder: Path) -> Entered:
    """Run the tests once on the code as it is, which they must all pass."""
    file = folder / "entered"
    pid = os.fork()
    if not pid:
        watch = _Watch(modules)
        with _silent():
            code = pytest.main([*QUIET, "-m", "not slow", f"--basetemp={folder / 'profile'}", *tests], [watch])
        file.write_bytes(pickle.dumps(watch.entered))
        _exit(code)
    _, status = os.waitpid(pid, 0)
    if status:
        raise SystemExit("the tests must pass before mutants can be tried: see `make test`")
    entered: Entered = pickle.loads(file.read_bytes())
    return entered


class _Watch:
    """Pytest tells when a test is set up and called, Python which functions are entered."""

    def __init__(self, modules: set[str]) -> None:
        self.modules = modules
        self.entered = Entered()
        self.by_fixtures: dict[str, set[tuple[str, str]]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Iterator[None]:
        for module in self.modules & sys.modules.keys():  # what a test has from a cache counts as entered
            for value in vars(sys.modules[module]).values():
                if isinstance(value, functools._lru_cache_wrapper):
                    value.cache_clear()
        # A fixture may be that of several tests, but only the first of them sets it up.
        with self._noting(self.by_fixtures.setdefault(_file(item.nodeid), set())):
            return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        begin = time.monotonic()
        with self._noting(self.entered.functions.setdefault(item.nodeid, set())):
            yield
        self.entered.seconds[item.nodeid] = time.monotonic() - begin

    def pytest_sessionfinish(self) -> None:
        for test, functions in self.entered.functions.items():
            functions |= self.by_fixtures[_file(test)]

    @contextmanager
    def _noting(self, found: set[tuple[str, str]]) -> Iterator[None]:
        def note(frame: FrameType, event: str, _: Any) -> None:
            if event == "call" and (module := frame.f_globals.get("__name__")) in self.modules:
                found.add((module, frame.f_code.co_qualname.partition(".<locals>")[0]))

        sys.setprofile(note)
        try:
            yield
        finally:
            sys.setprofile(None)


def _file(test: str) -> str:
    return test.partition("::")[0]


# ------------------------------------------------------------------------------------------------------ one mutant


def start(mutant: Mutant, sessions: Sequence[Tests], folder: Path) -> int:
    """The id of a process that runs these tests, and ends with 0 when they notice nothing."""
    pid = os.fork()
    if not pid:
        gc.freeze()  # pytest collects garbage twice: not what was here before
        finder = _MutatedFinder(mutant)
        sys.meta_path.insert(0, finder)
        code = 0
        for tests in sessions:
            files = dict.fromkeys(map(_file, tests))
            with _silent():
                code = code or pytest.main(
                    [*QUIET, "--exitfirst", f"--basetemp={folder / str(os.getpid())}", *files], [_Chosen(tests)]
                )
        nothing_ran = code in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)
        _exit(BROKEN if nothing_ran or not finder.asked else code)
    return pid


class _MutatedFinder:
    """Gives the mutated source to whoever imports its module."""

    def __init__(self, mutant: Mutant) -> None:
        self.mutant, self.module, self.asked = mutant, module_of(mutant.file), False

    def find_spec(self, name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        if name != self.module:
            return None
        self.asked = True
        return spec_from_file_location(name, self.mutant.file, loader=_MutatedLoader(name, self.mutant))


class _MutatedLoader(SourceFileLoader):
    def __init__(self, name: str, mutant: Mutant) -> None:
        super().__init__(name, str(Path(mutant.file).absolute()))
        self.mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        """Compiled without a look at the cache of compiled files, which must not learn of it."""
        source = self.mutant.applied(Path(self.path).read_bytes())
        code: CodeType = compile(source, self.path, "exec", dont_inherit=True)
        return code


class _Chosen:
    """Leaves out the tests that don't concern a mutant."""

    def __init__(self, tests: Tests) -> None:
        self.tests = set(tests)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if item.nodeid in self.tests]


@contextmanager
def _silent() -> Iterator[None]:
    """A mutant may crash the interpreter, and what is said then passes Python by."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    yield


def _exit(code: int) -> NoReturn:
    """Without the endings that are the parent's."""
    os._exit(int(code))
