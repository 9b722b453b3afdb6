"""Plugins that are edited, reloaded or patched while a process has them: the new code counts, or it is said."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TOY
from tests.e2e.test_grid import METHOD
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.system.progress import Silent

CHANGED = "no longer what it was when"
DATASET = '''"""A dataset."""
from HELPER import K, factor

import HELPER
import numpy as np
from PIL import Image

from tta_bench import hookimpl
from tta_bench.interfaces import Sample

OFFSET, SEEN, _KEPT, calls = 0, [], {}, 0


class Mine:
    name, class_names, fingerprint = "mine", ("cat", "dog"), "x"
    step = 3

    @classmethod
    def open(cls, root, variant="default"):
        return cls()

    def __len__(self):
        return 8

    def __getitem__(self, i):
        global calls
        calls += 1
        SEEN.append(i)
        _KEPT[i] = calls
        Mine.last = i
        labels = np.array([i % 2, 1 - i % 3 % 2], dtype=np.int8)
        return Sample(f"i{i}", lambda: self.picture(i), labels)

    def picture(self, i):
        levels = np.random.default_rng(i).integers(0, 255, (16, 16, 3)) * HELPER.K * factor() + OFFSET
        return Image.fromarray(levels.astype("uint8"))


@hookimpl
def ttabench_datasets():
    return [Mine]
'''
HELPED = "K = 1.0\nTABLE = [1]\n\ndef factor():\n    return FACTOR\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A loose dataset with a helper of its own."""
    monkeypatch.syspath_prepend(str(tmp_path))
    write(tmp_path, "1")
    (tmp_path / "mine.py").write_text(DATASET.replace("HELPER", name_of(tmp_path)))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("helper_of", "ttabench_loose")):
            del sys.modules[name]


def name_of(folder: Path) -> str:
    """Every test has its own."""
    return f"helper_of_{folder.name.replace('-', '_')}"


def write(folder: Path, factor: str) -> None:
    (folder / f"{name_of(folder)}.py").write_text(HELPED.replace("FACTOR", factor))


def bench(folder: Path) -> Bench:
    return Bench(folder / "home", registry=Registry([TOY, folder / "mine.py"]), progress=Silent())


def run(bench: Bench) -> RunRecord:
    return bench.run(RunSpec("clip", "mine", "toyclip")).record


def helper(folder: Path) -> Any:
    return sys.modules[name_of(folder)]


def is_said(record: RunRecord) -> bool:
    return any(CHANGED in note for note in record.notes)


def test_a_module_that_fills_its_memories_is_the_same(folder: Path) -> None:
    """It counts calls, keeps what it has seen, and notes something on its class."""
    shared = bench(folder)
    first = run(shared)
    assert not is_said(first)
    assert shared.run(RunSpec("clip", "mine", "toyclip")).already
    importlib.reload(helper(folder))  # which says the same
    assert shared.run(RunSpec("clip", "mine", "toyclip")).already


def test_a_helper_that_was_edited_after_it_was_loaded_is_said(folder: Path) -> None:
    first = run(bench(folder))
    write(folder, "0.5")
    second = run(bench(folder))
    assert second.run_id != first.run_id
    assert any(f"{name_of(folder)}.py is {CHANGED}" in note for note in second.notes)


def edit_and_reload(folder: Path, _: Any) -> None:
    write(folder, "0.5")
    importlib.reload(helper(folder))


CHANGES: dict[str, Any] = {
    "a reloaded helper": edit_and_reload,
    "a constant": lambda folder, cls: setattr(helper(folder), "K", 0.5),
    "a table": lambda folder, cls: setattr(helper(folder), "TABLE", [2]),
    "a function": lambda folder, cls: setattr(helper(folder), "factor", lambda: 0.5),
    "a function's code": lambda folder, cls: setattr(helper(folder).factor, "__code__", (lambda: 0.5).__code__),
    "a constant of the plugin": lambda folder, cls: setattr(sys.modules[cls.__module__], "OFFSET", 9),
    "a method of its class": lambda folder, cls: setattr(cls, "picture", lambda self, i: self),
    "a method that its class did not have": lambda folder, cls: setattr(cls, "__contains__", lambda self, i: True),
    "an attribute of its class": lambda folder, cls: setattr(cls, "step", 4),
}


@pytest.mark.parametrize("what", CHANGES)
def test_what_is_no_longer_as_it_was_loaded_is_another_dataset(what: str, folder: Path) -> None:
    registry = Registry([folder / "mine.py"])
    before = registry.origin("datasets", "mine")
    assert not before.altered
    CHANGES[what](folder, registry.dataset("mine"))
    after = registry.origin("datasets", "mine")
    assert after.altered
    assert after.source != before.source


def test_what_a_notebook_sets_in_a_plugin_is_said_and_counts(folder: Path) -> None:
    shared = bench(folder)
    first = run(shared)
    helper(folder).K = 0.5
    second = run(shared)
    assert second.run_id != first.run_id
    assert second.counts["encoder_forwards"] > 0
    assert any(f"{name_of(folder)}.K is {CHANGED} mine.py was loaded" in note for note in second.notes)
    helper(folder).K = 1.0
    assert run(shared).run_id == first.run_id


def test_a_method_that_is_edited_between_two_runs_of_one_bench_is_the_new_one(tmp_path: Path, home: Path) -> None:
    plugin, beside = tmp_path / "mine.py", tmp_path / f"{name_of(tmp_path)}.py"
    text = f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import {name_of(tmp_path)} as beside\n" + METHOD
    plugin.write_text(text.replace("SCORES", "beside.SIGN * (self.task.text @ x.image)"))
    beside.write_text("SIGN = 1")
    shared = Bench(home, registry=Registry([TOY, plugin]), progress=Silent())
    spec = RunSpec("mine", "toy", "toyclip", limit=5)
    records = [shared.run(spec).record]
    beside.write_text("SIGN = -1")
    records.append(shared.run(spec).record)
    plugin.write_text(text.replace("SCORES", "2 + beside.SIGN * (self.task.text @ x.image)"))
    records.append(shared.run(spec).record)
    first, second, third = (record.scores() for record in records)
    assert len({record.run_id for record in records}) == 3
    assert (first == -second).all()
    assert (abs(third - second - 2) < 1e-5).all()
