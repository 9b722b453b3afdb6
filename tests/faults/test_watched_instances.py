"""What an instance reads in the caller's process, and no identity knows, is named in its record; nobody else's is."""

from __future__ import annotations

import collections
import configparser
import contextlib
import ctypes
import functools
import importlib
import multiprocessing
import os
import sqlite3
import string
import subprocess
import sys
import tempfile
import types
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import pytest
from torch import Tensor

import tta_bench
from tests.conftest import TOY
from tests.faults.compiled_code import build, needs_a_compiler
from tta_bench.errors import PluginError
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.methods.clip import CLIP
from tta_bench.plugins import Registry
from tta_bench.runs import watched, watched_instances
from tta_bench.system.files import file_digest


@dataclass
class Reading(Method):
    """Does something at some moment of a run."""

    name: ClassVar[str] = "reading"
    file: str = ""
    moment: str = "step"
    act: ClassVar[Callable[[Reading], object]]

    def at(self, moment: str) -> None:
        if self.moment == moment:
            type(self).act(self)

    def start(self, task: Task) -> None:
        self.task = task
        self.at("start")

    def step(self, x: Observation) -> Tensor:
        self.at("step")
        self.report({"index": x.index})
        return self.task.text @ x.image

    def finish(self, outputs: Tensor) -> Tensor:
        self.at("finish")
        return outputs[:, 0]

    def take_report(self) -> dict[str, float]:
        self.at("report")
        return super().take_report()


def doing(action: Callable[[Reading], object]) -> type[Reading]:
    return type("Doing", (Reading,), {"act": staticmethod(action), "__module__": __name__})


@pytest.fixture
def bench(home: Path) -> tta_bench.Bench:
    return tta_bench.Bench(home, registry=Registry([TOY]))


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    file = tmp_path / "settings.json"
    file.write_text("1.0")
    return file


def notes(bench: tta_bench.Bench, method: Method, **more: Any) -> str:
    return " ".join(tta_bench.run(method, "toy", "toyclip", limit=6, bench=bench, **more).notes)


READING = doing(lambda self: Path(self.file).read_text())


@pytest.mark.parametrize("moment", ["start", "step", "finish", "report"])
def test_a_file_is_named(moment: str, bench: tta_bench.Bench, settings: Path) -> None:
    said = notes(bench, READING(str(settings), moment))
    assert f"it reached for {settings}, which its identity does not know" in said
    settings.write_text("2.0")
    assert notes(bench, READING(str(settings), moment)) == said  # the old number, and what to know about it


def test_a_file_that_a_library_opens_for_it_is_named(bench: tta_bench.Bench, tmp_path: Path) -> None:
    file = tmp_path / "rows.sqlite"
    sqlite3.connect(file).close()
    file.touch()
    assert f"it reached for {file}" in notes(bench, doing(lambda self: sqlite3.connect(self.file))(str(file)))


def optional(self: Reading) -> None:
    with contextlib.suppress(FileNotFoundError):
        Path(self.file).read_text()


def test_a_file_that_is_not_there_is_named(bench: tta_bench.Bench, tmp_path: Path) -> None:
    """Whoever makes it later would be told that all is done."""
    assert f"it reached for {tmp_path / 'later.json'}" in notes(bench, doing(optional)(str(tmp_path / "later.json")))


@pytest.mark.slow
def test_what_a_library_looks_for_while_it_is_imported_is_its_own_matter(
    bench: tta_bench.Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many look for settings of a user who has none."""
    library = tmp_path / "site" / "lib_with_settings"
    library.mkdir(parents=True)
    (library / "__init__.py").write_text("try: open('/nowhere/settings')\nexcept OSError: pass\n")
    monkeypatch.syspath_prepend(str(library.parent))
    outside = watched._is_outside_file
    monkeypatch.setattr(watched, "_is_outside_file", lambda file: outside(file) and str(library) not in file)
    assert "/nowhere" not in notes(bench, doing(lambda self: importlib.import_module("lib_with_settings"))())


@pytest.mark.skipif(not Path("/dev/shm").is_dir(), reason="Linux has it")
def test_a_file_in_shared_memory_is_named(bench: tta_bench.Bench) -> None:
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        assert f"it reached for {file.name}" in notes(bench, READING(file.name, "start"))


def test_a_projects_folder_below_usr_is_no_systems() -> None:
    assert not watched._known(Path("/usr/src/app/settings.json"), [])
    assert watched._known(Path("/usr/share/zoneinfo/UTC"), [])


def in_a_child(kind: str, self: Reading) -> None:
    context: Any = multiprocessing.get_context(kind)
    with context.Pool(1) as pool:
        pool.map(Path.read_text, [Path(self.file)])


def test_a_file_that_a_forked_child_reads_is_named(bench: tta_bench.Bench, settings: Path) -> None:
    said = notes(bench, doing(functools.partial(in_a_child, "fork"))(str(settings), "start"))
    assert f"it reached for {settings}" in said
    assert "/pymp-" not in said


def test_a_child_that_begins_anew_is_named(bench: tta_bench.Bench, settings: Path) -> None:
    said = notes(bench, doing(functools.partial(in_a_child, "spawn"))(str(settings), "start"))
    assert "processes that multiprocessing has spawned" in said


@needs_a_compiler
def test_a_library_that_ctypes_loads_is_named(bench: tta_bench.Bench, tmp_path: Path) -> None:
    file = build(tmp_path, "libgain", "1.0")
    assert f"it reached for {file}" in notes(bench, doing(lambda self: ctypes.CDLL(self.file))(str(file)))


ASKED = {
    "get": lambda self: os.environ.get("MY_SIGN"),
    "getenv": lambda self: os.getenv("MY_SIGN"),
    "in": lambda self: "MY_SIGN" in os.environ,
    "[]": lambda self: os.environ["MY_SIGN"],
    "as bytes": lambda self: os.environb.get(b"MY_SIGN"),
    "setdefault": lambda self: os.environ.setdefault("MY_SIGN", "1"),
    "expandvars": lambda self: os.path.expandvars("$MY_SIGN"),
    "a template": lambda self: string.Template("$MY_SIGN").substitute(os.environ),
    "a chain": lambda self: collections.ChainMap({}, os.environ)["MY_SIGN"],
}
ASKED_FOR_ALL = {
    "items": lambda self: [value for name, value in os.environ.items() if name == "MY_SIGN"],
    "values": lambda self: list(os.environ.values()),
    "dict": lambda self: dict(os.environ.items()),
    "copy": lambda self: os.environ.copy(),
    "configparser": lambda self: configparser.ConfigParser(os.environ, interpolation=None),
}


@pytest.mark.parametrize("how", ASKED)
def test_a_variable_is_named(how: str, bench: tta_bench.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_SIGN", "1")
    said = notes(bench, doing(ASKED[how])())
    assert "it asked the environment for MY_SIGN, which its identity does not know" in said


@pytest.mark.parametrize("how", ASKED_FOR_ALL)
def test_a_loop_over_all_variables_is_named(how: str, bench: tta_bench.Bench) -> None:
    assert f"it asked the environment for {next(iter(os.environ))}, " in notes(bench, doing(ASKED_FOR_ALL[how])())


def test_a_function_of_its_own_called_get_is_no_library(bench: tta_bench.Bench) -> None:
    def get() -> str | None:
        return os.environ.get("MY_SIGN")

    assert "MY_SIGN" in notes(bench, doing(lambda self: get())())


CELL = """
import json, os
from dataclasses import dataclass
from typing import ClassVar
from tta_bench.interfaces import Method

@dataclass
class Mine(Method):
    name: ClassVar[str] = "mine"

    def start(self, task):
        self.task, self.gain = task, json.load(open(FILE))

    def step(self, x):
        return self.gain * float(os.environ.get("MY_SIGN", 1)) * (self.task.text @ x.image)
"""


@pytest.mark.parametrize("file", ["<ipython-input-1>", "/tmp/ipykernel_1/2.py", "<string>"])
def test_a_cell_of_a_notebook_is_somebodys_own(
    file: str, bench: tta_bench.Bench, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook = types.ModuleType("notebook_cell")
    monkeypatch.setitem(sys.modules, notebook.__name__, notebook)
    exec(compile(CELL.replace("FILE", repr(str(settings))), file, "exec"), vars(notebook))
    said = notes(bench, vars(notebook)["Mine"]())
    assert f"it reached for {settings}" in said
    assert "it asked the environment for MY_SIGN" in said


@pytest.mark.slow
def test_a_module_that_it_imports_under_a_name_put_together_is_named(
    bench: tta_bench.Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "put_together.py").write_text("gain = 1\n")
    try:
        said = notes(bench, doing(lambda self: __import__("put_" + "together"))())
    finally:
        sys.modules.pop("put_together", None)
    assert f"it reached for {tmp_path}/put_together.py" in said


# ----------------------------------------------------------------------------------------------------- what is not said


class Declaring(READING):  # type: ignore[misc, valid-type]
    """Says what it reads."""

    def digests(self) -> Mapping[str, str]:
        return {"file": file_digest(Path(self.file))}


def test_a_file_that_it_declares_is_known(bench: tta_bench.Bench, settings: Path) -> None:
    assert not notes(bench, Declaring(str(settings)))


def test_its_own_code_is_known(bench: tta_bench.Bench) -> None:
    assert not notes(bench, doing(lambda self: Path(__file__).read_text())())


def test_what_it_only_writes_is_no_input(bench: tta_bench.Bench, settings: Path) -> None:
    def write(self: Reading) -> None:
        with Path(self.file).open("a") as file:
            file.write("seen\n")

    assert not notes(bench, doing(write)(str(settings)))


def test_what_a_library_asks_the_environment_for_is_its_own_matter(bench: tta_bench.Bench) -> None:
    assert not notes(bench, doing(lambda self: Path("~/settings").expanduser())())


@pytest.mark.slow
def test_what_others_read_is_not_named(bench: tta_bench.Bench, settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The runner's own files, a dataset and a backbone of somebody's own, and a method of ours that is subclassed."""

    def reading(cls: Any, name: str) -> None:
        function = getattr(cls, name)

        def read(*arguments: Any) -> Any:
            os.environ.get("MY_SIGN")
            settings.read_text()
            return function(*arguments)

        monkeypatch.setattr(cls, name, read)

    toys = sys.modules[type(bench.backbone("toyclip")).__module__]
    reading(toys.Toy, "_image")
    for name in ("encode_texts", "encode_images", "init_context"):
        reading(toys.ToyCLIP, name)

    class Asking(CLIP):
        name: ClassVar[str] = "asking"
        tunes_prompts: ClassVar[bool] = True

        def step(self, x: Observation) -> Tensor:
            assert self.task.encode_texts is not None
            assert self.task.prompts is not None
            self.task.prompts.init_context("a photo")
            x.pixels("image")
            return super().step(x) + self.task.encode_texts(self.task.class_names) @ x.image

    said = notes(bench, Asking())
    assert "MY_SIGN" not in said
    assert settings.name not in said


def test_what_the_caller_reads_is_not_named(bench: tta_bench.Bench, settings: Path) -> None:
    settings.read_text()
    os.environ.get("MY_SIGN")
    assert not notes(bench, doing(lambda self: None)())


# ------------------------------------------------------------------------------------------------- the caller's process


def test_the_caller_has_one_hook_and_its_environment_back(
    bench: tta_bench.Bench, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    added: list[object] = []
    monkeypatch.setattr(sys, "addaudithook", added.append)
    watched_instances._install.cache_clear()
    before = type(os.environ).__getitem__
    kinds: list[Any] = []
    for seed in range(2):
        look = doing(lambda self: kinds.append(type(os.environ).__getitem__))
        notes(bench, look(), seed=seed)
    assert all(kind is not before for kind in kinds)
    assert type(os.environ).__getitem__ is before
    with pytest.raises(PluginError):
        notes(bench, doing(lambda self: 1 / 0)())
    assert type(os.environ).__getitem__ is before
    assert not watched_instances._now
    assert len(added) == 1
    watched_instances._install.cache_clear()


def test_a_hook_that_fails_does_not_reach_the_caller(bench: tta_bench.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be raised by whatever the method has called."""
    monkeypatch.setattr(watched_instances, "_asked_by_runner", lambda frame, own: 1 / 0)
    assert not notes(bench, READING(__file__))


def test_what_a_watch_keeps_is_closed_with_it(tmp_path: Path) -> None:
    """Warnings of a file that nobody had closed imported modules while they were gone through, and the run failed."""
    script = tmp_path / "script.py"
    script.write_text(
        "import gc\nfrom tta_bench.runs.watched import Seen\nfor _ in range(20):\n    Seen()\ngc.collect()\n"
    )
    command = [sys.executable, "-W", "error::ResourceWarning", "-X", "dev", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, "ResourceWarning" in done.stderr) == (0, False), done.stderr
