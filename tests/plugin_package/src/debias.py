"""Debias: subtract the running mean of all image features before scoring."""
from dataclasses import dataclass
from typing import ClassVar

import torch
from tta_bench import hookimpl
from tta_bench.interfaces import Method, Observation, Task

@dataclass
class Debias(Method):
    name: ClassVar[str] = "debias"
    strength: float = 0.5  # share of the mean that is taken away

    def start(self, task: Task) -> None:  # forget everything
        self.task, self.mean, self.seen = task, torch.zeros_like(task.text[0]), 0

    def step(self, x: Observation) -> torch.Tensor:  # one image: features, never labels
        self.seen += 1
        self.mean += (x.image - self.mean) / self.seen
        return self.task.scale * (x.image - self.strength * self.mean) @ self.task.text.T

@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [Debias]
