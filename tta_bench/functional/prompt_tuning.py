"""Formulas of the methods that tune the context of a prompt: TPT, ML-TTA, RLCF and DiffTPT.

c [M, E] is the context, T(c) [C, D] the class features of "<context> <name>.", s the logit scale. Every image starts
again from the initial context c₀, so the forward T(c₀) is run once and its graph serves all images: the gradient of a
first step is a vector-Jacobian product of that one graph.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

from tta_bench.errors import UsageError
from tta_bench.interfaces import Task

WORDS = "a photo of a"  # a learned initialisation puts its own context in the place of these words


# ------------------------------------------------------------------------------------------------- the text side


class ClassText(NamedTuple):
    """A context and the class features that it gives."""

    context: Tensor  # [M, E]
    features: Tensor  # [C, D] unit-norm; the graph back to the context hangs on it where one was asked for

    def gradient(self, loss: Tensor) -> Tensor:
        """dLoss/dc [M, E]. The graph stays, because that of c₀ is every image's."""
        (gradient,) = torch.autograd.grad(loss, self.context, retain_graph=True)
        return gradient


class ContextTower:
    """c -> T(c). No part of a checkpoint: `start` makes it again."""

    def __init__(self, task: Task, words: str = WORDS) -> None:
        if task.prompts is None:
            raise UsageError("this method tunes prompts: it needs a backbone with a text tower that can be tuned")
        self._encode, self._class_names = task.prompts.encode_context, task.class_names
        self.initial = self(task.prompts.init_context(words), tunable=True)

    def __call__(self, context: Tensor, tunable: bool) -> ClassText:
        """`tunable`: another step follows, so keep the graph."""
        context = context.detach().clone().requires_grad_(tunable)
        with torch.set_grad_enabled(tunable):
            return ClassText(context, self._encode(context, self._class_names))


@dataclass
class AdamW:
    """AdamW with an empty state, as every image finds it. Its first step is c(1 − lr·wd) − lr·g/(|g| + ε)."""

    lr: float
    weight_decay: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    steps: int = field(default=0, init=False)
    moments: tuple[Tensor, Tensor] | None = field(default=None, init=False)

    def __call__(self, context: Tensor, gradient: Tensor) -> Tensor:
        """The context after one step."""
        first, second = self.betas
        m, v = self.moments or (torch.zeros_like(gradient), torch.zeros_like(gradient))
        m = m.lerp(gradient, 1 - first)
        v = second * v + (1 - second) * gradient.square()
        self.moments, self.steps = (m, v), self.steps + 1
        size = v.sqrt() / math.sqrt(1 - second**self.steps) + self.eps
        decayed = context.detach() * (1 - self.lr * self.weight_decay)
        return decayed - self.lr / (1 - first**self.steps) * m / size


def descend(tower: ContextTower, loss: Callable[[Tensor], Tensor], adamw: AdamW, steps: int) -> ClassText:
    """c ← AdamW(c, ∇_c loss(T(c))) from c₀, `steps` times; the loss is of the classes' features [C, D]."""
    text = tower.initial
    for remaining in reversed(range(steps)):
        with torch.enable_grad():
            gradient = text.gradient(loss(text.features))
        text = tower(adamw(text.context, gradient), tunable=remaining > 0)
    return text


# ------------------------------------------------------------------------------------------------------- losses


def marginal_entropy(logits: Tensor) -> Tensor:
    """H(q) of the mean prediction q = mean_v softmax(l_v), in nats, from logits [V, C]: not the mean of entropies."""
    log_mean = logits.log_softmax(-1).logsumexp(0) - math.log(len(logits))  # [C] ln q
    log_mean = log_mean.clamp_min(torch.finfo(log_mean.dtype).min)  # so that 0 · ln 0 is 0
    return -(log_mean * log_mean.exp()).sum()


def bind(logits: Tensor, sizes: Tensor) -> Tensor:
    """Label binding: the k largest logits of a row are lifted to its maximum, and each keeps its own gradient.

    bound_j = l_j + stopgrad(max l − l_j) for the k largest, l_j for the others; rows [R, C], their k [R].
    """
    descending = logits.detach().argsort(dim=-1, descending=True, stable=True)  # [R, C]
    place = torch.arange(logits.shape[-1], device=logits.device)
    among_largest = torch.zeros_like(descending, dtype=torch.bool)
    among_largest.scatter_(1, descending, place < sizes[:, None])
    values = logits.detach()
    lift = values.amax(-1, keepdim=True) - values
    return logits + torch.where(among_largest, lift, 0.0)


def most_alike(logits: Tensor, count: int) -> Tensor:
    """Row 0 and the `count` rows whose logit vector has the largest cosine with row 0's: indices into [V, C]."""
    cosine = torch.cosine_similarity(logits[1:], logits[:1], dim=-1)  # [V - 1]
    order = cosine.argsort(descending=True, stable=True)[:count]
    return torch.cat([order.new_zeros(1), order + 1])


def advantages(rewards: Tensor, over_batch: bool, amplify: bool) -> Tensor:
    """Rewards [V, K] minus their mean over the K classes of a view, or over all; a lone reward stays as it is."""
    groups = rewards.reshape(1, -1) if over_batch else rewards
    if groups.shape[-1] > 1:
        groups = groups - groups.mean(-1, keepdim=True)
        if amplify:
            groups = groups / (groups.std(-1, keepdim=True) + 1e-5)
    return groups.reshape_as(rewards)


def policy_loss(logits: Tensor, classes: Tensor, advantage: Tensor) -> Tensor:
    """mean_vk A_vk · (−ln softmax(l_v)[class_vk]) with logits [V, C], sampled classes [V, K], advantages [V, K]."""
    return -(advantage * logits.log_softmax(-1).gather(1, classes)).mean()


def minmax(scores: Tensor) -> Tensor:
    """Scores [N, C] to [0, 1] with one minimum and one maximum for the whole matrix."""
    low, high = scores.min(), scores.max()
    return (scores - low) / (high - low).clamp_min(torch.finfo(scores.dtype).tiny)
