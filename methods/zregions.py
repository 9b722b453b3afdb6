"""zregions: regions compared by how far a class stands out in each, no adaptation.

Ours. Found on 459 COCO photos of one backbone, among some 220 rules that were tried there; not confirmed elsewhere.
A softmax lets a region that matches nothing speak as loudly as one that matches; a standard score does not.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import classifier, stack_views, standard_scores
from tta_bench.interfaces import Method, Observation, Setting, Status, Task, ViewRecipe
from tta_bench.views import RandomCrops


@dataclass
class ZRegions(Method):
    """log softmax_c of L_c = (1/β) ln mean_v exp(β u_vc), u_v the standard scores of region v over the classes."""

    name: ClassVar[str] = "zregions"
    title: ClassVar[str] = "z-Regions"
    status: ClassVar[Status] = "ours"
    setting: ClassVar[Setting] = "episodic"
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"regions": RandomCrops(50)}

    beta: float = 4.0  # β  sharpness of the soft maximum over regions: 0 would be their mean, ∞ their maximum

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.beta > 0, "beta is above 0")

    def start(self, task: Task) -> None:
        self.classifier = classifier(task.text, 1.0)  # [D, C]; a standard score does not feel the scale

    def step(self, x: Observation) -> Tensor:
        regions = stack_views(x.image, x.views.get("regions"))  # [1 + Q, D]
        scores = standard_scores(regions @ self.classifier)  # u  [1 + Q, C]
        return self.soft_maximum(scores).log_softmax(0)

    def soft_maximum(self, scores: Tensor) -> Tensor:
        """L_c = (1/β) ln mean_v exp(β u_vc), in standard deviations: [V, C] -> [C]."""
        return ((self.beta * scores).logsumexp(0) - math.log(len(scores))) / self.beta


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [ZRegions]
