"""open_clip's text towers behind one face: flattened into `CLIP`, or a class of their own inside `CustomTextCLIP`.

In a causal tower nothing can see what follows it. So texts are cut after the longest end of text, and a beginning that
all texts share, [start, context], is computed once for all of them. Both leave the numbers as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, normalize, scaled_dot_product_attention


@dataclass(frozen=True)
class TextTower:
    """The parts of a text tower, wherever its model keeps them."""

    token_embedding: Any
    positional_embedding: Tensor  # [L, E]
    transformer: Any
    mask: Tensor | None  # [L, L], or None where every token sees every other
    ln_final: Any
    projection: Any  # a matrix [E, D], a linear layer, or None
    pooling: str  # which token becomes the feature: "argmax" (the largest id), "eos", "first" or "last"
    eos_id: int

    @classmethod
    def of(cls, model: Any) -> TextTower | None:
        """None for towers of another make: those of `transformers`, and CoCa's with its class token."""
        own = getattr(model, "text", None)
        text = model if own is None else own
        if not hasattr(text, "token_embedding") or getattr(text, "cls_emb", None) is not None:
            return None
        return cls(
            text.token_embedding,
            text.positional_embedding,
            text.transformer,
            text.attn_mask,
            text.ln_final,
            text.text_projection,
            model.text_pool_type if own is None else text.pool_type,
            model.text_eos_id if own is None else text.eos_id,
        )

    @property
    def causal(self) -> bool:
        return self.mask is not None

    @property
    def width(self) -> int:
        return int(self.positional_embedding.shape[1])

    @property
    def embed_dim(self) -> int:
        if self.projection is None:
            return self.width
        return int(self.projection.shape[1] if isinstance(self.projection, Tensor) else self.projection.out_features)

    # ----------------------------------------------------------------------------------------------- texts

    def pooled_position(self, tokens: Tensor) -> Tensor:
        """Where in its row of tokens [T, L] each text's feature is read, [T]."""
        if self.pooling == "argmax":  # the end of text has the largest id
            return tokens.argmax(dim=1)
        if self.pooling == "eos":
            return torch.eq(tokens, self.eos_id).int().argmax(dim=1)
        return tokens.new_full((len(tokens),), {"first": 0, "last": tokens.shape[1] - 1}[self.pooling])

    def encode(self, tokens: Tensor, deep: Sequence[Tensor] = ()) -> Tensor:
        """Tokens [T, L] -> unit features [T, D], at the cost of the longest text where the tower is causal."""
        end = self.pooled_position(tokens)
        length = int(end.max()) + 1 if self.causal else tokens.shape[1]
        return self.features(self.token_embedding(tokens[:, :length]), end, deep)

    def features(self, embeddings: Tensor, end: Tensor, deep: Sequence[Tensor] = ()) -> Tensor:
        """Token embeddings [T, L, E] and the position of each end of text [T] -> unit features [T, D].

        `deep`: prompts [n, E] that take the places 1 … n of every text before the blocks 1, 2, …
        """
        length = embeddings.shape[1]
        x = embeddings + self.positional_embedding[:length]
        mask = None if self.mask is None else self.mask[:length, :length]
        for i, block in enumerate(self.transformer.resblocks):
            if 1 <= i <= len(deep):
                prompt = deep[i - 1].to(x.dtype).expand(len(x), -1, -1)
                x = torch.cat([x[:, :1], prompt, x[:, 1 + prompt.shape[1] :]], dim=1)
            x = block(x, attn_mask=mask)  # [T, L, E]
        return self._project(x[torch.arange(len(x), device=x.device), end])

    # ------------------------------------------------------------------------------------ a shared beginning

    @property
    def can_share(self) -> bool:
        from open_clip.transformer import ResidualAttentionBlock  # late: who has no weights should not wait for it

        return self.causal and all(type(block) is ResidualAttentionBlock for block in self.transformer.resblocks)

    def features_of_shared(self, prefix: Tensor, suffix: Tensor, end: Tensor, deep: Sequence[Tensor] = ()) -> Tensor:
        """A beginning [P, E] that all texts share and how each goes on [C, N, E] -> unit features [C, D].

        What a block does token by token is done on all tokens in one list, the shared ones once.
        """
        (classes, own, width), shared = suffix.shape, len(prefix)
        tail = suffix + self.positional_embedding[shared : shared + own]
        x = torch.cat([prefix + self.positional_embedding[:shared], tail.reshape(-1, width)])  # [P + C·N, E]
        for i, block in enumerate(self.transformer.resblocks):
            if 1 <= i <= len(deep):
                x = torch.cat([x[:1], deep[i - 1].to(x.dtype), x[1 + len(deep[i - 1]) :]])
            x = x + block.ls_1(_attention(block, block.ln_1(x), shared, classes))
            x = x + block.ls_2(block.mlp(block.ln_2(x)))
        ends = shared + torch.arange(classes, device=x.device) * own + (end - shared)
        return self._project(x[ends])

    def _project(self, pooled: Tensor) -> Tensor:
        x = self.ln_final(pooled)  # token by token, so it may follow the pooling
        if self.projection is not None:
            x = x @ self.projection if isinstance(self.projection, Tensor) else self.projection(x)
        return normalize(x.float(), dim=-1)


def _attention(block: Any, x: Tensor, shared: int, classes: int) -> Tensor:
    """Causal self-attention over [P + C·N, E]: the shared tokens among themselves, each text's over both."""
    attn = block.attn
    heads = attn.num_heads
    qkv = linear(x, attn.in_proj_weight, attn.in_proj_bias).view(len(x), 3, heads, -1)  # [P + C·N, 3, H, d]
    first = qkv[:shared].permute(1, 2, 0, 3)  # [3, H, P, d]
    own = qkv[shared:].view(classes, -1, *qkv.shape[1:]).permute(2, 0, 3, 1, 4)  # [3, C, H, N, d]
    q, k, v = first
    of_shared = scaled_dot_product_attention(q[None], k[None], v[None], is_causal=True)[0]  # [H, P, d]
    k, v = torch.cat([first[1:, None].expand(-1, classes, -1, -1, -1), own[1:]], dim=3)  # [C, H, P + N, d] each
    seen = torch.ones(own.shape[3], k.shape[2], dtype=torch.bool, device=x.device).tril(shared)  # [N, P + N]
    of_own = scaled_dot_product_attention(own[0], k, v, attn_mask=seen)  # [C, H, N, d]
    values = torch.cat([of_shared.transpose(0, 1).flatten(1), of_own.transpose(1, 2).flatten(2).flatten(0, 1)])
    attended: Tensor = attn.out_proj(values)
    return attended
