"""ML-TTA: bound entropy minimisation with two prompts, one tuned on views and one on retrieved captions.

Wu et al., "Multi-Label Test-Time Adaptation with Bound Entropy Minimization", ICLR 2025. Where the paper and the
released code differ, this follows the code. The authors' captions are not public: docs/prompts.md tells what stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import select_confident, stack_views
from tta_bench.functional.prompt_tuning import AdamW, ClassText, ContextTower, bind, descend, marginal_entropy, minmax
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.prompts.captions import TEMPLATE, corpus_for, digest_of
from tta_bench.views import AugMix


class Captions:
    """A corpus of caption embeddings [M, D] and of the lengths of their label lists [M].

    Calling it retrieves; being callable, it is no part of a checkpoint.
    """

    def __init__(self, embeddings: Tensor, sizes: Tensor, per_view: int) -> None:
        self.embeddings, self.sizes, self.per_view = embeddings, sizes, min(per_view, len(embeddings))

    def __call__(self, views: Tensor) -> tuple[Tensor, Tensor]:
        """k_v [V], the label-list lengths of each view's nearest caption, and U, all views' nearest captions."""
        nearest = (views @ self.embeddings.T).topk(self.per_view).indices  # [V, R]
        return self.sizes[nearest[:, 0]], torch.unique(nearest)


@dataclass
class MLTTA(Method):
    """Per image: lower the bound entropy of confident views and of confident captions, each with its own context."""

    name: ClassVar[str] = "mltta"
    title: ClassVar[str] = "ML-TTA"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "episodic"
    paper: ClassVar[Paper | None] = Paper(
        "Multi-Label Test-Time Adaptation with Bound Entropy Minimization",
        "ICLR 2025",
        "https://arxiv.org/abs/2502.03777",
    )
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(63)}
    tunes_prompts: ClassVar[bool] = True

    lr_view: float = 1e-2  # of AdamW on the view context c_v
    lr_caption: float = 1e-3  # of AdamW on the caption context c_t
    steps: int = 1  # per image; 0 is zero-shot
    keep: float = 0.1  # share of views and of captions kept: those of lowest bound entropy
    captions_per_view: int = 16  # R captions that each view retrieves
    bind: bool = True  # False: plain entropies
    weight_decay: float = 0.01  # of AdamW
    captions: str | tuple[Tensor, Tensor] = TEMPLATE  # a corpus file, "template", or embeddings and lengths

    def digests(self) -> dict[str, str]:
        return {"captions": digest_of(self.captions)}

    def start(self, task: Task) -> None:
        self.scale = task.scale
        self._tower = ContextTower(task)
        embeddings, sizes = corpus_for(task, self.captions)
        self._retrieve = Captions(embeddings, sizes, self.captions_per_view)

    def step(self, x: Observation) -> Tensor:
        view_text, caption_text = self.tune(stack_views(x.image, x.views.get("views")))
        return (self.scale * torch.stack([view_text.features, caption_text.features]) @ x.image).detach()  # [2, C]

    def finish(self, outputs: Tensor) -> Tensor:
        """The mean of both branches, each brought to [0, 1] over the whole run: [N, 2, C] -> [N, C]."""
        return (minmax(outputs[:, 0]) + minmax(outputs[:, 1])) / 2

    def tune(self, views: Tensor) -> tuple[ClassText, ClassText]:
        """c_v and c_t from c₀, over views [V, D] and over the captions that they retrieve."""
        view_sizes, nearest = self._retrieve(views)
        found, caption_sizes = self._retrieve.embeddings[nearest], self._retrieve.sizes[nearest]  # [U, D], [U]
        view_text = self._descend(views, view_sizes, AdamW(self.lr_view, self.weight_decay))
        caption_text = self._descend(found, caption_sizes, AdamW(self.lr_caption, self.weight_decay))
        return view_text, caption_text

    def _descend(self, features: Tensor, sizes: Tensor, adamw: AdamW) -> ClassText:
        """c ← AdamW(c, ∇_c bound entropy) from c₀: neither branch's loss reaches the other's context."""

        def loss(text_features: Tensor) -> Tensor:
            return self.bound_entropy(self.scale * features @ text_features.T, sizes)

        return descend(self._tower, loss, adamw, self.steps)

    def bound_entropy(self, logits: Tensor, sizes: Tensor) -> Tensor:
        """H(mean softmax) of the rows of [R, C] that are most confident after binding: chosen anew at every step."""
        if self.bind:
            logits = bind(logits, sizes)
        return marginal_entropy(logits[select_confident(logits.detach(), self.keep)])


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [MLTTA]
