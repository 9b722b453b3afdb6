"""`ttabench list KIND NAME` and `doctor`: all about one plugin, and a report that is read in a glance."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke
from tta_bench.checks.description import field_docs
from tta_bench.plugins import Registry

REGISTRY = Registry()


def test_a_method(invoke: Invoke) -> None:
    out = invoke("list", "methods", "tda").out
    assert "methods.tda from ttabench" in out
    assert "TDA: a training-free dynamic adapter" in out
    assert "  shots      3            K⁺  items per class in the positive cache\n" in out
    assert "  gate       [0.2, 0.5]   normalised entropy" in out
    assert "  views  augmix63\n" in out
    assert "  imagenet-v2  alpha=1.0, beta=8.0\n" in out
    assert "nothing but features" in out


def test_what_a_method_is(invoke: Invoke) -> None:
    out = invoke("list", "methods", "bca").out
    assert "  setting  online\n  status   port\n  paper    Bayesian Test-Time Adaptation" in out
    listed = {entry["name"]: entry for entry in json.loads(invoke("list", "methods", "--json").out)}
    assert (listed["zero"]["setting"], listed["zero"]["status"]) == ("episodic", "official code matched")
    assert listed["zero"]["paper"]["venue"] == "NeurIPS 2024"
    assert listed["sparc"]["setting"] == "online or transductive"
    assert listed["regions"]["paper"] is None
    assert "online; reading of the paper" in invoke("list", "methods").out
    one = json.loads(invoke("list", "methods", "sparc", "--json").out)
    assert (one["setting"], one["status"], one["paper"]["venue"]) == (
        "transductive",
        "official code matched",
        "CVPR 2025",
    )
    unsaid = {p["name"]: p for p in json.loads(invoke("list", "methods", "--json", "--plugin", str(TOY)).out)}
    assert unsaid["secondeyes"]["status"] == "unstated"


@pytest.mark.slow
def test_what_methods_need_is_said_in_their_own_words(invoke: Invoke) -> None:
    assert "for example --set reward=openclip:ViT-L-14/openai" in invoke("list", "methods", "rlcf").out
    assert "difftpt needs generated images" in invoke("list", "methods", "difftpt").out
    assert "what `captions` names, template by default" in invoke("list", "methods", "mltta").out
    assert "a second backbone: toyreward" in invoke("list", "methods", "secondeyes", "--plugin", str(TOY)).out
    for name in ("tpt", "rlcf", "mltta", "difftpt"):
        assert "a backbone whose prompts can be tuned" in invoke("list", "methods", name).out


def test_choices_are_shown(invoke: Invoke) -> None:
    assert "[selected | original]" in invoke("list", "methods", "boostadapter").out


@pytest.mark.parametrize("name", REGISTRY.names("methods"))
def test_every_hyper_parameter_of_a_built_in_is_explained(name: str, invoke: Invoke) -> None:
    cls = REGISTRY.method(name)
    found = json.loads(invoke("list", "methods", name, "--json").out)
    assert [f["name"] for f in found["fields"]] == [f.name for f in dataclasses.fields(cls)]
    assert [
        f["name"] for f in found["fields"] if not f["doc"] and not f["choices"]
    ] == []  # words may explain themselves
    assert found["presets"] == json.loads(json.dumps(cls.presets))
    assert found["recipes"] == {role: recipe.name for role, recipe in cls().recipes.items()}
    assert found["needs"]


def test_comments_are_read_from_the_source_and_inherited(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass, field\n"
        "from typing import ClassVar\n"
        "from tests.toy_plugin import TwoBranches\n"
        "from tta_bench import hookimpl\n"
        "@dataclass\nclass Mine(TwoBranches):\n"
        "    name: ClassVar[str] = 'mine'\n"
        "    tag: str = '# no comment'\n"
        "    sizes: tuple[int, ...] = (\n        1,  # of the first\n        2,\n    )  # of all parts\n"
        "    rate: float = field(default=0.1)\n    '''How\n    fast.'''\n"
        "@hookimpl\ndef ttabench_methods():\n    return [Mine]\n"
    )
    docs = field_docs(Registry([file]).method("mine"))
    assert docs["weight"] == "of the first branch"
    assert docs["tag"] == ""
    assert docs["sizes"] == "of all parts"
    assert docs["rate"] == "How fast."


def test_a_method_that_can_not_be_made_is_still_described(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "from dataclasses import dataclass\n"
        "from tests.toy_plugin import TwoBranches\n"
        "from tta_bench import hookimpl\n"
        "@dataclass\nclass Raises(TwoBranches):\n    name = 'raises'\n"
        "    def validate(self):\n        raise SystemExit(1 / 0)\n"
        "@dataclass(kw_only=True)\nclass Wants(TwoBranches):\n    name = 'wants'\n    rate: float  # how fast\n"
        "@hookimpl\ndef ttabench_methods():\n    return [Raises, Wants]\n"
    )
    raises = invoke("list", "methods", "raises", "--plugin", str(file))
    assert "mending: ZeroDivisionError: division by zero (mine.py, line 8)" in raises.out
    wants = invoke("list", "methods", "wants", "--plugin", str(file))
    assert "rate    (required)  how fast" in wants.out


def test_a_dataset(invoke: Invoke) -> None:
    scenes = invoke("list", "datasets", "scenes").out
    assert "600 images, 24 classes" in scenes
    assert "no files" in scenes
    assert "`ttabench data get voc2007` downloads it" in invoke("list", "datasets", "voc2007").out
    assert "  default, corrupt\n" in invoke("list", "datasets", "toy", "--plugin", str(TOY)).out


def test_a_backbone(invoke: Invoke) -> None:
    out = invoke("list", "backbones", "vit-b16").out
    assert "--random-weights" in out
    assert "prompt tuning" in out
    assert "its weights" in out
    assert "openclip:ARGUMENT" in invoke("list", "backbones", "openclip").out


def test_unknown_names(invoke: Invoke) -> None:
    assert "Did you mean tda?" in invoke("list", "methods", "tdaa").err
    assert invoke("list", "plugins", "tda").code == 2


# --------------------------------------------------------------------------------------------------------- doctor


def test_doctor_is_short_when_all_is_well(invoke: Invoke) -> None:
    lines = invoke("doctor").out.splitlines()
    assert len(lines) <= 9
    assert any(line.endswith("plugins load") for line in lines)
    assert len(invoke("doctor", "--verbose").out.splitlines()) > 28


def test_doctor_shows_what_is_bad_in_full(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site"
    (package / "outside-1.2.dist-info").mkdir(parents=True)
    (package / "explodes.py").write_text("x = 1\nraise SystemExit('no GPU found')")
    info = package / "outside-1.2.dist-info"
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text("[ttabench]\nmethods.explodes = explodes\n")
    monkeypatch.syspath_prepend(str(package))
    result = invoke("doctor")
    assert result.code == 1
    (bad,) = [line for line in result.out.splitlines() if line.startswith("BAD")]
    assert "methods.explodes" in bad
    assert "SystemExit: no GPU found (explodes.py, line 2)" in bad
