"""MaPLe's deep prompts in both towers of an open_clip `CLIP` with a vision transformer.

Khattak et al., "MaPLe: Multi-modal Prompt Learning", CVPR 2023. Its image features are other ones than the bare
backbone's, so the checkpoint is part of the fingerprint.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from open_clip.transformer import VisionTransformer
from torch import Tensor
from torch.nn.functional import normalize

from tta_bench.errors import BadData, UsageError
from tta_bench.prompts.files import Maple
from tta_bench.system.files import digest

if TYPE_CHECKING:
    from tta_bench.backbones._open_clip import OpenClip

WORDS = ("a", "photo", "of", "a")  # the first n of them were replaced, the others stayed in the prompt


class DeepPrompted:
    """A backbone with MaPLe's prompts: "<context> of a <name>." and appended image tokens, renewed before early blocks.

    Tuning the context changes the text side; the image tower keeps the checkpoint's prompts, so that features can be
    stored.
    """

    def __init__(self, backbone: OpenClip, prompts: Maple) -> None:
        visual = backbone.model.visual
        if not isinstance(visual, VisionTransformer) or not backbone.text.causal or backbone.lead_count != 1:
            raise UsageError(f"{prompts.file}: MaPLe needs a CLIP with a vision transformer and a causal text tower")
        width, depth = visual.class_embedding.shape[0], len(prompts.text)
        if prompts.vision[0].shape[1] != width:
            raise BadData(
                f"{prompts.file}: projects to width {prompts.vision[0].shape[1]}, "
                f"but the image tower of this backbone has {width}"
            )
        if depth >= min(len(visual.transformer.resblocks), len(backbone.text.transformer.resblocks)):
            raise BadData(f"{prompts.file}: prompts for {1 + depth} blocks are more than this backbone has")
        self.backbone, self.prompts_from = backbone, prompts.digest
        self.context = prompts.context.to(backbone.device)
        self.deep_text = [prompt.to(backbone.device) for prompt in prompts.text]
        self.deep_vision = [prompt.to(backbone.device, backbone.dtype) for prompt in prompts.vision]
        self.fingerprint = digest(["maple", backbone.fingerprint, prompts.digest])

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backbone, name)  # preprocessing, logit scale and all else is the backbone's own

    @torch.no_grad()
    def encode_images(self, pixels: Tensor) -> Tensor:
        """[B, 3, S, S] in [0, 1] -> [B, D]."""
        visual = self.backbone.model.visual
        x = visual._embeds(self.backbone.whiten(pixels))  # [B, 1 + patches, E'], after ln_pre
        count = len(self.context)
        x = torch.cat([x, visual.ln_pre(self.deep_vision[0]).expand(len(x), -1, -1)], dim=1)
        for i, block in enumerate(visual.transformer.resblocks):
            if 1 <= i < len(self.deep_vision):
                x = torch.cat([x[:, :-count], self.deep_vision[i].expand(len(x), -1, -1)], dim=1)
            x = block(x)
        pooled, _ = visual._pool(x[:, :-count])
        return normalize((pooled @ visual.proj).float(), dim=-1)

    @torch.no_grad()
    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """T texts -> [T, D]. Their own first words are overwritten by the prompts before the early blocks."""
        tokens = self.backbone.tokenizer(list(texts)).to(self.backbone.device)
        return self.backbone.text.encode(tokens, self.deep_text)

    def init_context(self, words: str) -> Tensor:
        return self.context

    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        kept = " ".join(WORDS[len(context) :])
        return self.backbone.encode_context(context, [f"{kept} {name}".strip() for name in class_names], self.deep_text)
