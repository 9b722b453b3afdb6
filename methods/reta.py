"""ReTA: reliable test-time adaptation (Liang et al., ACM MM 2025), as its official code computes it.

Three adjacent text embeddings per class vote on the pseudo-label. Their agreement decides how easily an image enters
the cache, and their spread becomes a Gaussian per class that calibrates the predictions.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import (
    low_entropy_pool,
    normalised_entropy,
    scaled_product,
    select_confident,
    stack_views,
    uncertainty,
)
from tta_bench.functional.class_cache import ClassCache
from tta_bench.functional.prototypes import (
    adjacent_embeddings,
    entropy_and_slope,
    in_inference_mode,
    info_nce,
    inverse_length,
    log_softmax,
    through_unit,
)
from tta_bench.functional.text_bank import Directions, TextBank
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import AugMix

SLOTS = 3  # adjacent embeddings per class; the official code also normalises entropies by log2(SLOTS), not by log2 C


def _preset(
    alpha: float, beta: float, lam: float, ratio: float, lr: float, align: float, train_w: float
) -> dict[str, float]:
    return {"alpha": alpha, "beta": beta, "lam": lam, "ratio": ratio, "lr": lr, "align": align, "train_w": train_w}


def eigenvectors(gram: Tensor, near: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Eigenvalues [C] and eigenvectors [C, C], in columns, of a Gram matrix [C, C].

    The text moves little from image to image, so its eigenvectors are refined from those `near` them: one step of Ogita
    and Aishima ("Iterative refinement for symmetric eigenvalue decomposition", 2018), which squares their error. When
    the correction is too large for that to reach float32's precision, they are computed anew.
    """
    if near is not None:
        inner = near.mT @ near  # the identity, but for rounding
        rotated = near.mT @ (gram @ near)
        squares = inner.diagonal()
        energy = rotated.diagonal() / squares
        correction = torch.addcmul(rotated, inner, energy, value=-1).div_(energy - energy[:, None])
        correction.diagonal().copy_(torch.sub(0.5, squares, alpha=0.5))
        if correction.abs().max().item() < 3e-3:  # False as well for a nan, where two eigenvalues are equal
            return energy, torch.addmm(near, near, correction)
    energy, vectors = torch.linalg.eigh(gram.double())
    return energy.to(gram.dtype), vectors.to(gram.dtype)


def inverse_energy(energy: Tensor, rank: int) -> Tensor:
    """1/λ of the `rank` largest eigenvalues and 0 for the others, and for those that differ from 0 by rounding."""
    dropped = len(energy) - rank
    floor = max(1e-5, sorted(energy.tolist())[dropped - 1]) if dropped > 0 else 1e-5
    return torch.threshold(energy, floor, math.inf).reciprocal_()


@dataclass
class ReTA(Method):
    """Reliable test-time adaptation: consistency-aware caching and calibration by adjacent text embeddings."""

    name: ClassVar[str] = "reta"
    title: ClassVar[str] = "ReTA"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "online"
    paper: ClassVar[Paper | None] = Paper(
        "Advancing Reliable Test-Time Adaptation of Vision-Language Models under Visual Variations",
        "ACM MM 2025",
        "https://arxiv.org/abs/2507.09500",
    )
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(63)}
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
        self.require(self.eps > 0, "eps is above 0")
        self.require(self.alpha >= 0, "alpha can't be negative")
        self.require(self.rank >= 1, "rank is at least 1")

    def start(self, task: Task) -> None:
        self.scale = task.scale
        self.cache = ClassCache(task.text, self.shots, self.alpha, self.beta, dtype=torch.float64)
        self.bank = TextBank(adjacent_embeddings(task.text_bank, SLOTS), self.eps, self.emulate_fp16)
        self.vectors: Tensor | None = None
        self._read_bank()

    @property
    def text_bank(self) -> Tensor:
        """The running average of the adjacent embeddings [C, 3, D]."""
        return self.bank.average

    def _read_bank(self) -> None:
        self.text = self.bank.directions.last()  # [C, D] the classifier: the mean of all prompts
        self.text_mean = self.bank.directions.mean()  # [C, D]
        if self.text.shape[1] > self.rank:  # otherwise the projection is the identity
            energy, self.vectors = eigenvectors(self.text @ self.text.mT, self.vectors)
            self.inverse_energy = inverse_energy(energy, self.rank)

    @in_inference_mode
    def step(self, x: Observation) -> Tensor:
        views = stack_views(x.image, x.views.get("views"))  # [V, D]
        if self.predict_from == "selected":
            seen = low_entropy_pool(views, scaled_product(views, self.text.mT, self.scale), self.keep)
            feature, logits, h = seen.feature, seen.logits, seen.entropy
        else:
            feature, logits = x.image, (self.text @ x.image).mul_(self.scale)
            h = uncertainty(logits)
        label = int(logits.argmax())
        weight = self.consistency_weight(feature, logits, label)
        h = normalised_entropy(h, SLOTS)
        # Before the prediction: the image sees itself in the cache.
        self.cache.offer_by_entropy(label, feature, h * (1 + weight))

        queries = feature[None] if self.predict_from == "selected" else views
        cached = self.cache.scores(queries @ self.cache.keys)  # [V, C]
        loss, slope = self.calibration(views, label) if weight == 0 else (0.0, torch.zeros_like(self.bank.sum))
        self.report({"loss_calibration": loss})
        adapted = self.adapt(feature, logits, cached[0], slope)
        original, calibrated = self.predict(queries, cached, adapted)
        score_entropy = uncertainty(original)
        updated = normalised_entropy(score_entropy, SLOTS) < self.gate
        if updated:
            self.bank.accept(adapted)
            self._read_bank()
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
            original, calibrated = original.softmax(-1), calibrated.softmax(-1)
        return torch.lerp(calibrated.mean(0), original, self.lam)

    def consistency_weight(self, feature: Tensor, logits: Tensor, label: int) -> float:
        """ratio · ln(3/k · (1 or γ)): k of the 3 embeddings agree on a class, which is the pseudo-label or isn't.

        They vote in the space of the text's first singular vectors Tᵀv/√λ, where TTᵀ has the eigenvectors v and
        eigenvalues λ. The feature's projection is Tᵀ Σ v (v·Tf)/λ, and Tf is known from the logits.
        """
        if self.vectors is not None:
            feature = self.vectors @ (logits @ self.vectors).mul_(self.inverse_energy) @ self.text  # times the scale
        votes = (self.bank.sum @ feature).argmax(0).tolist()  # [C, 3] -> 3 classes
        agreeing = max(map(votes.count, votes))
        majority = min(vote for vote in votes if votes.count(vote) == agreeing)  # ties: the smallest id
        return self.ratio * math.log(SLOTS / agreeing * (1.0 if majority == label else self.gamma))

    def adapt(self, feature: Tensor, logits: Tensor, cached: Tensor, text_slope: Tensor) -> Directions:
        """Text after one step on H(z + cache(f)) + align·InfoNCE + train_w·CE_cal, from the last one's slope [C, 3, D],
        which is changed."""
        h, slope = entropy_and_slope(logits + cached)
        last_slope = text_slope[:, -1]
        last_slope.addr_(slope, feature, alpha=self.scale)
        keys = self.cache.keys
        if self.ratio >= 0.5:
            align, align_slope = info_nce(self.text @ keys, self.cache.alignment)
            last_slope.addmm_(align_slope, keys.mT, alpha=self.align)
        else:
            inverse = inverse_length(self.text_mean)
            mean = self.text_mean * inverse
            align, align_slope = info_nce(mean @ keys, self.cache.alignment)
            mean_slope = through_unit(align_slope @ keys.mT, mean, inverse)
            text_slope.add_(mean_slope[:, None], alpha=self.align / SLOTS)
        self.report({"loss_entropy": h, "loss_align": align})
        return self.bank.adapted(text_slope, self.lr)

    def calibration(self, views: Tensor, label: int) -> tuple[float, Tensor]:
        """CE_cal: cross-entropy to the label y of the confident views under one Gaussian per class; and train_w times
        its slope [C, 3, D].

        zg_vc = s x_v·μ_c + s²/2 Σ_d x_vd² Σ_m (δ_cmd − δ_ymd)² / (3 + 1) with μ = mean_m W_m and δ = W_m − μ: the
        covariance is diagonal over the features, so that y's row and the diagonal of class pairs suffice.
        """
        contrast = torch.addcmul(self.text_mean[:, None], *self.bank.directions, value=-1)  # −δ [C, 3, D]
        contrast -= contrast[label].clone()  # δ_y − δ_c
        distance = contrast[:, 0].square()  # [C, D]
        for m in range(1, SLOTS):
            distance.addcmul_(contrast[:, m], contrast[:, m])
        spread = 0.5 * self.scale**2 / (SLOTS + 1)
        logits = scaled_product(views, self.text_mean.mT, self.scale)
        logits.addmm_(views.square(), distance.mT, alpha=spread)  # [V, C]
        kept = select_confident(logits, self.keep)
        seen, log_p = views.index_select(0, kept), log_softmax(logits.index_select(0, kept))  # [k, D], [k, C]
        slope = log_p.exp()
        slope[:, label].sub_(1)  # now every row sums to 0
        mean_slope = slope.mul_(self.train_w * self.scale / SLOTS / len(kept)).mT @ seen  # [C, D] in each W_m by μ
        spread_slope = slope.mT @ seen.square()  # [C, D] in the squared contrasts, but for a factor
        factor = -2 * spread * SLOTS / self.scale
        text_slope = torch.addcmul(mean_slope[:, None], contrast, spread_slope[:, None], value=factor, out=contrast)
        text_slope[label].sub_(text_slope.sum(0))  # y is in every contrast; the slopes in the means cancel out here
        return -log_p[:, label].mean().item(), text_slope

    def predict(self, views: Tensor, cached: Tensor, text: Directions) -> tuple[Tensor, Tensor]:
        """The original's logits [C] under the last embedding, and the confident views' [k, C] under the mean one."""
        original = torch.add(cached[0], text.last() @ views[0], alpha=self.scale)
        calibrated = torch.addmm(cached, views, text.mean().mT, alpha=self.scale)
        return original, calibrated.index_select(0, select_confident(calibrated, self.keep))


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [ReTA]
