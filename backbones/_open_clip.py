"""What every backbone on open_clip shares: normalising pixels, the text tower, and tuning its context."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tta_bench.backbones._text_tower import TextTower
from tta_bench.errors import UsageError
from tta_bench.interfaces import Backbone, Preprocess
from tta_bench.system.described import described
from tta_bench.system.files import digest as digest_of

if TYPE_CHECKING:
    from tta_bench.prompts.files import Maple

READ = ["a photo of a dog.", "A Photo of 2 potted plants, in the rain"]
SAMPLE = 8  # numbers of a tensor that are looked at
PRECISIONS = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


class _Prompts(NamedTuple):
    """The frozen part of the prompts "<context> <name>."."""

    lead: Tensor  # [S, E] what the tokenizer puts in front of every text: one start token, or nothing
    suffix: Tensor  # [C, N, E] name, full stop, end of text, padding
    end: Tensor  # [C] where in the whole prompt its feature is read


class OpenClip:
    """An open_clip model with its tokenizer, behind the `Backbone` and `PromptTunable` interfaces.

    Tokens are found by comparing what the tokenizer makes of two texts. So it does not matter which tokenizer it is,
    nor whether it starts a text with a token of its own.
    """

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        preprocess: Preprocess,
        mean: Sequence[float],
        std: Sequence[float],
        fingerprint: str,
        device: str,
        precision: str,
    ) -> None:
        self.dtype, self.precision = dtype_of(precision), precision
        self.device = device
        self.logit_scale = float(
            model.logit_scale.detach().exp()
        )  # before the cast: rounded, it would change every score
        self.logit_bias = 0.0 if model.logit_bias is None else float(model.logit_bias.detach())
        self.model = model.to(device, self.dtype).eval().requires_grad_(False)
        self._tower = TextTower.of(self.model)
        self.tokenizer = tokenizer
        self.preprocess = preprocess
        self.image_size = preprocess.size
        self.embed_dim = self.encode_texts(["a"]).shape[1] if self._tower is None else self._tower.embed_dim
        self._mean = torch.tensor(mean, device=device).view(3, 1, 1)
        self._std = torch.tensor(std, device=device).view(3, 1, 1)
        self._prompts: tuple[object, _Prompts] | None = None  # of the last classes: a stream asks for the same ones
        self._loaded, self._loaded_as = fingerprint, self._looks()

    @property
    def fingerprint(self) -> str:
        """Of the files that it was loaded from; if somebody has trained or changed it since, of what it is now."""
        if self._looks() == self._loaded_as:
            return self._loaded
        values = [self.logit_scale, self.logit_bias, repr(self.preprocess), self._mean, self._std]
        return digest_of(
            [
                self._loaded,
                described([self.model.state_dict(), dict(self.model.named_buffers()), *values]),
                self._structure(),
            ]
        )

    def _looks(self) -> list[Any]:
        """What a change can be seen by: torch counts most of them, and some numbers of each tensor show the others."""
        looks: list[Any] = [self.logit_scale, self.logit_bias, self.preprocess, self._structure()]
        held = {**self.model.state_dict(keep_vars=True), **dict(self.model.named_buffers())}  # some are in one alone
        for name, tensor in (*held.items(), ("mean", self._mean), ("std", self._std)):
            numbers = tensor.detach().flatten()[:: max(1, tensor.numel() // SAMPLE)]
            looks.append((name, 0 if tensor.is_inference() else tensor._version, numbers.tolist()))
        return looks

    def _structure(self) -> list[Any]:
        """What some texts are read as, and of each layer its class, its settings, whether it trains, and functions in
        the place of its own."""
        kinds = {type(layer): described(type(layer)) for layer in self.model.modules()}
        layers = [
            (
                path,
                kinds[type(layer)],
                [(name, described(held)) for name, held in vars(layer).items() if _decides(held)],
            )
            for path, layer in self.model.named_modules()
        ]
        return [self.tokenizer(READ).tolist(), *layers]

    @torch.no_grad()
    def encode_images(self, pixels: Tensor) -> Tensor:
        """[B, 3, S, S] in [0, 1] -> [B, D]."""
        return normalize(self.model.encode_image(self.whiten(pixels)).float(), dim=-1)

    def whiten(self, pixels: Tensor) -> Tensor:
        return ((pixels.to(self.device).float() - self._mean) / self._std).to(self.dtype)

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """T texts -> [T, D]."""
        tokens = self.tokenizer(list(texts)).to(self.device)
        if self._tower is None:
            return normalize(self.model.encode_text(tokens).float(), dim=-1)
        return self._tower.encode(tokens)

    def too_long(self, texts: Sequence[str]) -> list[str]:
        """The texts that are cut: with twice the room the tokenizer makes more of them."""
        if not texts:
            return []
        short = self.tokenizer(["a"])[0]
        room, padding = len(short), short[-2]  # the last may be a token of the tower's own
        read = (self.tokenizer(list(texts)) != padding).sum(1)
        whole = (self.tokenizer(list(texts), context_length=2 * room) != padding).sum(1)
        return [text for text, cut in zip(texts, (read < whole).tolist(), strict=True) if cut]

    # --------------------------------------------------------------------------------------- prompt tuning

    @property
    def text(self) -> TextTower:
        if self._tower is None:
            raise UsageError(f"{type(self.model).__name__}: the prompts of this kind of text tower can't be tuned")
        return self._tower

    def init_context(self, words: str) -> Tensor:
        """The words' own token embeddings, [M, E]."""
        alone, longer = self.tokenizer([words, f"{words} a"])
        return self._embed(alone[self.lead_count : _first_difference(alone, longer)]).float()

    def encode_context(self, context: Tensor, class_names: Sequence[str], deep: Sequence[Tensor] = ()) -> Tensor:
        """Class features [C, D] of "<context> <name>.", differentiable in the context [M, E]."""
        if context.shape[1] != self.text.width:
            raise UsageError(f"a context of width {context.shape[1]} does not fit a text tower of {self.text.width}")
        lead, suffix, end = self._prompts_of(class_names, len(context))
        prefix = torch.cat([lead, context.to(self.device, self.dtype)])  # [S + M, E]
        if self.text.can_share:
            return self.text.features_of_shared(prefix, suffix, end, deep)
        return self.text.features(torch.cat([prefix.expand(len(suffix), -1, -1), suffix], dim=1), end, deep)

    @property
    def lead_count(self) -> int:
        """How many tokens of its own the tokenizer puts in front of a text."""
        return _first_difference(*self.tokenizer(["a", "a a"])) - 1

    @property
    def start_embedding(self) -> Tensor:
        """Embedding of the first token of every text, [E]: it tells one text tower from another."""
        return self._embed(self.tokenizer(["a"])[0, 0]).float()

    def with_deep_prompts(self, prompts: Maple) -> Backbone:
        """This backbone with MaPLe's prompts in both towers."""
        from tta_bench.backbones._maple import DeepPrompted

        return cast(Backbone, DeepPrompted(self, prompts))

    def _prompts_of(self, class_names: Sequence[str], context_length: int) -> _Prompts:
        key = (tuple(class_names), context_length)
        if self._prompts is None or self._prompts[0] != key:
            self._prompts = key, self._make_prompts(class_names, context_length)
        return self._prompts[1]

    def _make_prompts(self, class_names: Sequence[str], context_length: int) -> _Prompts:
        """The word "a" keeps the place of the context: a tokenizer may cut a word otherwise where none precedes it."""
        start = self.lead_count
        room = len(self.text.positional_embedding) - context_length + 1  # for start, "a", name and end of text
        if room < start + 4:
            raise UsageError(f"a context of {context_length} tokens leaves no room for class names")
        rows = self.tokenizer(["a", *(f"a {name.replace('_', ' ')}." for name in class_names)]).to(self.device)
        stop, tokens = rows[0, start + 1], rows[1:, :room]  # [C, room]
        tokens[~(tokens == stop).any(dim=1), -1] = stop  # a name too long is cut, but the text still ends
        end = self.text.pooled_position(tokens)  # [C]
        last = int(end.max()) if self.text.causal else room - 1
        suffix = self._embed(tokens[:, start + 1 : last + 1])
        return _Prompts(self._embed(tokens[0, :start]), suffix, end + context_length - 1)

    def _embed(self, tokens: Tensor) -> Tensor:
        embeddings: Tensor = self.text.token_embedding(tokens.to(self.device))
        return embeddings


def _decides(held: object) -> bool:
    """Whether something that a layer holds is a setting, or a function in the place of its own."""
    return callable(held) or isinstance(held, bool | int | float | str | tuple)


def _first_difference(a: Tensor, b: Tensor) -> int:
    return int((a != b).int().argmax())


def dtype_of(precision: str) -> torch.dtype:
    if precision not in PRECISIONS:
        raise UsageError(f"unknown precision '{precision}': one of {', '.join(PRECISIONS)}.")
    return PRECISIONS[precision]


def digest(weights: Path, *parts: object) -> str:
    """Fingerprint of a weights file and of everything else that changes the features."""
    with weights.open("rb") as file:
        sha = hashlib.file_digest(file, "sha256")
    for part in parts:
        sha.update(repr(part).encode())
    return sha.hexdigest()
