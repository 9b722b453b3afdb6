"""Formulas that several methods share: entropy, view selection and pooling, and per-class caches of fixed shape.

Everything here works on plain tensors. Caches are changed in place; everything else is a pure function.
"""

from __future__ import annotations

import functools
import math
from bisect import bisect_right
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

Number = TypeVar("Number", float, Tensor)

# -------------------------------------------------------------------------------------------------------- entropy


def entropy(probs: Tensor) -> Tensor:
    """H(p) = −Σ_c p_c ln p_c over the last dimension, in nats; 0·ln 0 counts as 0."""
    terms: Tensor = torch.special.entr(probs)
    return terms.sum(-1)


def entropy_of_logits(logits: Tensor) -> Tensor:
    """H(softmax(l)) over the last dimension, in nats."""
    log_probs = logits.log_softmax(-1)  # never −inf for finite logits, so that p·ln p is finite as well
    return dot(log_probs.exp(), log_probs).neg_()


def uncertainty(logits: Tensor) -> float:
    """H(softmax(l)) of one image's logits [C], in nats, as a number."""
    log_probs = logits.log_softmax(-1)
    return -log_probs.dot(log_probs.exp()).item()


def dot(a: Tensor, b: Tensor) -> Tensor:
    """Σ over the last dimension of a·b."""
    product: Tensor = torch.linalg.vecdot(a, b)
    return product


def normalised_entropy(h: Number, n_classes: int) -> Number:
    """h / log2 C with h in nats, as the official gates have it: at most ln 2, not 1. A single class gives 0."""
    return h / math.log2(n_classes) if n_classes > 1 else h * 0.0


# ----------------------------------------------------------------------------------------------------------- scores


def standard_scores(values: Tensor, dim: int = -1) -> Tensor:
    """(x − mean) / sd along a dimension, sd with ddof 1; 0 where nothing varies."""
    var, mean = torch.var_mean(values, dim, correction=min(1, values.shape[dim] - 1), keepdim=True)
    return (values - mean) / var.sqrt_().masked_fill_(var == 0, math.inf)


# ---------------------------------------------------------------------------------------------------------- views


@functools.cache
def number(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    """A tensor without dimensions, to calculate with in a step: a plain number would be made into one every time."""
    with torch.inference_mode(False):
        return torch.tensor(value, dtype=dtype, device=device)


def classifier(text: Tensor, scale: float) -> Tensor:
    """W [D, C] with logits = features @ W; laid out in rows, because a product with a transposed view is slower."""
    return (scale * text.T).contiguous()


def scaled_product(features: Tensor, weights: Tensor, scale: float) -> Tensor:
    """scale · features @ weights, where the weights change too often to be kept scaled: [V, D], [D, C] -> [V, C]."""
    return torch.addmm(weights[:1], features, weights, beta=0, alpha=scale)  # β = 0: the first operand is not read


def stack_views(image: Tensor, views: Tensor | None) -> Tensor:
    """The original as view 0 in front of its augmented views, if there are any: [1 + V, D]. Of the recipe `image` the
    only view is the original itself, which counts once."""
    if views is not None and len(views) == 1 and torch.equal(views[0], image):
        return image[None]
    return image[None] if views is None or len(views) == 0 else torch.cat((image[None], views))


def kept_count(keep: float, n_views: int) -> int:
    """max(1, ⌊keep·V⌋)."""
    return max(1, math.floor(keep * n_views + 1e-9))  # 0.29 · 100 is 28.999… in binary


def lowest(values: Tensor, count: int) -> Tensor:
    """Indices of the `count` smallest values, ascending; of equal values the first comes first."""
    return _best(values, count, largest=False)


def highest(values: Tensor, count: int) -> Tensor:
    """Indices of the `count` largest values, descending; of equal values the first comes first."""
    return _best(values, count, largest=True)


def _best(values: Tensor, count: int, largest: bool) -> Tensor:
    if count < len(values):  # a partial sort is faster but not stable: good as long as nothing is equal
        best, order = values.topk(count + 1, largest=largest)
        if len(set(best.tolist())) == count + 1:
            return order[:count]
    return values.sort(stable=True, descending=largest)[1][:count]


def among_highest(values: Tensor, count: int) -> Tensor:
    """Mask of the `count` largest values of each row [R, C]; of equal values the first comes first."""
    among = values >= values.topk(count)[0][:, -1:]
    if int(among.count_nonzero()) > count * len(values):
        order = values.sort(dim=-1, descending=True, stable=True)[1]
        among = torch.zeros_like(among).scatter_(1, order[:, :count], True)
    return among


def select_confident(logits: Tensor, keep: float) -> Tensor:
    """Indices of the max(1, ⌊keep·V⌋) views of lowest entropy, ascending, from their logits [V, C]."""
    return lowest(entropy_of_logits(logits), kept_count(keep, len(logits)))


class Pool(NamedTuple):
    """One image summarised by its most confident views."""

    feature: Tensor  # [D] mean feature, NOT re-normalised
    logits: Tensor  # [C] mean logits
    probs: Tensor  # [C] mean probabilities: not the softmax of the mean logits
    entropy: float  # of the mean probabilities, in nats: not the mean of the views' entropies
    kept: Tensor  # [k] indices of the pooled views, most confident first
    certainties: Tensor  # [V] −H of each view


def low_entropy_pool(features: Tensor, logits: Tensor, keep: float) -> Pool:
    """Average the most confident views; `features` [V, D] and `logits` [V, C] include the original as view 0."""
    log_probs = logits.log_softmax(-1)
    probs = log_probs.exp()
    certainties = dot(probs, log_probs)  # [V]
    kept = highest(certainties, kept_count(keep, len(logits)))
    chosen = torch.zeros_like(certainties).scatter_(0, kept, 1.0)  # [V]: a mean is a product with its share
    k = number(len(kept), chosen.dtype, chosen.device)
    share = chosen / k
    # k times 1/k may round to something else than 1, and the entropy of sure views would feel that.
    mean_probs = (chosen @ probs).div_(k)
    return Pool(share @ features, share @ logits, mean_probs, entropy(mean_probs).item(), kept, certainties)


# ---------------------------------------------------------------------------------------------------------- caches
# A cache holds K slots per class: features [C, K, D] and what belongs to them, entropies [C, K] that are +inf where a
# slot is empty, and offsets [C, K] for reading it: −β in used slots and −∞ in empty ones. Insertions are in place.

EMPTY = -math.inf  # offset


def affinity(query: Tensor, features: Tensor, offsets: Tensor, beta: float) -> Tensor:
    """exp(−β (1 − ⟨q, f⟩)) of a query [D] with every feature of a cache [C, K, D], and 0 where a slot is empty: [C, K].

    The offsets, which are the −β of the formula, take the place of a mask.
    """
    return torch.add(offsets, features @ query, alpha=beta).exp_()


def insert_by_entropy(entropies: Tensor, y: int, h: float, *tensors_and_items: tuple[Tensor, Tensor | float]) -> int:
    """Offer an item to class y, which keeps its K items of lowest entropy in ascending order.

    Of equal entropies the older item stays in front, so a full class admits only what is strictly below its last.

    Args:
        entropies: [C, K], +inf where empty.
        y: the class.
        h: entropy of the new item.
        tensors_and_items: every other tensor [C, K, ...] of the cache, with the new item's part of it [...].

    Returns:
        How many items the class has now if the new one entered, otherwise 0.
    """
    stored = entropies[y].tolist()
    position = bisect_right(stored, h)
    if position == len(stored):
        return 0
    for tensor, item in ((entropies, h), *tensors_and_items):
        items = tensor[y]
        if position + 1 < len(stored):
            items[position + 1 :] = items[position:-1].clone()
        items[position] = item
    return len(stored) - stored[:-1].count(math.inf)


def insert_fifo(entropies: Tensor, y: int, h: float, *tensors_and_items: tuple[Tensor, Tensor | float]) -> None:
    """Append an item to class y, oldest first; a full class drops its oldest. Arguments as `insert_by_entropy`."""
    size = entropies.shape[1]
    position = size - entropies[y].tolist().count(math.inf)
    if size == 0:
        return
    for tensor, item in ((entropies, h), *tensors_and_items):
        if position == size:
            tensor[y, :-1] = tensor[y, 1:].clone()
        tensor[y, min(position, size - 1)] = item
