"""PuRF: purified multi-label test-time adaptation (ECCV 2026), written beside the paper; no official code exists.

Regions that one class clearly dominates (region purification, RP) give pseudo-labels where they agree with the whole
image, feed a class cache one object at a time (episodic purification, EP) that forgets by age (temporal refreshing,
TR), and supervise one step on a residual of the text. Equation numbers are the paper's; F is always unit-norm.

docs/purf.md lists every equation with its function and the test that computes it by hand. A second, literal PuRF of
sets, loops and autograd is in tests/golden/test_purf_reference.py. What the paper leaves open is marked `paper silent`
and listed in docs/adr/purf-readings.md.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from tta_bench import hookimpl
from tta_bench.functional import among_highest, dot, kept_count, lowest, normalised_entropy, scaled_product, uncertainty
from tta_bench.functional.class_cache import ClassCache
from tta_bench.functional.prototypes import (
    adjacent_embeddings,
    in_inference_mode,
    info_nce,
    inverse_length,
    log_softmax,
    through_unit,
    unit,
)
from tta_bench.functional.text_bank import Directions, TextBank
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import AugMix, RandomCrops

SLOTS = 3  # adjacent embeddings per class, as in ReTA
SLACK = 1e-6  # identical regions must not fail their own mean

# ------------------------------------------------------------------------------------------------ region purification


def global_candidates(logits: Tensor, kappa_g: float) -> Tensor:
    """Eq. 5: G = ∩_{x_i ∈ V} Top-κ_g(p(x_i)), from the views' logits [V, C], as a mask [C]."""
    k = max(1, math.floor(kappa_g * logits.shape[1] + 1e-9))  # paper silent: rounded down, at least one class
    return among_highest(logits, k).all(0)


def relative_confidence(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 6: ŝ_q^c = softmax_c(S⟨f_q, F_T^c⟩), from the logits [Q, C]; and the entropy of ŝ_q [Q]."""
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    return p, dot(p, log_p).neg_()


def running_threshold(
    mu: Tensor, n: Tensor, score: Tensor, own: Tensor, dominant: Tensor, stat: str
) -> tuple[Tensor, Tensor]:
    """Eq. 7: μ_c ← μ_c + (s̄_c − μ_c)/n_c, from the regions' ŝ_q^c [Q, C], ŝ_q^{c*} [Q] and c* [Q].

    "printed": s̄_c = mean_q ŝ_q^c and n_c = T, for every class; since Σ_c μ_c = 1 that removes next to no region.
    "dominated": s̄_c = mean of ŝ_q^c over the regions with c*_q = c, n_c counts the images that have any.
    "pooled": the same over all such regions so far, n_c counts them.
    """
    if stat == "printed":
        n = n + 1
        return mu + (score.mean(0) - mu) / n, n
    nothing = torch.zeros_like(mu)
    regions = nothing.scatter_add(0, dominant, torch.ones_like(own))  # [C] how many each class dominates
    excess = nothing.scatter_add_(0, dominant, own - mu.gather(0, dominant))  # [C] regions · (s̄_c − μ_c)
    if stat == "pooled":
        n = n + regions
        return torch.addcdiv(mu, excess, n.clamp_min(1)), n
    n = n + regions.clamp(max=1)
    return torch.addcdiv(mu, excess, (n * regions).clamp_min_(1)), n


def purity(own: Tensor, threshold: Tensor) -> Tensor:
    """Eq. 8: F_pur = {f_q | ŝ_q^{c*} ≥ μ_{c*}}, from ŝ_q^{c*} and μ_{c*} [Q], as a mask [Q]."""
    return own - threshold >= -SLACK


def region_candidates(dominant: Tensor, pure: Tensor, n_classes: int) -> Tensor:
    """Eq. 9: R = {c*_q | f_q ∈ F_pur}, from c* [Q] and the mask of F_pur [Q], as a mask [C]."""
    return pure.new_zeros(n_classes).index_put_((dominant,), pure, accumulate=True)  # of masks: or


# ------------------------------------------------------------------------------------------------- cache purification


def anchors(entropies: Tensor, dominant: Tensor, pure: Tensor, labels: Tensor) -> Tensor:
    """Eq. 12: r*(y) = argmin_{f_q ∈ F_pur} H(f_q), for each label y [n] the index of its region."""
    # paper silent: the entropy is that of the region's full softmax, and only regions that y dominates are candidates
    candidates = (dominant == labels[:, None]) & pure  # [n, Q]
    return torch.where(candidates, entropies, math.inf).argmin(-1)


def log_aged(entropies: Tensor, born: Tensor, now: int, delta: float) -> Tensor:
    """Eq. 15: H'_i = H_i · exp((t_i − δ)/δ) with the age t_i = now − born_i, as ln H'_i, which no age overflows."""
    return (now - delta - born).div_(delta).add_(entropies.log())


# ----------------------------------------------------------------------------------------------------- scores, losses


def strongest(scores: Tensor, log_mask: Tensor) -> Tensor:
    """max_{f_q ∈ F_pur} s(f_q) [C], from the scores of all regions [Q, C]."""
    return (scores + log_mask).amax(0)


def aggregate(image: Tensor, local: Tensor, cached: Tensor) -> Tensor:
    """Eq. 10: s_TTA = ½ s(F_V) + ½ max_{f_q ∈ F_pur} s(f_q) + s_cache, all [C]."""
    return torch.lerp(local, image, 0.5).add_(cached)


def bce_and_slope(scores: Tensor, target: Tensor) -> tuple[float, Tensor]:
    """Eq. 11: −Σ_c [ỹ^c ln σ(s^c) + (1 − ỹ^c) ln(1 − σ(s^c))], and its slope σ(s^c) − ỹ^c."""
    loss = F.softplus(scores).sum() - scores.dot(target)
    return loss.item(), scores.sigmoid().sub_(target)


def mean_entropy_and_slope(logits: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 16: L_ent = mean_{x_i ∈ V_f} H(p(x_i)), from the logits [k, C], and its slope −p_i (ln p_i + H_i) / k."""
    log_p = log_softmax(logits)
    p = log_p.exp()
    minus_h = dot(p, log_p)  # [k]
    return -minus_h.mean(), torch.sub(minus_h[:, None], log_p).mul_(p).div_(len(p))


class Purified(NamedTuple):
    """What region purification makes of one image."""

    crops: Tensor  # [Q + 1, D] the regions, and the whole image last
    logits: Tensor  # [Q + 1, C]
    entropies: Tensor  # [Q + 1]
    dominant: Tensor  # [Q] c* of each region
    pure: Tensor  # [Q] mask: F_pur
    log_mask: Tensor  # [Q, 1] its logarithm, 0 or −∞: added to what a maximum over F_pur is taken of
    labels: Tensor  # [C] mask: Ỹ = G ∩ R
    n_labels: int
    confident: Tensor  # [k, D] V_f
    confident_logits: Tensor  # [k, C]


@dataclass
class PuRF(Method):
    """Purified multi-label test-time adaptation."""

    name: ClassVar[str] = "purf"
    title: ClassVar[str] = "PuRF"
    status: ClassVar[Status] = "reading of the paper"
    setting: ClassVar[Setting] = "online"
    paper: ClassVar[Paper | None] = Paper(
        "Towards Purified Multi-Label Test-Time Adaptation of Vision-Language Models", "ECCV 2026"
    )
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(63), "regions": RandomCrops(50, side=(0.5, 0.8))}
    # What the text prints: holistic views, all of which must agree in G.
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {"paper_text": {"view_set": "V"}}
    preset_recipes: ClassVar[Mapping[str, Mapping[str, str]]] = {"paper_text": {"views": "holistic63"}}

    kappa_g: float = 0.1  # κ_g: share of the classes that a global view proposes
    delta: float = 1000.0  # δ: age in images beyond which a cache entry loses priority
    lambda_1: float = 0.2  # λ₁: weight of the BCE loss
    lambda_2: float = 0.5  # λ₂: weight of the alignment loss
    shots: int = 3  # L: cache entries per class
    alpha: float = 6.0  # α: weight of the cache
    beta: float = 5.0  # β: sharpness of the cache
    lr: float = 1e-3  # step length of the text residual ΔF_T
    eps: float = 1e-3  # AdamW's; sets how small a gradient is still felt
    keep: float = 0.1  # |V_f| as a share of the views
    gate: float = 0.1  # the text evolves when the normalised entropy of the scores is below
    mu_stat: Literal["dominated", "printed", "pooled"] = "dominated"  # what μ_c averages, see `running_threshold`
    view_set: Literal["Vf", "V"] = "Vf"  # views that must agree in G: the confident ones, or all augmented ones
    bce_space: Literal["scaled", "cosine"] = "scaled"  # σ(s), or σ(s/S)
    empty_labels: Literal["zero", "skip"] = "zero"  # without pseudo-labels: BCE to an all-zero target, or no BCE
    rp: bool = True  # region purification: local scores, BCE and the region test
    ep: bool = True  # episodic purification: one region per pseudo-label is cached, not the whole image
    tr: bool = True  # temporal refreshing
    selection: Literal["rel", "abs", "all", "global_only"] = "rel"  # region test: softmax, cosine, none; or no regions
    # What is cached and with what the cache is asked: regions and their maximum or mean, the image, images alone.
    cache_mode: Literal["region_max", "region_avg", "region_globalretrieve", "global_multi"] = "region_max"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.keep <= 1, "keep is a share of the views, above 0 and at most 1")
        self.require(self.shots >= 1, "shots is at least 1")
        self.require(self.eps > 0, "eps is above 0")
        self.require(self.alpha >= 0, "alpha can't be negative")
        self.require(self.delta > 0, "delta is an age in images, above 0")
        self.require(0 < self.kappa_g <= 1, "kappa_g is a share of the classes, above 0 and at most 1")

    def start(self, task: Task) -> None:
        n_classes = len(task.text)
        self.scale, self.bias = task.scale, task.bias
        self.seen = 0  # T
        adjacent = adjacent_embeddings(task.text_bank, SLOTS)  # [C, 3, D]
        if task.text_bank.shape[1] < SLOTS:
            adjacent = adjacent[:, :1]  # three equal slots would stay equal: one stands for them
        self.bank = TextBank(adjacent, self.eps)
        self._average_text()
        self.mu, self.mu_count = task.text.new_zeros(2, n_classes).unbind()
        self.cache = ClassCache(task.text, self.shots, self.alpha, self.beta)
        self.born = torch.zeros_like(self.cache.entropies)  # [C, L] the T of each entry
        self.labels = torch.zeros(n_classes, dtype=torch.bool, device=task.text.device)  # Ỹ of the last image

    def _average_text(self) -> None:
        """F_T^c = unit(mean_m unit(E_m^c)) [C, D]."""
        mean = self.bank.directions.mean()
        inverse = inverse_length(mean)
        self.text = mean * inverse
        self.slot_inverse = inverse / SLOTS  # [C, 1] each of the three embeddings has a third of the mean

    @property
    def text_bank(self) -> Tensor:
        """E: the running average of the adjacent embeddings [C, 3, D]."""
        return self.bank.average.expand(-1, SLOTS, -1)

    @in_inference_mode
    def step(self, x: Observation) -> Tensor:
        self.seen += 1
        seen = self.purify_regions(x)  # Eq. 5-9
        self.purify_cache(seen)  # Eq. 12, 14, 15
        cached = self.cache_scores(seen)  # Eq. 13
        adapted = self.adapt_text(seen, cached)  # Eq. 3, 10, 11, 16-18
        scores = self.score(seen, unit(adapted.mean()), cached)  # Eq. 2, 10
        self.evolve_text(adapted, scores)  # Eq. 4
        self.labels = seen.labels
        return scores

    def purify_regions(self, x: Observation) -> Purified:
        """Eq. 5-9: purified regions, confident views and the pseudo-labels on which both agree."""
        regions, views = x.views.get("regions"), x.views.get("views")
        tested = self.rp and self.selection in ("rel", "abs")
        if regions is None or len(regions) == 0 or (self.rp and self.selection == "global_only"):
            regions, tested = x.image[None], False
        q = len(regions)
        features = torch.cat((regions, x.image[None]) if views is None else (regions, x.image[None], views))
        logits = scaled_product(features, self.text.mT, self.scale)  # [Q + 1 + V, C]
        p, entropies = relative_confidence(logits)  # Eq. 6

        n_views = len(features) - q  # the original is view 0
        confident = lowest(entropies[q:], kept_count(self.keep, n_views)) + q  # V_f
        confident_logits = logits.index_select(0, confident)
        agreeing = confident_logits if self.view_set == "Vf" or n_views == 1 else logits[q + 1 :]
        proposed = global_candidates(agreeing, self.kappa_g)  # Eq. 5

        score = logits[:q] / self.scale if self.selection == "abs" else p[:q]
        own, dominant = score.max(-1)  # ŝ_q^{c*} and c* [Q], of equal classes the first
        pure = torch.ones_like(dominant, dtype=torch.bool)
        if tested:
            self.mu, self.mu_count = running_threshold(self.mu, self.mu_count, score, own, dominant, self.mu_stat)
            pure = purity(own, self.mu.gather(0, dominant))  # Eq. 8
        found = region_candidates(dominant, pure, len(self.mu))  # Eq. 9
        labels = proposed & found
        passed, n_labels = int(pure.count_nonzero()), int(labels.count_nonzero())
        if passed == 0:  # paper silent: the nearest miss keeps the scores comparable, but gives no label
            pure[(own - self.mu.gather(0, dominant)).argmax()] = True
        self.report({"kept_share": passed / q, "G": proposed.sum(), "R": found.sum(), "Y": n_labels})
        return Purified(
            crops=features[: q + 1],
            logits=logits[: q + 1],
            entropies=entropies[: q + 1],
            dominant=dominant,
            pure=pure,
            log_mask=pure.log()[:, None],
            labels=labels,
            n_labels=n_labels,
            confident=features.index_select(0, confident),
            confident_logits=confident_logits,
        )

    def purify_cache(self, seen: Purified) -> None:
        """Eq. 12, 14, 15: each label's anchor is offered to its class as an entry (f, H, t = 0)."""
        self.report({"entries_in": 0, "entries_out": 0})
        if self.ep and seen.n_labels == 0:
            return
        labels = seen.labels.nonzero()[:, 0] if self.ep else seen.logits[-1].argmax()[None]  # [n]
        if not self.ep or self.cache_mode == "global_multi":
            rows = torch.full_like(labels, -1)  # the whole image
        else:
            rows = anchors(seen.entropies[:-1], seen.dominant, seen.pure, labels)
        h = self.cache.entropies[labels]  # [n, L] as inserted: age is applied anew at every comparison
        log_priorities = log_aged(h, self.born[labels], self.seen, self.delta) if self.tr else h.log()
        entered = self.cache.offer(labels, seen.crops[rows], seen.entropies[rows], log_priorities)
        self.born[entered.classes, entered.slots] = self.seen
        self.report({"entries_in": len(entered.classes), "entries_out": entered.replaced})

    def cache_scores(self, seen: Purified) -> Tensor:
        """Eq. 13: s_cache^c = A(max_{f_q ∈ F_pur} ⟨f_q, F_cache^c⟩) L_p; Eq. 2 with the whole image's cosine."""
        regions, image = seen.crops[:-1], seen.crops[-1]
        if not self.ep or self.cache_mode in ("region_globalretrieve", "global_multi"):
            cosine = image @ self.cache.keys
        elif self.cache_mode == "region_avg":
            cosine = regions[seen.pure].mean(0) @ self.cache.keys
        else:
            cosine = strongest(regions @ self.cache.keys, seen.log_mask)
        # paper silent: L_p says which classes have an entry, so that no pseudo-label leaks into the scores
        return self.cache.scores(cosine)

    def adapt_text(self, seen: Purified, cached: Tensor) -> Directions:
        """Eq. 3, 18: unit(E + ΔF_T) after one step on L_ent + λ₁ L_BCE + λ₂ L_align."""
        entropy, slope = mean_entropy_and_slope(seen.confident_logits)  # Eq. 16
        text_slope = scaled_product(slope.mT, seen.confident, self.scale)  # [C, D] in F_T
        bce = 0.0
        if self.rp and (self.empty_labels == "zero" or seen.n_labels):
            bce, slope = self.label_loss(seen, cached)  # Eq. 11
            text_slope.addmm_(slope.mT, seen.crops, alpha=self.lambda_1 * self.scale)
        # Eq. 17. paper silent: image to text, temperature 0.01, mean over the classes with an entry, as in DPE and ReTA
        align, slope = info_nce(self.text @ self.cache.keys, self.cache.alignment)
        text_slope.addmm_(slope, self.cache.keys.mT, alpha=self.lambda_2)
        self.report({"loss_entropy": entropy, "loss_bce": bce, "loss_align": align})
        slot_slope = through_unit(text_slope, self.text, self.slot_inverse)  # in each unit(E_m)
        return self.bank.adapted(slot_slope[:, None], self.lr)

    def label_loss(self, seen: Purified, cached: Tensor) -> tuple[float, Tensor]:
        """Eq. 11 before the step, and its slope in the logits of regions and image [Q + 1, C]."""
        local, region = (seen.logits[:-1] + seen.log_mask).max(0)  # of each class the strongest region
        scores = aggregate(seen.logits[-1], local, cached).add_(self.bias)  # Eq. 10
        half = 0.5  # of a slope in s_TTA goes through the image, and as much through the strongest region
        if self.bce_space == "cosine":
            scores, half = scores / self.scale, half / self.scale
        loss, slope = bce_and_slope(scores, seen.labels.to(scores.dtype))
        slope *= half
        slopes = torch.zeros_like(seen.logits).scatter_(0, region[None], slope[None])
        slopes[-1] = slope
        return loss, slopes

    def score(self, seen: Purified, text: Tensor, cached: Tensor) -> Tensor:
        """Eq. 10 with the adapted text [C, D]; without region purification Eq. 2, the image alone."""
        scores = scaled_product(seen.crops, text.mT, self.scale)  # Eq. 1  [Q + 1, C]
        if not self.rp:
            return scores[-1] + cached
        return aggregate(scores[-1], strongest(scores[:-1], seen.log_mask), cached)

    def evolve_text(self, adapted: Directions, scores: Tensor) -> None:
        """Eq. 4: F_T ← running average of the adapted F_T."""
        # paper silent: only confident images count, the prompt counts as the first, and the average is not normalised
        updated = normalised_entropy(uncertainty(scores), len(scores)) < self.gate
        if updated:
            self.bank.accept(adapted)
            self._average_text()
        self.report({"text_updated": updated})


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [PuRF]
