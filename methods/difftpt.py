"""DiffTPT: TPT on augmented views and on images that a diffusion model made of the test image.

Feng et al., "Diverse Data Augmentation with Diffusions for Effective Test-time Prompt Tuning", ICCV 2023. Where the
paper and the released code differ, this follows the code. The generated images come from a folder (docs/prompts.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.errors import UsageError
from tta_bench.functional import kept_count, select_confident, stack_views
from tta_bench.functional.prompt_tuning import AdamW, ClassText, ContextTower, descend, marginal_entropy, most_alike
from tta_bench.generated import NO_IMAGES, Generated
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import AugMix


@dataclass
class DiffTPT(Method):
    """Per image: keep the views whose logits resemble the image's, of these the confident ones; then as TPT."""

    name: ClassVar[str] = "difftpt"
    title: ClassVar[str] = "DiffTPT"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "episodic"
    paper: ClassVar[Paper | None] = Paper(
        "Diverse Data Augmentation with Diffusions for Effective Test-time Prompt Tuning",
        "ICCV 2023",
        "https://arxiv.org/abs/2308.06038",
    )
    tunes_prompts: ClassVar[bool] = True

    lr: float = 5e-3  # of AdamW
    steps: int = 4  # per image; 0 is zero-shot
    keep_cosine: float = 0.8  # share of the other views kept first: those whose logit vectors are most like the image's
    keep_entropy: float = 0.3  # share of these and the image kept then: those of lowest entropy
    weight_decay: float = 0.01  # of AdamW
    generated: str = ""  # folder of generated images
    generated_count: int = 63  # generated images per test image

    @property
    def recipes(self) -> Mapping[str, ViewRecipe]:  # type: ignore[override]  # which images there are is in the fields
        return {"views": AugMix(63), "generated": Generated(self.generated_count, self.generated)}

    def validate(self) -> None:
        if not self.generated:
            raise UsageError(NO_IMAGES)

    def digests(self) -> dict[str, str]:
        """What the folder holds."""
        return {"generated": Generated(self.generated_count, self.generated).content}

    def start(self, task: Task) -> None:
        self.scale = task.scale
        self._tower = ContextTower(task)

    def step(self, x: Observation) -> Tensor:
        if "generated" not in x.views:
            raise UsageError(NO_IMAGES)
        views = torch.cat([stack_views(x.image, x.views.get("views")), x["generated"]])  # [V, D]
        text = self.tune(views)
        return (self.scale * text.features @ x.image).detach()

    def select(self, logits: Tensor) -> Tensor:
        """Indices of the kept rows of [V, C]; row 0 is the image, sure of a place among the alike only."""
        others = len(logits) - 1
        alike = most_alike(logits, kept_count(self.keep_cosine, others) if others else 0)
        return alike[select_confident(logits[alike], self.keep_entropy)]

    def tune(self, views: Tensor) -> ClassText:
        """c ← AdamW(c, ∇_c H(mean_{v∈S} softmax(s f_v T(c)ᵀ))) from c₀, over views [V, D]."""
        kept = self.select(self.scale * views @ self._tower.initial.features.detach().T)  # S, with c₀

        def loss(features: Tensor) -> Tensor:
            return marginal_entropy(self.scale * views[kept] @ features.T)

        return descend(self._tower, loss, AdamW(self.lr, self.weight_decay), self.steps)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [DiffTPT]
