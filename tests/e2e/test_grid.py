"""A grid goes on past a method that crashes; code that is not built in counts by its source."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from torch import Tensor

import tta_bench
from tests.conftest import TOY, Invoke, some_slow
from tta_bench import records
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.plugins import Registry
from tta_bench.runs.bench import Bench

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
    "fault", some_slow(["raise SystemExit(0)"], ["return 1 / (x.index * 0)", "return None", "import nothing_there"])
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


@pytest.mark.slow
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


@pytest.mark.slow
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
        "method": f"ttabench {tta_bench.__version__}",
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


FAULTS = {
    "report": "def step(self, x):\n        self.report({'a': 'no number'})\n        return self.task.text @ x.image",
    "validate": "def validate(self):\n        raise KeyError('gone')",
    "digests": "def digests(self):\n        return 3",
    "second_backbone": "def second_backbone(self):\n        raise KeyError('gone')",
    "constructor": "def __post_init__(self):\n        raise KeyError('gone')",
    "recipes": "@property\n    def recipes(self):\n        raise KeyError('gone')",
    "finish without a tensor": "def finish(self, outputs):\n        return outputs[:, 0].numpy()",
    "finish of nothing": "def finish(self, outputs):\n        return None",
    "branches": "def step(self, x):\n        return (self.task.text @ x.image)[None].repeat(2 - min(x.index, 1), 1)",
}


FAST = ("report", "branches")


@pytest.mark.parametrize("fault", some_slow(FAST, [fault for fault in FAULTS if fault not in FAST]))
def test_whatever_a_method_does_wrong_the_others_go_on(invoke: Invoke, tmp_path: Path, fault: str) -> None:
    plugin = tmp_path / "mine.py"
    source = METHOD.replace("SCORES", "self.task.text @ x.image")
    plugin.write_text(source.replace("\n\n@hookimpl", f"\n\n    {FAULTS[fault]}\n\n\n@hookimpl"))
    more = ("--plugin", str(plugin), *TOYS, "--limit", "4", "--checkpoint-seconds", "0")
    result = invoke("run", "-m", "mine,secondeyes", *more)
    assert result.code == 1, result.err
    assert "secondeyes on toy" in result.out
    assert "unexpected" not in result.err
    assert "Traceback" not in result.err
    assert "1 of 2 runs failed" in result.err
    assert result.err.splitlines()[-1].count("mine on toy") == 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("return cls(variant)", "raise KeyError('gone')"),
        ('labels = (seeded(f"labels/{i}")', 'raise SystemExit(0); labels = (seeded(f"labels/{i}")'),
        ("return normalize((pixels.flatten(1) - 0.5) @ self.projection, dim=-1)", "raise KeyError('gone')"),
    ],
    ids=["open", "getitem", "encode_images"],
)
def test_a_broken_dataset_or_backbone_fails_its_own_cells_only(
    invoke: Invoke, tmp_path: Path, old: str, new: str
) -> None:
    plugin = tmp_path / "toys.py"
    assert old in TOY.read_text()
    plugin.write_text(TOY.read_text().replace(old, new))
    dataset, backbone = (
        ("toy,scenes", "tiny") if "encode" not in old and "flatten" not in old else ("toy", "toyclip,tiny")
    )
    more = ("--plugin", str(plugin), "--limit", "2", "--workers", "0")
    result = invoke("run", "-m", "clip", "-d", dataset, "-b", backbone, *more)
    assert result.code == 1, result.err
    assert result.out.count("clip on ") == 1
    assert "toys.py, line" in result.err
    assert "unexpected" not in result.err


def test_what_refuses_does_not_stop_the_others(invoke: Invoke) -> None:
    result = invoke("run", "-m", "clip,difftpt,secondeyes", *TOYS, "--limit", "2")
    assert result.code == 2
    assert result.out.count(" on toy with toyclip") == 2
    assert "difftpt needs generated images" in result.err


def test_finish_is_called_once(invoke: Invoke, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In mid-stream, for the running mAP, it would depend on how fast the machine is."""
    monkeypatch.setattr("tta_bench.runs.replay.RUNNING_MAP_SECONDS", 0.0)
    plugin = tmp_path / "mine.py"
    finish = "def finish(self, outputs):\n        print('finish', len(outputs))\n        return outputs[:, 0]"
    source = METHOD.replace("SCORES", "self.task.text @ x.image")
    plugin.write_text(source.replace("\n\n@hookimpl", f"\n\n    {finish}\n\n\n@hookimpl"))
    assert invoke("run", "-m", "mine", "--plugin", str(plugin), *TOYS).code == 0
    (log,) = (home / "runs").glob("*/log.txt")
    assert log.read_text() == "finish 24\n"


@pytest.mark.slow
def test_an_edited_view_recipe_is_rendered_again(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    recipe = (
        "\n\n@dataclass(frozen=True)\nclass Dark:\n    name = 'dark2'\n    count = 2\n    seeded = False\n"
        "    def render(self, image, image_id, seed, preprocess):\n        import torch\n"
        "        return torch.full((2, 3, preprocess.size, preprocess.size), LEVEL)\n\n\n@dataclass\nclass Mine"
    )
    source = METHOD.replace("SCORES", "self.task.text @ x['views'].mean(0)").replace(
        "\n\n@dataclass\nclass Mine", recipe
    )
    source = source.replace(
        'name: ClassVar[str] = "mine"', 'name: ClassVar[str] = "mine"\n    recipes = {"views": Dark()}'
    )
    plugin = tmp_path / "mine.py"
    results = []
    for level in ("0.1", "0.9"):
        plugin.write_text(source.replace("LEVEL", level))
        results.append(invoke("run", "-m", "mine", "--plugin", str(plugin), *TOYS, "--limit", "4"))
        assert results[-1].code == 0, results[-1].err
    assert "\n0 encoder forwards" not in f"\n{results[1].err}"
    first, second = (run.scores() for run in records.load_all(home / "runs")[0])
    assert (first != second).any()


def test_a_setting_of_one_method_may_name_it(invoke: Invoke, home: Path) -> None:
    assert invoke("run", "-m", "tda", "--set", "tda.shots=2", *TOYS, "--limit", "2").code == 0
    assert records.load_all(home / "runs")[0][0].hyper_parameters["shots"] == 2


@dataclass
class Poison(Method):
    """An instance runs in the caller's process, where it can reach the backbone."""

    name: ClassVar[str] = "poison"
    tower: str = "projection"

    def start(self, task: Task) -> None:
        self.task = task
        backbone = task.encode_texts._encode.__self__  # type: ignore[union-attr]
        getattr(backbone, self.tower).mul_(0.5).add_(0.1)

    def step(self, x: Observation) -> Tensor:
        return self.task.text @ x.image


@pytest.mark.parametrize("tower", ["projection", "letters"])
def test_a_method_that_changes_the_backbone_harms_only_itself(
    toy_registry: Registry, tmp_path: Path, tower: str
) -> None:
    def scores(folder: str, *methods: str | Method) -> tuple[object, Sequence[str]]:
        bench = Bench(tmp_path / folder, registry=toy_registry)
        results = tta_bench.grid(methods, "toy", "toyclip", bench=bench)
        return results.filter(method="secondeyes")[0].scores().tolist(), results.failures

    clean, _ = scores("clean", "secondeyes")
    other, (failure,) = scores("poisoned", Poison(tower), "secondeyes")
    assert "has changed the backbone toyclip" in failure
    assert clean == other
