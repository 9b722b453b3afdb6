"""What one run of a notebook's method leaves in the process is in the next one's record, whichever run it was."""

from __future__ import annotations

import random
import sys
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor

from tta_bench.interfaces import Method, Observation, Task
from tta_bench.runs.bench import Bench
from tta_bench.runs.spec import RunSpec

SAID = "an earlier run in this process has changed"
shown: Any = None
stop_at: list[int] = []


@dataclass
class Remembers(Method):
    """Keeps what it has seen where every run finds it."""

    name: ClassVar[str] = "remembers"
    setting: ClassVar[Any] = "online"
    shown: ClassVar[list[Tensor]] = []

    def start(self, task: Task) -> None:
        self.text = task.text

    def step(self, x: Observation) -> Tensor:
        if x.index in stop_at:
            raise KeyboardInterrupt
        self.keep(x.image)
        return self.text @ (x.image - torch.stack(list(self.shown)).mean(0))

    def keep(self, image: Tensor) -> None:
        self.shown.append(image)


def is_said(bench: Bench, method: Method, seed: int = 0) -> bool:
    record = bench.run(RunSpec(method, "toy", "toyclip", seed=seed)).record
    return any(SAID in note for note in record.notes)


@pytest.fixture
def anew(monkeypatch: pytest.MonkeyPatch) -> type[Remembers]:
    """The class as a new cell makes it."""

    class Anew(Remembers):
        shown: ClassVar[list[Tensor]] = []

    stop_at.clear()
    monkeypatch.setattr(sys.modules[__name__], "shown", None)
    return Anew


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_an_interrupted_run_is_one_too(
    error: type[BaseException], anew: type[Remembers], toy_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """51.48 in place of 47.93, and the note stood at the run after it, which was clean."""
    stop_at.append(9)
    with pytest.raises(BaseException, match=""):  # noqa: PT011  # as the caller sees it
        is_said(toy_bench, anew())
    stop_at.clear()
    assert len(anew.shown) == 9
    assert is_said(toy_bench, anew())
    anew.shown.clear()
    assert not is_said(toy_bench, anew())


def test_the_look_at_a_finished_run_is_one_too(anew: type[Remembers], toy_bench: Bench) -> None:
    """Restart and run all: the first seed was found, and the second began with what looking at it had left."""
    assert not is_said(toy_bench, anew())
    anew.shown.clear()
    assert not is_said(toy_bench, anew())  # found
    assert len(anew.shown) == 8
    assert is_said(toy_bench, anew(), seed=1)


def test_classes_that_share_a_variable_hear_of_each_other(toy_bench: Bench) -> None:
    bank: list[Tensor] = []

    class One(Remembers):
        name: ClassVar[str] = "one"

        def keep(self, image: Tensor) -> None:
            bank.append(image)
            self.shown = bank  # type: ignore[misc]

    class Two(One):
        name: ClassVar[str] = "two"

        def keep(self, image: Tensor) -> None:
            bank.append(image / 2)
            self.shown = bank  # type: ignore[misc]

    class Three(Remembers):
        name: ClassVar[str] = "three"

        def keep(self, image: Tensor) -> None:
            self.shown = [image]  # type: ignore[misc]

    assert [is_said(toy_bench, method()) for method in (One, Two, Three)] == [False, True, False]


class OfItsOwn:
    def __init__(self) -> None:
        self.seen: list[Tensor] = []


KINDS: dict[str, tuple[Callable[[], Any], Callable[[Any, Tensor], Any]]] = {
    "a list": (list, lambda held, image: held.append(image)),
    "a deque": (deque, lambda held, image: held.append(image)),
    "a dictionary": (dict, lambda held, image: held.update({len(held): image})),
    "a set": (set, lambda held, image: held.add(float(image.sum()))),
    "a tensor": (lambda: torch.zeros(16), lambda held, image: held.add_(image)),
    "an object": (OfItsOwn, lambda held, image: held.seen.append(image)),
    "a generator": (lambda: random.Random(0), lambda held, image: held.random()),
    "torch's generator": (lambda: torch.Generator().manual_seed(0), lambda held, image: torch.rand(1, generator=held)),
    "a number": (lambda: 0, lambda held, image: globals().update(shown=held + 1)),
    "nothing yet": (lambda: None, lambda held, image: globals().update(shown=[image])),
}


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_holds_it(kind: str, toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    made, keep = KINDS[kind]
    monkeypatch.setattr(sys.modules[__name__], "shown", made())

    class Keeps(Remembers):
        def step(self, x: Observation) -> Tensor:
            keep(shown, x.image)
            return self.text @ x.image

    class AsWell(Keeps):
        name: ClassVar[str] = "as-well"

    assert [is_said(toy_bench, method()) for method in (Keeps, AsWell, Keeps)] == [False, True, True]


def test_what_is_only_read_is_nothing_left(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "shown", {"weights": torch.ones(16), "names": ["a"], "of": OfItsOwn()})

    class Reads(Remembers):
        def step(self, x: Observation) -> Tensor:
            scores: Tensor = self.text @ (x.image * shown["weights"])
            return scores

    class AsWell(Reads):
        name: ClassVar[str] = "as-well"

    assert not any(is_said(toy_bench, method()) for method in (Reads, AsWell, Reads))
