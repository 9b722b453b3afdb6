"""RLCF: prompt tuning by the feedback of a second, larger CLIP on the classes that each view suggests.

Zhao et al., "Test-Time Adaptation with CLIP Reward for Zero-Shot Generalization in Vision-Language Models", ICLR 2024.
This is the version that tunes the prompt; the one that tunes the image encoder is not here. Where the paper and the
released code differ, this follows the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tta_bench import hookimpl
from tta_bench.errors import UsageError
from tta_bench.functional import select_confident, stack_views
from tta_bench.functional.prompt_tuning import AdamW, ClassText, ContextTower, advantages, descend, policy_loss
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import AugMix

NO_REWARD = "rlcf needs a reward model: name a second backbone, for example --set reward=openclip:ViT-L-14/openai"


@dataclass
class RLCF(Method):
    """Per image: raise the likelihood of the classes that the reward model finds better than a view's other guesses."""

    name: ClassVar[str] = "rlcf"
    title: ClassVar[str] = "RLCF"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "episodic"
    paper: ClassVar[Paper | None] = Paper(
        "Test-Time Adaptation with CLIP Reward for Zero-Shot Generalization in Vision-Language Models",
        "ICLR 2024",
        "https://openreview.net/forum?id=kIP0duasBb",
    )
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(63)}
    tunes_prompts: ClassVar[bool] = True

    lr: float = 7e-3  # of AdamW
    weight_decay: float = 5e-4  # of AdamW
    steps: int = 3  # per image; 0 is zero-shot
    keep: float = 0.1  # share of views kept: those of lowest entropy
    top_k: int = 3  # K classes of highest logit that are "sampled" from each view
    process_batch: bool = False  # baseline = mean reward of all kept views instead of one view's
    amplify: bool = False  # divide the advantages by their standard deviation
    reward: str = ""  # name of the backbone that gives the reward

    def second_backbone(self) -> str:
        return self.reward

    def validate(self) -> None:
        if not self.reward:
            raise UsageError(NO_REWARD)

    def start(self, task: Task) -> None:
        if task.reward_text is None:
            raise UsageError(NO_REWARD)
        self.scale, self.task = task.scale, task
        self._tower = ContextTower(task)

    def step(self, x: Observation) -> Tensor:
        text = self.tune(stack_views(x.image, x.views.get("views")), self.rewards(x))
        return (self.scale * text.features @ x.image).detach()

    def rewards(self, x: Observation) -> Tensor:
        """r_vj = max(2.5 ⟨g_v, h_j⟩, 0): CLIPScore of every view with every class, [V, C]."""
        if "reward" not in x.views:
            raise UsageError(NO_REWARD)
        assert self.task.reward_text is not None  # `start` has seen it
        return (2.5 * x["reward"] @ self.task.reward_text.T).clamp_min(0)

    def tune(self, views: Tensor, rewards: Tensor) -> ClassText:
        """c ← AdamW(c, ∇_c mean_{v∈S,k} A_vk · (−ln softmax(s f_v T(c)ᵀ)[class_vk])) from c₀."""
        kept = select_confident(self.scale * views @ self._tower.initial.features.detach().T, self.keep)  # S, with c₀

        def loss(features: Tensor) -> Tensor:
            logits = self.scale * views[kept] @ features.T  # [k, C]
            classes = logits.detach().topk(min(self.top_k, logits.shape[1])).indices  # [k, K], anew at every step
            advantage = advantages(rewards[kept].gather(1, classes), self.process_batch, self.amplify)
            return policy_loss(logits, classes, advantage)

        return descend(self._tower, loss, AdamW(self.lr, self.weight_decay), self.steps)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [RLCF]
