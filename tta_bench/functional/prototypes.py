"""Formulas of the methods that learn class prototypes: DPE, ReTA and PuRF.

Each method takes one optimiser step from a zero residual, so every gradient is written out: a `slope` is dLoss/d(...).
What they keep from image to image has two owners: `text_bank.TextBank` and `class_cache.ClassCache`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tta_bench.functional import dot
from tta_bench.interfaces import Observation

TEMPERATURE = 0.01  # of the alignment loss; independent of the backbone's logit scale
Step = Callable[[Any, Observation], Tensor]


def in_inference_mode(step: Step) -> Step:
    """A method's `step` without autograd's bookkeeping, for those that write their gradients out. What it returns is an
    ordinary tensor again; what it leaves in the method's state can't be changed in place from outside."""

    @functools.wraps(step)
    def run(self: Any, x: Observation) -> Tensor:
        with torch.inference_mode():
            scores = step(self, x)
        return scores.clone()

    return run


# ---------------------------------------------------------------------------------------------- text embeddings


def inverse_length(x: Tensor) -> Tensor:
    """1/‖x‖ over the last dimension, which is kept; never quite infinite, so that a zero vector can stay zero."""
    length: Tensor = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return length.clamp_min_(1e-12).reciprocal_()


def unit(x: Tensor) -> Tensor:
    """Vectors of length 1; a zero vector stays zero."""
    return x * inverse_length(x)


def sum_unit(x: Tensor, inverse: Tensor) -> Tensor:
    """Σ_m x_m/‖x_m‖ over the adjacent embeddings [C, M, D], from their inverse lengths [C, M, 1]: [C, D]."""
    return (inverse.mT @ x)[:, 0]


def adjacent_embeddings(text_bank: Tensor, slots: int = 3) -> Tensor:
    """A class's prompts [C, P, D] -> nested prompt means [C, slots, D], the least typical prompts first.

    Slot m is the unit mean of the first m·⌊P/slots⌋ prompts, ordered by their similarity to the class's other prompts;
    the last slot is the mean of all. With fewer prompts than slots every slot is that mean. A bank repeats the prompts
    of classes that have fewer than others: each class has its own alone.
    """
    own = _own_prompts(text_bank)
    if own is None:
        return _nested_means(text_bank, slots)
    return torch.cat([_nested_means(prompts[None, :n], slots) for prompts, n in zip(text_bank, own, strict=True)])


def _nested_means(text_bank: Tensor, slots: int) -> Tensor:
    n_prompts = text_bank.shape[1]
    share = n_prompts // slots
    if share == 0:
        return unit(text_bank.mean(1, keepdim=True)).repeat(1, slots, 1)
    similarity = text_bank @ text_bank.mT  # [C, P, P]
    typicality = similarity.sum(-1) - similarity.diagonal(dim1=-2, dim2=-1)  # [C, P]
    order = typicality.argsort(dim=-1, stable=True)
    ordered = text_bank.gather(1, order[..., None].expand_as(text_bank))  # [C, P, D]
    sizes = [share * m for m in range(1, slots)] + [n_prompts]
    return unit(torch.stack([ordered[:, :size].mean(1) for size in sizes], 1))


def _own_prompts(text_bank: Tensor) -> list[int] | None:
    """How many of a bank [C, P, D] are each class's own, before they begin again; None if all are."""
    n_prompts = text_bank.shape[1]
    again = (text_bank[:, 1:] == text_bank[:, :1]).all(-1)  # [C, P - 1] where the first one comes back
    if not again.any():
        return None
    found = []
    for prompts, places in zip(text_bank, again, strict=True):
        periods = [int(place) + 1 for place in places.nonzero()]
        cycles = (p for p in periods if torch.equal(prompts[p:], prompts[torch.arange(n_prompts - p) % p]))
        found.append(next(cycles, n_prompts))
    return found


# ------------------------------------------------------------------------------------------ losses and their slopes


def log_softmax(logits: Tensor, dim: int = -1) -> Tensor:
    """log softmax, not below −60: no gradient feels the difference, but the matrix products would meet denormal
    numbers, which are slow."""
    return logits.log_softmax(dim).clamp_min_(-60)


def entropy_and_slope(logits: Tensor) -> tuple[float, Tensor]:
    """H(softmax(l)) in nats of logits [C], and dH/dl_c = −p_c (ln p_c + H)."""
    log_p = log_softmax(logits)
    p = log_p.exp()
    negative = p.dot(log_p)
    return -negative.item(), torch.sub(negative, log_p).mul_(p)


class Alignment(NamedTuple):
    """What `info_nce` knows of the classes that have an entry; it changes when a class gets its first."""

    log_mask: Tensor  # [C, 1] 0 for them and −∞ for the others, which are no alternative then
    share: Tensor  # [C] 1/n for the n of them, 0 for the others
    pull: Tensor  # [C] share / τ
    target: Tensor  # [C, C] [t = k] · pull_k


def alignment_of(present: Tensor) -> Alignment:
    """From 1 for the classes with an entry and 0 for the others [C]. Without any, the loss and its slope are 0."""
    share = present / present.sum().clamp_min(1)
    pull = share / TEMPERATURE
    log_mask = present.log() if present.any() else present
    return Alignment(log_mask[:, None], share, pull, pull.diag())


def info_nce(cosine: Tensor, alignment: Alignment) -> tuple[float, Tensor]:
    """mean_k −log softmax_t(cos_tk / τ)_k over the present classes t, k: each key k is to be nearest its own text t.

    Returns:
        The loss, and its slope in the cosines of text and keys, both [C, C]. With cos = T @ K.mT the gradient is
        slope @ K for the text T [C, D] and slope.mT @ T for the keys K [C, D].
    """
    log_p = log_softmax(torch.add(alignment.log_mask, cosine, alpha=1 / TEMPERATURE), 0)
    loss = -log_p.diagonal().dot(alignment.share).item()
    return loss, log_p.exp_().mul_(alignment.pull).sub_(alignment.target)  # (p_tk − [t = k]) / (n τ)


# ----------------------------------------------------------------------------------------------- one optimiser step


def through_unit(slope: Tensor, u: Tensor, inverse: Tensor) -> Tensor:
    """dLoss/dx = (s − u (u·s)) / ‖x‖ from the slope s = dLoss/du of u = x/‖x‖ [C, D], in place: it can only turn x."""
    return slope.addcmul_(u, dot(u, slope)[:, None], value=-1).mul_(inverse)


def felt(slope: Tensor, fp16_norm: Tensor | None = None) -> Tensor:
    """|slope| as the optimiser has it from its second moment, 0.001·g² with g = slope / norm.

    In half precision, as the official codes ran, that underflows for small gradients, which then take longer steps:
    given the norm, it is rounded so.
    """
    if fp16_norm is None:
        return slope.abs()
    moment = (slope / fp16_norm).square_().mul_(0.001).half().to(slope.dtype)
    return moment.sqrt_().div_(math.sqrt(0.001)).mul_(fp16_norm)


def adamw_step(x: Tensor, slope: Tensor, floor: Tensor, lr: float, fp16_norm: Tensor | None = None) -> Tensor:
    """x + R with R = −lr·g / (|g| + eps) and g = slope / norm: the first AdamW step of a residual R from zero.

    Betas cancel and weight decay multiplies zero. `floor` is eps·norm.
    """
    magnitude = felt(slope, fp16_norm).add_(floor)
    return torch.addcdiv(x, slope, magnitude, value=-lr, out=magnitude)
