"""TPT: test-time prompt tuning by the entropy of the mean prediction over confident views.

Shu et al., "Test-Time Prompt Tuning for Zero-Shot Generalization in Vision-Language Models", NeurIPS 2022. Where the
paper and the released code differ, this follows the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import select_confident, stack_views
from tta_bench.functional.prompt_tuning import AdamW, ClassText, ContextTower, descend, marginal_entropy
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import AugMix


@dataclass
class TPT(Method):
    """Per image: tune the context on its most confident views, then score the image itself with the tuned prompt."""

    name: ClassVar[str] = "tpt"
    title: ClassVar[str] = "TPT"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "episodic"
    paper: ClassVar[Paper | None] = Paper(
        "Test-Time Prompt Tuning for Zero-Shot Generalization in Vision-Language Models",
        "NeurIPS 2022",
        "https://arxiv.org/abs/2209.07511",
    )
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(63)}
    tunes_prompts: ClassVar[bool] = True

    lr: float = 5e-3  # of AdamW
    steps: int = 1  # per image; 0 is zero-shot
    keep: float = 0.1  # share of views kept: those of lowest entropy
    weight_decay: float = 0.01  # of AdamW

    def start(self, task: Task) -> None:
        self.scale = task.scale
        self._tower = ContextTower(task)

    def step(self, x: Observation) -> Tensor:
        text = self.tune(stack_views(x.image, x.views.get("views")))
        return (self.scale * text.features @ x.image).detach()

    def tune(self, views: Tensor) -> ClassText:
        """c ← AdamW(c, ∇_c H(mean_{v∈S} softmax(s f_v T(c)ᵀ))) from c₀, over views [V, D]."""
        kept = select_confident(self.scale * views @ self._tower.initial.features.detach().T, self.keep)  # S, with c₀

        def loss(features: Tensor) -> Tensor:
            return marginal_entropy(self.scale * views[kept] @ features.T)

        return descend(self._tower, loss, AdamW(self.lr, self.weight_decay), self.steps)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [TPT]
