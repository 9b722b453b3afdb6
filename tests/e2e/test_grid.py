"""A grid goes on past a method that crashes; code that is not built in counts by its source."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke
from tta_bench import records

METHOD = '''"""A method."""
from dataclasses import dataclass
from typing import ClassVar

from tta_bench import hookimpl
from tta_bench.interfaces import Method


@dataclass
class Mine(Method):
    name: ClassVar[str] = "mine"

    def start(self, task):
        self.task = task

    def step(self, x):
        return SCORES


@hookimpl
def ttabench_methods():
    return [Mine]
'''
CRASH = METHOD.replace("SCORES", "self.helper(x)").replace(
    "\n\n@hookimpl", "\n\n    def helper(self, x):\n        return 1 / (x.index * 0)\n\n\n@hookimpl"
)
TOYS = ("--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip", "--workers", "0")


@pytest.mark.parametrize(
    "fault", ["return 1 / (x.index * 0)", "raise SystemExit(0)", "return None", "import nothing_there"]
)
def test_a_crashing_method_fails_its_own_cells_only(invoke: Invoke, home: Path, tmp_path: Path, fault: str) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(CRASH.replace("return 1 / (x.index * 0)", fault))
    line = next(i for i, text in enumerate(plugin.read_text().splitlines(), 1) if fault in text)
    result = invoke("run", "-m", "mine,secondeyes", "--seed", "0-1", "--plugin", str(plugin), *TOYS)
    assert result.code == 1
    assert {(run.method, run.seed) for run in records.load_all(home / "runs")[0]} == {
        ("secondeyes", 0),
        ("secondeyes", 1),
    }
    assert result.out.count("secondeyes on toy") == 2
    said = result.err.strip().splitlines()
    assert said[-3] == "ttabench: 2 of 4 runs failed:"
    assert said[-2].startswith("ttabench: mine on toy with toyclip, seed 0: method 'mine', image ")
    assert said[-1].startswith("ttabench: mine on toy with toyclip, seed 1: ")
    if "None" not in fault:
        assert f"mine.py, line {line}" in said[-1]
    assert "Traceback" not in result.err


def test_a_single_run_that_crashes_is_an_error(invoke: Invoke, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(CRASH)
    result = invoke("run", "-m", "mine", "--plugin", str(plugin), *TOYS)
    assert result.code == 1
    assert "ZeroDivisionError" in result.err
    assert "mine.py, line 21" in result.err


def test_a_plugin_that_can_not_be_loaded_fails_its_own_cells_only(invoke: Invoke, tmp_path: Path) -> None:
    site = install(tmp_path, "raise RuntimeError('no licence')")
    result = command(site, tmp_path, "run", "-m", "mine,secondeyes", *TOYS)
    assert result.returncode == 1, result.stderr
    assert "secondeyes on toy" in result.stdout
    assert "RuntimeError: no licence" in result.stderr


def test_in_a_shared_grid_a_wrong_setting_is_said_before_anything_runs(invoke: Invoke, home: Path) -> None:
    result = invoke("run", "-m", "twobranches,secondeyes", "--set", "weigth=0.5", *TOYS)
    assert result.code == 2
    assert "none of the methods to run has such a hyper-parameter" in result.err
    assert not (home / "runs").exists()


# ------------------------------------------------------------------------------------------------------- edited code


def install(tmp_path: Path, source: str) -> Path:
    """A distribution as pip would leave it: its version never changes, its author edits the file."""
    site = tmp_path / "site"
    info = site / "mine-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ttabench]\nmethods.mine = mine_plugin\n")
    (site / "mine_plugin.py").write_text(source)
    return site


def command(site: Path, tmp_path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    import os

    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    environment |= {"TTABENCH_HOME": str(tmp_path / "home"), "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        [sys.executable, "-m", "tta_bench", *arguments], env=environment, capture_output=True, text=True, check=False
    )


def test_an_edited_installed_plugin_is_run_again(tmp_path: Path) -> None:
    good, bad = (METHOD.replace("SCORES", f"{sign}self.task.text @ x.image") for sign in ("", "-"))
    arguments = ("run", "-m", "mine", *TOYS, "--limit", "5")
    first = command(install(tmp_path, good), tmp_path, *arguments)
    assert first.returncode == 0, first.stderr
    again = command(install(tmp_path, good), tmp_path, *arguments)
    assert "done before" in again.stdout
    edited = command(install(tmp_path, bad), tmp_path, *arguments)
    assert "done before" not in edited.stdout
    runs, _ = records.load_all(tmp_path / "home" / "runs")
    assert len({run.config.digest for run in runs}) == 2
    assert {run.provenance["code"]["method"] for run in runs} == {"mine 1.0"}
    assert len({run.metrics["mAP"] for run in runs}) == 2


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("pixels[..., :3] += 60 * labels[:3]", "pixels[..., :3] += 90 * labels[:3]"),  # of the dataset
        ("pixels.flatten(1) - 0.5", "pixels.flatten(1) - 0.4"),  # of the backbone
    ],
)
def test_an_edited_dataset_or_backbone_is_encoded_again(
    invoke: Invoke, home: Path, tmp_path: Path, old: str, new: str
) -> None:
    """Both keep their fingerprints, as an author in a hurry would: the old features must not serve the new code."""
    plugin = tmp_path / "toys.py"
    results = []
    for source in (TOY.read_text(), TOY.read_text().replace(old, new)):
        plugin.write_text(source)
        run = ("run", "-m", "clip", "-d", "toy", "-b", "toyclip", "--plugin", str(plugin), "--workers", "0")
        results.append(invoke(*run))
        assert results[-1].code == 0, results[-1].err
    assert "\n0 encoder forwards" not in f"\n{results[1].err}"
    runs, _ = records.load_all(home / "runs")
    assert len({run.protocol.digest for run in runs}) == 2
    assert len({run.config.digest for run in runs}) == 1  # the method itself is the built-in one
    assert runs[0].provenance["code"] == {
        "method": "ttabench 0.1.0",
        "dataset": "toys.py",
        "backbone": "toys.py",
    }


def test_photos_on_a_backbone_that_knows_none_are_said(invoke: Invoke) -> None:
    result = invoke("run", "-m", "clip", "--plugin", str(TOY), "-d", "toy", "--limit", "3", "--workers", "0")
    assert result.code == 0
    assert "tiny was made for scenes alone" in result.err
    again = invoke("run", "-m", "clip", "--plugin", str(TOY), "-d", "toy", "--limit", "3", "--workers", "0")
    assert "done before" in again.out
    assert "tiny was made for scenes alone" in again.err
    assert "made for" not in invoke("run", "-m", "clip", "--limit", "3", "--workers", "0").err


def test_scores_that_are_no_logits_are_said(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(METHOD.replace("SCORES", "(self.task.scale * self.task.text @ x.image).softmax(-1)"))
    result = invoke("run", "-m", "mine", "--plugin", str(plugin), *TOYS)
    assert "centred mAP means nothing" in result.err
    (run,) = records.load_all(home / "runs")[0]
    assert "centred mAP means nothing" in " ".join(run.notes)
