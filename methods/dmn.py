"""DMN: a dynamic memory per class, read by attention (the zero-shot, test-time variant).

Zhang et al., "Dual Memory Networks: A Versatile Adaptation Approach for Vision-Language Models", CVPR 2024. The static
few-shot memory is not in use here. Where the paper and the released code differ, this follows the code.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import EMPTY, classifier, dot, kept_count, lowest, stack_views
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import AugMix


class Vote(NamedTuple):
    """What the most confident views say about an image."""

    logits: Tensor  # [C] of the original image
    probs: Tensor  # [C] mean over the confident views
    entropy: Tensor  # [] of that mean


@dataclass
class DMN(Method):
    """final = l_0 + b·d: the image's logits and its cosines with what each class's memory answers to it."""

    name: ClassVar[str] = "dmn"
    title: ClassVar[str] = "DMN"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "online"
    paper: ClassVar[Paper | None] = Paper(
        "Dual Memory Networks: A Versatile Adaptation Approach for Vision-Language Models",
        "CVPR 2024",
        "https://arxiv.org/abs/2403.17589",
    )
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(63)}
    # The official single-label sets (ViT-B/16). The release picks these weights on the test labels, for score "native".
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "imagenet": {"fusion": 1.0},
        "imagenet-a": {"fusion": 3.0},
        "imagenet-v2": {"fusion": 1.0},
        "imagenet-r": {"fusion": 0.3},
        "imagenet-s": {"fusion": 1.0},
        "caltech101": {"fusion": 0.3},
        "dtd": {"fusion": 10.0},
        "eurosat": {"fusion": 0.3},
        "aircraft": {"fusion": 1.0},
        "food101": {"fusion": 0.3},
        "flowers": {"fusion": 10.0},
        "pets": {"fusion": 1.0},
        "cars": {"fusion": 0.3},
        "sun397": {"fusion": 3.0},
        "ucf101": {"fusion": 0.3},
    }

    memory: int = 50  # M  slots per class
    beta: float = 5.5  # β  sharpness of the attention
    fusion: float = 1.0  # b  weight of the memory's score; fixed, because the release searches it on the test labels
    keep: float = 0.1  # share of the views, the most confident, that vote on label and entropy
    score: Literal["logits", "native"] = "logits"  # l_0 + b·d, or the official softmax(l_0) + b·softmax(d)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.keep <= 1, "keep is a share of the views, above 0 and at most 1")
        self.require(self.memory >= 1, "memory is at least 1")

    def start(self, task: Task) -> None:
        n_classes, dim = task.text.shape
        slots = 1 + self.memory  # slot 0 holds t_c for ever: used (below +inf) and never the least certain
        self.scale = task.scale
        self.classifier = classifier(task.text, task.scale)  # [D, C]
        # Slots come first, so that those which any class uses lie together: the rest is not read.
        self.features = task.text.new_zeros(slots, n_classes, dim)
        self.features[0] = task.text
        self.offsets = task.text.new_full((n_classes, slots), EMPTY)
        self.offsets[:, 0] = -self.beta
        self.entropies = task.text.new_full((n_classes, slots), float("inf"))  # +inf: an empty slot
        self.entropies[:, 0] = -float("inf")
        self.gram = task.text.new_zeros(n_classes, slots, slots)  # ⟨x_i, x_j⟩ within a class
        self.gram[:, 0, 0] = dot(task.text, task.text)
        self.used = 1  # slots that the fullest class uses

    def step(self, x: Observation) -> Tensor:
        vote = self.vote(x)
        self.write(x.image, vote)
        dynamic = self.read(x.image)  # after the write, so that an image finds itself in the memory
        if self.score == "native":
            return vote.logits.softmax(0) + self.fusion * dynamic.softmax(0)
        return vote.logits + self.fusion * dynamic

    def vote(self, x: Observation) -> Vote:
        """Mean probabilities of the most confident views."""
        views = stack_views(x.image, x.views.get("views"))  # [V, D]
        logits = views @ self.classifier  # [V, C]
        probs = logits.softmax(1)
        confident = lowest(shifted_entropy(probs, 1e-6), kept_count(self.keep, len(views)))
        mean_probs = probs[confident].mean(0)
        return Vote(logits[0], mean_probs, shifted_entropy(mean_probs, 1e-8))

    def write(self, image: Tensor, vote: Vote) -> None:
        """Store the original image in the next free slot of its class or else in place of the least certain one."""
        y = int(vote.probs.argmax())
        slot = int(self.entropies[y].argmax())  # the first of the largest: the next free one as long as there is one
        if vote.entropy < self.entropies[y, slot]:
            self.used = max(self.used, slot + 1)
            self.features[slot, y] = image
            self.offsets[y, slot] = -self.beta
            self.entropies[y, slot] = vote.entropy
            self.gram[y, slot] = self.gram[y, :, slot] = self.features[:, y] @ image

    def read(self, image: Tensor) -> Tensor:
        """d[c] = scale ⟨m_c, f_0⟩, m_c = unit(Σ_i a_i x_i), a_i = exp(−β (1 − ⟨f_0, x_i⟩)) over t_c and c's used slots.

        Neither m_c nor the sum is formed: ⟨Σ_i a_i x_i, f_0⟩ = aᵀs with s_i = ⟨x_i, f_0⟩, and |Σ_i a_i x_i|² = aᵀGa
        with the Gram matrix G. This passes over the memory, which is what takes the time, once and not twice.
        """
        used = slice(self.used)
        cosines = (self.features[used] @ image).T.contiguous()  # s  [C, used]
        weights = torch.add(self.offsets[:, used], cosines, alpha=self.beta).exp_()  # a, 0 in empty slots
        along = dot(weights, cosines)  # aᵀs  [C]
        squared = dot(torch.bmm(weights[:, None], self.gram[:, used, used])[:, 0], weights)  # aᵀGa  [C]
        # No vector is shorter than its part along f_0: rounding must not make it so when the items cancel out.
        length = torch.maximum(squared, along.square()).sqrt_().clamp_min_(1e-12)
        return along.div_(length).mul_(self.scale)


def shifted_entropy(probs: Tensor, shift: float) -> Tensor:
    """−Σ_c p_c ln(p_c + ε); the official code has one ε for ranking views and another for the memory."""
    return dot(probs, (probs + shift).log_()).neg_()


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [DMN]
