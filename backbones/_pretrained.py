"""Loading what open_clip publishes: the architecture from its JSON config, the weights from a file, a cache or the net.

open_clip is imported where it is used, after the weights are found: who has none should not wait for it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from huggingface_hub import constants

from tta_bench.backbones._hub import (
    TOKENIZER_FILES,
    Published,
    cached_file,
    find_weights,
    host,
    require_transformers,
    revisions_of,
    tokenizer_missing,
    unreachable,
)
from tta_bench.backbones._open_clip import OpenClip, dtype_of
from tta_bench.backbones._weight_files import COUNTERS, fill, read_weights
from tta_bench.errors import UsageError
from tta_bench.interfaces import Preprocess
from tta_bench.system.files import canonical_json, file_digest


class Pretrained(OpenClip):
    """One of open_clip's published models."""

    name: ClassVar[str]
    published: ClassVar[Published]
    random_weights = False  # True: the numbers mean nothing, and every record has to say so
    sources: tuple[Path, ...] | None = None  # of untrained weights: none, they depend on torch's random numbers

    @classmethod
    def config(cls) -> Config:
        return Config.of(cls.published)

    @classmethod
    def weights_here(cls) -> bool:
        return cls.published.cached is not None

    @classmethod
    def load(cls, device: str, weights: Path | None = None, precision: str = "fp32") -> Self:
        """The weights come from `weights`, or else from a local cache, or else from the network."""
        dtype_of(precision)
        file = weights or find_weights(cls.name, cls.published)
        tensors = read_weights(file)
        config = cls.config()
        tokenizer = cls.tokenizer_for(config, file.parent)
        model = config.build()
        fill(model, tensors, file, cls.published.architecture)
        tokens = tokenizer_files(config.model["text_cfg"], file.parent)
        backbone = cls._assemble(model, tokenizer, tokens, config, device, precision, origin="weights")
        backbone.sources = (file, *tokens, *revisions_of((file, *tokens)))
        return backbone

    @classmethod
    def random(cls, device: str, precision: str = "fp32", seed: int = 0) -> Self:
        """The real architecture with untrained weights: to try a pipeline where the real ones can't be had."""
        dtype_of(precision)
        config = cls.config()
        tokenizer = cls.tokenizer_for(config, None)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = config.build()
        tokens = tokenizer_files(config.model["text_cfg"], None)
        backbone = cls._assemble(model, tokenizer, tokens, config, device, precision, origin=f"random-{seed}")
        backbone.random_weights = True
        return backbone

    @classmethod
    def tokenizer_for(cls, config: Config, folder: Path | None) -> Any:
        return build_tokenizer(cls.name, config.model["text_cfg"], folder)

    @classmethod
    def check(cls, model: Any) -> None:
        """What has to hold for the built model, whatever its weights."""

    @classmethod
    def _assemble(
        cls,
        model: Any,
        tokenizer: Any,
        tokens: Sequence[Path],
        config: Config,
        device: str,
        precision: str,
        origin: str,
    ) -> Self:
        cls.check(model)
        fingerprint = f"{origin}-{digest(model, tokens, config, precision)}"
        return cls(model, tokenizer, config.preprocess, config.mean, config.std, fingerprint, device, precision)


# ----------------------------------------------------------------------------------------------------- architecture


@dataclass(frozen=True)
class Config:
    """A model in open_clip's JSON form, and how it wants its pixels."""

    model: Mapping[str, Any]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    interpolation: str = "bicubic"
    resize_mode: str = "shortest"

    @classmethod
    def of(cls, published: Published) -> Config:
        """As open_clip has it, except that weights trained with QuickGELU get it under any name of the model.

        open_clip builds `ViT-B-32` with GELU even for OpenAI's weights, and only warns that the features are off.
        """
        from open_clip.factory import get_model_config
        from open_clip.pretrained import get_pretrained_cfg

        weights = get_pretrained_cfg(published.architecture, published.tag)
        model = get_model_config(published.architecture)
        model["quick_gelu"] = bool(model.get("quick_gelu") or weights.get("quick_gelu"))
        return cls(model, weights["mean"], weights["std"], weights["interpolation"], weights["resize_mode"])

    @property
    def preprocess(self) -> Preprocess:
        size = self.model["vision_cfg"].get("image_size", 224)
        if not isinstance(size, int):
            raise UsageError(f"this model takes images of {size} pixels; only squares are supported")
        match self.interpolation, self.resize_mode:
            case ("bicubic" | "bilinear") as interpolation, ("shortest" | "squash") as resize:
                return Preprocess(size, interpolation, resize)
        raise UsageError(f"this model resizes by {self.interpolation}, {self.resize_mode}: not supported")

    def build(self) -> Any:
        """The model through open_clip's own classes, its weights drawn from torch's random numbers."""
        from open_clip.coca_model import CoCa
        from open_clip.model import CLIP, CustomTextCLIP

        config = deepcopy(dict(self.model))
        text = config["text_cfg"]
        of_transformers = "hf_model_name" in text
        if of_transformers:
            require_transformers("its text tower")
            text["hf_model_pretrained"] = False  # ours are on the way
        custom_text = config.pop("custom_text", False) or of_transformers
        if "multimodal_cfg" in config:
            return CoCa(**config)
        return CustomTextCLIP(**config) if custom_text else CLIP(**config)


def digest(model: Any, tokens: Sequence[Path], config: Config, precision: str) -> str:
    """Of the weights' values and of all else that changes features, a tokenizer's files among it; not of the file that
    the weights were in."""
    sha = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        if not name.endswith(COUNTERS):
            sha.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            sha.update(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())
    sha.update(canonical_json([config.model, config.mean, config.std]).encode())
    sha.update(repr((config.preprocess, precision)).encode())
    for file in tokens:
        sha.update(f"{file.name} {file_digest(file)}".encode())
    return sha.hexdigest()


# -------------------------------------------------------------------------------------------------------- tokenizers


def build_tokenizer(backbone: str, text: Mapping[str, Any], folder: Path | None) -> Any:
    """CLIP's own byte-pair encoding, or what the config names on the Hugging Face hub.

    The latter's files are taken from `folder`, the weights file's, if they are there; else from the cache or the net.
    """
    tokenizer = _make_tokenizer(backbone, text, folder)
    if text.get("hf_tokenizer_name"):
        tokenizer.tokenizer.padding_side = "right"  # as trained; newer transformers pad left for SigLIP 2's Gemma
    return tokenizer


def tokenizer_files(text: Mapping[str, Any], folder: Path | None) -> list[Path]:
    """The files of the tokenizer that `build_tokenizer` takes; none of CLIP's, which is part of open_clip."""
    name = text.get("hf_tokenizer_name")
    if not name:
        return []
    beside = [folder / file for file in TOKENIZER_FILES if folder is not None and (folder / file).is_file()]
    return beside or [found for file in TOKENIZER_FILES if (found := cached_file(name, file)) is not None]


def _make_tokenizer(backbone: str, text: Mapping[str, Any], folder: Path | None) -> Any:
    from open_clip.tokenizer import DEFAULT_CONTEXT_LENGTH, HFTokenizer, SimpleTokenizer

    length = text.get("context_length", DEFAULT_CONTEXT_LENGTH)
    options = dict(text.get("tokenizer_kwargs") or {})  # among them how texts are cleaned: SigLIP canonicalises
    name = text.get("hf_tokenizer_name")
    if not name:
        return SimpleTokenizer(context_length=length, **options)
    require_transformers(f"the tokenizer of {backbone}")
    options |= {"context_length": length, "tokenizer_mode": text.get("tokenizer_mode")}
    beside = folder is not None and any((folder / f).is_file() for f in TOKENIZER_FILES)
    try:
        return HFTokenizer(str(folder) if beside else name, local_files_only=True, **options)
    except (OSError, ValueError) as error:
        reason = unreachable(constants.ENDPOINT)
        if beside or reason:
            source = str(folder) if beside else f"{host(constants.ENDPOINT)}/{name}"
            raise tokenizer_missing(backbone, source, folder, reason or str(error)) from error
    try:
        return HFTokenizer(name, **options)
    except Exception as error:  # any failure of a download has the same ways on
        raise tokenizer_missing(backbone, f"{host(constants.ENDPOINT)}/{name}", folder, str(error)) from error
