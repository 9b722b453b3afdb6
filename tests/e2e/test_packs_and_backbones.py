"""Feature packs and untrained or missing backbones, through the command line."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from tests.conftest import TOY, Invoke
from tta_bench import records
from tta_bench.backbones.tiny import WEIGHTS

TOY_WORLD = ("--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip")


@pytest.fixture
def pack(invoke: Invoke, tmp_path: Path) -> Path:
    file = tmp_path / "toy.safetensors"
    result = invoke("pack", "export", str(file), *TOY_WORLD, "--recipe", "augmix5,crops3", "--prompt", "photo,ensemble")
    assert result.code == 0, result.err
    assert "24 images, augmix5, crops3" in result.out
    return file


def scores_of(text: str) -> str:
    found = re.search(r"mAP .*?\)", text)
    assert found
    return found[0]


def test_a_run_on_a_pack_equals_a_run_on_the_images(pack: Path, invoke: Invoke, toy_run: Invoke, home: Path) -> None:
    live = toy_run("twobranches")
    packed = invoke("run", "--method", "twobranches", "--pack", str(pack), "--plugin", str(TOY))
    assert packed.code == 0, packed.err
    assert "\n0 encoder forwards" in f"\n{packed.err}"
    assert scores_of(packed.out) == scores_of(live.out)
    assert "twobranches on toy with toyclip" in packed.out
    runs, _ = records.load_all(home / "runs")
    assert len({run.protocol.digest for run in runs}) == 2  # the images of a pack can't be checked


def test_all_runs_what_can_run_and_says_why_not_the_others(pack: Path, invoke: Invoke) -> None:
    result = invoke("run", "--method", "all", "--pack", str(pack), "--no-plugin", "broken")
    assert result.code == 0, result.err
    assert "clip on toy with toyclip" in result.out
    assert "tpt left out: tpt tunes prompts" in result.err
    assert re.search(r"tda left out: .*augmix63.*--recipe views=augmix5", result.err)


def test_a_missing_recipe_names_its_stand_ins(pack: Path, invoke: Invoke) -> None:
    result = invoke("run", "--method", "purf", "--pack", str(pack))
    assert result.code == 2
    assert "--recipe views=augmix5" in result.err
    stand_ins = ("--recipe", "views=augmix5", "--recipe", "regions=crops3")
    assert invoke("run", "--method", "purf", "--pack", str(pack), *stand_ins).code == 0


def test_info_and_verify(pack: Path, invoke: Invoke, tmp_path: Path) -> None:
    content = json.loads(invoke("pack", "info", str(pack), "--json").out)
    assert (content["images"], content["classes"], content["views"]) == (24, 4, {"augmix5": 5, "crops3": 3})
    assert "toyclip" in invoke("pack", "info", str(pack)).out
    assert invoke("pack", "verify", str(pack)).code == 0
    broken = tmp_path / "broken.safetensors"
    broken.write_bytes(pack.read_bytes()[:-100])
    for arguments in (("pack", "verify"), ("pack", "info"), ("run", "--method", "clip", "--pack")):
        result = invoke(*arguments, str(broken))
        assert result.code == 2
        assert "broken.safetensors" in result.err
        assert "Traceback" not in result.err
    assert invoke("run", "--method", "clip", "--pack", str(tmp_path / "none")).code == 2


def test_missing_weights_are_said_before_data_is_looked_for(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    result = invoke("run", "--method", "purf", "--backbone", "vit-b16", "--dataset", "voc2007")
    assert result.code == 2
    for words in ("weights of vit-b16", "1. ", "--weights FILE", "--backbone tiny"):
        assert words in result.err
    assert "Traceback" not in result.err


def test_missing_data_says_how_to_get_it(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("run", "--method", "clip", "--dataset", "voc2007", "--data-root", str(tmp_path))
    assert result.code == 2
    assert "ttabench data get voc2007" in result.err
    assert "not found" in invoke("data", "status", "--data-root", str(tmp_path)).out


@pytest.mark.slow
def test_untrained_weights_are_marked_and_kept_out_of_tables(invoke: Invoke, home: Path) -> None:
    toy = ("--plugin", str(TOY), "--dataset", "toy", "--limit", "2", "--batch-size", "2", "--workers", "0")
    result = invoke("run", "--method", "clip", "--backbone", "vit-b32", "--random-weights", *toy)
    assert result.code == 0, result.err
    (record,) = records.load_all(home / "runs")[0]
    assert record.random_weights
    assert "untrained" in result.out
    assert record.protocol.parts["backbone_digest"].startswith("random-")
    refused = invoke("leaderboard", "--format", "csv")
    assert refused.code == 2
    assert "1 run of an untrained backbone left out" in refused.err
    assert "vit-b32" in invoke("leaderboard", "--format", "csv", "--random-weights").out
    assert invoke("run", "--method", "clip", "--random-weights", "--backbone", "tiny").code == 2


def test_tiny_takes_weights_of_its_own_kind_only(invoke: Invoke, tmp_path: Path) -> None:
    run = ("run", "--method", "clip", "--backbone", "tiny", "--limit", "2", "--workers", "0", "--weights")
    own, other = tmp_path / "own.pt", tmp_path / "other.pt"
    torch.save(load_file(WEIGHTS), own)
    torch.save({"weight": torch.zeros(2)}, other)
    assert invoke(*run, str(own)).code == 0
    refused = invoke(*run, str(other))
    assert refused.code == 2
    (line,) = refused.err.splitlines()
    assert f"{other} does not hold the weights of tiny" in line


def test_openclip_names(invoke: Invoke) -> None:
    assert "Did you mean ViT-B-16" in invoke("run", "--method", "clip", "--backbone", "openclip:ViT-B-61/openai").err
    assert "openclip:MODEL/TAG" in invoke("run", "--method", "clip", "--backbone", "openclip").err
    assert invoke("run", "--method", "clip", "--backbone", "tiny:x").code == 2
