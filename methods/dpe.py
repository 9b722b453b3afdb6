"""DPE: dual prototype evolving (Zhang et al., NeurIPS 2024), as its official code computes it.

Text prototypes and visual prototypes (class means of a small cache of confident images) both receive a residual that
is learned for one image and thrown away; the text prototypes also evolve as a running average over confident images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import (
    entropy_of_logits,
    in_inference_mode,
    low_entropy_pool,
    normalised_entropy,
    stack_views,
)
from tta_bench.interfaces import Method, Observation, Task, Views
from tta_bench.prototypes import (
    TEMPERATURE,
    adamw_step,
    cache_logits,
    empty_cache,
    entropy_and_slope,
    info_nce,
    inverse_length,
    mean_entry,
    put,
)
from tta_bench.views import AugMix


def _preset(alpha: float, beta: float, lr: float, align: float) -> dict[str, float]:
    return {"alpha": alpha, "beta": beta, "lr_text": lr, "lr_image": lr, "align": align}


@dataclass
class DPE(Method):
    """Dual prototype evolving."""

    name: ClassVar[str] = "dpe"
    recipes: ClassVar[Mapping[str, Views]] = {"views": AugMix(63)}
    # The official code gives the ten fine-grained sets the original image alone.
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "imagenet": _preset(6.0, 5.0, 6e-4, 0.5),
        "imagenet-a": _preset(6.0, 5.0, 3e-4, 2.5) | {"predict_from": "selected"},
        "imagenet-v2": _preset(3.0, 8.0, 5e-4, 0.5),
        "imagenet-r": _preset(3.0, 8.0, 6e-4, 0.0),
        "imagenet-s": _preset(7.0, 7.45, 6e-4, 0.2),
        "caltech101": _preset(15.0, 5.0, 6e-4, 0.2),
        "dtd": _preset(6.0, 3.0, 6e-4, 0.2),
        "eurosat": _preset(3.0, 8.0, 5e-5, 0.2),
        "aircraft": _preset(6.0, 2.0, 6e-4, 0.2),
        "food101": _preset(3.0, 1.0, 2e-4, 0.2),
        "flowers": _preset(2.5, 5.0, 1e-4, 0.2),
        "pets": _preset(4.0, 7.0, 5e-5, 0.2),
        "cars": _preset(3.0, 7.0, 1e-4, 1.5),
        "sun397": _preset(6.0, 3.0, 2e-4, 0.2),
        "ucf101": _preset(9.0, 8.0, 4e-4, 0.2),
    }

    shots: int = 3  # M: cached images per class
    alpha: float = 6.0  # α: weight of the cache
    beta: float = 5.0  # β: sharpness of the cache
    lr_text: float = 6e-4  # step length of the text residual
    lr_image: float = 6e-4  # step length of the visual residual
    align: float = 0.5  # λ: weight of the alignment loss
    gate: float = 0.1  # τ_t: the text evolves when the normalised entropy of the scores is below
    keep: float = 0.1  # share of the views that count as confident
    eps: float = 1e-3  # AdamW's; sets how small a gradient is still felt
    predict_from: Literal["original", "selected"] = "original"  # "selected": the mean of the confident views
    emulate_fp16: bool = False  # round the optimiser's second moment as the official half-precision run did

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.keep <= 1, "keep is a share of the views, above 0 and at most 1")
        self.require(self.shots >= 1, "shots is at least 1")
        self.require(self.eps > 0, "eps is above 0")

    def start(self, task: Task) -> None:
        self.scale = task.scale
        self.text_updates = 0
        self.cache_features, self.cache_entropy, self.offsets = empty_cache(len(task.text), self.shots, task.text)
        # Text and visual prototypes: the sum over prompts and accepted samples, and the mean of the class's entries.
        self.prototypes = torch.stack((task.text, torch.zeros_like(task.text)))  # [2, C, D]
        self.units = torch.zeros_like(self.prototypes)
        self.lengths = self.prototypes.new_ones(*self.prototypes.shape[:2], 1)  # [2, C, 1]
        self._set_text()

    @property
    def text_bank(self) -> Tensor:
        """The running average of the text prototypes [C, D]."""
        return self.prototypes[0] / (1 + self.text_updates)

    def _set_text(self) -> None:
        inverse = inverse_length(self.prototypes[0])
        torch.mul(self.prototypes[0], inverse, out=self.units[0])
        torch.reciprocal(inverse, out=self.lengths[0]).div_(1 + self.text_updates)

    @in_inference_mode
    def step(self, x: Observation) -> Tensor:
        views = stack_views(x.image, x.views.get("views"))  # [V, D]
        n_classes = len(self.offsets)
        seen = low_entropy_pool(views, (views @ self.units[0].mT).mul_(self.scale), self.keep)
        label = int(seen.logits.argmax())
        h = normalised_entropy(seen.entropy, n_classes)
        self.store(label, seen.feature, h)  # before the prediction: the image sees itself in the cache

        adapted = self.adapt(seen.feature, seen.logits)
        inverse = inverse_length(adapted)  # [2, C, 1]
        if self.predict_from == "selected":
            again = low_entropy_pool(views, self.scale * (views @ adapted[0].mT * inverse[0, :, 0]), self.keep)
            logits, match = again.logits, adapted[1] @ again.feature * inverse[1, :, 0]
        else:
            cosine = (adapted @ x.image).mul_(inverse[..., 0])  # [2, C]
            logits, match = self.scale * cosine[0], cosine[1]
        scores = logits + cache_logits(match, self.offsets, self.alpha, self.beta)

        score_entropy = entropy_of_logits(scores).item()
        updated = normalised_entropy(score_entropy, n_classes) < self.gate
        if updated:
            self.text_updates += 1
            self.prototypes[0].addcmul_(adapted[0], inverse[0])
            self._set_text()
        self.report(
            {"pseudo_label": label, "cache_entropy": h, "score_entropy": score_entropy, "text_updated": updated}
        )
        return scores

    def store(self, label: int, feature: Tensor, h: Tensor) -> None:
        """Offer an image to its class's cache; the class's visual prototype is the plain mean of its entries."""
        features, entropies = self.cache_features[label], self.cache_entropy[label]
        if put(features, entropies, feature, h):
            key = mean_entry(features, entropies)
            inverse = inverse_length(key)
            self.offsets[label] = -self.beta
            self.prototypes[1, label], self.units[1, label] = key, key * inverse
            self.lengths[1, label] = inverse.reciprocal_()

    def adapt(self, feature: Tensor, logits: Tensor) -> Tensor:
        """Text and visual prototypes [2, C, D], of any length, after one step on H(z + cache(f)) + align·InfoNCE."""
        text, visual = self.units
        match = self.units @ feature  # [2, C]
        cached = cache_logits(match[1], self.offsets, self.alpha, self.beta)  # 0 for absent classes
        h, slope = entropy_and_slope(logits + cached)
        cosine = visual @ text.mT  # [C, C]
        align, align_slope = info_nce(cosine, self.offsets)
        align_slope *= self.align / TEMPERATURE
        self.report({"loss_entropy": h, "loss_align": align})

        # A slope in a unit vector can only turn it: its part along the vector is taken out, and known from the cosines.
        match_slope = torch.stack((self.scale * slope, cached.mul_(slope).mul_(self.beta)))  # [2, C]
        agreement = align_slope * cosine
        along = torch.stack((agreement.sum(0), agreement.sum(1))).addcmul_(match_slope, match)
        slopes = match_slope[..., None] * feature  # [2, C, D]
        slopes.addcmul_(self.units, along[..., None], value=-1)
        slopes[0].addmm_(align_slope.mT, visual)
        slopes[1].addmm_(align_slope, text)
        lr = (1 + self.text_updates) * self.lr_text, self.lr_image
        return adamw_step(self.prototypes, slopes, self.lengths, lr, self.eps, self.emulate_fp16)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [DPE]
