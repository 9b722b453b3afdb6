"""`tiny`: a small open_clip `CLIP` that ships with the package, trained from scratch on clean training `scenes`.

Its recipe is training/train_tiny.py; docs/embedded.md tells what it can do.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from open_clip.model import CLIP
from open_clip.tokenizer import SimpleTokenizer
from torch import nn

import tta_bench
from tta_bench import hookimpl
from tta_bench.backbones._open_clip import OpenClip, digest, dtype_of
from tta_bench.backbones._weight_files import fill, read_weights
from tta_bench.errors import WeightsMissing
from tta_bench.interfaces import Preprocess

DATA = Path(tta_bench.__file__).parent / "data"  # this file may be reached through a symlink
CONFIG = DATA / "tiny.json"
WEIGHTS = DATA / "tiny.safetensors"


class Tiny(OpenClip):
    """The embedded backbone."""

    name: ClassVar[str] = "tiny"
    title: ClassVar[str] = "Tiny"
    made_for: ClassVar[tuple[str, ...]] = ("scenes",)
    sources: tuple[Path, ...]

    @classmethod
    def load(cls, device: str, weights: Path | None = None, precision: str = "fp32") -> Self:
        """`weights` replaces the embedded weights by others of the same config."""
        dtype_of(precision)
        if weights is None and not WEIGHTS.is_file():
            raise WeightsMissing(f"{WEIGHTS} is missing: train it with `python training/train_tiny.py`.")
        weights = weights or WEIGHTS
        config = read_config()
        model = build_model(config)
        fill(model, read_weights(weights), weights, cls.name)  # stored in half precision, copied into float32
        pixels = config["preprocess_cfg"]
        fingerprint = digest(weights, config, precision)
        preprocess = Preprocess(pixels["size"], pixels["interpolation"], pixels["resize_mode"])
        tokenizer = build_tokenizer(config)
        tiny = cls(model, tokenizer, preprocess, pixels["mean"], pixels["std"], fingerprint, device, precision)
        tiny.sources = (CONFIG, weights)
        return tiny


class ShortTokenizer(SimpleTokenizer):  # type: ignore[misc]  # open_clip is untyped
    """CLIP's own byte-pair encoding, ended after its first merges.

    The merges are ordered by frequency, so common words stay one token; any other text falls into more pieces, down to
    single bytes, and never outside the vocabulary. The two special tokens keep the largest ids.
    """

    bpe_ranks: dict[tuple[str, str], int]
    encoder: dict[str, int]

    def __init__(self, vocab_size: int, context_length: int) -> None:
        super().__init__(context_length=context_length)
        pieces = vocab_size - 2
        merges = pieces - 2 * len(self.byte_encoder)
        self.bpe_ranks = dict(list(self.bpe_ranks.items())[:merges])
        self.sot_token_id, self.eot_token_id = self.all_special_ids = [pieces, pieces + 1]
        special = dict(zip(("<start_of_text>", "<end_of_text>"), self.all_special_ids, strict=True))
        self.encoder = {piece: i for piece, i in self.encoder.items() if i < pieces} | special
        self.decoder = {i: piece for piece, i in self.encoder.items()}
        self.vocab_size = vocab_size


def read_config() -> dict[str, Any]:
    config: dict[str, Any] = json.loads(CONFIG.read_text(encoding="utf-8"))
    return config


def build_model(config: dict[str, Any]) -> Any:
    """An untrained model through open_clip's own class, its patch embedding made of several convolutions."""
    model = CLIP(**config["model_cfg"])
    model.visual.conv1 = build_stem(config["stem_channels"])
    return model


def build_stem(channels: Sequence[int]) -> nn.Sequential:
    """Halves the image once per entry, down to one vector per patch."""
    layers: list[nn.Module] = []
    for before, after in pairwise((3, *channels)):
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(after), nn.ReLU()]
    stem = nn.Sequential(*layers, nn.Conv2d(channels[-1], channels[-1], 1))
    return stem.to(memory_format=torch.channels_last)  # faster on a CPU


def build_tokenizer(config: dict[str, Any]) -> ShortTokenizer:
    text = config["model_cfg"]["text_cfg"]
    return ShortTokenizer(text["vocab_size"], text["context_length"])


@hookimpl
def ttabench_backbones() -> list[type]:
    return [Tiny]
