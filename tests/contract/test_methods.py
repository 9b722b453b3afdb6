"""Every registered method passes the conformance kit, and the kit notices what it is there to notice."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, get_args

import pytest
import torch
from torch import Tensor

from tests.conftest import TOY, Invoke
from tta_bench.checks import conformance
from tta_bench.interfaces import Method, Observation, Setting, Status, Task
from tta_bench.methods.tda import TDA
from tta_bench.plugins import Registry


@pytest.mark.parametrize("name", Registry().names("methods"))
def test_every_method_conforms(name: str) -> None:
    examination = conformance.examine(Registry().method(name))
    assert [v for v in examination.verdicts if not v.passed] == []
    assert examination.notes == []  # a built-in returns logits, so nothing is odd about its scores


@pytest.mark.parametrize("name", Registry().names("methods"))
def test_every_method_says_what_it_is(name: str) -> None:
    """Its status, its setting and its paper, the same with and without importing it."""
    registry = Registry()
    cls, said = registry.method(name), registry.find("methods", name).declared
    method = cls()
    assert method.status in get_args(Status)
    assert method.setting in get_args(Setting)
    assert "unstated" not in (method.status, method.setting)
    assert method.status in said["status"].split(" or ")
    assert method.setting in said["setting"].split(" or ")
    assert said["paper"] == (cls.paper._asdict() if cls.paper else None)
    assert (cls.paper is None) == (method.status == "ours")


def test_a_setting_is_what_the_method_does() -> None:
    """An episodic method scores an image alike whatever came before; an online one does not."""
    world = conformance.World()
    for name in Registry().names("methods"):
        method = Registry().method(name)()
        stream = list(world.stream(method))
        task = world.task(method)
        with torch.no_grad():
            method.start(task)
            fresh = method.step(stream[-1])
            method.start(task)
            late = [method.step(x) for x in stream][-1]
        same = fresh.shape == late.shape and torch.allclose(fresh, late, atol=1e-4)
        assert same == (method.setting in ("episodic", "transductive")), name


class Variant(TDA):
    pass


def test_a_variant_of_a_matched_method_is_not_matched() -> None:
    assert TDA.status == "official code matched"
    assert (Variant.status, Variant.setting) == ("unstated", "online")


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


class FinishesInPlace(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        return scores

    def finish(self, outputs: Tensor) -> Tensor:
        return outputs.mul_(2)[:, 0]


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
        (FinishesInPlace, "scores on structured features"),
        (HasAnOddField, "hyper-parameters are plain data"),
    ],
)
def test_the_kit_notices(method: type[Method], check: str) -> None:
    verdicts = {v.check: v for v in conformance.examine(method).verdicts}
    assert not verdicts[check].passed
    assert verdicts[check].reason


def test_every_check_has_a_planted_fault_or_is_another_world_for_the_same_one() -> None:
    planted = next(m for m in test_the_kit_notices.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    worlds = {"scores on structured features", "original view only", "1 view", "5 views"}
    worlds |= {"duplicate classes", "50 identical regions", "all images equal"}
    assert {check for _, check in planted.args[1]} | worlds == set(conformance.CHECKS)


class ReturnsProbabilities(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        return (50 * scores).softmax(-1)


class IgnoresTheImage(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        return self.task.text.sum(-1)


@pytest.mark.parametrize(
    ("method", "note"), [(ReturnsProbabilities, "sum to 1"), (IgnoresTheImage, "every image gets the same scores")]
)
def test_odd_scores_are_a_note_and_no_failure(method: type[Method], note: str) -> None:
    examination = conformance.examine(method)
    assert examination.passed
    assert [note in line for line in examination.notes] == [True]


class Exits(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        raise SystemExit("no GPU\nfound")


class FailsInALibrary(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        return torch.nn.functional.normalize(scores, dim=7)


@pytest.mark.parametrize(
    ("method", "reason"), [(Exits, "SystemExit: no GPU found"), (FailsInALibrary, "IndexError: Dimension out of range")]
)
def test_whatever_a_method_raises_is_a_verdict_with_its_own_file_and_line(method: type[Method], reason: str) -> None:
    verdict = {v.check: v for v in conformance.examine(method).verdicts}["deterministic"]
    line = inspect.getsourcelines(method)[1] + 2
    assert verdict.reason.startswith(reason)
    assert verdict.reason.endswith(f"(test_methods.py, line {line})")


class Interrupts(Bad):
    def fault(self, x: Observation, scores: Tensor) -> Tensor:
        raise KeyboardInterrupt


def test_ctrl_c_is_no_verdict() -> None:
    with pytest.raises(KeyboardInterrupt):
        conformance.examine(Interrupts)


@pytest.mark.slow
def test_check_on_the_command_line(invoke: Invoke) -> None:
    good = invoke("check", "tda")
    assert good.code == 0
    assert good.out.count("passed") == len(conformance.CHECKS)
    bad = invoke("check", str(TOY))
    assert bad.code == 1
    assert "FAILED" in bad.out
    assert "checks failed" in bad.err
    assert invoke("check", "tdaa").code == 2
