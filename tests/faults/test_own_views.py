"""Views of an author's own are kept as features: what they rest on besides their code counts, or is refused."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TOY
from tta_bench.errors import PluginError
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord
from tta_bench.runs.bench import Bench
from tta_bench.runs.spec import RunSpec

PLUGIN = """
import importlib, json, os
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar
import numpy as np
import torch
from tta_bench import hookimpl
from tta_bench.interfaces import Method
from tta_bench.system.files import file_digest

HERE = Path(__file__).parent
FILE = HERE / "side.json"
def side(): return json.loads(FILE.read_text())
AT_IMPORT

@dataclass
class Crop:
    name: ClassVar[str] = "corner"
    count: ClassVar[int] = 1
    seeded: ClassVar[bool] = False
    MEMBERS
    def render(self, image, image_id, seed, preprocess):
        share = SHARE
        levels = torch.tensor(np.array(image.convert("L").resize((preprocess.size,) * 2)))
        levels = levels.view(1, 1, preprocess.size, preprocess.size).expand(1, 3, -1, -1) / 255
        return torch.where(torch.arange(preprocess.size) < preprocess.size * share, levels, 0.0).float()

@dataclass
class Corner(Method):
    name: ClassVar[str] = "corner"
    file: Path = FILE
    @property
    def recipes(self): return {"corner": Crop()}
    DIGESTS
    def start(self, task): self._task = task
    def step(self, x): return self._task.scale * x["corner"].mean(0) @ self._task.text.T

@hookimpl
def ttabench_methods(): return [Corner]
"""
DECLARED = 'def digests(self): return {"file": file_digest(self.file)}'


def plugin(folder: Path, share: str, at_import: str = "", members: str = "", digests: str = "") -> Path:
    file = folder / "corner_views.py"
    text = PLUGIN.replace("SHARE", share).replace("AT_IMPORT", at_import)
    file.write_text(text.replace("MEMBERS", members).replace("DIGESTS", digests))
    return file


Run = Callable[[Path, float], RunRecord]


@pytest.fixture
def named(home: Path) -> Run:
    """By name, in a process of its own, with another share of the picture in the file that the plugin may read."""

    def run(file: Path, share: float) -> RunRecord:
        (file.parent / "side.json").write_text(json.dumps(share))
        return Bench(home=home, registry=Registry([TOY, file])).run(RunSpec("corner", "toy", "toyclip", limit=6)).record

    return run


@pytest.fixture
def instance(home: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    def run(file: Path, share: float) -> RunRecord:
        (file.parent / "side.json").write_text(json.dumps(share))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module: Any = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, file.stem, module)
        spec.loader.exec_module(module)
        return (
            Bench(home=home, registry=Registry([TOY])).run(RunSpec(module.Corner(), "toy", "toyclip", limit=6)).record
        )

    return run


READ_LATE = {
    "a file": "side()",
    "a variable": "float(os.environ.get('SIDE_OF_TEST', '0.5'))",
    "a module of a name that is put together": "importlib.import_module('side_' + 'module', HERE).side",
}


@pytest.mark.parametrize("what", READ_LATE)
def test_what_is_read_while_views_are_drawn_is_refused(
    what: str, named: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The features are kept: half of them were of the file as it was before an edit, and --force changed nothing."""
    (tmp_path / "side_module.py").write_text("side = 0.5\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(PluginError, match=r"(?i)recipe corner, image .*: it asks for .*side.* while it draws views"):
        named(plugin(tmp_path, READ_LATE[what]), 0.5)


@pytest.mark.parametrize("what", ["a file", "a variable"])
def test_what_an_instance_reads_while_its_views_are_drawn_is_refused(what: str, instance: Run, tmp_path: Path) -> None:
    with pytest.raises(PluginError, match=r"recipe corner, image .*: it asks for .* while it draws views"):
        instance(plugin(tmp_path, READ_LATE[what].replace("SIDE_OF", "side")), 0.5)


READ_IN_TIME = {
    "by its module": {"share": "NOW", "at_import": "NOW = side()"},
    "when it is made": {
        "share": "self.now",
        "members": "now: float = 0.0\n    def __post_init__(self): self.now = side()",
    },
    "for itself, and hidden": {
        "share": "self.now()",
        "members": "def __post_init__(self):\n        now = side()\n        self.now = lambda: now",
    },
    "of a file that the method declares": {"share": "side()", "digests": DECLARED},
}


@pytest.mark.parametrize("how", READ_IN_TIME)
@pytest.mark.parametrize("door", ["named", "instance"])
def test_what_is_read_before_counts_with_the_features(
    how: str, door: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    run: Run = request.getfixturevalue(door)
    file = plugin(tmp_path, **READ_IN_TIME[how])
    first, same, edited = (run(file, share) for share in (1.0, 1.0, 0.3))
    assert first.run_id == same.run_id != edited.run_id
    assert edited.counts["encoder_forwards"] > 0
    assert not (first.scores() == edited.scores()).all()
