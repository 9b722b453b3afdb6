"""Prompt initialisations: files in the layouts of their own projects, and what is wrong with others."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, normalize

from tests.unit.small_models import FAMILIES
from tests.unit.test_text_towers import make
from tta_bench.backbones._open_clip import OpenClip
from tta_bench.errors import BadData, TTABenchError, UnknownName, UsageError
from tta_bench.interfaces import Backbone, PromptTunable, Task
from tta_bench.methods.tpt import TPT
from tta_bench.prompts.sets import PromptSet

NAMES = ("cat", "traffic_light", "fire hydrant")


@pytest.fixture
def backbone() -> OpenClip:
    made = make("clip-vit")
    made.name = "small"  # type: ignore[attr-defined]
    return made


def encode(prompts: PromptSet, backbone: Any) -> tuple[Tensor, Tensor]:
    return prompts.encode(backbone)


def _adapt(prompts: PromptSet, backbone: Any) -> Backbone:
    return prompts.adapt(backbone)


def save(file: Path, content: object) -> str:
    torch.save(content, file)
    return str(file)


# ------------------------------------------------------------------------------------------------------ sentences


@pytest.mark.parametrize("family", FAMILIES)
def test_a_backbone_says_which_texts_it_cuts(family: str) -> None:
    """Those whose last word is not read; a text that just fits is whole."""
    backbone = make(family)
    room = backbone.tokenizer(["a"]).shape[1]
    texts = [" ".join(["cat"] * count) for count in range(1, room + 3)]
    longer = backbone.tokenizer([f"{text} dog" for text in texts])
    fits = [bool((a != b).any()) for a, b in zip(backbone.tokenizer(texts), longer, strict=True)]
    last = fits.index(False)  # of this one the next word is not read any more, but it is whole
    assert 2 < last < len(texts) - 1
    assert backbone.too_long(texts) == texts[last + 1 :]
    assert backbone.too_long([]) == []


def test_prompts_that_are_too_long_are_found(tmp_path: Path, backbone: Any) -> None:
    assert PromptSet.named("ensemble", NAMES).too_long(backbone) == []
    file = tmp_path / "cupl.json"
    endless = "small " * 80 + "cat"
    file.write_text(json.dumps({name: ["short.", endless][: 1 + (name == "cat")] for name in NAMES}))
    assert PromptSet.named(f"cupl:{file}", NAMES).too_long(backbone) == [endless]
    learned = save(tmp_path / "coop.pth", {"state_dict": {"ctx": torch.randn(74, 32)}})
    prompts = PromptSet.named(f"coop:{learned}", NAMES)
    assert prompts.too_long(backbone) == []  # which does not have them
    assert prompts.too_long(_adapt(prompts, backbone)) == [f"<context> {name}." for name in NAMES]
    mute: Any = object()
    assert PromptSet.named("photo", NAMES).too_long(mute) == []


def test_templates(backbone: OpenClip) -> None:
    photo = PromptSet.named("photo", NAMES)
    assert photo.texts[1] == ("a photo of a traffic light.",)
    assert photo.count == 3
    bank, text = encode(photo, backbone)
    assert torch.equal(bank[:, 0], backbone.encode_texts([t for (t,) in photo.texts]))
    torch.testing.assert_close(text, bank[:, 0])
    ensemble = PromptSet.named("ensemble", NAMES)
    bank, text = encode(ensemble, backbone)
    assert bank.shape == (3, ensemble.count // 3, backbone.embed_dim)
    torch.testing.assert_close(text, normalize(bank.mean(1), dim=-1))
    same: object = _adapt(photo, backbone)
    assert same is backbone


def test_the_ensemble_is_clips_published_seven() -> None:
    """From the notebook of CLIP's authors, their spelling included."""
    assert PromptSet.named("ensemble", ["fire_hydrant"]).texts == (
        (
            "itap of a fire hydrant.",
            "a bad photo of the fire hydrant.",
            "a origami fire hydrant.",
            "a photo of the large fire hydrant.",
            "a fire hydrant in a video game.",
            "art of the fire hydrant.",
            "a photo of the small fire hydrant.",
        ),
    )
    photos = PromptSet.named("ensemble-photos", NAMES)  # what `ensemble` was before
    assert photos.count == 7 * len(NAMES)
    assert photos.texts[0][-1] == "a drawing of a cat."
    assert photos.identity != PromptSet.named("ensemble", NAMES).identity


def test_cupl_sentences_may_differ_in_number(backbone: OpenClip, tmp_path: Path) -> None:
    file = tmp_path / "sentences.json"
    table = {"Cat": ["A small pet.", "It purrs.", "It has whiskers."], "traffic light": ["Red, amber, green."]}
    file.write_text(json.dumps(table | {"fire hydrant": ["Red.", "On the pavement."], "zebra": ["Striped."]}))
    prompts = PromptSet.named(f"cupl:{file}", NAMES)
    assert prompts.name == "cupl:sentences.json"
    assert prompts.count == 6
    bank, text = encode(prompts, backbone)
    assert bank.shape[:2] == (3, 3)
    of_hydrant = backbone.encode_texts(["Red.", "On the pavement."])
    torch.testing.assert_close(text[2], normalize(of_hydrant.mean(0), dim=-1))
    torch.testing.assert_close(bank[2], of_hydrant[[0, 1, 0]])
    assert prompts.identity["prompt_file"]
    assert prompts.identity != PromptSet.named("photo", NAMES).identity


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ('{"cat": ["a"], "fire hydrant": ["b"]}', "no sentences for class 'traffic_light'"),
        ('{"cat": ["a"]}', "and for 1 more"),
        ('{"cat": ["a"], "traffic light": [], "fire hydrant": ["b"]}', "no sentences for class 'traffic_light'"),
        ('{"cat": "a", "traffic light": ["b"], "fire hydrant": ["c"]}', "needs a list"),
        ('{"cat": ["a"], "cat": ["b"]}', "not a json file .*'cat' is in it twice"),
        ('{"cat": ["a"], "Traffic_light": ["b"], "traffic light": ["c"]}', "'traffic light' is in it twice, in two"),
        ("[1, 2]", "not a table"),
        ("{", "not a json file"),
    ],
)
def test_bad_cupl_files(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "bad.json"
    file.write_text(content)
    with pytest.raises(BadData, match=reason) as caught:
        PromptSet.named(f"cupl:{file}", NAMES)
    assert "bad.json" in str(caught.value)


def test_sentences_that_are_not_utf8(tmp_path: Path) -> None:
    file = tmp_path / "latin.json"
    file.write_bytes('{"cat":\n["Kätzchen"]}'.encode("latin-1"))
    with pytest.raises(BadData, match=r"latin\.json, line 2: not UTF-8 \(byte 11 is 0xe4\); save the file as UTF-8"):
        PromptSet.named(f"cupl:{file}", NAMES)


@pytest.mark.parametrize("name", ["foto", "coop", "coop:", "clip:x", ""])
def test_unknown_prompts(name: str) -> None:
    with pytest.raises(UnknownName, match="coop:FILE"):
        PromptSet.named(name, NAMES)


@pytest.mark.parametrize("kind", ["cupl", "coop", "maple"])
def test_a_missing_file(kind: str) -> None:
    with pytest.raises(UsageError, match="no such file"):
        PromptSet.named(f"{kind}:nowhere.x", NAMES)


# ---------------------------------------------------------------------------------------------------------- CoOp


def coop(backbone: OpenClip, n: int = 4) -> dict[str, Any]:
    """A checkpoint as CoOp's trainer leaves it: half of it are buffers for its own classes, and its optimiser."""
    ctx = torch.nn.Parameter(0.3 * torch.randn(n, backbone.text.width, generator=torch.Generator().manual_seed(5)))
    optimiser = torch.optim.SGD([ctx], lr=0.002, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, 50)
    prefix = backbone.start_embedding.half().expand(7, 1, -1).clone()
    weights = {"ctx": ctx.data, "token_prefix": prefix, "token_suffix": torch.zeros(7, 72, 32).half()}
    successor = torch.optim.lr_scheduler.CosineAnnealingLR.__new__(torch.optim.lr_scheduler.CosineAnnealingLR)
    successor.__dict__.update({"T_max": 50, "optimizer": optimiser})
    scheduler = {**schedule.state_dict(), "successor": successor}
    state = {"state_dict": weights, "epoch": 50, "optimizer": optimiser.state_dict(), "scheduler": scheduler}
    return {**state, "val_result": None}


def test_coop_replaces_the_words(backbone: OpenClip, tmp_path: Path) -> None:
    content = coop(backbone)
    prompts = PromptSet.named(f"coop:{save(tmp_path / 'model.pth.tar-50', content)}", NAMES)
    assert prompts.name == "coop:model.pth.tar-50"
    context = content["state_dict"]["ctx"]
    adapted = _adapt(prompts, backbone)
    assert isinstance(adapted, PromptTunable)
    assert torch.equal(adapted.init_context("a photo of a"), context)
    assert adapted.fingerprint == backbone.fingerprint  # its image features are the same
    bank, text = encode(prompts, adapted)
    torch.testing.assert_close(text, backbone.encode_context(context, NAMES))
    assert torch.equal(bank[:, 0], text)
    reward_bank, _ = encode(prompts, backbone)  # a reward model reads the words
    torch.testing.assert_close(reward_bank[:, 0], backbone.encode_texts(["a photo of a cat.", *_words()]))
    method = TPT()
    method.start(Task(NAMES, text, bank, 10.0, prompts=adapted))
    assert torch.equal(method._tower.initial.context.detach(), context)


def _words() -> list[str]:
    return ["a photo of a traffic light.", "a photo of a fire hydrant."]


def test_coops_sixteen_tokens_fit_too(backbone: OpenClip, tmp_path: Path) -> None:
    prompts = PromptSet.named(f"coop:{save(tmp_path / 'm16.pth', coop(backbone, 16))}", NAMES)
    assert encode(prompts, _adapt(prompts, backbone))[1].shape == (3, backbone.embed_dim)


class Malice:
    def __reduce__(self) -> tuple[Any, tuple[str]]:
        return os.system, ("touch pwned",)


def test_bad_coop_files(backbone: OpenClip, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    good = coop(backbone)["state_dict"]
    bad: dict[str, tuple[object, str]] = {
        "width": ({"state_dict": {"ctx": torch.zeros(4, 512)}}, "width 512, but .* 'small' has 32"),
        "backbone": ({"state_dict": good | {"token_prefix": torch.ones(3, 1, 32)}}, "another backbone than 'small'"),
        "csc": ({"state_dict": {"ctx": torch.zeros(3, 4, 32)}}, "class-specific"),
        "flat": ({"state_dict": {"ctx": torch.zeros(32)}}, "not \\[n, width\\]"),
        "other": ({"state_dict": {"weight": torch.zeros(4)}}, "not a CoOp checkpoint"),
        "bare": ({"ctx": torch.zeros(4, 32)}, "no state_dict"),
        "list": ([1], "no state_dict"),
        "code": ({"state_dict": good, "epoch": Malice()}, "could run any code: refused"),
    }
    for name, (content, reason) in bad.items():
        file = save(tmp_path / f"{name}.pth", content)
        with pytest.raises(TTABenchError, match=reason) as caught:
            _adapt(PromptSet.named(f"coop:{file}", NAMES), backbone)
        assert f"{name}.pth" in str(caught.value)
    assert not (tmp_path / "pwned").exists()
    (tmp_path / "text.pth").write_text("hello")
    with pytest.raises(BadData, match="not a whole PyTorch file"):
        PromptSet.named("coop:text.pth", NAMES)


def test_a_context_needs_a_tunable_backbone(backbone: OpenClip, tmp_path: Path) -> None:
    class Mute:
        name = "mute"

    prompts = PromptSet.named(f"coop:{save(tmp_path / 'm.pth', coop(backbone))}", NAMES)
    with pytest.raises(UsageError, match="'mute' has no context"):
        _adapt(prompts, Mute())


# --------------------------------------------------------------------------------------------------------- MaPLe


def maple(backbone: OpenClip, depth: int = 1, n: int = 2) -> dict[str, Any]:
    """A checkpoint in MaPLe's layout; the real one has two compound prompts and widths 512 and 768."""
    generator = torch.Generator().manual_seed(6)
    text, vision = backbone.text.width, backbone.model.visual.class_embedding.shape[0]
    weights = {
        "ctx": torch.randn(n, text, generator=generator),
        "proj.weight": torch.randn(vision, text, generator=generator),
        "proj.bias": torch.randn(vision, generator=generator),
        "token_prefix": backbone.start_embedding.expand(5, 1, -1).clone(),
    }
    for i in range(depth):
        weights[f"compound_prompts_text.{i}"] = torch.randn(n, text, generator=generator)
        weights[f"compound_prompt_projections.{i}.weight"] = torch.randn(vision, text, generator=generator)
        weights[f"compound_prompt_projections.{i}.bias"] = torch.randn(vision, generator=generator)
    return {"state_dict": {f"prompt_learner.{k}": v.half() for k, v in weights.items()}, "epoch": 2}


def test_maple_against_a_literal_computation(backbone: OpenClip, tmp_path: Path) -> None:
    content = maple(backbone)
    prompts = PromptSet.named(f"maple:{save(tmp_path / 'maple.pth', content)}", NAMES)
    adapted: Any = _adapt(prompts, backbone)
    w = {k.removeprefix("prompt_learner."): v.float() for k, v in content["state_dict"].items()}
    model, visual = backbone.model, backbone.model.visual

    # text: start, two learned tokens, "of a <name>.", and the compound prompts in their places before block 1
    tokens = backbone.tokenizer([f"a photo of a {name.replace('_', ' ')}." for name in NAMES])
    x = model.token_embedding(tokens)
    x[:, 1:3] = w["ctx"]
    x = x + model.positional_embedding
    x = model.transformer.resblocks[0](x, attn_mask=model.attn_mask)
    x[:, 1:3] = w["compound_prompts_text.0"]
    x = model.transformer.resblocks[1](x, attn_mask=model.attn_mask)
    x = model.ln_final(x)[torch.arange(3), tokens.argmax(1)] @ model.text_projection
    bank, text = encode(prompts, adapted)
    torch.testing.assert_close(text, normalize(x, dim=-1), atol=1e-5, rtol=0)
    assert torch.equal(bank[:, 0], text)

    # image: the projected context behind the patches, before ln_pre; replaced before block 1; class token out
    pixels = torch.rand(2, 3, 32, 32, generator=torch.Generator().manual_seed(7))
    x = visual.conv1((pixels - 0.5) / 0.5).flatten(2).transpose(1, 2)
    x = torch.cat([visual.class_embedding.expand(2, 1, -1), x], 1) + visual.positional_embedding
    x = torch.cat([x, (w["ctx"] @ w["proj.weight"].T + w["proj.bias"]).expand(2, -1, -1)], 1)
    x = layer_norm(x, x.shape[-1:], visual.ln_pre.weight, visual.ln_pre.bias)
    x = visual.transformer.resblocks[0](x)
    projection = "compound_prompt_projections.0"
    x[:, -2:] = w["compound_prompts_text.0"] @ w[f"{projection}.weight"].T + w[f"{projection}.bias"]
    x = visual.ln_post(visual.transformer.resblocks[1](x)[:, 0]) @ visual.proj
    torch.testing.assert_close(adapted.encode_images(pixels), normalize(x, dim=-1), atol=1e-5, rtol=0)
    assert (adapted.encode_images(pixels) - backbone.encode_images(pixels)).abs().max() > 1e-2

    # captions: their own words at block 0, the compound prompts over words 1 and 2 before block 1
    tokens = backbone.tokenizer(["two dogs on a red sofa"])
    x = model.token_embedding(tokens) + model.positional_embedding
    x = model.transformer.resblocks[0](x, attn_mask=model.attn_mask)
    x[:, 1:3] = w["compound_prompts_text.0"]
    x = model.transformer.resblocks[1](x, attn_mask=model.attn_mask)
    x = model.ln_final(x)[:, int(tokens.argmax())] @ model.text_projection
    torch.testing.assert_close(
        adapted.encode_texts(["two dogs on a red sofa"]), normalize(x, dim=-1), atol=1e-5, rtol=0
    )


def test_maple_is_another_backbone_and_tunes_its_context(backbone: OpenClip, tmp_path: Path) -> None:
    first = PromptSet.named(f"maple:{save(tmp_path / 'a.pth', maple(backbone))}", NAMES)
    second = PromptSet.named(f"maple:{save(tmp_path / 'b.pth', maple(backbone, depth=0))}", NAMES)
    prints = [backbone.fingerprint, *(_adapt(p, backbone).fingerprint for p in (first, second))]
    assert len(set(prints)) == 3
    adapted: Any = _adapt(first, backbone)
    assert adapted.preprocess == backbone.preprocess
    assert isinstance(adapted, PromptTunable)
    context = adapted.init_context("a photo of a").clone().requires_grad_()
    (gradient,) = torch.autograd.grad(adapted.encode_context(context, NAMES)[0, 0], context)
    assert gradient.abs().sum() > 0


@pytest.mark.parametrize(("depth", "warned"), [(0, True), (1, True), (2, False), (8, True)])
def test_a_maple_file_of_another_experiment_is_pointed_out(
    backbone: OpenClip, tmp_path: Path, caplog: pytest.LogCaptureFixture, depth: int, warned: bool
) -> None:
    PromptSet.named(f"maple:{save(tmp_path / 'model.pth.tar-2', maple(backbone, depth))}", NAMES)
    assert len(caplog.messages) == warned
    for line in caplog.messages:
        assert f"model.pth.tar-2 has {depth} compound prompts; the published cross-dataset checkpoint has 2" in line


def test_bad_maple_files(backbone: OpenClip, tmp_path: Path) -> None:
    good = maple(backbone)["state_dict"]
    wide = {k: v.repeat(24, 1) if k.endswith("weight") else v for k, v in good.items()}
    wide = {k: v.repeat(24) if k.endswith("bias") else v for k, v in wide.items()}
    without = {k: v for k, v in good.items() if not k.endswith("projections.0.weight")}
    odd = good | {"prompt_learner.compound_prompts_text.0": torch.zeros(3, 32)}
    bad: dict[str, tuple[object, str]] = {
        "coop": (coop(backbone), "not a MaPLe checkpoint"),
        "deep": (maple(backbone, depth=2), "more than this backbone has"),
        "wide": ({"state_dict": wide}, "projects to width 768"),
        "without": ({"state_dict": without}, "has no 'compound_prompt_projections.0.weight'"),
        "odd": ({"state_dict": odd}, "don't fit"),
    }
    for name, (content, reason) in bad.items():
        with pytest.raises(BadData, match=reason):
            _adapt(PromptSet.named(f"maple:{save(tmp_path / f'{name}.pth', content)}", NAMES), backbone)
    resnet: Any = make("clip-resnet")
    resnet.name = "rn"
    prompts = PromptSet.named(f"maple:{save(tmp_path / 'good.pth', maple(backbone))}", NAMES)
    resnet.text.token_embedding.weight.data.copy_(backbone.text.token_embedding.weight)
    with pytest.raises(UsageError, match="vision transformer"):
        _adapt(prompts, resnet)
