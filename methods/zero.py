"""ZERO: the most confident views vote, each for one class, as if the softmax had no temperature.

Farina et al., "Frustratingly Easy Test-Time Adaptation of Vision-Language Models", NeurIPS 2024. As the released code
computes it, whose temperature is the machine epsilon of the cosines' precision: in half precision that is no vote but
a softmax of scale 1024.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import classifier, entropy_of_logits, kept_count, lowest, stack_views
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import Plain

EPSILON = {"fp32": 2.0**-23, "fp16": 2.0**-10}


class Ballot(NamedTuple):
    """The views of one image, split into those that vote and the others."""

    kept: Tensor  # [k] the most confident views, most confident first
    rest: Tensor  # [V − k] the others, in the same order
    cosines: Tensor  # [V, C]
    log_marginal: Tensor  # [C] ln of the mean probabilities of those kept


@dataclass
class ZERO(Method):
    """votes[c] = Σ over the kept views of softmax_c(cos / τ), τ → 0; a tie goes to the next view that can break it."""

    name: ClassVar[str] = "zero"
    title: ClassVar[str] = "ZERO"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "episodic"
    paper: ClassVar[Paper | None] = Paper(
        "Frustratingly Easy Test-Time Adaptation of Vision-Language Models",
        "NeurIPS 2024",
        "https://arxiv.org/abs/2405.18330",
    )
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": Plain(63)}

    keep: float = 0.3  # share of the views, the most confident, that vote
    temperature: Literal["fp32", "fp16"] | float = "fp32"  # τ  machine epsilon of a precision, or a number
    tie_break: Literal["official", "clean"] = "official"  # if no view can break a tie: the release's slip, or its aim
    score: Literal["logits", "native"] = "logits"  # ln(votes + marginal), which orders equal counts; or the votes

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.keep <= 1, "keep is a share of the views, above 0 and at most 1")
        known = EPSILON.get(self.temperature, 0.0) if isinstance(self.temperature, str) else self.temperature
        self.require(0 < known < math.inf, "temperature is fp32, fp16 or a number above 0")

    def start(self, task: Task) -> None:
        self.scale = task.scale
        self.classifier = classifier(task.text, 1.0)  # [D, C]

    def step(self, x: Observation) -> Tensor:
        ballot = self.ballot(x)
        votes = self.break_tie(self.count(ballot), ballot)
        return votes if self.score == "native" else torch.logaddexp(votes.log(), ballot.log_marginal)

    def ballot(self, x: Observation) -> Ballot:
        """The ⌊keep·V⌋ views of lowest entropy, the original among the candidates, and the rest."""
        cosines = stack_views(x.image, x.views.get("views")) @ self.classifier  # [V, C]
        logits = self.scale * cosines
        order = lowest(entropy_of_logits(logits), len(logits))
        k = kept_count(self.keep, len(logits))
        log_marginal = logits[order[:k]].log_softmax(1).logsumexp(0) - math.log(k)
        return Ballot(order[:k], order[k:], cosines, log_marginal)

    def count(self, ballot: Ballot) -> Tensor:
        """votes[c] = Σ_{v kept} softmax_c(cos_v / τ): of the cosines, not of the scaled logits."""
        tau = EPSILON[self.temperature] if isinstance(self.temperature, str) else self.temperature
        return (ballot.cosines[ballot.kept] / tau).softmax(1).sum(0)

    def break_tie(self, votes: Tensor, ballot: Ballot) -> Tensor:
        """One vote more for the class that the first view outside the kept ones favours, of those that are tied."""
        tied = votes == votes.max()  # [C]
        if int(tied.count_nonzero()) < 2 or not len(ballot.rest):
            return votes
        favourites = ballot.cosines[ballot.rest].argmax(1)  # [V − k]
        able = tied[favourites].nonzero()
        winner = favourites[able[0, 0]] if len(able) else self.fall_back(tied, ballot.cosines[ballot.rest[0]])
        return votes.index_add(0, winner[None], votes.new_ones(1))

    def fall_back(self, tied: Tensor, cosines: Tensor) -> Tensor:
        """The tied class that a view [C] is nearest to. The release negates the tied indices bit by bit instead of the
        mask: it rules out class C − 1 − t for every tied t, and what is left need not be tied."""
        ruled_out = tied.flip(0) if self.tie_break == "official" else ~tied
        return cosines.masked_fill(ruled_out, -torch.inf).argmax()


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [ZERO]
