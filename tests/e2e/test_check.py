"""`ttabench check` as a user types it: which plugin is meant, what is refused, what a broken file shows."""

from __future__ import annotations

import functools
from pathlib import Path
from types import ModuleType

import pytest
from rich.console import Console

from tests.conftest import TOY, Invoke, some_slow
from tta_bench.checks import backbones, conformance, datasets
from tta_bench.checks.remedies import REMEDIES

TWO_KINDS = """
from tests.toy_plugin import Toy
from tta_bench import hookimpl
from tta_bench.methods.clip import CLIP

class Method(CLIP):
    name = "toy"

@hookimpl
def ttabench_methods():
    return [Method]

@hookimpl
def ttabench_datasets():
    return [Toy]
"""


@pytest.mark.parametrize(
    "target", some_slow(["clip", "datasets.scenes:fog"], ["methods.clip", "scenes", "backbones.tiny"])
)
def test_a_name_with_or_without_its_kind(invoke: Invoke, target: str) -> None:
    result = invoke("check", target)
    assert result.code == 0, result.err
    assert f".{target.rpartition('.')[2]}" in result.out.splitlines()[0]


def test_a_name_of_two_kinds_must_be_told_apart(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "both.py"
    file.write_text(TWO_KINDS)
    result = invoke("check", "toy", "--plugin", str(file))
    assert result.code == 2
    assert "'toy' is a method and a dataset: write methods.toy or datasets.toy" in result.err
    assert invoke("check", "datasets.toy", "--plugin", str(file)).code == 0


def test_a_file_is_checked_with_all_that_it_offers(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "both.py"
    file.write_text(TWO_KINDS)
    result = invoke("check", str(file))
    assert result.code == 0, result.out
    assert "methods.toy" in result.out
    assert "datasets.toy (24 images, 4 classes)" in result.out
    everything = invoke("check", str(TOY))
    assert everything.code == 1  # one of its methods is broken on purpose
    for name in ("methods.twobranches", "methods.broken", "datasets.toy", "backbones.toyclip", "backbones.toyreward"):
        assert name in everything.out


def test_of_a_file_what_is_not_here_is_named_and_the_rest_is_checked(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "elsewhere.py"
    file.write_text(
        TWO_KINDS.replace("[Toy]", "[Missing]")
        + "from tta_bench.errors import DataMissing\n"
        + "class Missing(Toy):\n    @classmethod\n    def open(cls, root, variant='default'):\n"
        + "        raise DataMissing('toy is not here')\n"
    )
    result = invoke("check", str(file))
    assert result.code == 2
    assert "methods.toy" in result.out
    assert "datasets.toy can't be checked: toy is not here" in result.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["tdaa"], "unknown method, dataset or backbone 'tdaa'. Did you mean tda?"),
        (["methods.scenes"], "unknown method 'scenes'"),
        (["datasets.scenes:snow"], "unknown variant of scenes 'snow'"),
        (["tda", "--random-weights"], "are for backbones, and tda is none"),
        (["tda", "--weights", "x.pt"], "are for backbones, and tda is none"),
        (["tiny", "--weights", "x.pt", "--random-weights"], "only one of them can count"),
        (["tda", "--data-root", "."], "--data-root is for datasets, and tda is none"),
        (["openclip"], "write openclip:MODEL/TAG"),
        (["nowhere.py"], "nowhere.py: no such file"),
    ],
)
def test_what_is_refused(invoke: Invoke, arguments: list[str], message: str) -> None:
    result = invoke("check", *arguments)
    assert result.code == 2
    assert message in result.err


def test_a_hook_that_fails_is_named_with_its_line(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("from tta_bench import hookimpl\n@hookimpl\ndef ttabench_methods():\n    return 1 / 0\n")
    result = invoke("check", str(file))
    assert result.code == 1
    assert "ttabench_methods fails: ZeroDivisionError: division by zero (mine.py, line 4)" in result.err


@pytest.mark.parametrize("width", ["60", "80", "160"])
def test_reasons_are_whole_at_any_width(width: str, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tta_bench.cli.plugin_pages.Console", _narrow(int(width)))
    out = invoke("check", "methods.broken", "--plugin", str(TOY)).out
    assert max(map(len, out.splitlines())) <= int(width)
    assert "…" not in out
    for word in ("FAILED", "scores", "not", "finite", "hyper-parameters"):
        assert word in out


def _narrow(width: int) -> object:
    return functools.partial(Console, width=width)


MISTAKES = """
from dataclasses import dataclass
import torch
from tta_bench import hookimpl
from tta_bench.interfaces import Method

@dataclass
class Careless(Method):
    name = "careless"

    def start(self, task):
        self.task, self.all = task, getattr(self, "all", [])

    def step(self, x):
        self.all.append(x.image)
        noise = torch.randn(len(self.task.text))
        best = (self.task.text @ x.image).topk(2).values[1]
        return (self.task.text @ x.image) - best + noise

@hookimpl
def ttabench_methods():
    return [Careless]
"""


def test_what_fails_is_said_with_what_to_do_about_it(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "careless.py"
    file.write_text(MISTAKES)
    result = invoke("check", str(file))
    assert result.code == 1
    text = " ".join(result.out.replace("│", " ").split())
    assert "differ. To mend it: draw from task.rng: torch.randn(n, generator=self.task.rng)" in text
    assert "after 120. To mend it: bound what is kept" in text
    assert "(careless.py, line 17). To mend it: a task may have a single class" in text
    assert text.count("To mend it:") == text.count("FAILED")


def test_an_error_that_every_check_meets_is_no_matter_of_the_checks(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "careless.py"
    file.write_text(MISTAKES.replace("x.image", "x.picture"))
    result = invoke("check", str(file))
    text = " ".join(result.out.replace("│", " ").split())
    assert text.count("look for it in your code") == text.count("FAILED") > 10


@pytest.mark.parametrize("kit", [conformance, datasets, backbones])
def test_every_check_has_a_remedy(kit: ModuleType) -> None:
    kind = {conformance: "methods", datasets: "datasets", backbones: "backbones"}[kit]
    before = {"methods": set(), "datasets": {"it opens", "it has images"}, "backbones": {"it loads"}}
    assert set(REMEDIES[kind]) == {*kit.CHECKS, *before[kind]}
