"""ReTA: reliable test-time adaptation (Liang et al., ACM MM 2025), as its official code computes it.

Three adjacent text embeddings per class vote on the pseudo-label. Their agreement decides how easily an image enters
the cache, and their spread becomes a Gaussian per class that calibrates the predictions.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import entropy_of_logits, low_entropy_pool, normalised_entropy, select_confident, stack_views
from tta_bench.interfaces import Method, Observation, Task, Views
from tta_bench.prototypes import (
    TEMPERATURE,
    adamw_step,
    adjacent_embeddings,
    cache_logits,
    empty_cache,
    entropy_and_slope,
    info_nce,
    length,
    mean_entry,
    mean_unit,
    put,
    running_average,
    tangential,
    unit,
)
from tta_bench.views import AugMix

SLOTS = (
    3  # adjacent embeddings per class; also the official code's entropy normaliser, which is log2(SLOTS), not log2 C
)


def _preset(
    alpha: float, beta: float, lam: float, ratio: float, lr: float, align: float, train_w: float
) -> dict[str, float]:
    return {"alpha": alpha, "beta": beta, "lam": lam, "ratio": ratio, "lr": lr, "align": align, "train_w": train_w}


def projection_basis(text: Tensor, rank: int) -> Tensor | None:
    """The text's first min(rank, C) left singular vectors [D, k] of [D, C]; None when the projection is the identity.

    They come from the small Gram matrix [C, C] = V Σ² Vᵀ as text V Σ⁻¹. Directions in which the classes differ by no
    more than rounding (equal classes) are left out.
    """
    if len(text) <= rank:
        return None
    energy, vectors = torch.linalg.eigh((text.mT @ text).double())  # ascending
    energy, vectors = energy[-rank:], vectors[:, -rank:]
    vectors = torch.where(energy > 1e-5, vectors * energy.rsqrt(), 0.0)
    basis: Tensor = text @ vectors.to(text.dtype)
    return basis


@dataclass
class ReTA(Method):
    """Reliable test-time adaptation: consistency-aware caching and calibration by adjacent text embeddings."""

    name: ClassVar[str] = "reta"
    recipes: ClassVar[Mapping[str, Views]] = {"views": AugMix(63)}
    # The official code leaves AugMix out on ImageNet and its variants (--recipe views=plain63).
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "imagenet": _preset(6.0, 5.0, 0.5, 1.0, 6e-4, 0.5, 0.05),
        "imagenet-a": _preset(6.0, 5.0, 0.8, 1.0, 1.5e-4, 1.0, 0.02) | {"predict_from": "selected"},
        "imagenet-v2": _preset(3.0, 8.0, 0.3, 1.0, 5e-4, 0.5, 0.02),
        "imagenet-r": _preset(0.5, 8.0, 0.2, 1.0, 6e-4, 0.0, 0.02),
        "imagenet-s": _preset(5.0, 7.45, 0.2, 1.0, 8e-4, 0.2, 0.02),
        "caltech101": _preset(15.0, 5.0, 0.3, 1.0, 3e-4, 0.3, 0.01),
        "dtd": _preset(8.6, 3.0, 0.25, 2.0, 4e-4, 0.2, 0.02),
        "eurosat": _preset(3.0, 8.0, 0.99, 0.1, 2.5e-5, 0.1, 0.03),
        "aircraft": _preset(7.0, 2.0, 0.5, 1.0, 3e-4, 0.6, 0.04),
        "food101": _preset(3.0, 1.0, 0.5, 1.0, 6e-4, 0.4, 0.02),
        "flowers": _preset(8.0, 5.0, 0.7, 1.5, 2e-4, 0.3, 0.06),
        "pets": _preset(4.0, 7.0, 0.99, 0.5, 6e-4, 0.3, 0.02),
        "cars": _preset(4.0, 7.0, 0.5, 1.0, 1.5e-4, 1.5, 0.02),
        "sun397": _preset(6.0, 3.0, 0.5, 1.0, 1.5e-4, 0.5, 0.03),
        "ucf101": _preset(9.0, 8.0, 0.22, 0.1, 4e-4, 0.3, 0.02),
    }

    shots: int = 3  # cached images per class
    alpha: float = 6.0  # α: weight of the cache
    beta: float = 5.0  # β: sharpness of the cache
    lam: float = 0.5  # share of the original image in the prediction; the rest is the calibrated views'
    ratio: float = 1.0  # strength of the consistency weight; below 0.5 the mean embedding is aligned, not the last
    lr: float = 6e-4  # step length of the text residual
    align: float = 0.5  # λ₂: weight of the alignment loss
    train_w: float = 0.05  # λ₁: weight of the calibration loss
    gamma: float = 2.0  # γ: factor for a majority that disagrees with the pseudo-label
    rank: int = 64  # dimensions of the text space in which the embeddings vote; at most C
    gate: float = 0.1  # the text evolves when the normalised entropy of the original's scores is below
    keep: float = 0.1  # share of the views that count as confident
    eps: float = 1e-3  # AdamW's; sets how small a gradient is still felt
    predict_from: Literal["original", "selected"] = "original"  # "selected": the mean of the confident views
    score: Literal["logits", "native"] = "logits"  # "native": the official mixture of probabilities
    emulate_fp16: bool = False  # round the optimiser's second moment as the official half-precision run did

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.keep <= 1, "keep is a share of the views, above 0 and at most 1")
        self.require(self.shots >= 1, "shots is at least 1")
        self.require(self.rank >= 1, "rank is at least 1")

    def start(self, task: Task) -> None:
        self.scale = task.scale
        self.text_updates = 0
        self._set_text(adjacent_embeddings(task.text_bank, SLOTS))
        self.cache_features, self.cache_entropy, self.log_present = empty_cache(len(task.text), self.shots, task.text)
        self.keys = torch.zeros_like(self.text)  # [D, C] unit class means

    def _set_text(self, bank: Tensor) -> None:
        self.text_bank, self.text_length = bank, length(bank)  # not unit-norm once it has been averaged
        self.text = bank[-1] / self.text_length[-1]  # [D, C] the classifier: the mean of all prompts
        self.text_mean = mean_unit(bank, self.text_length)  # [D, C]
        self.basis = projection_basis(self.text, self.rank)

    def step(self, x: Observation) -> Tensor:
        views = stack_views(x.image, x.views.get("views"))  # [V, D]
        if self.predict_from == "selected":
            seen = low_entropy_pool(views, self.scale * (views @ self.text), self.keep)
            feature, logits, h = seen.feature, seen.logits, seen.entropy
        else:
            feature, logits = x.image, self.scale * (x.image @ self.text)
            h = entropy_of_logits(logits)
        label = int(logits.argmax())
        weight = self.consistency_weight(feature, label)
        h = normalised_entropy(h, SLOTS)
        self.store(label, feature, h * (1 + weight))  # before the prediction: the image sees itself in the cache

        text = self.adapt(feature, logits, views, label, calibrate=weight == 0)

        if self.predict_from == "selected":
            views = feature[None]
        text_length = length(text)
        original, calibrated = self.predict(views, text, text_length)
        score_entropy = entropy_of_logits(original).item()
        updated = normalised_entropy(score_entropy, SLOTS) < self.gate
        if updated:
            self.text_updates += 1
            self._set_text(running_average(self.text_bank, text, text_length, self.text_updates))
        self.report(
            {
                "pseudo_label": label,
                "consistency_weight": weight,
                "cache_entropy": h,
                "score_entropy": score_entropy,
                "text_updated": updated,
            }
        )
        if self.score == "native":
            return self.lam * original.softmax(-1) + (1 - self.lam) * calibrated.softmax(-1).mean(0)
        return self.lam * original + (1 - self.lam) * calibrated.mean(0)

    def store(self, label: int, feature: Tensor, h: Tensor) -> None:
        """Offer an image to its class's cache; the class's visual prototype is the unit mean of its entries."""
        features, entropies = self.cache_features[label], self.cache_entropy[label]
        if put(features, entropies, feature, h):
            self.log_present[label] = 0.0
            self.keys[:, label] = unit(mean_entry(features, entropies)[:, None])[:, 0]

    def consistency_weight(self, feature: Tensor, label: int) -> float:
        """ratio · ln(3/k · (1 or γ)): k of the 3 embeddings agree on a class, which is the pseudo-label or isn't."""
        if self.basis is not None:
            feature = self.basis @ (feature @ self.basis)
        votes = (feature @ self.text_bank).argmax(-1).tolist()  # [3, C] -> 3 classes
        majority, agreeing = max(Counter(votes).items(), key=lambda vote: (vote[1], -vote[0]))  # ties: the smallest id
        return self.ratio * math.log(SLOTS / agreeing * (1.0 if majority == label else self.gamma))

    def adapt(self, feature: Tensor, logits: Tensor, views: Tensor, label: int, calibrate: bool) -> Tensor:
        """Text [3, D, C], not normalised, after one step on H(z + cache(f)) + align·InfoNCE + train_w·CE_cal."""
        h, slope = entropy_and_slope(logits + self._cache_logits(feature @ self.keys))
        loss, text_slope = self.calibration(views, label) if calibrate else (0.0, torch.zeros_like(self.text_bank))
        text_slope[-1].addr_(feature, slope, alpha=self.scale)
        pull = self.align / TEMPERATURE
        if self.ratio >= 0.5:
            align, align_slope = info_nce(self.keys.mT @ self.text, self.log_present)
            text_slope[-1].addmm_(self.keys, align_slope, alpha=pull)
        else:
            mean_length = length(self.text_mean)
            align, align_slope = info_nce(self.keys.mT @ (self.text_mean / mean_length), self.log_present)
            mean_slope = tangential(self.keys @ align_slope, self.text_mean, mean_length).div_(mean_length)
            text_slope.add_(mean_slope, alpha=pull / SLOTS)
        self.report({"loss_entropy": h, "loss_align": align, "loss_calibration": loss})
        text_slope = tangential(text_slope, self.text_bank, self.text_length)
        return adamw_step(self.text_bank, text_slope, self.text_length, self.lr, self.eps, self.emulate_fp16)

    def calibration(self, views: Tensor, label: int) -> tuple[Tensor, Tensor]:
        """CE_cal: cross-entropy to the label y of the confident views under one Gaussian per class; and train_w times
        its slope [3, D, C].

        zg_vc = s x_v·μ_c + s²/2 Σ_d x_vd² Σ_m (δ_mdc − δ_mdy)² / (3 + 1) with μ = mean_m W_m and δ = W_m − μ: the
        covariance is diagonal over the features, so that y's column and the diagonal of class pairs suffice.
        """
        contrast = torch.addcmul(-self.text_mean, self.text_bank, self.text_length.reciprocal())  # δ [3, D, C]
        contrast -= contrast[..., label, None].clone()  # sums to 0 over the slots
        spread = 0.5 * self.scale**2 / (SLOTS + 1)
        logits = self.scale * (views @ self.text_mean)
        distance = contrast[0].square().addcmul_(contrast[1], contrast[1]).addcmul_(contrast[2], contrast[2])  # [D, C]
        logits.addmm_(views.square(), distance, alpha=spread)  # [V, C]
        kept = select_confident(logits, self.keep)
        seen, log_p = views[kept].mT, logits[kept].log_softmax(-1)  # [D, k], [k, C]
        slope = log_p.clamp_min(-60).exp()  # no denormal numbers, which make products slow
        slope[:, label] -= 1
        slope *= self.train_w / len(kept)
        contrast *= seen.square() @ (2 * spread * slope)  # from here on the slope in it
        contrast[..., label] -= contrast.sum(-1)
        return -log_p[:, label].mean(), contrast.add_(seen @ slope, alpha=self.scale / SLOTS)

    def predict(self, views: Tensor, text: Tensor, text_length: Tensor) -> tuple[Tensor, Tensor]:
        """The original's logits [C] under the last embedding, and the confident views' [k, C] under their mean."""
        cached = self._cache_logits(views @ self.keys)  # [V, C]
        original = self.scale * (views[0] @ text[-1] / text_length[-1, 0]) + cached[0]
        calibrated = torch.addmm(cached, views, mean_unit(text, text_length), alpha=self.scale)
        return original, calibrated[select_confident(calibrated, self.keep)]

    def _cache_logits(self, cosine: Tensor) -> Tensor:
        return cache_logits(cosine, self.log_present, self.alpha, self.beta)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [ReTA]
