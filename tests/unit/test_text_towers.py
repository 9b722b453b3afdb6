"""Every kind of text tower that ships: the cheap ways give the numbers of the plain one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from open_clip.model import CLIP, CustomTextCLIP
from torch import Tensor
from torch.nn.functional import normalize

from tests.unit.small_models import FAMILIES
from tta_bench.backbones._open_clip import OpenClip
from tta_bench.backbones._text_tower import TextTower
from tta_bench.errors import UsageError
from tta_bench.interfaces import Preprocess, PromptTunable

NAMES = ["cat", "traffic_light", "a very long name of a thing", "hydrant"]
TOWERS = ["clip-vit", "eva02", "siglip2", "metaclip2"]
WORDS = "a photo of a"


def make(family: str, **text_options: Any) -> OpenClip:
    """A small random model whose layers all matter: open_clip's own initial weights are nearly linear."""
    config = FAMILIES[family].model
    config = {k: v for k, v in config.items() if k != "custom_text"} | {"text_cfg": config["text_cfg"] | text_options}
    torch.manual_seed(0)
    model = (CustomTextCLIP if FAMILIES[family].model.get("custom_text") else CLIP)(**config)
    for name, parameter in model.named_parameters():
        if "visual" not in name and "logit" not in name:
            parameter.data.add_(0.2 * torch.randn_like(parameter))
    size = Preprocess(config["vision_cfg"]["image_size"])
    return OpenClip(model, FAMILIES[family].tokenizer, size, [0.5] * 3, [0.5] * 3, "random", "cpu", "fp32")


def plain(backbone: OpenClip, context: Tensor, names: Sequence[str]) -> Tensor:
    """The context written over the words' embeddings in full-length texts, through open_clip's own forward."""
    placeholder = " ".join(["a"] * len(context))
    tokens = backbone.tokenizer([f"{placeholder} {name.replace('_', ' ')}." for name in names])
    embedding = backbone.text.token_embedding
    start = backbone.lead_count

    class Overwritten(torch.nn.Module):
        def forward(self, ids: Tensor) -> Tensor:
            x = embedding(ids)
            shared = context.expand(len(x), -1, -1)
            return torch.cat([x[:, :start], shared, x[:, start + len(context) :]], 1)

    owner = getattr(backbone.model, "text", backbone.model)
    owner.token_embedding = Overwritten()
    try:
        return normalize(backbone.model.encode_text(tokens), dim=-1)
    finally:
        owner.token_embedding = embedding


@pytest.mark.parametrize("family", TOWERS)
def test_a_context_of_words_is_the_text(family: str) -> None:
    backbone = make(family)
    assert isinstance(backbone, PromptTunable)
    expected = backbone.encode_texts([f"{WORDS} {name.replace('_', ' ')}." for name in NAMES])
    features = backbone.encode_context(backbone.init_context(WORDS), NAMES)
    torch.testing.assert_close(features, expected, atol=1e-5, rtol=0)
    assert (features[0] - features[1]).abs().max() > 1e-2  # the names are in the prompts


@pytest.mark.parametrize("family", TOWERS)
@pytest.mark.parametrize("length", [1, 4, 9])
def test_any_context_gives_the_plain_features_and_gradients(family: str, length: int) -> None:
    backbone = make(family)
    context = torch.randn(length, backbone.text.width, generator=torch.Generator().manual_seed(1)).requires_grad_()
    weights = torch.randn(len(NAMES), backbone.embed_dim, generator=torch.Generator().manual_seed(2))
    names = NAMES if family != "siglip2" or length < 9 else ["cat", "traffic_light"]  # its 16 places hold no more
    results = []
    for features in (backbone.encode_context(context, names), plain(backbone, context, names)):
        (gradient,) = torch.autograd.grad((features * weights[: len(names)]).sum(), context)
        results.append((features, gradient))
    torch.testing.assert_close(results[0][0], results[1][0], atol=1e-5, rtol=0)
    torch.testing.assert_close(results[0][1], results[1][1], atol=1e-5, rtol=1e-4)
    assert results[0][1].abs().min(dim=1).values.max() > 0


def test_blocks_of_another_kind_are_not_shared_but_right() -> None:
    backbone = make("eva02", qk_norm=True, block_type="custom")
    assert backbone.text.causal
    assert not backbone.text.can_share
    context = backbone.init_context(WORDS)
    torch.testing.assert_close(
        backbone.encode_context(context, NAMES), plain(backbone, context, NAMES), atol=1e-5, rtol=0
    )


def test_layer_scale_is_applied() -> None:
    backbone = make("clip-vit", ls_init_value=0.3)
    assert backbone.text.can_share
    context = backbone.init_context(WORDS)
    torch.testing.assert_close(
        backbone.encode_context(context, NAMES), plain(backbone, context, NAMES), atol=1e-5, rtol=0
    )


@pytest.mark.parametrize("family", TOWERS)
def test_texts_are_those_of_open_clip(family: str) -> None:
    backbone = make(family)
    texts = ["a cat.", "a photo of two dogs on a red sofa"]
    tokens = backbone.tokenizer(texts)
    with torch.no_grad():
        expected = normalize(backbone.model.encode_text(tokens), dim=-1)
        torch.testing.assert_close(backbone.text.encode(tokens), expected, atol=1e-5, rtol=0)
        end = backbone.text.pooled_position(tokens)
        embeddings = backbone.text.token_embedding(tokens)
        torch.testing.assert_close(backbone.text.features(embeddings, end), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("family", TOWERS)
def test_a_name_too_long_is_cut_and_still_ends(family: str) -> None:
    backbone = make(family)
    room = len(backbone.text.positional_embedding) - 1
    name = " ".join(["cat"] * 100)
    context = backbone.init_context(WORDS)
    expected = backbone.encode_texts([f"{WORDS} {name}."])  # cut by the tokenizer
    torch.testing.assert_close(backbone.encode_context(context, [name]), expected, atol=1e-5, rtol=0)
    with pytest.raises(UsageError, match="no room"):
        backbone.encode_context(context[:1].expand(room, -1), ["cat"])
    with pytest.raises(UsageError, match="width"):
        backbone.encode_context(context[:, :-1], ["cat"])


def test_other_classes_are_not_taken_from_memory() -> None:
    backbone = make("clip-vit")
    context = backbone.init_context(WORDS)
    first = backbone.encode_context(context, NAMES)
    other = backbone.encode_context(context, NAMES[::-1])
    torch.testing.assert_close(first, other.flip(0), atol=1e-5, rtol=0)
    torch.testing.assert_close(backbone.encode_context(context[:2], NAMES), plain(backbone, context[:2], NAMES))


def test_a_tower_of_another_make_encodes_but_is_not_tuned() -> None:
    backbone = make("eva02", embed_cls=True)  # a class token at the end, as CoCa has it
    assert TextTower.of(backbone.model) is None
    assert backbone.encode_texts(["a cat."]).shape == (1, backbone.embed_dim)
    with pytest.raises(UsageError, match="can't be tuned"):
        backbone.init_context(WORDS)
