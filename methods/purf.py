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
from tta_bench.functional import entropy_of_logits, normalised_entropy, select_confident, stack_views
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
    running_average,
    tangential,
    unit,
)
from tta_bench.views import AugMix, RandomCrops

SLOTS = 3  # adjacent embeddings per class, as in ReTA
SLACK = 1e-6  # identical regions must not fail their own mean

# ------------------------------------------------------------------------------------------------ region purification


def global_candidates(logits: Tensor, kappa_g: float) -> Tensor:
    """Eq. 5: G = ∩_{x_i ∈ V} Top-κ_g(p(x_i)), from the views' logits [V, C], as a mask [C]."""
    k = max(1, math.floor(kappa_g * logits.shape[1] + 1e-9))  # paper silent: rounded down, at least one class
    top = logits.argsort(dim=-1, descending=True, stable=True)[:, :k]  # of equal logits the first class comes first
    return torch.zeros_like(logits, dtype=torch.bool).scatter_(1, top, True).all(0)


def relative_confidence(cosine: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Eq. 6: ŝ_q^c = softmax_c(S⟨f_q, F_T^c⟩), from the cosines [Q, C], and its entropy [Q]."""
    log_p = (scale * cosine).log_softmax(-1)
    p = log_p.exp()
    return p, -(p * log_p).sum(-1)


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
    regions = torch.zeros_like(mu).index_add_(0, dominant, torch.ones_like(own))  # [C] how many each class dominates
    excess = torch.zeros_like(mu).index_add_(
        0, dominant, own - mu.index_select(0, dominant)
    )  # [C] regions · (s̄_c − μ_c)
    if stat == "pooled":
        n = n + regions
        return torch.addcdiv(mu, excess, n.clamp_min(1)), n
    n = n + regions.clamp(max=1)
    return torch.addcdiv(mu, excess, n.clamp_min(1) * regions.clamp_min(1)), n


def pure_regions(own: Tensor, dominant: Tensor, mu: Tensor) -> tuple[Tensor, bool]:
    """Eq. 8: F_pur = {f_q | ŝ_q^{c*} ≥ μ_{c*}} as the regions' indices [n], and whether any region passed."""
    margin = own - mu.index_select(0, dominant)
    pure = (margin >= -SLACK).nonzero()[:, 0]
    if len(pure) == 0:  # paper silent: the nearest miss keeps the scores comparable, but gives no label
        return margin.argmax()[None], False
    return pure, True


def region_candidates(dominant: Tensor, n_classes: int) -> Tensor:
    """Eq. 9: R = {c*_q | f_q ∈ F_pur} as a mask [C]."""
    return torch.zeros(n_classes, dtype=torch.bool, device=dominant.device).index_fill_(0, dominant, True)


# ------------------------------------------------------------------------------------------------- cache purification


def anchors(entropies: Tensor, dominant: Tensor, labels: Tensor) -> Tensor:
    """Eq. 12: r*(y) = argmin_{f_q ∈ F_pur} H(f_q), for each label y [n] the index of its region."""
    # paper silent: the entropy is that of the region's full softmax, and only regions that y dominates are candidates
    return entropies.masked_fill(dominant != labels[:, None], math.inf).argmin(-1)


def aged(entropies: Tensor, age: Tensor, delta: float) -> Tensor:
    """Eq. 15: H'_i = H_i · exp((t_i − δ)/δ)."""
    return (age / delta - 1).clamp_(max=60).exp_().mul_(entropies)  # bounded: H' stays below that of a free slot


# ----------------------------------------------------------------------------------------------------- scores and BCE


def aggregate(image: Tensor, regions: Tensor | None, text: Tensor) -> Tensor:
    """Eq. 10 without the cache: ½⟨F_V, F_T^c⟩ + ½ max_{f_q ∈ F_pur} ⟨f_q, F_T^c⟩; without regions Eq. 1, [C]."""
    whole = image @ text
    return whole if regions is None else (regions @ text).amax(0).add_(whole).mul_(0.5)


def bce_and_slope(scores: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Eq. 11: −Σ_c [ỹ^c ln σ(s^c) + (1 − ỹ^c) ln(1 − σ(s^c))], and its slope σ(s^c) − ỹ^c."""
    return F.softplus(scores).sum() - scores.dot(target), scores.sigmoid() - target


class Purified(NamedTuple):
    """What region purification makes of one image."""

    regions: Tensor  # [n, D] F_pur
    cosine: Tensor  # [n, C] of each with the text
    dominant: Tensor  # [n] c* of each
    entropy: Tensor  # [n] of each
    image_logits: Tensor  # [C] of the whole image
    confident: Tensor  # [k, D] V_f
    confident_logits: Tensor  # [k, C]
    labels: Tensor  # [C] mask: Ỹ = G ∩ R


@dataclass
class PuRF(Method):
    """Purified multi-label test-time adaptation."""

    name: ClassVar[str] = "purf"
    recipes: ClassVar[Mapping[str, Views]] = {"views": AugMix(63), "regions": RandomCrops(50, side=(0.5, 0.8))}
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
        self.require(self.delta > 0, "delta is an age in images, above 0")
        self.require(0 < self.kappa_g <= 1, "kappa_g is a share of the classes, above 0 and at most 1")

    def start(self, task: Task) -> None:
        n_classes = len(task.text)
        self.scale, self.bias = task.scale, task.bias
        self.seen = 0  # T
        self.text_updates = 0
        self._set_text(adjacent_embeddings(task.text_bank, SLOTS))
        self.mu, self.mu_count = task.text.new_zeros(2, n_classes).unbind()
        self.cache_features, self.cache_entropy, self.log_present = empty_cache(n_classes, self.shots, task.text)
        self.cache_born = torch.zeros(n_classes, self.shots, dtype=torch.long, device=task.text.device)
        self.keys = torch.zeros_like(self.text)  # F_cache [D, C]
        self.labels = torch.zeros(n_classes, dtype=torch.bool, device=task.text.device)  # Ỹ of the last image

    def _set_text(self, bank: Tensor) -> None:
        """F_T^c = unit(mean_m unit(E_m^c)), with the lengths that its gradient needs."""
        self.text_bank, self.bank_length = bank, length(bank)  # [3, D, C], not unit-norm once it has been averaged
        mean = mean_unit(bank, self.bank_length)
        self.text_length = length(mean)
        self.text = mean / self.text_length  # [D, C]

    def step(self, x: Observation) -> Tensor:
        self.seen += 1
        seen = self.purify_regions(x)  # Eq. 5-9
        self.labels = seen.labels
        self.purify_cache(x.image, seen)  # Eq. 12, 14, 15
        cached = self.cache_scores(x.image, seen.regions)  # Eq. 13
        bank = self.adapt_text(x.image, seen, cached)  # Eq. 3, 11, 16-18
        bank_length = length(bank)
        text = unit(mean_unit(bank, bank_length))
        scores = self.scale * aggregate(x.image, seen.regions if self.rp else None, text) + cached  # Eq. 2, 10
        self.evolve_text(bank, bank_length, scores)  # Eq. 4
        return scores

    def purify_regions(self, x: Observation) -> Purified:
        """Eq. 5-9: purified regions, confident views and the pseudo-labels on which both agree."""
        n_classes = len(self.mu)
        views = stack_views(x.image, x.views.get("views"))  # [1 + V, D]
        logits = (views @ self.text).mul_(self.scale)
        kept = select_confident(logits, self.keep)
        confident, confident_logits = views.index_select(0, kept), logits.index_select(0, kept)
        agreeing = confident_logits if self.view_set == "Vf" or len(views) == 1 else logits[1:]
        proposed = global_candidates(agreeing, self.kappa_g)

        regions = x.views.get("regions")
        if regions is None or len(regions) == 0 or (self.rp and self.selection == "global_only"):
            regions, tested = x.image[None], False
        else:
            tested = self.rp and self.selection != "all"
        cosine = regions @ self.text  # [Q, C]
        p, entropy = relative_confidence(cosine, self.scale)
        score = cosine if self.selection == "abs" else p
        own, dominant = dominance(score)
        share, passed = 1.0, True
        if tested:
            self.mu, self.mu_count = running_threshold(self.mu, self.mu_count, score, own, dominant, self.mu_stat)
            pure, passed = pure_regions(own, dominant, self.mu)
            share = len(pure) / len(regions) if passed else 0.0
            regions, cosine, dominant, entropy = (t.index_select(0, pure) for t in (regions, cosine, dominant, entropy))
        found = region_candidates(dominant if passed else dominant[:0], n_classes)
        labels = proposed & found
        self.report({"kept_share": share, "G": proposed.sum(), "R": found.sum(), "Y": labels.sum()})
        return Purified(regions, cosine, dominant, entropy, logits[0], confident, confident_logits, labels)

    def purify_cache(self, image: Tensor, seen: Purified) -> None:
        """Eq. 12: which features enter the cache, with which entropy and as which class."""
        labels = seen.labels.nonzero()[:, 0] if self.ep else seen.image_logits.argmax()[None]
        if self.ep and self.cache_mode != "global_multi":
            chosen = anchors(seen.entropy, seen.dominant, labels)
            self.write(labels, seen.regions[chosen], seen.entropy[chosen])
        else:
            self.write(labels, image.expand(len(labels), -1), entropy_of_logits(seen.image_logits).expand(len(labels)))

    def write(self, labels: Tensor, features: Tensor, entropies: Tensor) -> None:
        """Eq. 14, 15: one candidate for each of the classes [n] takes a free slot, or the largest H' if lower."""
        priority = self.cache_entropy[labels]  # [n, L], infinite where a slot is free
        if self.tr:
            priority = aged(priority, self.seen - self.cache_born[labels], self.delta)
        slot = priority.argmax(-1)  # the first of equals, so slots fill from the front
        worst = priority.gather(1, slot[:, None])[:, 0]
        enters = (entropies < worst).nonzero()[:, 0]
        replaced = (worst[enters] < math.inf).sum() if len(enters) else 0
        self.report({"entries_in": len(enters), "entries_out": replaced})
        if len(enters) == 0:
            return
        c, slot = labels[enters], slot[enters]
        self.cache_features[c, slot] = features[enters]
        self.cache_entropy[c, slot] = entropies[enters]  # the raw one: age is applied anew at every comparison
        self.cache_born[c, slot] = self.seen
        self.log_present[c] = 0.0
        self.keys[:, c] = unit(mean_entry(self.cache_features[c], self.cache_entropy[c]).mT)

    def cache_scores(self, image: Tensor, regions: Tensor) -> Tensor:
        """Eq. 13: s_cache^c = A(max_{f_q ∈ F_pur} ⟨f_q, F_cache^c⟩) L_p with A(x) = α e^{−β(1−x)}."""
        if not self.ep or self.cache_mode in ("region_globalretrieve", "global_multi"):
            cosine = image @ self.keys
        elif self.cache_mode == "region_avg":
            cosine = regions.mean(0) @ self.keys
        else:
            cosine = (regions @ self.keys).amax(0)
        # paper silent: L_p says which classes have an entry, so that no pseudo-label leaks into the scores
        return cache_logits(cosine, self.log_present, self.alpha, self.beta)

    def adapt_text(self, image: Tensor, seen: Purified, cached: Tensor) -> Tensor:
        """Eq. 3, 18: E + ΔF_T [3, D, C], not normalised, after one step on L_ent + λ₁ L_BCE + λ₂ L_align."""
        # Eq. 16: L_ent = mean_{x_i ∈ V_f} H(p(x_i))
        h, slope = entropy_and_slope(seen.confident_logits)
        text_slope = seen.confident.mT @ slope.mul_(self.scale / len(h))  # [D, C]
        bce, align = torch.zeros_like(h[0]), torch.zeros_like(h[0])
        if self.rp and (self.empty_labels == "zero" or bool(seen.labels.any())):
            bce, bce_slope, region = self.label_loss(image, seen, cached)
            text_slope.addr_(image, bce_slope, alpha=self.lambda_1)
            strongest = torch.zeros_like(seen.cosine).scatter_(0, region[None], bce_slope[None])  # [n, C]
            text_slope.addmm_(seen.regions.mT, strongest, alpha=self.lambda_1)
        # Eq. 17. paper silent: image to text, temperature 0.01, mean over the classes with an entry, as in DPE and ReTA
        if self.log_present.max() == 0:
            align, align_slope = info_nce(self.keys.mT @ self.text, self.log_present)
            text_slope.addmm_(self.keys, align_slope, alpha=self.lambda_2 / TEMPERATURE)
        self.report({"loss_entropy": h.mean(), "loss_bce": bce, "loss_align": align})

        # Back through F_T = unit(mean_m unit(E_m)): both directions first, the lengths with the optimiser.
        mean_slope = tangential(text_slope, self.text)
        slope = tangential(mean_slope, self.text_bank, self.bank_length)
        lengths = SLOTS * self.text_length * self.bank_length
        return adamw_step(self.text_bank, slope, lengths, self.lr, self.eps)

    def label_loss(self, image: Tensor, seen: Purified, cached: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Eq. 11 before the step, its slope in ⟨F_V, F_T^c⟩ [C], and the region [C] whose cosine has the same slope."""
        local, region = seen.cosine.max(0)
        scores = torch.add(cached + self.bias, local.add_(image @ self.text), alpha=0.5 * self.scale)
        shrink = 1.0 if self.bce_space == "scaled" else 1 / self.scale
        loss, slope = bce_and_slope(shrink * scores, seen.labels.to(scores.dtype))
        return loss, slope.mul_(0.5 * self.scale * shrink), region

    def evolve_text(self, bank: Tensor, bank_length: Tensor, scores: Tensor) -> None:
        """Eq. 4: F_T ← running average of the adapted F_T."""
        # paper silent: only confident images count, the prompt counts as the first, and the average is not normalised
        updated = normalised_entropy(entropy_of_logits(scores).item(), len(scores)) < self.gate
        if updated:
            self.text_updates += 1
            self._set_text(running_average(self.text_bank, bank, bank_length, self.text_updates))
        self.report({"text_updated": updated})


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [PuRF]
