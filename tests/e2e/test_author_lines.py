"""Wherever a plugin fails, the one line that is said ends with the place in its author's own file."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke, some_slow

HEAD = """
import functools
from dataclasses import dataclass
from tests.toy_plugin import Toy, ToyCLIP
from tta_bench import hookimpl
from tta_bench.interfaces import Method, Sample

def fail(*_):
    return {}["no such key"]

class Mine(Method):
    name = "mine"
    def start(self, task):
        self.task = task
    def step(self, x):
        return self.task.text @ x.image

@dataclass(frozen=True)
class Recipe:
    name = "recipe"; count = 2; seeded = False
    def render(self, image, image_id, seed, preprocess):
        fail()
"""
BAD_LINE = HEAD.splitlines().index('    return {}["no such key"]') + 1
METHODS = {
    "constructs": "    def __post_init__(self): fail()",
    "chooses": "    recipes = property(fail)",
    "validates": "    def validate(self): fail()",
    "starts": "    def start(self, task): fail()",
    "steps": "    def step(self, x): fail()",
    "finishes": "    def finish(self, outputs): fail()",
    "renders": "    recipes = {'views': Recipe()}",
    "reports": "    def step(self, x):\n        self.report({'kept': 'all'})",
}
DATASETS = {
    "open": "    open = classmethod(fail)",
    "len": "    __len__ = fail",
    "item": "    __getitem__ = fail",
    "load": "    def __getitem__(self, i): return Sample(f'{i}', fail, super().__getitem__(i).labels)",
    "fingerprint": "    __init__ = lambda self, variant: None\n    fingerprint = property(fail)",
}
BACKBONES = {
    "load": "    load = classmethod(fail)",
    "preprocess": "    preprocess = property(fail)",
    "images": "    encode_images = fail",
    "texts": "    encode_texts = fail",
}


def written(folder: Path, *parts: str) -> str:
    file = folder / "mine.py"
    file.write_text("\n".join([HEAD, *parts]))
    return str(file)


def run(invoke: Invoke, file: str, method: str = "clip", dataset: str = "toy", backbone: str = "toyclip") -> str:
    words = ("--method", method, "--dataset", dataset, "--backbone", backbone, "--workers", "0")
    result = invoke("run", *words, "--plugin", file, "--plugin", str(TOY))
    assert result.code == 1
    return result.err


def test_of_a_method(invoke: Invoke, tmp_path: Path) -> None:
    classes = [f"@dataclass\nclass {name}(Mine):\n    name = '{name}'\n{body}" for name, body in METHODS.items()]
    hook = f"@hookimpl\ndef ttabench_methods(): return [{', '.join(METHODS)}]"
    file = written(tmp_path, *classes, hook)
    said = [line for line in run(invoke, file, ",".join(METHODS)).splitlines() if "(the others go on)" in line]
    assert len(said) == len(METHODS)
    last = Path(file).read_text().splitlines().index("        self.report({'kept': 'all'})") + 1
    for name, line in zip(METHODS, said, strict=True):
        assert f"(mine.py, line {last if name == 'reports' else BAD_LINE})" in line, line


@pytest.mark.parametrize("place", some_slow(["item"], [place for place in DATASETS if place != "item"]))
def test_of_a_dataset(place: str, invoke: Invoke, tmp_path: Path) -> None:
    hook = "@hookimpl\ndef ttabench_datasets(): return [Data]"
    file = written(tmp_path, f"class Data(Toy):\n    name = 'data'\n{DATASETS[place]}", hook)
    assert f"KeyError: 'no such key' (mine.py, line {BAD_LINE})" in run(invoke, file, dataset="data")


@pytest.mark.parametrize("place", some_slow(["images"], [place for place in BACKBONES if place != "images"]))
def test_of_a_backbone(place: str, invoke: Invoke, tmp_path: Path) -> None:
    hook = "@hookimpl\ndef ttabench_backbones(): return [Back]"
    file = written(tmp_path, f"class Back(ToyCLIP):\n    name = 'back'\n{BACKBONES[place]}", hook)
    assert f"KeyError: 'no such key' (mine.py, line {BAD_LINE})" in run(invoke, file, backbone="back")


def test_a_misnamed_hook_is_told_with_its_line(invoke: Invoke, tmp_path: Path) -> None:
    file = written(tmp_path, "@hookimpl\ndef ttabench_method(): return [Mine]")
    said = run(invoke, file, "mine")
    assert "unknown hook 'ttabench_method'. Did you mean ttabench_methods" in said
    assert f"(mine.py, line {len(HEAD.splitlines()) + 2})" in said
