"""BCP: class scores corrected by how often each class was seen together with the image's most confident one.

"Multi-Label Test-Time Adaptation with Bayesian Conditional Priors", ICML 2026. An unverified reading: no code is
public and the paper could not be read in full. The correction is the abstract's; the threshold, the smoothing, the
order of update and prediction and what happens to the anchor are not known, and are fields here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import classifier
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task


@dataclass
class BCP(Method):
    """s_k = z_k + weight · (ln P(k | a) − ln P(k)): the pointwise mutual information of class k with the anchor a."""

    name: ClassVar[str] = "bcp"
    title: ClassVar[str] = "BCP"
    status: ClassVar[Status] = "reading of the paper"
    setting: ClassVar[Setting] = "online"
    paper: ClassVar[Paper | None] = Paper(
        "Multi-Label Test-Time Adaptation with Bayesian Conditional Priors",
        "ICML 2026",
        "https://arxiv.org/abs/2606.12925",
    )

    mu: float = 0.4  # μ  probability above which the most confident class is an anchor; the paper's is unknown
    alpha: float = 1.0  # α  images that the smoothing of both estimates counts for; ours
    weight: float = 1.0  # of the correction
    order: Literal["after", "before"] = "after"  # the statistics take the image in after or before its prediction
    anchor_score: Literal["keep", "add"] = "keep"  # the anchor's own logit stays, or is corrected too
    pmi_min: float | None = None  # lower bound of the correction; null: none
    pmi_max: float | None = None  # upper bound of the correction; null: none

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.alpha > 0, "alpha is above 0: without smoothing the first images score −∞")

    def start(self, task: Task) -> None:
        n_classes = len(task.text)
        # In double precision: at a scale of 100 single logits are off by more than the golden files allow, and in the
        # sums over the stream a small probability must not vanish beside a large one.
        self.classifier = classifier(task.text.double(), task.scale)  # [D, C]
        self.n = 0  # images so far
        self.m = task.text.new_zeros(n_classes, dtype=torch.float64)
        self.U = task.text.new_zeros(n_classes, n_classes, dtype=torch.float64)

    def step(self, x: Observation) -> Tensor:
        logits = x.image.double() @ self.classifier  # z  [C]
        probs = logits.softmax(0)
        if self.order == "before":
            self.observe(probs)
        scores = self.correct(logits, self.anchor(probs))
        if self.order == "after":
            self.observe(probs)
        return scores.to(x.image.dtype)

    def observe(self, probs: Tensor) -> None:
        """n ← n + 1, m ← m + p, U ← U + p pᵀ: of the uncorrected probabilities, whether there is an anchor or not."""
        self.n += 1
        self.m += probs
        self.U.addr_(probs, probs)

    def anchor(self, probs: Tensor) -> int | None:
        """a = argmax_c p_c if p_a > μ and anything was seen before."""
        a = int(probs.argmax())
        return a if self.n and probs[a].item() > self.mu else None

    def correct(self, logits: Tensor, a: int | None) -> Tensor:
        """s_k = z_k + weight · PMI(k, a) for k ≠ a; z where there is no anchor."""
        if a is None:
            return logits
        correction = self.pmi(a).mul_(self.weight)
        if self.anchor_score == "keep":
            correction[a] = 0
        return logits + correction

    def pmi(self, a: int) -> Tensor:
        """ln P(k | a) − ln P(k), P(k) = (m_k + α/C) / (n + α) and P(k | a) = (U_ak + α P(k)) / (m_a + α): [C].

        The conditional is drawn to the marginal, so that an anchor of which nothing is known corrects nothing.
        """
        marginal = (self.m + self.alpha / len(self.m)) / (self.n + self.alpha)
        conditional = (self.U[a] + self.alpha * marginal) / (self.m[a] + self.alpha)
        pmi = conditional.log_() - marginal.log()
        return pmi if self.pmi_min is None and self.pmi_max is None else pmi.clamp_(self.pmi_min, self.pmi_max)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [BCP]
