"""BCA: Bayesian class adaptation of the class embeddings and of a prior over what each of them stands for.

Zhou et al., "Bayesian Test-Time Adaptation for Vision-Language Models", CVPR 2025. The official code could not be had:
this follows two third-party ports, which agree on the algorithm; the official values per dataset are unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import Pool, low_entropy_pool, scaled_product, stack_views
from tta_bench.functional.prototypes import unit
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import AugMix


@dataclass
class BCA(Method):
    """f = softmax(scale ⟨x, μ⟩) @ prior: class embeddings μ and their prior follow the images that they explain."""

    name: ClassVar[str] = "bca"
    title: ClassVar[str] = "BCA"
    status: ClassVar[Status] = "port"
    setting: ClassVar[Setting] = "online"
    paper: ClassVar[Paper | None] = Paper(
        "Bayesian Test-Time Adaptation for Vision-Language Models", "CVPR 2025", "https://arxiv.org/abs/2503.09248"
    )
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(63)}

    tau_1: float = 0.05  # τ₁  posterior above which the winning class's embedding moves
    count_1: float = 20000.0  # images that the text counts for: a μ that drifts among the images attracts them all
    tau_2: float = 0.65  # τ₂  posterior above which the winning class's prior moves
    count_2: float = 1.0  # images that the first prior, the identity, counts for
    keep: float = 0.1  # share of the views, the most confident, that are pooled
    score: Literal["logits", "native"] = "logits"  # the posterior as logits on CLIP's offset, or as it is

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.keep <= 1, "keep is a share of the views, above 0 and at most 1")
        self.require(self.count_1 >= 0 and self.count_2 >= 0, "count_1 and count_2 can't be negative")

    def start(self, task: Task) -> None:
        n_classes = len(task.text)
        self.scale = task.scale
        self.mu = task.text.clone()  # [C, D]
        self.prior = task.text.new_ones(n_classes).diag()  # [C, C]  row: embedding, column: class
        self.count_mu = task.text.new_full((n_classes,), self.count_1)
        self.count_prior = task.text.new_full((n_classes,), self.count_2)

    def step(self, x: Observation) -> Tensor:
        pool = self.summarise(x)
        posterior = self.posterior(pool.logits)
        self.learn(pool.feature, posterior)  # after the prediction
        return posterior if self.score == "native" else posterior_logits(posterior, pool.logits)

    def summarise(self, x: Observation) -> Pool:
        """The mean of the views that are most confident under the adapted embeddings."""
        views = stack_views(x.image, x.views.get("views"))  # [V, D]
        return low_entropy_pool(views, scaled_product(views, self.mu.T, self.scale), self.keep)

    def posterior(self, logits: Tensor) -> Tensor:
        """f_c = Σ_m softmax_m(z) prior[m, c]: [C]."""
        return logits.softmax(0) @ self.prior

    def learn(self, feature: Tensor, posterior: Tensor) -> None:
        """The winner's μ moves towards x and its prior towards f, each if the posterior is beyond its τ."""
        y = int(posterior.argmax())
        confidence = posterior[y].item()
        if confidence > self.tau_1:
            n = self.count_mu[y]
            self.mu[y] = unit((n * self.mu[y] + feature) / (n + 1))
            self.count_mu[y] += 1
        if confidence > self.tau_2:
            n = self.count_prior[y]
            self.prior[y] = (n * self.prior[y] + posterior) / (n + 1)
            self.count_prior[y] += 1


def posterior_logits(posterior: Tensor, logits: Tensor) -> Tensor:
    """ln(f + 1e-30) + logsumexp(z): f [C] as logits on CLIP's own offset; they are z where f is softmax(z)."""
    return (posterior + 1e-30).log_() + logits.logsumexp(-1)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [BCA]
