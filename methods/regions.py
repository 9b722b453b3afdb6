"""Regions: CLIP's probabilities averaged over the image and random crops, no adaptation.

The baseline for methods that look at regions: what the crops bring before anything is adapted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import classifier, stack_views
from tta_bench.interfaces import Method, Observation, Setting, Status, Task, ViewRecipe
from tta_bench.views import RandomCrops


@dataclass
class Regions(Method):
    """ln mean_r softmax(scale · cos) over the image and its regions."""

    name: ClassVar[str] = "regions"
    title: ClassVar[str] = "Regions"
    status: ClassVar[Status] = "ours"
    setting: ClassVar[Setting] = "episodic"
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"regions": RandomCrops(50)}

    def start(self, task: Task) -> None:
        self._classifier = classifier(task.text, task.scale)  # [D, C]

    def step(self, x: Observation) -> Tensor:
        regions = stack_views(x.image, x.views.get("regions"))  # [1 + Q, D]
        log_probs = (regions @ self._classifier).log_softmax(-1)  # [1 + Q, C]
        return log_probs.logsumexp(0) - math.log(len(regions))  # in log space: a probability of 0 would score −inf


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [Regions]
