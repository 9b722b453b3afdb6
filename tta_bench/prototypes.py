"""Formulas of the methods that learn class prototypes: DPE, ReTA and PuRF.

Prototypes are columns, [D, C] or [M, D, C], as in the official codes: then no large product has a transposed operand.
Each method takes one optimiser step from a zero residual, so every gradient is written out: a `slope` is dLoss/d(...).
Class caches have a fixed shape: features [C, L, D] and entropies [C, L], where an infinite entropy marks a free slot.
Beside them goes `log_present` [C]: 0 for classes with an entry and −∞ for the others, which bars them from a softmax.
"""

from __future__ import annotations

import math
from bisect import bisect_right

import torch
from torch import Tensor

TEMPERATURE = 0.01  # of the alignment loss; independent of the backbone's logit scale

# ---------------------------------------------------------------------------------------------- text embeddings


def columns(x: Tensor) -> Tensor:
    """[C, D] -> [D, C] and [C, M, D] -> [M, D, C]."""
    return x.movedim(0, -1).clone(memory_format=torch.contiguous_format)  # a copy in any case: banks change in place


def length(x: Tensor) -> Tensor:
    """‖x‖ of each column, [..., D, C] -> [..., 1, C]; never quite zero, so that a zero vector can be divided by it."""
    return x.square().sum(-2, keepdim=True).sqrt_().clamp_min_(1e-12)


def unit(x: Tensor) -> Tensor:
    """Columns of length 1; a zero vector stays zero."""
    return x * length(x).reciprocal_()


def mean_unit(x: Tensor, norm: Tensor) -> Tensor:
    """mean_m x_m/‖x_m‖ over the adjacent embeddings [M, D, C] of the given norms [M, 1, C]: [D, C]."""
    weight = (len(x) * norm).reciprocal_()
    mean = x[0] * weight[0]
    for m in range(1, len(x)):  # one by one, which is faster than a mean over the first dimension
        mean.addcmul_(x[m], weight[m])
    return mean


def adjacent_embeddings(text_bank: Tensor, slots: int = 3) -> Tensor:
    """A class's prompts [C, P, D] -> nested prompt means [slots, D, C], the least typical prompts first.

    Slot m is the unit mean of the first m·⌊P/slots⌋ prompts, ordered by their similarity to the class's other prompts;
    the last slot is the mean of all. With fewer prompts than slots every slot is that mean.
    """
    n_prompts = text_bank.shape[1]
    share = n_prompts // slots
    if share == 0:
        return unit(columns(text_bank.mean(1))).repeat(slots, 1, 1)
    similarity = text_bank @ text_bank.mT  # [C, P, P]
    typicality = similarity.sum(-1) - similarity.diagonal(dim1=-2, dim2=-1)  # [C, P]
    order = typicality.argsort(dim=-1, stable=True)
    ordered = text_bank.gather(1, order[..., None].expand_as(text_bank))  # [C, P, D]
    sizes = [share * m for m in range(1, slots)] + [n_prompts]
    return unit(torch.stack([columns(ordered[:, :size].mean(1)) for size in sizes]))


def running_average(bank: Tensor, adapted: Tensor, norm: Tensor, n: int) -> Tensor:
    """n/(n+1) · bank + 1/(n+1) · adapted/norm, in place, for the n-th accepted sample.

    The prompts count as one sample, so the first accepted one weighs 1/2. The average is not normalised.
    """
    return bank.mul_(n / (n + 1)).addcmul_(adapted, norm.mul(n + 1).reciprocal_())


# --------------------------------------------------------------------------------------------------- class cache


def empty_cache(n_classes: int, shots: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Features, entropies and log_present of a cache without entries; dtype, device and D are those of `like`."""
    features = like.new_zeros(n_classes, shots, like.shape[-1])
    return features, like.new_full((n_classes, shots), math.inf), like.new_full((n_classes,), -math.inf)


def put(features: Tensor, entropies: Tensor, feature: Tensor, h: Tensor) -> bool:
    """Insert into one class's entries [L, D], [L], in place and by ascending entropy; True if it entered.

    When they are full, the last leaves if its entropy is larger.
    """
    at = bisect_right(entropies.tolist(), h.item())  # behind entries of equal entropy: the earlier keeps its place
    if at == len(entropies):
        return False
    if at + 1 < len(entropies):
        entropies[at + 1 :] = entropies[at:-1].clone()
        features[at + 1 :] = features[at:-1].clone()
    entropies[at] = h
    features[at] = feature
    return True


def mean_entry(features: Tensor, entropies: Tensor) -> Tensor:
    """Mean of the stored features, [..., L, D] -> [..., D]; zero without entries."""
    count = (entropies < math.inf).sum(-1, keepdim=True).clamp_min_(1)
    return features.sum(-2).div_(count)


def cache_logits(cosine: Tensor, log_present: Tensor, alpha: float, beta: float) -> Tensor:
    """α·exp(−β(1 − cos_c)) for classes with an entry, 0 for the others."""
    return torch.add(log_present, cosine - 1, alpha=beta).exp_().mul_(alpha)


# ------------------------------------------------------------------------------------------ losses and their slopes


def _log_softmax(logits: Tensor) -> Tensor:
    """log softmax over the last dimension, not below −60: no gradient feels the difference, but the matrix products
    would meet denormal numbers, which are slow."""
    return logits.log_softmax(-1).clamp_min_(-60)


def entropy_and_slope(logits: Tensor) -> tuple[Tensor, Tensor]:
    """H(softmax(l)) in nats over the last dimension, and dH/dl_c = −p_c (ln p_c + H)."""
    log_p = _log_softmax(logits)
    p = log_p.exp()
    negative = (p * log_p).sum(-1, keepdim=True)
    return negative.squeeze(-1).neg(), torch.sub(negative, log_p, out=log_p).mul_(p)


def info_nce(cosine: Tensor, log_present: Tensor) -> tuple[Tensor, Tensor]:
    """mean_i −log softmax_j(cos_ij / τ)_i over the present classes i, j, and its slope in cos_ij / τ, [C, C].

    With cos = q.mT @ k the gradient is q @ slope / τ for the keys k [D, C] and k @ slope.mT / τ for the queries q.
    """
    log_p = _log_softmax(torch.add(log_present, cosine, alpha=1 / TEMPERATURE))  # an absent class is no alternative
    weight = log_present.softmax(-1)  # [C] 1/n for the present classes, 0 for the others
    slope = log_p.exp()
    slope.diagonal().sub_(1)
    return -log_p.diagonal().dot(weight), slope.mul_(weight[:, None])


# ----------------------------------------------------------------------------------------------- one optimiser step


def tangential(slope: Tensor, x: Tensor, norm: Tensor | None = None) -> Tensor:
    """s − x (x·s)/‖x‖², what a slope in x/‖x‖ asks of x, times ‖x‖. Without the norm x is unit-norm."""
    work = x * slope
    along = work.sum(-2, keepdim=True)
    if norm is not None:
        along.div_(norm.square())
    return torch.addcmul(slope, x, along, value=-1, out=work)


def adamw_step(x: Tensor, slope: Tensor, norm: Tensor, lr: float, eps: float, emulate_fp16: bool = False) -> Tensor:
    """x + R with R = −lr·g / (|g| + eps) and g = slope / norm: the first AdamW step of a residual R from zero.

    Betas cancel and weight decay multiplies zero. In half precision, as the official codes ran, the second moment
    0.001·g² underflows for small gradients, which then take longer steps: `emulate_fp16` rounds it so.
    """
    if emulate_fp16:
        moment = (slope / norm).square_().mul_(0.001).half().to(slope.dtype)
        magnitude = moment.sqrt_().div_(math.sqrt(0.001)).add_(eps).mul_(norm)
    else:
        magnitude = slope.abs().add_(norm * eps)
    return torch.addcdiv(x, slope, magnitude, value=-lr, out=magnitude)
