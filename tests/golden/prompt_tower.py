"""The small text tower behind the goldens of the methods that tune prompts, computed plainly from its weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import layer_norm, linear, multi_head_attention_forward, normalize

from tta_bench.interfaces import Observation, Task

Golden = Mapping[str, np.ndarray[Any, Any]]
HEADS = 4


def load(name: str) -> Golden:
    with np.load(Path(__file__).with_name(f"golden_{name}.npz")) as file:
        return dict(file)


class GoldenTower:
    """Class c is the c-th row of `tokens`; the context takes the places 1 to 4."""

    def __init__(self, golden: Golden) -> None:
        self.weights = {k[2:]: torch.from_numpy(v) for k, v in golden.items() if k.startswith("w/")}
        self.tokens = torch.from_numpy(golden["tokens"])
        self.words = torch.from_numpy(golden["ctx_init"])

    def init_context(self, words: str) -> Tensor:
        assert words == "a photo of a"
        return self.words

    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        assert len(class_names) == len(self.tokens)
        w = self.weights
        embedded = w["token_embedding.weight"][self.tokens]  # [C, L, E]
        shared = context.expand(len(embedded), *context.shape)
        x = torch.cat([embedded[:, :1], shared, embedded[:, 1 + len(context) :]], 1) + w["positional_embedding"]
        for block in range(2):
            x = self._block(x, f"transformer.{block}.")
        x = self._norm(x, "ln_final.")[torch.arange(len(x)), self.tokens.argmax(1)]
        return normalize(x @ w["text_projection"], dim=-1)

    def _norm(self, x: Tensor, name: str) -> Tensor:
        return layer_norm(x, x.shape[-1:], self.weights[f"{name}weight"], self.weights[f"{name}bias"])

    def _linear(self, x: Tensor, name: str) -> Tensor:
        return linear(x, self.weights[f"{name}weight"], self.weights[f"{name}bias"])

    def _block(self, x: Tensor, name: str) -> Tensor:
        w, length = self.weights, x.shape[1]
        h = self._norm(x, f"{name}ln_1.").transpose(0, 1)  # [L, C, E]
        attended, _ = multi_head_attention_forward(
            query=h,
            key=h,
            value=h,
            embed_dim_to_check=h.shape[-1],
            num_heads=HEADS,
            in_proj_weight=w[f"{name}attn.in_proj_weight"],
            in_proj_bias=w[f"{name}attn.in_proj_bias"],
            bias_k=None,
            bias_v=None,
            add_zero_attn=False,
            dropout_p=0.0,
            out_proj_weight=w[f"{name}attn.out_proj.weight"],
            out_proj_bias=w[f"{name}attn.out_proj.bias"],
            need_weights=False,
            attn_mask=torch.full((length, length), float("-inf")).triu(1),
        )
        x = x + attended.transpose(0, 1)
        h = self._linear(self._norm(x, f"{name}ln_2."), f"{name}mlp.0.")
        return x + self._linear(h * torch.sigmoid(1.702 * h), f"{name}mlp.2.")


def make_task(golden: Golden) -> Task:
    tower = GoldenTower(golden)
    names = [f"class {c}" for c in range(len(tower.tokens))]
    text = tower.encode_context(tower.words, names)
    reward = torch.from_numpy(golden["reward_text"]) if "reward_text" in golden else None
    scale = float(np.exp(golden["w/logit_scale"]))
    return Task(names, text, text[:, None], scale, prompts=tower, reward_text=reward)


def stream(golden: Golden, generated: int = 0) -> list[Observation]:
    """Row 0 of an image is the original; the last `generated` rows are generated images."""
    found = []
    for i, rows in enumerate(torch.from_numpy(golden["x_views"])):
        last = len(rows) - generated
        views = {"views": rows[1:last]}
        if generated:
            views["generated"] = rows[last:]
        if "reward_views" in golden:
            views["reward"] = torch.from_numpy(golden["reward_views"][i])
        found.append(Observation(i, rows[0], views))
    return found


def close(actual: Tensor, expected: np.ndarray[Any, Any], atol: float) -> None:
    np.testing.assert_allclose(actual.detach().numpy(), expected, rtol=0, atol=atol)


def close_context(actual: Tensor, expected: np.ndarray[Any, Any]) -> None:
    """A forgotten weight decay shows in the mean."""
    close(actual, expected, 5e-5)
    assert np.abs(actual.detach().numpy() - expected).mean() < 1e-6
