"""A method's state: what has no leading underscore, objects that save themselves included; nothing else in silence."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from torch import Tensor, nn

from tta_bench.interfaces import Method, Observation, Task, TextEncoder


class Box:
    """An object with a state of its own."""

    def __init__(self) -> None:
        self.content = torch.zeros(2)

    def state_dict(self) -> dict[str, Any]:
        return {"content": self.content.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.content = state["content"].clone()


class Pair(NamedTuple):
    a: int
    b: int


@dataclass
class Keeper(Method):
    name: ClassVar[str] = "keeper"
    rate: float = 0.5

    def start(self, task: Task) -> None:
        self.task = task
        self.count, self.words = 0, ["a"]
        self.mean = torch.zeros(3)
        self.box = Box()
        self.layer = nn.Linear(2, 2)
        self._cache: Any = object()  # made again by start()
        self.encode = task.encode_texts
        self.activation: Callable[..., Any] = torch.relu
        self.half: Any = functools.partial(torch.mul, 0.5)

    def step(self, x: Observation) -> Tensor:
        return self.mean


def make_task() -> Task:
    text = torch.eye(3)
    return Task(("a", "b", "c"), text, text[:, None], 1.0, encode_texts=TextEncoder(lambda t: torch.zeros(len(t), 3)))


@pytest.fixture
def keeper() -> Keeper:
    method = Keeper()
    method.start(make_task())
    return method


def through_a_file(state: dict[str, Any]) -> dict[str, Any]:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    loaded: dict[str, Any] = torch.load(buffer, weights_only=True)
    return loaded


def test_what_is_state(keeper: Keeper) -> None:
    assert set(keeper.state_dict()) == {"count", "words", "mean", "box", "layer"}


def test_state_comes_back(keeper: Keeper) -> None:
    keeper.count, keeper.words = 7, ["a", "b"]
    keeper.mean += 2
    keeper.box.content += 3
    with torch.no_grad():
        keeper.layer.weight.fill_(4)
    saved = through_a_file(keeper.state_dict())
    other = Keeper()
    other.start(make_task())
    other.load_state_dict(saved)
    assert (other.count, other.words) == (7, ["a", "b"])
    assert torch.equal(other.mean, keeper.mean)
    assert isinstance(other.box, Box)
    assert torch.equal(other.box.content, keeper.box.content)
    assert torch.equal(other.layer.weight, keeper.layer.weight)
    other.box.content += 1
    assert not torch.equal(other.box.content, keeper.box.content)  # a copy


@pytest.mark.parametrize("odd", [object(), Pair(1, 2), {1, 2}], ids=["object", "named tuple", "set"])
def test_other_things_are_refused_with_the_way_out(keeper: Keeper, odd: Any) -> None:
    keeper.odd = odd  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"keeper\.odd is a .*leading underscore"):
        keeper.state_dict()


def test_own_generators_are_refused(keeper: Keeper) -> None:
    keeper.rng = torch.Generator()  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match=r"draw from task\.rng"):
        keeper.state_dict()
