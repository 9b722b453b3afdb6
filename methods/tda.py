"""TDA: a training-free dynamic adapter with a positive and a negative cache.

Karmanov et al., "Efficient Test-Time Adaptation of Vision-Language Models", CVPR 2024. Where the paper and the
released code differ, this follows the code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import (
    EMPTY,
    Pool,
    affinity,
    classifier,
    insert_by_entropy,
    low_entropy_pool,
    normalised_entropy,
    stack_views,
)
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import AugMix


@dataclass
class TDA(Method):
    """final = l + α⁺A⁺ − α⁻A⁻: the pooled logits, attracted by confident and repelled by uncertain earlier images."""

    name: ClassVar[str] = "tda"
    title: ClassVar[str] = "TDA"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "online"
    paper: ClassVar[Paper | None] = Paper(
        "Efficient Test-Time Adaptation of Vision-Language Models", "CVPR 2024", "https://arxiv.org/abs/2403.18293"
    )
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
        self.features = text.new_zeros(n_classes, self.shots, dim)
        self.entropies = text.new_full((n_classes, self.shots), math.inf)  # +inf: an empty slot
        self.offsets = text.new_full((n_classes, self.shots), EMPTY)
        self.neg_features = text.new_zeros(n_classes, self.neg_shots, dim)
        self.neg_entropies = text.new_full((n_classes, self.neg_shots), math.inf)
        self.neg_offsets = text.new_full((n_classes, self.neg_shots), EMPTY)
        self.neg_masks = text.new_zeros(n_classes, self.neg_shots, n_classes)  # 1 where an item counts against a class

    def step(self, x: Observation) -> Tensor:
        pool = self.summarise(x)
        self.remember(pool)  # before the prediction, so that an image finds itself in the cache
        attraction, repulsion = self.attraction(pool.feature), self.repulsion(pool.feature)
        return pool.logits.add(attraction, alpha=self.alpha).sub_(repulsion, alpha=self.neg_alpha)

    def summarise(self, x: Observation) -> Pool:
        """The mean of the most confident views. The original has no special role among them."""
        views = stack_views(x.image, x.views.get("views"))  # [V, D]
        return low_entropy_pool(views, views @ self.classifier, self.keep)

    def remember(self, pool: Pool) -> None:
        """Offer the image to the positive cache and, if it is neither sure nor hopeless, to the negative cache."""
        y, h = int(pool.logits.argmax()), pool.entropy
        insert_by_entropy(self.entropies, y, h, (self.features, pool.feature), (self.offsets, -self.beta))
        if self.is_uncertain(pool):
            items = (self.neg_features, pool.feature), (self.neg_masks, self.counts_against(pool.probs))
            insert_by_entropy(self.neg_entropies, y, h, *items, (self.neg_offsets, -self.neg_beta))

    def is_uncertain(self, pool: Pool) -> bool:
        low, high = self.gate
        return low < normalised_entropy(pool.entropy, len(pool.probs)) < high

    def counts_against(self, probs: Tensor) -> Tensor:
        """[low < p[c] < high]: the classes that a negative item speaks against. Its own pseudo-label is not spared."""
        low, high = self.mask
        return (probs > low) & (probs < high)

    def attraction(self, query: Tensor) -> Tensor:
        """A⁺[c] = Σ_{i stored under c} exp(−β⁺ (1 − ⟨f, f_i⟩))."""
        return affinity(query, self.features, self.offsets, self.beta).sum(1)

    def repulsion(self, query: Tensor) -> Tensor:
        """A⁻[c] = Σ_{all i} exp(−β⁻ (1 − ⟨f, f_i⟩)) [low < p_i[c] < high]."""
        weights = affinity(query, self.neg_features, self.neg_offsets, self.neg_beta)  # [C, K⁻]
        return weights.flatten() @ self.neg_masks.flatten(0, 1)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [TDA]
