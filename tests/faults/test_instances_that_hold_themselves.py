"""Instances that lead back to themselves, or share names with others: the number is that of their own steps."""

from __future__ import annotations

import copy
import functools
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tta_bench
from tests.conftest import TOY, some_slow
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.methods.tda import TDA
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord
from tta_bench.system.described import described
from tta_bench.system.looked_up import used

KNOWN: dict[str, Any] = {}


@pytest.fixture
def bench(home: Path) -> tta_bench.Bench:
    return tta_bench.Bench(home=home, registry=Registry([TOY]))


def run(bench: tta_bench.Bench, method: Method, seed: int = 0) -> RunRecord:
    return tta_bench.run(method, "toy", "toyclip", seed=seed, bench=bench)


class Centring(Method):
    """Subtracts a running mean, by whatever `_way_to` makes of its own method."""

    name = "centring"

    def __init__(self, share: float = 0.5, way: str = "its own method") -> None:
        self.share, self.way = share, way
        self.mean, self.seen = torch.zeros(1), 0
        self.centred = WAYS[way](self)

    def start(self, task: Task) -> None:
        self.task, self.mean, self.seen = task, torch.zeros(task.text.shape[1]), 0

    def centre(self, image: Tensor) -> Tensor:
        return image - self.share * self.mean

    def step(self, x: Observation) -> Tensor:
        self.seen += 1
        self.mean = self.mean + (x.image - self.mean) / self.seen
        centred: Tensor = self.centred(x.image)
        return self.task.text @ centred


def hooked(method: Centring) -> Callable[[Tensor], Tensor]:
    layer = torch.nn.Identity()
    layer.register_forward_hook(lambda _, __, image: method.centre(image))
    return layer


def known(method: Centring) -> Callable[[Tensor], Tensor]:
    KNOWN["present"] = method
    return by_registry


def by_registry(image: Tensor) -> Tensor:
    centred: Tensor = KNOWN["present"].centre(image)
    return centred


def of_a_weak_reference(method: Centring) -> Callable[[Tensor], Tensor]:
    reference = weakref.ref(method)

    def centred(image: Tensor) -> Tensor:
        there = reference()
        assert there is not None
        return there.centre(image)

    return centred


def of_a_local_class(method: Centring) -> Callable[[Tensor], Tensor]:
    class Local:
        def __call__(self, image: Tensor) -> Tensor:
            return method.centre(image)

    return Local()


WAYS: dict[str, Callable[[Centring], Callable[[Tensor], Tensor]]] = {
    "its own method": lambda method: method.centre,
    "a lambda": lambda method: lambda image: method.centre(image),
    "a hook": hooked,
    "a registry": known,
    "a weak reference": of_a_weak_reference,
    "a partial": lambda method: functools.partial(method.centre),
    "a wrapper": lambda method: functools.wraps(method.centre)(lambda image: method.centre(image)),
    "a local class": of_a_local_class,
}


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory: pytest.TempPathFactory) -> Callable[[float, int], Any]:
    bench = tta_bench.Bench(home=tmp_path_factory.mktemp("plain"), registry=Registry([TOY]))
    return lambda share, seed: run(bench, Centring(share), seed).scores()


OFTEN = ("its own method", "a lambda", "a registry")


@pytest.mark.parametrize("way", some_slow(OFTEN, [way for way in WAYS if way not in OFTEN]))
def test_a_way_back_to_the_instance_leads_to_the_one_that_runs(
    bench: tta_bench.Bench, by_hand: Callable[[float, int], Any], way: str
) -> None:
    """A copy ran, whose closures led to the original, which was never started: plain CLIP's number stood for it."""
    method = Centring(way=way)
    for seed in (0, 1, 0):
        assert np.array_equal(run(bench, method, seed).scores(), by_hand(0.5, seed))
    method.share = 0.9
    assert np.array_equal(run(bench, method).scores(), by_hand(0.9, 0))
    assert method.seen == 0  # as it was made


def test_an_instance_that_runs_itself_runs_once_at_a_time(
    bench: tta_bench.Bench, by_hand: Callable[[float, int], Any]
) -> None:
    method = Centring(way="a lambda")
    started = threading.Barrier(3)

    def one(seed: int) -> Any:
        started.wait()
        return run(bench, method, seed).scores()

    with ThreadPoolExecutor(3) as threads:
        for seed, scores in enumerate(threads.map(one, range(3))):
            assert np.array_equal(scores, by_hand(0.5, seed))


def test_a_wrapper_around_an_instances_step_is_called(bench: tta_bench.Bench) -> None:
    """As one times it in a notebook. `start` ran on a copy, `step` on the original, which had no state."""
    method, calls = TDA(), []
    step = method.step

    def timed(x: Observation) -> Tensor:
        calls.append(x.index)
        return step(x)

    method.step = timed  # type: ignore[method-assign]
    timed_scores = run(bench, method).scores()
    assert len(calls) == len(timed_scores)
    assert np.array_equal(timed_scores, tta_bench.run("tda", "toy", "toyclip", bench=bench).scores())


class Plain(Method):
    name = "plain"

    def start(self, task: Task) -> None:
        self.task = task

    def step(self, x: Observation) -> Tensor:
        return self.task.text @ x.image


@pytest.mark.parametrize("how", ["a generator", "an optimiser"])
def test_what_torch_copies_well_is_the_same_again(bench: tta_bench.Bench, how: str) -> None:
    """Every object was another configuration, and nothing was found again."""

    def make() -> Method:
        method = Plain()
        layer = torch.nn.Linear(2, 2)
        torch.nn.init.ones_(layer.weight)
        torch.nn.init.zeros_(layer.bias)
        of_torch = torch.Generator().manual_seed(1) if how == "a generator" else torch.optim.AdamW(layer.parameters())
        method.held = [layer, of_torch]  # type: ignore[attr-defined]
        return method

    first, again = run(bench, make()), run(bench, make())
    assert first.folder == again.folder
    assert first.created == again.created
    assert not first.notes
    records = tta_bench.grid([make()], ["toy"], ["toyclip"], seeds=range(2), bench=bench)
    assert len({record.config.digest for record in records}) == 1


def test_a_generator_counts_by_its_state() -> None:
    one = torch.Generator().manual_seed(1)
    other = copy.deepcopy(one)
    assert described(one) == described(other)
    torch.rand(1, generator=other)
    assert described(one) != described(other)


SCRIPT = """
def step(x):
    return x["views"] * x.seed + alpha + x[scaled.__name__] + find("made")

def scaled(x):
    return x

def made(x):
    return x
"""


@pytest.fixture
def script() -> dict[str, Any]:
    variables: dict[str, Any] = {"seed": 1, "alpha": 2, "views": 3, "other": 4}
    exec(SCRIPT, variables)
    return variables


def test_an_attributes_name_is_no_variables(script: dict[str, Any]) -> None:
    """`for seed in range(3)` made three rows of one method, which has a `seed` of its own."""
    step = script["step"]
    assert isinstance(step, FunctionType)
    assert set(used(step.__code__, script)) == {"alpha", "scaled", "made"}  # the last may be looked up by its name
    before = described(step)
    script.update(seed=5, views=6, other=7)
    assert described(step) == before
    script["alpha"] = 8
    assert described(step) != before
