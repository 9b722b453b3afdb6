"""PuRF: purified multi-label test-time adaptation (ECCV 2026), written beside the paper; no official code exists.

Regions that one class clearly dominates (region purification, RP) give pseudo-labels where they agree with the whole
image, feed a class cache one object at a time (episodic purification, EP) that forgets by age (temporal refreshing,
TR), and supervise one step on a residual of the text. Equation numbers are the paper's; F is always unit-norm.
What the paper leaves open is marked `paper silent` and listed in docs/adr/purf-readings.md.
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
from tta_bench.functional import (
    dot,
    kept_count,
    lowest,
    normalised_entropy,
    scaled_product,
    uncertainty,
)
from tta_bench.functional.prototypes import (
    adamw_step,
    adjacent_embeddings,
    alignment_of,
    cache_logits,
    cache_offset,
    empty_cache,
    in_inference_mode,
    info_nce,
    inverse_length,
    sum_unit,
    tangential,
    unit,
)
from tta_bench.interfaces import Method, Observation, Task, ViewRecipe
from tta_bench.views import AugMix, RandomCrops

SLOTS = 3  # adjacent embeddings per class, as in ReTA
SLACK = 1e-6  # identical regions must not fail their own mean

# ------------------------------------------------------------------------------------------------ region purification


def global_candidates(logits: Tensor, kappa_g: float) -> Tensor:
    """Eq. 5: G = ∩_{x_i ∈ V} Top-κ_g(p(x_i)), from the views' logits [V, C], as a mask [C]."""
    n_views, n_classes = logits.shape
    k = max(1, math.floor(kappa_g * n_classes + 1e-9))  # paper silent: rounded down, at least one class
    top = logits >= logits.topk(k)[0][:, -1:]
    if int(top.sum()) > k * n_views:  # of equal logits the first class comes first
        order = logits.sort(dim=-1, descending=True, stable=True)[1]
        top = torch.zeros_like(top).scatter_(1, order[:, :k], True)
    return top.all(0)


def relative_confidence(logits: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Eq. 6: ŝ_q^c = softmax_c(S⟨f_q, F_T^c⟩), from the logits [Q, C]; its logarithm, and its entropy [Q]."""
    log_p = logits.log_softmax(-1)
    p = log_p.exp()
    return p, log_p, dot(p, log_p).neg_()


def dominance(score: Tensor) -> tuple[Tensor, Tensor]:
    """ŝ_q^{c*} [Q] and c* = argmax_c ŝ_q^c [Q] of each region; of equal classes the first."""
    own, dominant = score.max(-1)
    return own, dominant


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


def purity(own: Tensor, dominant: Tensor, mu: Tensor) -> tuple[Tensor, int]:
    """Eq. 8: F_pur = {f_q | ŝ_q^{c*} ≥ μ_{c*}} as 0 for its regions and −∞ for the others [Q, 1]; how many passed."""
    margin = own - mu.gather(0, dominant)
    pure = margin >= -SLACK
    passed = int(pure.sum())
    if passed == 0:  # paper silent: the nearest miss keeps the scores comparable, but gives no label
        pure[margin.argmax()] = True
    return pure.log()[:, None], passed


def surest(entropies: Tensor, dominant: Tensor, n_classes: int) -> Tensor:
    """The lowest entropy among the regions that a class dominates, infinite where there are none: [C]."""
    return entropies.new_full((n_classes,), math.inf).scatter_reduce_(0, dominant, entropies, "amin")


def region_candidates(surest: Tensor) -> Tensor:
    """Eq. 9: R = {c*_q | f_q ∈ F_pur} as a mask [C], from the lowest entropy of each class's pure regions."""
    return surest < math.inf


# ------------------------------------------------------------------------------------------------- cache purification


def anchors(entropies: Tensor, dominant: Tensor, labels: Tensor) -> Tensor:
    """Eq. 12: r*(y) = argmin_{f_q ∈ F_pur} H(f_q), for each label y [n] the index of its region."""
    # paper silent: the entropy is that of the region's full softmax, and only regions that y dominates are candidates
    return entropies.masked_fill(dominant != labels[:, None], math.inf).argmin(-1)


def log_aged(entropies: Tensor, born: Tensor, now: int, delta: float) -> Tensor:
    """Eq. 15: H'_i = H_i · exp((t_i − δ)/δ) with the age t_i = now − born_i, as ln H'_i, which no age overflows."""
    return (now - delta - born).div_(delta).add_(entropies.log())


# ----------------------------------------------------------------------------------------------------- scores and BCE


def aggregate(scores: Tensor, purity: Tensor | None) -> Tensor:
    """Eq. 10 without the cache: ½ s(F_V) + ½ max_{f_q ∈ F_pur} s(f_q) from the scores of regions and image [Q + 1, C].

    Without the regions' purity [Q, 1] Eq. 1, the image alone.
    """
    return scores[-1] if purity is None else torch.lerp((scores[:-1] + purity).amax(0), scores[-1], 0.5)


def bce_and_slope(scores: Tensor, target: Tensor) -> tuple[float, Tensor]:
    """Eq. 11: −Σ_c [ỹ^c ln σ(s^c) + (1 − ỹ^c) ln(1 − σ(s^c))], and its slope σ(s^c) − ỹ^c."""
    loss = F.softplus(scores).sum() - scores.dot(target)
    return loss.item(), scores.sigmoid().sub_(target)


class Purified(NamedTuple):
    """What region purification makes of one image."""

    crops: Tensor  # [Q + 1, D] the regions, and the whole image last
    logits: Tensor  # [Q + 1, C]
    purity: Tensor  # [Q, 1] 0 in F_pur, −∞ outside: added to what a maximum over F_pur is taken of
    dominant: Tensor  # [Q] c* of each region
    entropies: Tensor  # [Q] of the regions that may give labels, infinite for the others
    surest: Tensor  # [C] the lowest of those that the class dominates
    labels: Tensor  # [C] mask: Ỹ = G ∩ R
    n_labels: int
    image_entropy: Tensor  # []
    confident: Tensor  # [k, D] V_f
    confident_slope: Tensor  # [k, C] −dH/dl of each, in its logits l
    loss_entropy: Tensor  # [] L_ent


@dataclass
class PuRF(Method):
    """Purified multi-label test-time adaptation."""

    name: ClassVar[str] = "purf"
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
        self.text_updates = 0
        adjacent = adjacent_embeddings(task.text_bank, SLOTS)  # [C, 3, D]
        if task.text_bank.shape[1] < SLOTS:
            adjacent = adjacent[:, :1].clone()  # three equal slots would stay equal: one stands for them
        self.text_sum = adjacent  # [C, M, D] of the prompts and the accepted samples
        self._set_text()
        self.mu, self.mu_count = task.text.new_zeros(2, n_classes).unbind()
        self.cache_features, self.cache_entropy, self.offsets = empty_cache(n_classes, self.shots, task.text)
        self.cache_born = torch.zeros_like(self.cache_entropy)  # the T of each entry
        self.keys = torch.zeros_like(self.text.T, memory_format=torch.contiguous_format)  # F_cache [D, C]
        self.alignment = alignment_of(self.offsets, self.lambda_2)
        self.has_entries = False
        self.labels = torch.zeros(n_classes, dtype=torch.bool, device=task.text.device)  # Ỹ of the last image

    @property
    def text_bank(self) -> Tensor:
        """E: the running average of the adjacent embeddings [C, 3, D]."""
        return (self.text_sum / (1 + self.text_updates)).expand(-1, SLOTS, -1)

    def _set_text(self) -> None:
        """F_T^c = unit(mean_m unit(E_m^c)), with the lengths that its gradient needs."""
        self.sum_inverse = inverse_length(self.text_sum)  # [C, M, 1]
        total = sum_unit(self.text_sum, self.sum_inverse)
        inverse = inverse_length(total)
        self.text = total * inverse  # [C, D]
        share = self.text_sum.shape[1] / SLOTS * (1 + self.text_updates)
        lengths = (self.sum_inverse * inverse[:, None]).reciprocal_()  # [C, M, 1]
        self.floors = lengths.mul_(self.eps / share)  # eps times what a slope in F_T is divided by, for the optimiser

    @in_inference_mode
    def step(self, x: Observation) -> Tensor:
        self.seen += 1
        seen = self.purify_regions(x)  # Eq. 5-9
        self.labels = seen.labels
        self.purify_cache(seen)  # Eq. 12, 14, 15
        cached = self.cache_scores(seen)  # Eq. 13
        adapted = self.adapt_text(seen, cached)  # Eq. 3, 11, 16-18
        inverse = inverse_length(adapted)
        text = sum_unit(adapted, inverse)  # [C, D], its length is left to the scores
        similarity = aggregate(seen.crops @ text.mT, seen.purity if self.rp else None)
        scores = torch.addcmul(cached, similarity, inverse_length(text)[:, 0], value=self.scale)  # Eq. 2, 10
        self.evolve_text(adapted, inverse, scores)  # Eq. 4
        return scores

    def purify_regions(self, x: Observation) -> Purified:
        """Eq. 5-9: purified regions, confident views and the pseudo-labels on which both agree."""
        regions, views = x.views.get("regions"), x.views.get("views")
        tested = self.rp and self.selection in ("rel", "abs")
        if regions is None or len(regions) == 0 or (self.rp and self.selection == "global_only"):
            regions, tested = x.image[None], False
        q = len(regions)
        crops = (regions, x.image[None]) if views is None else (regions, x.image[None], views)
        features = torch.cat(crops)  # [Q + 1 + V, D] regions, image and views
        logits = scaled_product(features, self.text.mT, self.scale)  # [Q + 1 + V, C]
        p, log_p, entropies = relative_confidence(logits)

        n_views = len(features) - q  # the original is view 0
        kept = lowest(entropies[q:], kept_count(self.keep, n_views)) + q
        h = entropies.index_select(0, kept)
        log_p = log_p.index_select(0, kept).clamp_min_(-60)  # nothing feels less, but denormal numbers are slow
        slope = (log_p + h[:, None]).mul_(log_p.exp_())
        agreeing = logits.index_select(0, kept) if self.view_set == "Vf" or n_views == 1 else logits[q + 1 :]
        proposed = global_candidates(agreeing, self.kappa_g)

        score = logits[:q] / self.scale if self.selection == "abs" else p[:q]
        own, dominant = dominance(score)
        entropies, image_entropy = entropies[:q], entropies[q]
        if tested:
            self.mu, self.mu_count = running_threshold(self.mu, self.mu_count, score, own, dominant, self.mu_stat)
            pure, passed = purity(own, dominant, self.mu)
            entropies = entropies - pure[:, 0] if passed else torch.full_like(entropies, math.inf)
        else:
            pure, passed = torch.zeros_like(own)[:, None], q
        lowest_entropies = surest(entropies, dominant, len(self.mu))
        found = region_candidates(lowest_entropies)
        labels = proposed & found
        n_labels = int(labels.sum())
        self.report({"kept_share": passed / q, "G": proposed.sum(), "R": found.sum(), "Y": n_labels})
        return Purified(
            crops=features[: q + 1],
            logits=logits[: q + 1],
            purity=pure,
            dominant=dominant,
            entropies=entropies,
            surest=lowest_entropies,
            labels=labels,
            n_labels=n_labels,
            image_entropy=image_entropy,
            confident=features.index_select(0, kept),
            confident_slope=slope,
            loss_entropy=h.mean(),  # Eq. 16: L_ent = mean_{x_i ∈ V_f} H(p(x_i))
        )

    def purify_cache(self, seen: Purified) -> None:
        """Eq. 12, 14, 15: a label's anchor takes a free slot of its class, or that of the largest H' if lower."""
        self.report({"entries_in": 0, "entries_out": 0})
        if self.ep and seen.n_labels == 0:
            return
        whole = not self.ep or self.cache_mode == "global_multi"
        labels = seen.labels if self.ep else F.one_hot(seen.logits[-1].argmax(), len(self.mu)).bool()
        offered = seen.image_entropy.expand(len(labels)) if whole else seen.surest  # [C]
        worst, slots = self.log_priorities().max(-1)  # [C] the first of equals, so slots fill from the front
        entering = ((offered.log() < worst) & labels).nonzero()[:, 0]
        if len(entering):
            self.report({"entries_in": len(entering), "entries_out": (worst[entering] < math.inf).sum()})
            rows = torch.full_like(entering, -1) if whole else anchors(seen.entropies, seen.dominant, entering)
            self.write(entering, slots[entering], seen.crops[rows], offered[entering])

    def log_priorities(self) -> Tensor:
        """Eq. 15 for every slot [C, L], infinite where it is free."""
        if not self.tr:
            return self.cache_entropy.log()
        return log_aged(self.cache_entropy, self.cache_born, self.seen, self.delta)

    def write(self, c: Tensor, slot: Tensor, features: Tensor, entropies: Tensor) -> None:
        """Eq. 14: one entry (f, H, t = 0) for each of the classes [n]."""
        self.cache_features[c, slot] = features
        self.cache_entropy[c, slot] = entropies  # the raw one: age is applied anew at every comparison
        self.cache_born[c, slot] = self.seen
        self.keys[:, c] = unit(self.cache_features[c].sum(1)).mT  # a free slot is zero
        self.offsets[c] = cache_offset(self.alpha, self.beta)
        self.alignment = alignment_of(self.offsets, self.lambda_2)
        self.has_entries = True

    def cache_scores(self, seen: Purified) -> Tensor:
        """Eq. 13: s_cache^c = A(max_{f_q ∈ F_pur} ⟨f_q, F_cache^c⟩) L_p with A(x) = α e^{−β(1−x)}."""
        if not self.ep or self.cache_mode in ("region_globalretrieve", "global_multi"):
            cosine = seen.crops[-1] @ self.keys
        elif self.cache_mode == "region_avg":
            weights = seen.purity.exp()[:, 0].to(seen.crops.dtype)  # [Q]
            cosine = weights @ seen.crops[:-1] @ self.keys / weights.sum()
        else:
            cosine = (seen.crops[:-1] @ self.keys).add_(seen.purity).amax(0)
        # paper silent: L_p says which classes have an entry, so that no pseudo-label leaks into the scores
        return cache_logits(cosine, self.offsets, self.beta)

    def adapt_text(self, seen: Purified, cached: Tensor) -> Tensor:
        """Eq. 3, 18: E + ΔF_T [C, M, D], of any length, after one step on L_ent + λ₁ L_BCE + λ₂ L_align."""
        per_logit = -self.scale / len(seen.confident)
        text_slope = scaled_product(seen.confident_slope.mT, seen.confident, per_logit)  # [C, D]
        bce = align = 0.0
        if self.rp and (self.empty_labels == "zero" or seen.n_labels):
            bce, slope = self.label_loss(seen, cached)
            per_cosine = 0.5 * (self.scale if self.bce_space == "scaled" else 1.0)
            text_slope.addmm_(slope.mT, seen.crops, alpha=self.lambda_1 * per_cosine)
        # Eq. 17. paper silent: image to text, temperature 0.01, mean over the classes with an entry, as in DPE and ReTA
        if self.has_entries:
            align, slope = info_nce(self.text @ self.keys, self.alignment)
            text_slope.addmm_(slope, self.keys.mT)
        self.report({"loss_entropy": seen.loss_entropy, "loss_bce": bce, "loss_align": align})

        # Back through F_T = unit(mean_m unit(E_m)): both directions first, the lengths with the optimiser.
        text_slope.addcmul_(self.text, dot(self.text, text_slope)[:, None], value=-1)
        mean_slope = text_slope[:, None]  # [C, 1, D]
        along = (self.text_sum @ mean_slope.mT).mul_(self.sum_inverse.square())  # [C, M, 1]
        slope = tangential(mean_slope, self.text_sum, along)
        return adamw_step(self.text_sum, slope, self.floors, (1 + self.text_updates) * self.lr)

    def label_loss(self, seen: Purified, cached: Tensor) -> tuple[float, Tensor]:
        """Eq. 11 before the step, and its slope in the scores through each of regions and image, [Q + 1, C]."""
        local, region = (seen.logits[:-1] + seen.purity).max(0)  # of each class the strongest region
        scores = torch.lerp(local, seen.logits[-1], 0.5).add_(cached)
        if self.bias:
            scores += self.bias
        if self.bce_space == "cosine":
            scores /= self.scale
        loss, slope = bce_and_slope(scores, seen.labels.to(scores.dtype))
        slopes = torch.zeros_like(seen.logits).scatter_(0, region[None], slope[None])
        slopes[-1] = slope
        return loss, slopes

    def evolve_text(self, adapted: Tensor, inverse: Tensor, scores: Tensor) -> None:
        """Eq. 4: F_T ← running average of the adapted F_T."""
        # paper silent: only confident images count, the prompt counts as the first, and the average is not normalised
        updated = normalised_entropy(uncertainty(scores), len(scores)) < self.gate
        if updated:
            self.text_updates += 1
            self.text_sum.addcmul_(adapted, inverse)
            self._set_text()
        self.report({"text_updated": updated})


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [PuRF]
