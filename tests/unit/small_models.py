"""Each backbone family in small: the real open_clip and timm classes with tiny widths, and local tokenizers."""

from __future__ import annotations

import urllib.error
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from open_clip.tokenizer import SimpleTokenizer, canonicalize_text
from safetensors.torch import save_file
from timm.models import eva, register_model, vision_transformer
from torch import Tensor

from tta_bench.backbones._open_clip import OpenClip
from tta_bench.backbones._pretrained import Config, Pretrained
from tta_bench.backbones.clip import RN50, ViTB16
from tta_bench.backbones.eva02 import EVA02
from tta_bench.backbones.metaclip2 import MetaCLIP2
from tta_bench.backbones.siglip2 import SigLIP2

TIMM = {"img_size": 32, "patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
TEXTS = ["a photo of a cat.", "a photo of a traffic light.", "a photo of two Dogs, and a very long sofa."]
CLIP_TEXT = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}


@register_model
def ttabench_small_eva02(pretrained: bool = False, **kwargs: Any) -> Any:
    return eva.eva02_base_patch16_clip_224(pretrained, **(TIMM | kwargs))


@register_model
def ttabench_small_siglip(pretrained: bool = False, **kwargs: Any) -> Any:
    return vision_transformer.vit_so400m_patch14_siglip_224(pretrained, **(TIMM | kwargs))


class WordTokenizer:
    """One token per word, framed and padded as the family's own tokenizer does it."""

    def __init__(self, context_length: int, vocab_size: int, start: int | None, stop: int, pad: int) -> None:
        self.context_length, self.vocab_size = context_length, vocab_size
        self.sot_token_id, self.eot_token_id, self.pad_token_id = start, stop, pad

    def encode(self, text: str) -> list[int]:
        return [3 + zlib.crc32(word.encode()) % (self.vocab_size - 3) for word in canonicalize_text(text).split()]

    def __call__(self, texts: Sequence[str], context_length: int | None = None) -> Tensor:
        rows, room = [], (context_length or self.context_length) - 1
        for text in texts:
            start = [] if self.sot_token_id is None else [self.sot_token_id]
            tokens = [*start, *self.encode(text)][:room]
            padding = [self.pad_token_id] * (room - len(tokens))
            rows.append([*tokens, self.eot_token_id, *padding])
        return torch.tensor(rows)


@dataclass(frozen=True)
class Family:
    backbone: type[Pretrained]
    model: dict[str, Any]
    tokenizer: Any

    def shrink(self, monkeypatch: Any) -> type[Pretrained]:
        """The backbone's class with the small architecture in place of its own; all else is as published."""
        real = self.backbone.config()
        small = Config(self.model, real.mean, real.std, real.interpolation, real.resize_mode)
        monkeypatch.setattr(self.backbone, "config", lambda: small)
        monkeypatch.setattr(self.backbone, "tokenizer_for", lambda *_: self.tokenizer)
        return self.backbone


FAMILIES = {
    "clip-resnet": Family(
        RN50,
        {
            "embed_dim": 32,
            "quick_gelu": True,
            "vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None},
            "text_cfg": CLIP_TEXT,
        },
        SimpleTokenizer(),
    ),
    "clip-vit": Family(
        ViTB16,
        {
            "embed_dim": 32,
            "quick_gelu": True,
            "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
            "text_cfg": CLIP_TEXT,
        },
        SimpleTokenizer(),
    ),
    "eva02": Family(
        EVA02,
        {
            "embed_dim": 24,
            "vision_cfg": {
                "image_size": 32,
                "timm_model_name": "ttabench_small_eva02",
                "timm_model_pretrained": False,
                "timm_pool": "token",
                "timm_proj": None,
            },
            "text_cfg": CLIP_TEXT,
            "custom_text": True,
        },
        SimpleTokenizer(),
    ),
    "siglip2": Family(
        SigLIP2,
        {
            "embed_dim": 32,
            "init_logit_bias": -10,
            "custom_text": True,
            "vision_cfg": {
                "image_size": 32,
                "timm_model_name": "ttabench_small_siglip",
                "timm_model_pretrained": False,
                "timm_pool": "map",
                "timm_proj": "none",
            },
            "text_cfg": {
                "context_length": 16,
                "vocab_size": 200,
                "hf_tokenizer_name": "local/words",
                "tokenizer_kwargs": {"clean": "canonicalize"},
                "width": 32,
                "heads": 2,
                "layers": 2,
                "no_causal_mask": True,
                "proj_bias": True,
                "pool_type": "last",
                "norm_kwargs": {"eps": 1e-6},
                "act_kwargs": {"approximate": "tanh"},
            },
        },
        WordTokenizer(context_length=16, vocab_size=200, start=None, stop=1, pad=0),
    ),
    "metaclip2": Family(
        MetaCLIP2,
        {
            "embed_dim": 32,
            "quick_gelu": True,
            "vision_cfg": {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8},
            "text_cfg": {
                "hf_tokenizer_name": "local/words",
                "pool_type": "eos",
                "eos_id": 2,
                "context_length": 20,
                "vocab_size": 300,
                "width": 32,
                "heads": 2,
                "layers": 2,
            },
        },
        WordTokenizer(context_length=20, vocab_size=300, start=0, stop=2, pad=1),
    ),
}


def cut_off(monkeypatch: Any, home: Path) -> None:
    """No test asks anybody or finds anything in this machine's caches."""

    def refuse(*_: Any, **__: Any) -> None:
        raise urllib.error.URLError("the tests have no network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(home / "hub"))
    monkeypatch.setenv("HOME", str(home))


def save(backbone: OpenClip, file: Path) -> Path:
    """A checkpoint as the format's own library writes it."""
    weights = {name: tensor.clone().contiguous() for name, tensor in backbone.model.state_dict().items()}
    if file.suffix == ".safetensors":
        save_file(weights, file)
    else:
        torch.save(weights, file)
    return file
