"""Every registered method passes the conformance kit, and the kit notices what it is there to notice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
import torch
from torch import Tensor

from tests.conftest import TOY, Invoke
from tta_bench.checks import conformance
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.plugins import Registry


@pytest.mark.parametrize("name", Registry().names("methods"))
def test_every_method_conforms(name: str) -> None:
    examination = conformance.examine(Registry().method(name))
    assert [v for v in examination.verdicts if not v.passed] == []


@dataclass
class Bad(Method):
    """A method with one fault."""

    name: ClassVar[str] = "bad"

    def start(self, task: Task) -> None:
        self.task, self.steps = task, 0

    def step(self, x: Observation) -> Tensor:
        self.steps += 1
        return self.fault(x, self.task.text @ x.image)

    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        raise NotImplementedError


class PrefersTheFirstClass(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        return scores + torch.arange(len(scores))


class DrawsItsOwnNumbers(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        return scores + torch.rand(())


class RemembersAcrossStarts(Bad):
    def start(self, task: Task) -> None:
        self.task, self.steps = task, getattr(self, "steps", 0)

    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        return scores + self.steps


class LosesItsState(Bad):
    def state_dict(self) -> dict[str, object]:
        return {}

    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        return scores + self.steps


class ChangesTheText(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        self.task.text.mul_(1.01)
        return scores


class ChangesTheImage(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        x.image.add_(0.1)
        return scores


class LooksForLabels(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        return scores + getattr(x, "labels", 0)


class Hoards(Bad):
    def start(self, task: Task) -> None:
        self.task, self.steps = task, 0
        self.hoard: list[Tensor] = []

    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        self.hoard.append(x.image)
        return scores


class FailsForOneClass(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        return scores / scores.std(unbiased=True).clamp_min(0)


class ReturnsTooFew(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        return scores[:-1]


@dataclass
class HasAnOddField(Bad):
    hook: Callable[[], int] = field(default=lambda: 1)

    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        return scores


@pytest.mark.parametrize(
    ("method", "check"),
    [
        (PrefersTheFirstClass, "class order does not matter"),
        (DrawsItsOwnNumbers, "deterministic"),
        (RemembersAcrossStarts, "start() forgets"),
        (LosesItsState, "state survives a restart"),
        (ChangesTheText, "leaves its inputs alone"),
        (ChangesTheImage, "leaves its inputs alone"),
        (LooksForLabels, "reads no labels"),
        (Hoards, "memory does not grow"),
        (FailsForOneClass, "1 class"),
        (ReturnsTooFew, "scores on random features"),
        (HasAnOddField, "hyper-parameters are plain data"),
    ],
)
def test_the_kit_notices(method: type[Method], check: str) -> None:
    verdicts = {v.check: v for v in conformance.examine(method).verdicts}
    assert not verdicts[check].passed
    assert verdicts[check].reason


def test_check_on_the_command_line(invoke: Invoke) -> None:
    good = invoke("check", "tda")
    assert good.code == 0
    assert good.out.count("passed") == len(conformance.CHECKS)
    bad = invoke("check", str(TOY))
    assert bad.code == 1
    assert "FAILED" in bad.out
    assert "checks failed" in bad.err
    assert invoke("check", "tdaa").code == 2
