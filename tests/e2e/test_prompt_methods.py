"""The methods that tune prompts and all prompt initialisations, as a user types them: scenes with tiny."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor

from tests.conftest import Invoke, Result, some_slow
from tta_bench import records
from tta_bench.backbones.tiny import Tiny
from tta_bench.datasets.scenes import Scenes
from tta_bench.interfaces import Method, Observation
from tta_bench.runs import replay

LIMIT = "6"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Prompt files for tiny in the layouts of their projects, captions, and two generated images per scene."""
    folder, tiny, scenes = tmp_path_factory.mktemp("files"), Tiny.load("cpu"), Scenes.open(Path())
    generator = torch.Generator().manual_seed(0)
    text, vision = tiny.text.width, tiny.model.visual.class_embedding.shape[0]

    def noise(*shape: int) -> Tensor:
        return 0.1 * torch.randn(*shape, generator=generator)

    (folder / "cupl.json").write_text(
        json.dumps({n: [f"a drawing of a {n}.", f"one {n}."] for n in scenes.class_names})
    )
    torch.save({"state_dict": {"ctx": tiny.init_context("a photo of a") + noise(4, text)}}, folder / "coop.pth.tar-50")
    maple = {"ctx": noise(2, text), "proj.weight": noise(vision, text), "proj.bias": noise(vision)}
    maple |= {"compound_prompts_text.0": noise(2, text), "compound_prompt_projections.0.bias": noise(vision)}
    maple |= {"compound_prompt_projections.0.weight": noise(vision, text)}
    torch.save({"state_dict": {f"prompt_learner.{k}": v for k, v in maple.items()}}, folder / "maple.pth")
    torch.save({"state_dict": {"ctx": torch.zeros(4, 512)}}, folder / "vit-b16.pth")
    names = scenes.class_names
    lines = [f"a {a} beside a {b}\t{a},{b}" for a, b in itertools.pairwise(names)]
    (folder / "captions.txt").write_text("\n".join(lines))
    pixels = np.random.default_rng(0)
    (folder / "images").mkdir()
    for i in range(len(scenes)):
        for k in range(2):
            image = Image.fromarray(pixels.integers(0, 256, (16, 16, 3), dtype=np.uint8))
            image.save(folder / "images" / f"{scenes[i].id}_{k}.png")
    return folder


def run(invoke: Invoke, method: str, *more: str) -> Result:
    return invoke("run", "--method", method, "--limit", LIMIT, "--workers", "0", *more)


def line(result: Result) -> str:
    assert result.code == 0, result.err
    return result.out.strip().splitlines()[-1]


def test_all_four_methods_run_from_stored_features(invoke: Invoke, files: Path) -> None:
    generated = ("--set", f"generated={files / 'images'}", "--set", "generated_count=2")
    assert " images/s " in line(run(invoke, "tpt"))
    later = {"tpt": ("--set", "steps=2"), "mltta": (), "rlcf": ("--set", "reward=tiny"), "difftpt": generated}
    for method, settings in later.items():
        result = run(invoke, method, *settings)
        assert line(result).startswith(f"{method} on scenes with tiny")
        from_store = "\n0 encoder forwards" in f"\n{result.out}\n{result.err}"
        assert from_store == (method != "difftpt")  # whose generated images are new
        assert "nothing to do" in line(run(invoke, method, *settings))


@pytest.mark.parametrize(
    "prompt", some_slow(["maple:maple.pth"], ["coop:coop.pth.tar-50", "photo", "ensemble", "cupl:cupl.json"])
)
def test_all_prompts_run(invoke: Invoke, files: Path, prompt: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(files)
    result = run(invoke, "clip,tpt", "--prompt", prompt)
    assert "\ntpt on scenes" in result.out
    table = invoke("leaderboard", "--format", "csv").out
    assert f",{prompt}," in table


@pytest.mark.slow
def test_a_pack_has_the_learned_prompt_and_no_other(invoke: Invoke, files: Path, home: Path, tmp_path: Path) -> None:
    pack, learned = str(tmp_path / "p.safetensors"), f"coop:{files / 'coop.pth.tar-50'}"
    export = ("pack", "export", pack, "--dataset", "scenes:clean", "--recipe", "plain1", "--prompt")
    done = invoke(*export, f"photo,{learned}")
    assert done.code == 0, done.err
    assert run(invoke, "clip", "--dataset", "scenes:clean", "--prompt", learned).code == 0
    assert run(invoke, "clip", "--pack", pack, "--prompt", "coop:coop.pth.tar-50").code == 0
    one, other = records.load_all(home / "runs")[0]
    np.testing.assert_array_equal(one.scores(), other.scores())
    ragged = tmp_path / "ragged.json"
    ragged.write_text(json.dumps({n: ["one."] * (1 + (n == "sun")) for n in Scenes.open(Path()).class_names}))
    for prompt, complaint in {
        f"maple:{files / 'maple.pth'}": "MaPLe changes the image tower",
        f"cupl:{ragged}": "has 1 texts for one class and 2 for another",
        f"{learned},{learned.replace(str(files), str(files / '..' / files.name))}": "is there twice",
    }.items():
        refused = invoke(*export, prompt)
        assert refused.code == 2
        assert complaint in refused.err
    assert invoke("pack", "verify", pack).code == 0  # the one from before


@pytest.mark.slow
def test_a_caption_file_is_part_of_the_run(invoke: Invoke, files: Path, tmp_path: Path) -> None:
    corpus = tmp_path / "corpus.safetensors"
    built = invoke("captions", "build", "--source", str(files / "captions.txt"), "--output", str(corpus))
    assert "23 captions" in line(built)
    first = line(run(invoke, "mltta", "--set", f"captions={corpus}"))
    assert "nothing to do" in line(run(invoke, "mltta", "--set", f"captions={corpus}"))
    invoke("captions", "build", "--output", str(corpus))  # the template's, under the same name
    second = line(run(invoke, "mltta", "--set", f"captions={corpus}"))
    assert "nothing to do" not in second
    assert first.split("[")[-1] != second.split("[")[-1]


@pytest.mark.slow
def test_what_is_missing_is_said_in_one_line(invoke: Invoke, files: Path) -> None:
    refusals = {
        ("rlcf",): "--set reward=",
        ("difftpt",): "--set generated=DIR",
        ("difftpt", "--set", f"generated={files / 'nowhere'}"): "no such folder",
        ("difftpt", "--set", f"generated={files / 'images'}"): "63 are wanted",
        ("mltta", "--set", "captions=nowhere.safetensors"): "no such file",
        ("mltta", "--set", f"captions={files / 'captions.txt'}"): "not a caption corpus",
        ("tpt", "--prompt", f"coop:{files / 'vit-b16.pth'}"): "width 512",
        ("tpt", "--prompt", f"coop:{files / 'maple.pth'}"): "not a CoOp checkpoint",
        ("tpt", "--prompt", f"maple:{files / 'coop.pth.tar-50'}"): "not a MaPLe checkpoint",
        ("tpt", "--prompt", "cupl:nowhere.json"): "no such file",
    }
    for arguments, reason in refusals.items():
        result = run(invoke, *arguments)
        assert result.code != 0
        assert reason in result.err
        assert len(result.err.strip().splitlines()) <= 2  # the encoder's count, and the reason


@pytest.mark.slow
def test_an_interrupted_run_resumes_bit_identically(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    line(run(invoke, "mltta", "--results", str(whole)))
    step = replay._step

    def interrupted(method: Method, x: Observation, image_id: str, classes: int) -> Tensor:
        if x.index == 3:
            raise KeyboardInterrupt
        return step(method, x, image_id, classes)

    with monkeypatch.context() as patch:
        patch.setattr(replay, "_step", interrupted)
        patch.setattr("tta_bench.runs.sourcing.replaced", dict)  # the patch is the test's
        assert run(invoke, "mltta", "--results", str(parts), "--checkpoint-seconds", "0").code == 130
    resumed = run(invoke, "mltta", "--results", str(parts))
    assert "resuming at image 3" in resumed.out + resumed.err
    outputs = [load_file(next(folder.glob("*/outputs.safetensors"))) for folder in (whole, parts)]
    assert outputs[0].keys() == outputs[1].keys()
    assert all(torch.equal(outputs[0][name], outputs[1][name]) for name in outputs[0])
