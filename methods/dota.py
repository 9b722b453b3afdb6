"""DOTA: a Gaussian per class, estimated from the stream, beside CLIP's own classifier.

"DOTA: DistributiOnal Test-time Adaptation of Vision-Language Models", NeurIPS 2025. As the released code computes it,
but for its half precision. Its state is one D × D matrix per class: 52 MB for 80 classes of 512 dimensions, of which
the release keeps both halves (84 MB). The multi-label use is nobody's official setting.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import classifier, dot, select_confident, stack_views
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import AugMix


class Scatters:
    """A symmetric matrix [D, D] per class, as strips of rows that end with the block on the diagonal.

    A step passes over all of it, and that is most of what the step takes: of four strips, 5/8 are left.
    """

    def __init__(self, n_classes: int, first: Tensor, strips: int = 4) -> None:
        dim = len(first)
        starts = range(0, dim, -(-dim // strips))
        self.rows = [slice(a, min(a + starts.step, dim)) for a in starts]
        self.strips = [first[rows, : rows.stop].expand(n_classes, -1, -1).clone() for rows in self.rows]

    def add(self, classes: Sequence[int], weights: Tensor, deviations: Tensor) -> None:
        """A_j ← A_j + Σ_b w_jb d_jb d_jbᵀ of these classes j, with weights [C, n] and deviations [C, n, D].

        If they are most, all classes are passed over at once: the others' weights must be next to nothing.
        """
        weighted = (weights[..., None] * deviations).mT.contiguous()  # [C, D, n]
        for rows, strip in zip(self.rows, self.strips, strict=True):
            if 2 * len(classes) > len(strip):
                strip.baddbmm_(weighted[:, rows], deviations[..., : rows.stop])
            else:
                for j in classes:
                    strip[j].addmm_(weighted[j, rows], deviations[j, :, : rows.stop])

    def combined(self, weights: Tensor) -> Tensor:
        """Σ_j w_j A_j with weights [C], in double precision: [D, D]."""
        lower = weights.new_zeros(self.rows[-1].stop, self.rows[-1].stop, dtype=torch.float64)
        for rows, strip in zip(self.rows, self.strips, strict=True):
            lower[rows, : rows.stop] = (weights @ strip.flatten(1)).view(strip.shape[1:])
        return lower.tril() + lower.tril(-1).T

    def state_dict(self) -> dict[str, Any]:
        return {"strips": [strip.clone() for strip in self.strips]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.strips = [strip.clone() for strip in state["strips"]]


class Glance(NamedTuple):
    """An image's most confident views."""

    features: Tensor  # X  [n, D]
    probs: Tensor  # Y  [n, C]
    logits: Tensor  # z  [C] their mean


@dataclass
class DOTA(Method):
    """final = z + w g, g_j = ⟨x̄, Λ μ_j⟩ − ½ ⟨μ_j, Λ μ_j⟩: the log density of class j's Gaussian, w growing with what
    was seen."""

    name: ClassVar[str] = "dota"
    title: ClassVar[str] = "DOTA"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "online"
    paper: ClassVar[Paper | None] = Paper(
        "DOTA: DistributiOnal Test-time Adaptation of Vision-Language Models",
        "NeurIPS 2025",
        "https://arxiv.org/abs/2409.19375",
    )
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(63)}
    # The official single-label sets (ViT-B/16, ensemble prompts). Only ImageNet's four variants use more than one view.
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "imagenet": {"eps": 1e-4, "eta": 0.2, "rho": 0.005},
        "imagenet-a": {"eps": 1e-4, "eta": 0.5, "rho": 0.02},
        "imagenet-v2": {"eps": 1e-4, "eta": 0.1, "rho": 0.01},
        "imagenet-r": {"eps": 1e-4, "eta": 0.3, "rho": 0.0025},
        "imagenet-s": {"eps": 1e-4, "eta": 0.8, "rho": 0.03},
        "caltech101": {"eps": 2e-3, "eta": 0.3, "rho": 0.02},
        "dtd": {"eps": 1e-4, "eta": 0.3, "rho": 0.02},
        "eurosat": {"eps": 1e-4, "eta": 3.0, "rho": 0.05},
        "aircraft": {"eps": 1e-4, "eta": 0.2, "rho": 0.01},
        "food101": {"eps": 4e-5, "eta": 0.1, "rho": 0.01},
        "flowers": {"eps": 1e-4, "eta": 0.2, "rho": 0.02},
        "pets": {"eps": 1e-4, "eta": 0.3, "rho": 0.02},
        "cars": {"eps": 1e-4, "eta": 0.3, "rho": 0.01},
        "sun397": {"eps": 1e-4, "eta": 0.2, "rho": 0.01},
        "ucf101": {"eps": 1e-4, "eta": 0.4, "rho": 0.02},
    }

    eps: float = 1e-4  # ε  share of the identity in the pooled covariance
    sigma: float = 2e-3  # σ  variance at first
    eta: float = 0.3  # η  largest weight of the Gaussians' scores
    rho: float = 0.02  # ρ  how fast that weight grows
    mu_0: float = 1e-3  # every entry of every mean at first: not the text
    keep: float = 0.1  # share of the views, the most confident, that predict and teach

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.keep <= 1, "keep is a share of the views, above 0 and at most 1")
        self.require(0 <= self.eps <= 1, "eps is a share, between 0 and 1")
        self.require(self.sigma > 0, "sigma is above 0")

    def start(self, task: Task) -> None:
        n_classes, dim = task.text.shape
        self.classifier = classifier(task.text, task.scale)  # [D, C]
        self.mu = task.text.new_full((n_classes, dim), self.mu_0)  # [C, D]
        self.c = task.text.new_ones(n_classes)  # images' worth of evidence
        covariance = self.sigma * torch.eye(dim, dtype=task.text.dtype, device=task.text.device)
        self.scatters = Scatters(n_classes, covariance)  # c_j Σ_j
        self.directions = self.mu.T.double() / self.sigma  # Λ μᵀ  [D, C]; at first without ε

    def step(self, x: Observation) -> Tensor:
        glance = self.look(x)
        scores = glance.logits + self.weight(len(glance.features)) * self.log_density(glance.features.mean(0))
        self.learn(glance)  # after the prediction
        return scores

    def look(self, x: Observation) -> Glance:
        views = stack_views(x.image, x.views.get("views"))  # [V, D]
        logits = views @ self.classifier  # [V, C]
        kept = select_confident(logits, self.keep)
        return Glance(views[kept], logits[kept].softmax(1), logits[kept].mean(0))

    def weight(self, n_views: int) -> float:
        """w = min(ρ mean_j(c_j) / n, η)."""
        return min(self.rho * self.c.mean().item() / n_views, self.eta)

    def log_density(self, feature: Tensor) -> Tensor:
        """g_j = ⟨x̄, Λ μ_j⟩ − ½ ⟨μ_j, Λ μ_j⟩, x̄ [D] not normalised again: [C]."""
        offsets = dot(self.mu.double(), self.directions.T) / 2
        return (feature.double() @ self.directions - offsets).to(feature.dtype)

    def learn(self, glance: Glance) -> None:
        """Σ_j ← (c_j Σ_j + Σ_b Y_bj (x_b − μ_j)(x_b − μ_j)ᵀ) / (c_j + r_j) about the old μ_j, and then
        μ_j ← (c_j μ_j + Σ_b Y_bj x_b) / (c_j + r_j), c_j ← c_j + r_j, with r_j = Σ_b Y_bj."""
        weights = glance.probs.T  # [C, n]
        r = weights.sum(1)
        # A_j is at least σ I and a deviation at most 2 long: what is below this is lost in rounding.
        taught = r > torch.finfo(r.dtype).eps * self.sigma / 4
        self.scatters.add(taught.nonzero().flatten().tolist(), weights, glance.features - self.mu[:, None])
        c = self.c + r
        self.mu = (self.c[:, None] * self.mu + weights @ glance.features) / c[:, None]
        self.c = c
        self.directions = torch.cholesky_solve(self.mu.T.double(), torch.linalg.cholesky(self.pooled()))

    def pooled(self) -> Tensor:
        """Λ⁻¹ = (1 − ε) mean_j Σ_j + ε I: a plain mean over the classes, not weighted by c."""
        mean = self.scatters.combined(1 / (len(self.c) * self.c))
        return ((1 - self.eps) * mean).diagonal_scatter((1 - self.eps) * mean.diagonal() + self.eps)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [DOTA]
