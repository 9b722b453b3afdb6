"""`tiny`: a real open_clip CLIP behind the interfaces, and good enough to be worth adapting."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from sklearn.metrics import average_precision_score
from torch import Tensor

from tests.unit.small_models import save
from tta_bench.backbones._open_clip import OpenClip
from tta_bench.backbones.tiny import CONFIG, WEIGHTS, Tiny, build_tokenizer, read_config
from tta_bench.datasets._scenes_layout import CLASS_NAMES
from tta_bench.datasets.scenes import Scenes
from tta_bench.errors import BadData, UsageError, WeightsMissing
from tta_bench.interfaces import PromptTunable

NAMES = ["dog", "umbrella", "fire engine"]


@pytest.fixture(scope="module")
def tiny() -> Tiny:
    return Tiny.load("cpu")


def pixels(tiny: OpenClip, count: int = 4) -> Tensor:
    return torch.rand(count, 3, tiny.image_size, tiny.image_size, generator=torch.Generator().manual_seed(0))


def test_features_are_unit_norm_float32(tiny: Tiny) -> None:
    for features, count in ((tiny.encode_images(pixels(tiny)), 4), (tiny.encode_texts(NAMES), 3)):
        assert features.shape == (count, tiny.embed_dim)
        assert features.dtype == torch.float32
        torch.testing.assert_close(features.norm(dim=-1), torch.ones(count))


def test_images_match_open_clip(tiny: Tiny) -> None:
    config = read_config()["preprocess_cfg"]
    mean, std = (torch.tensor(config[key]).view(3, 1, 1) for key in ("mean", "std"))
    expected = tiny.model.encode_image((pixels(tiny) - mean) / std, normalize=True)
    torch.testing.assert_close(tiny.encode_images(pixels(tiny)), expected, atol=1e-5, rtol=0)


def test_texts_match_open_clip_and_their_padding_changes_nothing(tiny: Tiny) -> None:
    texts = ["a photo of a dog.", "two cats and a kite in the meadow, and quite a long sentence after them"]
    expected = tiny.model.encode_text(tiny.tokenizer(texts), normalize=True)
    torch.testing.assert_close(tiny.encode_texts(texts), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(tiny.encode_texts(texts[:1]), expected[:1], atol=1e-5, rtol=0)


def test_context_of_words_is_the_prompt(tiny: Tiny) -> None:
    assert isinstance(tiny, PromptTunable)
    context = tiny.init_context("a photo of a")
    assert context.shape == (4, tiny.model.token_embedding.embedding_dim)
    expected = tiny.encode_texts([f"a photo of a {name}." for name in NAMES])
    torch.testing.assert_close(tiny.encode_context(context, NAMES), expected, atol=1e-5, rtol=0)


def test_context_is_differentiable_and_the_weights_stay(tiny: Tiny) -> None:
    context = tiny.init_context("a photo of a").requires_grad_()
    (gradient,) = torch.autograd.grad(tiny.encode_context(context, NAMES)[:, 0].sum(), context)
    assert gradient.abs().amax(dim=1).min() > 0
    assert not any(parameter.requires_grad for parameter in tiny.model.parameters())


def test_a_context_that_fills_the_window_keeps_the_end(tiny: Tiny) -> None:
    context = tiny.init_context("a photo of a").repeat(7, 1)  # 28 of 32 positions
    features = tiny.encode_context(context, ["diningtable with very many words behind it"])
    assert features.isfinite().all()


@pytest.mark.parametrize("text", ["", "dog", "Zebra-crossing", "żółw", "犬 🐶", "x" * 500, "12345 & <end_of_text>"])
def test_any_text_tokenises_inside_the_vocabulary(tiny: Tiny, text: str) -> None:
    tokenizer = build_tokenizer(read_config())
    tokens = tokenizer(text)
    assert int(tokens.max()) == tokenizer.eot_token_id == tokenizer.vocab_size - 1
    assert tiny.encode_texts([text]).isfinite().all()


def test_short_vocabulary_spells_words_in_full() -> None:
    tokenizer = build_tokenizer(read_config())
    for word in (*CLASS_NAMES, "photo", "hippopotamus"):
        assert tokenizer.decode(tokenizer.encode(word)).strip() == word


def test_weights_are_small_and_the_scale_is_learned(tiny: Tiny) -> None:
    assert WEIGHTS.stat().st_size <= 8_000_000
    assert 5 < tiny.logit_scale <= 100.1
    assert tiny.logit_bias == 0.0
    assert tiny.image_size == tiny.preprocess.size


def test_fingerprint_covers_weights_and_precision(tiny: Tiny, tmp_path: Path) -> None:
    other = tmp_path / "other.safetensors"
    raw = bytearray(WEIGHTS.read_bytes())
    raw[-1] ^= 1
    other.write_bytes(raw)
    assert Tiny.load("cpu").fingerprint == tiny.fingerprint
    assert Tiny.load("cpu", other).fingerprint != tiny.fingerprint
    assert Tiny.load("cpu", precision="fp16").fingerprint != tiny.fingerprint


def test_half_precision_is_close(tiny: Tiny) -> None:
    half = Tiny.load("cpu", precision="fp16")
    cosine = (half.encode_images(pixels(tiny)) * tiny.encode_images(pixels(tiny))).sum(-1)
    assert half.encode_texts(NAMES).dtype == torch.float32
    assert cosine.min() > 0.999


@pytest.mark.parametrize("name", ["mine.pt", "mine.safetensors"])
def test_other_weights_of_the_same_kind_can_be_loaded(tiny: Tiny, tmp_path: Path, name: str) -> None:
    file = save(tiny, tmp_path / name)
    loaded = Tiny.load("cpu", file)
    assert torch.equal(loaded.encode_texts(NAMES), tiny.encode_texts(NAMES))
    assert torch.equal(loaded.encode_images(pixels(tiny)), tiny.encode_images(pixels(tiny)))
    assert loaded.sources == (CONFIG, file)


def test_weights_of_another_architecture_are_refused(tiny: Tiny, tmp_path: Path) -> None:
    weights = tiny.model.state_dict()
    torch.save({"weight": torch.zeros(3)}, tmp_path / "other.pt")
    torch.save(weights | {"visual.proj": weights["visual.proj"][:, 1:].clone()}, tmp_path / "narrow.pt")
    for name, words in (("other.pt", r"missing .*1 unknown \(weight\)"), ("narrow.pt", r"1 of another shape")):
        with pytest.raises(BadData, match=rf"{name} does not hold the weights of tiny: .*{words}") as caught:
            Tiny.load("cpu", tmp_path / name)
        assert "\n" not in str(caught.value)


def test_what_it_is_made_of_and_for(tiny: Tiny) -> None:
    assert tiny.made_for == ("scenes",)
    assert tiny.sources == (CONFIG, WEIGHTS)


def test_what_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"none\.safetensors: no such file"):
        Tiny.load("cpu", tmp_path / "none.safetensors")
    with pytest.raises(UsageError, match="fp8"):
        Tiny.load("cpu", precision="fp8")
    monkeypatch.setattr("tta_bench.backbones.tiny.WEIGHTS", tmp_path / "lost.safetensors")
    with pytest.raises(WeightsMissing, match="train_tiny"):
        Tiny.load("cpu")


def test_it_recognises_clean_scenes(tiny: Tiny) -> None:
    """Far above chance (about 11 here) on the first test images: the weights belong to these scenes."""
    samples = [Scenes("clean")[i] for i in range(120)]
    size = (tiny.image_size, tiny.image_size)
    images = torch.from_numpy(np.stack([np.asarray(sample.image.resize(size)) for sample in samples]))
    features = tiny.encode_images(images.permute(0, 3, 1, 2) / 255)
    text = tiny.encode_texts([f"a photo of a {name}." for name in CLASS_NAMES])
    labels = np.stack([sample.labels for sample in samples])
    assert average_precision_score(labels, (features @ text.T).numpy(), average="macro") > 0.6


@pytest.mark.parametrize("how", ["optimiser", "data", "replaced", "scale"])
def test_a_backbone_that_was_trained_since_is_another_one(how: str) -> None:
    backbone = Tiny.load("cpu")
    before = backbone.fingerprint
    backbone.encode_texts(["a dog"])
    assert backbone.fingerprint == before == Tiny.load("cpu").fingerprint
    weight = backbone.model.visual.proj
    with torch.no_grad():
        if how == "optimiser":
            weight.add_(0.01)
        elif how == "data":
            weight.data.mul_(1.01)  # which torch does not count
        elif how == "replaced":
            backbone.model.visual.proj = torch.nn.Parameter(weight * 1.01)
        else:
            backbone.logit_scale = 100.0
    changed = backbone.fingerprint
    assert changed not in (before, "")
    assert backbone.fingerprint == changed


def other_gelu(backbone: Tiny) -> None:
    backbone.model.visual.transformer.resblocks[0].mlp.gelu = torch.nn.ReLU()


def other_eps(backbone: Tiny) -> None:
    backbone.model.visual.ln_post.eps = 0.1


def in_training(backbone: Tiny) -> None:
    backbone.model.train()


def other_method(backbone: Tiny) -> None:
    backbone.model.encode_image = lambda pixels: pixels.flatten(1)[:, :128]


def other_call(backbone: Tiny) -> None:
    backbone.model.encode_image = functools.partial(lambda scale, pixels: scale * pixels.flatten(1)[:, :128], 2.0)


def no_mask(backbone: Tiny) -> None:
    backbone.model.attn_mask.zero_()  # which no state of the model has


def other_words(backbone: Tiny) -> None:
    tokenizer = backbone.tokenizer
    backbone.tokenizer = lambda texts, **more: tokenizer([text.replace("photo", "drawing") for text in texts], **more)


@pytest.mark.parametrize("change", [other_gelu, other_eps, in_training, other_method, other_call, no_mask, other_words])
def test_a_backbone_whose_layers_were_changed_is_another_one(change: Callable[[Tiny], None]) -> None:
    """Its weights are as they were, and features made with it were found by every later run."""
    backbones = [Tiny.load("cpu") for _ in range(2)]
    for backbone in backbones:
        change(backbone)
    assert backbones[0].fingerprint == backbones[1].fingerprint != Tiny.load("cpu").fingerprint
