"""Views: CLIP's probabilities averaged over the image and its augmented views, no adaptation.

The baseline for methods that look at views: what the augmentations bring before anything is adapted.
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
from tta_bench.views import AugMix


@dataclass
class AveragedViews(Method):
    """ln mean_v softmax(scale · cos) over the image and its views."""

    name: ClassVar[str] = "views"
    title: ClassVar[str] = "Views"
    status: ClassVar[Status] = "ours"
    setting: ClassVar[Setting] = "episodic"
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(63)}

    def start(self, task: Task) -> None:
        self.classifier = classifier(task.text, task.scale)  # [D, C]

    def step(self, x: Observation) -> Tensor:
        views = stack_views(x.image, x.views.get("views"))  # [V, D]
        log_probs = (views @ self.classifier).log_softmax(-1)  # [V, C]
        return log_probs.logsumexp(0) - math.log(len(views))  # in log space: a probability of 0 would score −inf


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [AveragedViews]
