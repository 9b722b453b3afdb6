"""BoostAdapter: TDA whose cache also holds, for one image at a time, that image's own confident views.

Zhang et al., "BoostAdapter: Improving Vision-Language Test-Time Adaptation via Regional Bootstrapping", NeurIPS 2024.
Where the paper and the released code differ, this follows the code.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import (
    EMPTY,
    Pool,
    affinity,
    classifier,
    insert_by_entropy,
    insert_fifo,
    low_entropy_pool,
    normalised_entropy,
    stack_views,
)
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import AugMix


class Boost(NamedTuple):
    """An image's own most confident views, in ascending entropy."""

    features: Tensor  # [k, D]
    labels: Tensor  # [k] each view's own pseudo-label
    entropies: Tensor  # [k]


@dataclass
class BoostAdapter(Method):
    """final = l + α⁺A⁺ − α⁻A⁻, where A⁺ reads the history of all images and the boosting views of this one."""

    name: ClassVar[str] = "boostadapter"
    title: ClassVar[str] = "BoostAdapter"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "online"
    paper: ClassVar[Paper | None] = Paper(
        "BoostAdapter: Improving Vision-Language Test-Time Adaptation via Regional Bootstrapping",
        "NeurIPS 2024",
        "https://arxiv.org/abs/2410.15430",
    )
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(63)}
    # The official single-label sets, with plain crops instead of AugMix; ImageNet takes one view, hence no boosting.
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "imagenet": {"alpha": 2.0, "beta": 5.0},
        "imagenet-a": {"alpha": 2.0, "beta": 5.0, "delta": 3, "predict_from": "selected"},
        "imagenet-v2": {"alpha": 1.0, "beta": 8.0, "delta": 1, "predict_from": "selected"},
        "imagenet-r": {"alpha": 1.0, "beta": 8.0, "delta": 3, "predict_from": "selected"},
        "imagenet-s": {"alpha": 2.363, "beta": 7.45, "delta": 1, "predict_from": "selected"},
        "caltech101": {"alpha": 5.0, "beta": 5.0, "delta": 2, "predict_from": "original"},
        "dtd": {"alpha": 2.0, "beta": 3.0, "delta": 0, "predict_from": "original"},
        "eurosat": {"alpha": 4.0, "beta": 8.0, "delta": 0, "predict_from": "original"},
        "aircraft": {"alpha": 2.0, "beta": 2.0, "delta": 2, "predict_from": "original"},
        "food101": {"alpha": 1.0, "beta": 1.0, "delta": 3, "predict_from": "original"},
        "flowers": {"alpha": 1.0, "beta": 5.0, "delta": 0, "predict_from": "original"},
        "pets": {"alpha": 2.0, "beta": 7.0, "delta": 0, "predict_from": "original"},
        "cars": {"alpha": 1.0, "beta": 7.0, "delta": 3, "predict_from": "original"},
        "sun397": {"alpha": 2.0, "beta": 3.0, "delta": 1, "predict_from": "original"},
        "ucf101": {"alpha": 3.0, "beta": 8.0, "delta": 0, "predict_from": "original"},
    }

    shots: int = 3  # K⁺  items per class in the positive cache
    alpha: float = 2.0  # α⁺  weight of the positive cache
    beta: float = 5.0  # β⁺  sharpness of the positive affinity
    neg_shots: int = 2  # K⁻  items per class in the negative cache
    neg_alpha: float = 0.117  # α⁻  weight of the negative cache
    neg_beta: float = 1.0  # β⁻  sharpness of the negative affinity
    gate: tuple[float, float] = (0.2, 0.5)  # normalised entropy between which an image enters the negative cache
    mask: tuple[float, float] = (0.03, 1.0)  # probability between which a negative item counts against a class
    keep: float = 0.1  # share of the views, the most confident, that are pooled and that boost
    delta: int = 3  # room beside K⁺ in a class that boosting views compete for
    predict_from: Literal["selected", "original"] = "selected"  # the pooled views, or the original image alone

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.keep <= 1, "keep is a share of the views, above 0 and at most 1")
        self.require(self.shots >= 1, "shots is at least 1")
        self.require(self.neg_shots >= 0, "neg_shots can't be negative")
        self.require(self.delta >= 0, "delta can't be negative")
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
        pool, boost = self.summarise(x)
        self.remember(pool)  # before the prediction, so that an image finds itself in the cache
        attraction, repulsion = self.attraction(pool.feature, boost), self.repulsion(pool.feature)
        return pool.logits.add(attraction, alpha=self.alpha).sub_(repulsion, alpha=self.neg_alpha)

    def summarise(self, x: Observation) -> tuple[Pool, Boost]:
        """What is predicted from and remembered, and the views that boost."""
        views = stack_views(x.image, x.views.get("views"))  # [V, D]
        logits = views @ self.classifier  # [V, C]
        pool = low_entropy_pool(views, logits, self.keep)
        boosting = pool.kept if len(views) > 1 else pool.kept[:0]  # an image without views has nothing to boost with
        boost = Boost(views[boosting], logits[boosting].argmax(1), -pool.certainties[boosting])
        if self.predict_from == "original":
            pool = low_entropy_pool(views[:1], logits[:1], self.keep)
        return pool, boost

    def remember(self, pool: Pool) -> None:
        """Keep a class's surest images as positives, and its latest neither sure nor hopeless ones as negatives."""
        y, h = int(pool.logits.argmax()), pool.entropy
        insert_by_entropy(self.entropies, y, h, (self.features, pool.feature), (self.offsets, -self.beta))
        if self.is_uncertain(pool):
            items = (self.neg_features, pool.feature), (self.neg_masks, self.counts_against(pool.probs))
            insert_fifo(self.neg_entropies, y, h, *items, (self.neg_offsets, -self.neg_beta))

    def is_uncertain(self, pool: Pool) -> bool:
        low, high = self.gate
        return low < normalised_entropy(pool.entropy, len(pool.probs)) < high

    def boosted(self, boost: Boost) -> tuple[Tensor, Tensor]:
        """The cache of each boosting view's class with all boosting views of that class in it.

        One stable sort replaces the insertions one by one: an item that falls out has K⁺ + δ others before it, and
        they stay before it whatever comes later.

        Returns:
            Entropies [k, K⁺ + δ], +inf where empty, and what is in each slot: i < K⁺ is history item i of the class,
            and K⁺ + j is boosting view j. ViewRecipe of one class have the same row.
        """
        same_class = boost.labels[:, None] == boost.labels  # [k, k]
        offers = torch.where(same_class, boost.entropies, math.inf)
        candidates = torch.cat((self.entropies[boost.labels], offers), 1)  # history first: at equal entropy older wins
        entropies, items = candidates.sort(dim=1, stable=True)
        capacity = self.shots + self.delta
        return entropies[:, :capacity], items[:, :capacity]

    def counts_against(self, probs: Tensor) -> Tensor:
        """[low < p[c] < high]: the classes that a negative item speaks against. Its own pseudo-label is not spared."""
        low, high = self.mask
        return (probs > low) & (probs < high)

    def attraction(self, query: Tensor, boost: Boost) -> Tensor:
        """A⁺[c] = Σ_{i in the boosted cache of c} exp(−β⁺ (1 − ⟨f, f_i⟩))."""
        history = affinity(query, self.features, self.offsets, self.beta)  # [C, K⁺]
        views = torch.exp(self.beta * (boost.features @ query - 1))  # [k]
        entropies, items = self.boosted(boost)
        weights = torch.cat((history[boost.labels], views.expand(len(views), -1)), 1).gather(1, items)
        total = history.sum(1)
        total[boost.labels] = torch.where(entropies < math.inf, weights, 0.0).sum(1)  # other classes keep K⁺ slots
        return total

    def repulsion(self, query: Tensor) -> Tensor:
        """A⁻[c] = Σ_{all i} exp(−β⁻ (1 − ⟨f, f_i⟩)) [low < p_i[c] < high]."""
        weights = affinity(query, self.neg_features, self.neg_offsets, self.neg_beta)  # [C, K⁻]
        return weights.flatten() @ self.neg_masks.flatten(0, 1)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [BoostAdapter]
