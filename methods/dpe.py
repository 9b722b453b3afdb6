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
    in_inference_mode,
    info_nce,
    mean_entry,
    put,
)
from tta_bench.views import AugMix


def _preset(alpha: float, beta: float, lr: float, align: float) -> dict[str, float]:
    return {"alpha": alpha, "beta": beta, "lr_text": lr, "lr_image": lr, "align": align}


def inverse_length(x: Tensor) -> Tensor:
    """1/‖x‖ of each column, [D, C] -> [1, C]. Prototypes are columns here, as in the official code: with two of [D, C]
    and not one of [C, 3, D], products without a transposed operand gain more than norms lose."""
    return x.square().sum(0, keepdim=True).clamp_min_(1e-24).rsqrt_()


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
        self.text_sum = task.text.T.clone(memory_format=torch.contiguous_format)  # of prompts and accepted samples
        self._set_text()
        self.keys = torch.zeros_like(self.text)  # [D, C] class means, not normalised
        self.visual, self.visual_length = torch.zeros_like(self.text), torch.ones_like(self.text_length)

    @property
    def text_bank(self) -> Tensor:
        """The running average of the text prototypes [C, D]."""
        return (self.text_sum / (1 + self.text_updates)).T

    def _set_text(self) -> None:
        inverse = inverse_length(self.text_sum)
        self.text = self.text_sum * inverse  # [D, C]
        self.text_length = inverse.mul_(1 + self.text_updates).reciprocal_()  # [1, C]

    @in_inference_mode
    def step(self, x: Observation) -> Tensor:
        views = stack_views(x.image, x.views.get("views"))  # [V, D]
        n_classes = len(self.offsets)
        seen = low_entropy_pool(views, (views @ self.text).mul_(self.scale), self.keep)
        label = int(seen.logits.argmax())
        h = normalised_entropy(seen.entropy, n_classes)
        self.store(label, seen.feature, h)  # before the prediction: the image sees itself in the cache

        text, visual = self.adapt(seen.feature, seen.logits)
        text_inverse, visual_inverse = inverse_length(text), inverse_length(visual)
        if self.predict_from == "selected":
            again = low_entropy_pool(views, self.scale * (views @ text * text_inverse), self.keep)
            feature, logits = again.feature, again.logits
        else:
            feature, logits = x.image, (x.image @ text).mul_(text_inverse[0]).mul_(self.scale)
        scores = logits.add_(self._cache_logits((feature @ visual).mul_(visual_inverse[0])))

        score_entropy = entropy_of_logits(scores).item()
        updated = normalised_entropy(score_entropy, n_classes) < self.gate
        if updated:
            self.text_updates += 1
            self.text_sum.addcmul_(text, text_inverse)
            self._set_text()
        self.report(
            {"pseudo_label": label, "cache_entropy": h, "score_entropy": score_entropy, "text_updated": updated}
        )
        return scores

    def store(self, label: int, feature: Tensor, h: Tensor) -> None:
        """Offer an image to its class's cache; the class's visual prototype is the plain mean of its entries."""
        features, entropies = self.cache_features[label], self.cache_entropy[label]
        if put(features, entropies, feature, h):
            key = mean_entry(features, entropies)[:, None]  # [D, 1]
            inverse = inverse_length(key)
            column = slice(label, label + 1)
            self.offsets[label] = -self.beta
            self.keys[:, column], self.visual[:, column] = key, key * inverse
            self.visual_length[:, column] = inverse.reciprocal_()

    def adapt(self, feature: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Text and visual prototypes [D, C], of any length, after one step on H(z + cache(f)) + align·InfoNCE."""
        match = feature @ self.visual  # [C]
        cached = self._cache_logits(match)  # 0 for absent classes
        h, slope = entropy_and_slope(logits + cached)
        cosine = self.visual.mT @ self.text  # [C, C]
        align, align_slope = info_nce(cosine, self.offsets)
        align_slope *= self.align / TEMPERATURE
        self.report({"loss_entropy": h, "loss_align": align})

        # A slope in a unit vector can only turn it: its part along the vector is taken out, and known from the cosines.
        agreement = align_slope * cosine
        text_slope = self.text * torch.addcmul(agreement.sum(0), slope, logits).neg_()
        text_slope.addr_(feature, slope, alpha=self.scale).addmm_(self.visual, align_slope)
        cached_slope = cached.mul_(slope).mul_(self.beta)
        visual_slope = self.visual * torch.addcmul(agreement.sum(1), cached_slope, match).neg_()
        visual_slope.addr_(feature, cached_slope).addmm_(self.text, align_slope.mT)
        lr_text = (1 + self.text_updates) * self.lr_text
        return (
            adamw_step(self.text_sum, text_slope, self.text_length, lr_text, self.eps, self.emulate_fp16),
            adamw_step(self.keys, visual_slope, self.visual_length, self.lr_image, self.eps, self.emulate_fp16),
        )

    def _cache_logits(self, cosine: Tensor) -> Tensor:
        return cache_logits(cosine, self.offsets, self.alpha, self.beta)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [DPE]
