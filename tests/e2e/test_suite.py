"""`ttabench suite` as a user types it: a table that fills, failures that are remembered, estimates from records."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke, Result
from tta_bench import records

CRASH = '''"""A method that fails as long as a file is there."""
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from tta_bench import hookimpl
from tta_bench.interfaces import Method


@dataclass
class Moody(Method):
    name: ClassVar[str] = "moody"

    def start(self, task):
        self.task = task

    def step(self, x):
        if Path("MARK").exists():
            raise RuntimeError("not today")
        return self.task.text @ x.image


@hookimpl
def ttabench_methods():
    return [Moody]
'''


@pytest.fixture
def suite(tmp_path: Path, invoke: Invoke) -> Invoke:
    file = tmp_path / "suite.yaml"
    file.write_text("methods: [moody, secondeyes]\ndatasets: toy\nbackbones: toyclip\nseeds: 0-1\n")
    plugin = tmp_path / "moody.py"
    plugin.write_text(CRASH.replace("MARK", str(tmp_path / "mark")))
    (tmp_path / "mark").touch()

    def call(*words: str) -> Result:
        return invoke("suite", *words, str(file), "--plugin", str(plugin), "--plugin", str(TOY), "--workers", "0")

    return call


def test_a_cell_that_is_written_twice_is_done_twice(tmp_path: Path, invoke: Invoke) -> None:
    """It was said to wait, after everything had run."""
    file = tmp_path / "suite.yaml"
    file.write_text("methods: [tda]\ndatasets: toy\nbackbones: toyclip\nlimit: 4\nsweep: {tda.alpha: [4, 4.0]}\n")
    done = invoke("suite", str(file), "--plugin", str(TOY), "--workers", "0")
    assert done.code == 0
    assert done.out.splitlines()[-1] == "2 done, 0 failed, 0 waiting"


@pytest.mark.slow
def test_failures_are_named_remembered_and_tried_again_when_asked(suite: Invoke, home: Path, tmp_path: Path) -> None:
    first = suite()
    assert first.code == 1
    assert "moody       – (0/2, 2 failed)" in first.out
    assert first.out.splitlines()[-1] == "2 done, 2 failed, 0 waiting"
    assert first.err.strip().splitlines()[-1].startswith("ttabench: moody on toy with toyclip, seed 1: ")
    assert len(records.load_all(home / "runs")[0]) == 2

    (tmp_path / "mark").unlink()
    second = suite()
    assert second.code == 1
    assert "failed before, --retry-failed tries again: " in second.err
    assert "not today" in second.err
    assert suite("status").out.splitlines()[-1] == "2 done, 2 failed, 0 waiting"

    third = suite("--retry-failed")
    assert third.code == 0, third.err
    assert third.out.splitlines()[-1] == "4 done, 0 failed, 0 waiting"
    status = suite("status").out  # outside plugins are found again, too, but their code and data may be others now
    *table, mark, counts = status.replace("*  ", "   ").replace("* (", " (").splitlines()
    assert "".join("".join(table).split()) == "".join("".join(third.out.splitlines()[:-1]).split())
    assert status.count("* (") == 2
    assert mark.startswith("* as recorded: only a run can tell")
    assert counts == third.out.splitlines()[-1]
    one, other, *_ = (home / "cells").glob("*/*.note")
    one.write_bytes(other.read_bytes())  # another cell's note in its place
    assert suite("status").out.splitlines()[-1] == "3 done, 0 failed, 1 waiting"


def test_a_suite_of_one_cell_that_fails_is_remembered_as_well(suite: Invoke, tmp_path: Path) -> None:
    (tmp_path / "suite.yaml").write_text("methods: moody\ndatasets: toy\nbackbones: toyclip\n")
    assert suite().code == 1
    assert suite("status").out.splitlines()[-1] == "0 done, 1 failed, 0 waiting"


@pytest.mark.slow
def test_an_estimate_comes_from_the_records_at_hand(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "suite.yaml"
    text = "methods: [clip, regions]\ndatasets: scenes:clean\nlimit: 20\nseeds: "
    file.write_text(f"{text}0\n")
    before = invoke("suite", "--dry-run", str(file)).out.splitlines()
    views = records_of_regions(invoke, home, file)
    assert f"  encoder forwards  {20 * (1 + views):,}" in before
    assert "  disk              " in "\n".join(before)
    assert "  not included: no record of regions tells how long it adapts" in before

    file.write_text(f"{text}0-1\n")
    after = invoke("suite", "--dry-run", str(file)).out.splitlines()
    assert f"  encoder forwards  {20 * views:,}" in after  # the image itself is the same for every seed
    assert f"  disk              {20 * views * 128 * 2 / 1e6:.1f} MB" in after
    assert not any("not included" in line for line in after)
    assert "2 cells to run, by the records at hand:" in after
    assert len(records.load_all(home / "runs")[0]) == 2  # and nothing was run


def records_of_regions(invoke: Invoke, home: Path, file: Path) -> int:
    """Runs the suite; how many views `regions` looks at besides the image."""
    assert invoke("suite", str(file), "--workers", "0").code == 0
    (run,) = [run for run in records.load_all(home / "runs")[0] if run.method == "regions"]
    return run.counts["forwards_per_image"] - 1


def test_a_suite_is_printed_as_one_line_per_cell(suite: Invoke) -> None:
    lines = suite("--executor", "print").out.splitlines()
    assert len(lines) == 4
    assert all("--dataset toy --backbone toyclip --seed" in line for line in lines)


def test_words_that_make_no_sense(invoke: Invoke) -> None:
    result = invoke("suite", "a.yaml", "b.yaml")
    assert result.code == 2
    assert result.err.strip().endswith("write `ttabench suite FILE.yaml` or `ttabench suite status FILE.yaml`")
