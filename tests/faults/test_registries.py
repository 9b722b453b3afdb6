"""A registry that Python itself keeps, `__subclasses__`, counts in what an instance gives."""

from __future__ import annotations

import gc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import Tensor

import tta_bench
from tests.conftest import TOY
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord


def run(home: Path, method: Method) -> RunRecord:
    bench = tta_bench.Bench(home=home, registry=Registry([TOY]))
    return tta_bench.run(method, "toy", "toyclip", bench=bench)


class Fuse:
    key = ""


def fusing(sign: float) -> type:
    class Mean(Fuse):
        key = "mean"

        def __call__(self, scores: Tensor) -> Tensor:
            return sign * scores

    return Mean


@dataclass
class Registered(Method):
    name: ClassVar[str] = "registered"
    head: str = "mean"

    def start(self, task: Task) -> None:
        self._task, self._seen = task, 0

    def step(self, x: Observation) -> Tensor:
        self._seen += 1
        return self._task.text @ x.image

    def fused(self, scores: Tensor) -> Tensor:
        fuse: Any = {made.key: made for made in Fuse.__subclasses__()}[self.head]
        made: Tensor = fuse()(scores)
        return made


@dataclass
class RegisteredAtTheEnd(Registered):
    def finish(self, outputs: Tensor) -> Tensor:
        return self.fused(outputs[:, 0])


@dataclass
class RegisteredLater(Registered):
    def step(self, x: Observation) -> Tensor:
        scores = super().step(x)
        return scores if self._seen <= 10 else self.fused(scores)


@pytest.mark.parametrize("method", [RegisteredAtTheEnd, RegisteredLater])
def test_a_registry_of_subclasses_counts(method: Callable[[], Method], home: Path) -> None:
    kept = fusing(1.0)
    first = run(home, method())
    del kept
    gc.collect()
    kept = fusing(-1.0)
    second = run(home, method())
    assert kept.key == "mean"  # type: ignore[attr-defined]
    assert first.config != second.config
    assert not np.array_equal(first.scores(), second.scores())
