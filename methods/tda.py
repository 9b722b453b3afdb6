"""TDA: a training-free dynamic adapter with a positive and a negative cache.

Karmanov et al., "Efficient Test-Time Adaptation of Vision-Language Models", CVPR 2024. Where the paper and the
released code differ, this follows the code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import (
    EMPTY,
    Pool,
    classifier,
    insert_by_entropy,
    low_entropy_pool,
    normalised_entropy,
    stack_views,
)
from tta_bench.interfaces import Method, Observation, Task, ViewRecipe
from tta_bench.views import AugMix


@dataclass
class TDA(Method):
    """final = l + α⁺A⁺ − α⁻A⁻: the pooled logits, attracted by confident and repelled by uncertain earlier images."""

    name: ClassVar[str] = "tda"
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(63)}
    # The official single-label sets. There ImageNet and the ten sets from Caltech101 on use the original image alone.
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "imagenet": {"alpha": 2.0, "beta": 5.0},
        "imagenet-a": {"alpha": 2.0, "beta": 5.0},
        "imagenet-v2": {"alpha": 1.0, "beta": 8.0},
        "imagenet-r": {"alpha": 1.0, "beta": 8.0},
        "imagenet-s": {"alpha": 2.363, "beta": 7.45},
        "caltech101": {"alpha": 5.0, "beta": 5.0},
        "dtd": {"alpha": 2.0, "beta": 3.0},
        "eurosat": {"alpha": 4.0, "beta": 8.0},
        "aircraft": {"alpha": 2.0, "beta": 2.0},
        "food101": {"alpha": 1.0, "beta": 1.0},
        "flowers": {"alpha": 1.0, "beta": 5.0},
        "pets": {"alpha": 2.0, "beta": 7.0},
        "cars": {"alpha": 1.0, "beta": 7.0},
        "sun397": {"alpha": 2.0, "beta": 3.0},
        "ucf101": {"alpha": 3.0, "beta": 8.0},
    }

    shots: int = 3  # K⁺  items per class in the positive cache
    alpha: float = 2.0  # α⁺  weight of the positive cache
    beta: float = 5.0  # β⁺  sharpness of the positive affinity
    neg_shots: int = 2  # K⁻  items per class in the negative cache
    neg_alpha: float = 0.117  # α⁻  weight of the negative cache
    neg_beta: float = 1.0  # β⁻  sharpness of the negative affinity
    gate: tuple[float, float] = (0.2, 0.5)  # normalised entropy between which an image enters the negative cache
    mask: tuple[float, float] = (0.03, 1.0)  # probability between which a negative item counts against a class
    keep: float = 0.1  # share of the views, the most confident, that are pooled

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.keep <= 1, "keep is a share of the views, above 0 and at most 1")
        self.require(self.shots >= 1, "shots is at least 1")
        self.require(self.neg_shots >= 0, "neg_shots can't be negative")
        self.require(self.gate[0] < self.gate[1] and self.mask[0] < self.mask[1], "gate and mask go upwards")

    def start(self, task: Task) -> None:
        text = task.text
        n_classes, dim = text.shape
        self.classifier = classifier(text, task.scale)  # [D, C]
        # One cache in which a class's first K⁺ rows attract and its next K⁻ repel: both are read in one pass.
        self.per_class = self.shots + self.neg_shots
        n_items = n_classes * self.per_class
        self.features = text.new_zeros(n_items, dim)
        self.entropies = text.new_full((n_items,), math.inf)  # +inf: an empty slot
        self.offsets = text.new_full((n_items,), EMPTY)
        self.betas = text.new_tensor(([self.beta] * self.shots + [self.neg_beta] * self.neg_shots) * n_classes)
        attracts = self.betas.new_tensor([self.alpha] * self.shots + [0.0] * self.neg_shots)
        votes = torch.eye(n_classes).to(text)[:, None] * attracts[:, None]  # [C, K⁺ + K⁻, C]
        self.votes = votes.flatten(0, 1)  # what an item adds to each class's logit

    def step(self, x: Observation) -> Tensor:
        pool = self.summarise(x)
        self.remember(pool)  # before the prediction, so that an image finds itself in the cache
        return self.predict(pool)

    def summarise(self, x: Observation) -> Pool:
        """The mean of the most confident views. The original has no special role among them."""
        views = stack_views(x.image, x.views.get("views"))  # [V, D]
        return low_entropy_pool(views, views @ self.classifier, self.keep)

    def remember(self, pool: Pool) -> None:
        """Offer the image to the positive cache and, if it is neither sure nor hopeless, to the negative cache."""
        h, item = pool.entropy, (self.features, pool.feature)
        first = int(pool.logits.argmax()) * self.per_class
        positive = slice(first, first + self.shots)
        insert_by_entropy(self.entropies, positive, h, item, (self.offsets, -self.beta))
        if self.is_uncertain(pool):
            negative = slice(first + self.shots, first + self.per_class)
            votes = self.counts_against(pool.probs).to(self.votes.dtype).mul_(-self.neg_alpha)
            insert_by_entropy(self.entropies, negative, h, item, (self.offsets, -self.neg_beta), (self.votes, votes))

    def is_uncertain(self, pool: Pool) -> bool:
        low, high = self.gate
        return low < normalised_entropy(pool.entropy, len(pool.probs)) < high

    def counts_against(self, probs: Tensor) -> Tensor:
        """[low < p[c] < high]: the classes that a negative item speaks against. Its own pseudo-label is not spared."""
        low, high = self.mask
        return (probs > low) & (probs < high)

    def predict(self, pool: Pool) -> Tensor:
        """final[c] = l[c] + α⁺ Σ_{i stored under c} exp(−β⁺ (1 − ⟨f, f_i⟩))
        − α⁻ Σ_{all i} exp(−β⁻ (1 − ⟨f, f_i⟩)) [low < p_i[c] < high]."""
        weights = torch.addcmul(self.offsets, self.features @ pool.feature, self.betas).exp_()  # [C·(K⁺ + K⁻)]
        return torch.addmv(pool.logits, self.votes.T, weights)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [TDA]
