"""Tasks and streams with some structure, in any precision: images of two classes, whose views and regions show more or
less of either. For tests of methods that need nothing but features."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from tta_bench.interfaces import Method, Observation, Task


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit_rows(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


def make_task(classes: int = 7, prompts: int = 6, dim: int = 12, dtype: torch.dtype = torch.float64) -> Task:
    centres = unit_rows(random(classes, 1, dim))
    bank = unit_rows(centres + 0.4 / dim**0.5 * random(classes, prompts, dim, seed=1)).to(dtype)
    return Task([f"class {c}" for c in range(classes)], unit_rows(bank.mean(1)), bank, scale=20.0)


def make_stream(task: Task, n: int = 12, views: int = 20, regions: int = 9, noise: float = 0.8) -> list[Observation]:
    text = task.text.double()
    classes, dim = text.shape
    rng = torch.Generator().manual_seed(5)
    stream = []
    for i in range(n):
        pair = text[torch.randint(classes, (2,), generator=rng)]
        shown = torch.rand(1 + views + regions, 2, generator=rng, dtype=torch.float64) @ pair
        features = unit_rows(shown + noise / dim**0.5 * random(1 + views + regions, dim, seed=100 + i))
        features = features.to(task.text.dtype)
        stream.append(Observation(i, features[0], {"views": features[1 : 1 + views], "regions": features[1 + views :]}))
    return stream


def run(method: Method, task: Task, stream: list[Observation]) -> Tensor:
    method.start(task)
    return torch.stack([method.step(x) for x in stream])
