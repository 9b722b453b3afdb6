"""CLIP: zero-shot scores, no adaptation.

Radford et al., "Learning Transferable Visual Models From Natural Language Supervision", ICML 2021.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from tta_bench import hookimpl
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task


@dataclass
class CLIP(Method):
    """The scaled cosine of the image with every class prototype."""

    name: ClassVar[str] = "clip"
    title: ClassVar[str] = "CLIP"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "episodic"
    paper: ClassVar[Paper | None] = Paper(
        "Learning Transferable Visual Models From Natural Language Supervision",
        "ICML 2021",
        "https://arxiv.org/abs/2103.00020",
    )

    def start(self, task: Task) -> None:
        self.task = task

    def step(self, x: Observation) -> Tensor:
        return self.task.scale * (self.task.text @ x.image)


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [CLIP]
