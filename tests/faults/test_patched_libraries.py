"""Libraries that a notebook has changed in its process: what is computed with them is never taken for their own."""

from __future__ import annotations

import functools
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from tests.toy_plugin import Toy, ToyCLIP
from tta_bench.errors import UsageError
from tta_bench.features.store_usage import entries, usage
from tta_bench.records import load_all
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.system import live

SPEC = RunSpec("clip", "toy", "toyclip", limit=3)


class Own:
    def __call__(self, *_: Any) -> None: ...


class Counted:
    def times(self, *_: Any) -> None: ...


def doubled(function: Any) -> Any:
    return functools.wraps(function)(lambda *args, **more: 2 * function(*args, **more))


@pytest.mark.parametrize(
    ("owner", "name", "value"),
    [
        (functional, "softmax", doubled(functional.softmax)),
        (functional, "softmax", torch.no_grad()(doubled(functional.softmax))),  # torch's wrapper around it
        (functional, "softmax", functools.partial(doubled(functional.softmax), dim=0)),
        (torch, "exp", Own()),
        (torch, "exp", Counted().times),
        (torch.Tensor, "exp", lambda self: self),
        (torch.linalg, "norm", lambda x: x),
        (np, "argsort", lambda x: x),
        (np.linalg, "norm", lambda x: x),
        (Image, "open", lambda file: file),
        (Image.Image, "resize", lambda self, size: self),
        (Image.Image, "size", property(lambda self: (1, 1))),
        (cv2, "resize", lambda image, size: image),
    ],
)
def test_a_function_of_a_library_that_is_somebodys_own_is_noticed(
    owner: Any, name: str, value: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = live.replaced()
    assert not [place for place in before if not place.startswith("tta_bench.")]
    monkeypatch.setattr(owner, name, value)
    found = [place for place in live.replaced() if place not in before]
    module = owner.__name__ if not isinstance(owner, type) else f"{owner.__module__}.{owner.__qualname__}"
    assert found == [f"{module}.{name}"]


def test_a_patched_library_is_another_run_that_says_so(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = toy_bench.run(SPEC).record
    monkeypatch.setattr(torch.Tensor, "exp", lambda self: self)
    patched = toy_bench.run(SPEC)
    assert not patched.already
    assert patched.record.run_id != plain.run_id
    assert any("torch.Tensor.exp stood for other code" in note for note in patched.record.notes)
    monkeypatch.undo()
    assert toy_bench.run(SPEC).record.run_id == plain.run_id


def test_features_under_a_patched_library_stay_out_of_the_store(
    toy_bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As do those under code of ours that was replaced; a patched metric makes no other features."""
    resize = Image.Image.resize
    monkeypatch.setattr(Image.Image, "resize", lambda self, *size, **more: resize(self, *size, **more))
    assert toy_bench.run(SPEC).record.counts["encoder_forwards"] > 0
    monkeypatch.undo()
    assert toy_bench.run(SPEC).record.counts["encoder_forwards"] > 0
    monkeypatch.setattr("tta_bench.pixels.resize.LEVELS", 254, raising=False)
    assert toy_bench.run(SPEC).record.counts["encoder_forwards"] > 0
    monkeypatch.undo()
    monkeypatch.setattr("tta_bench.metrics.TOLERANCE", 254, raising=False)
    patched = toy_bench.run(SPEC)
    assert not patched.already
    assert patched.record.counts["encoder_forwards"] == 0
    assert all(one.runs for one in usage(entries(toy_bench.home / "store"), load_all(toy_bench.runs)[0]))


@pytest.mark.slow
def test_a_hook_on_every_module_is_noticed() -> None:
    handle = torch.nn.modules.module.register_module_forward_hook(lambda module, given, made: 2 * made)
    place = "torch.nn.modules.module._global_forward_hooks"
    assert list(live.making_features(live.replaced())) == [place]
    handle.remove()
    assert live.replaced() == {}


def test_what_libraries_do_themselves_is_theirs() -> None:
    """torch.compile, its graphs and its counters change torch while they run."""
    compiled = torch.compile(lambda x: x.exp() + 1, backend="eager")
    assert compiled(torch.zeros(1)).item() == 2
    torch.fx.symbolic_trace(torch.nn.Linear(1, 1))
    assert not [place for place in live.replaced() if not place.startswith("tta_bench.")]


class Doubling(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


class Dispatching(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("mode", [Doubling, Dispatching])
def test_a_mode_that_changes_what_torch_computes_is_refused(mode: Any, toy_bench: Bench) -> None:
    with mode(), pytest.raises(UsageError, match=f"{mode.__name__} is switched on around this run"):
        toy_bench.run(SPEC)


def test_a_mode_of_torchs_own_is_not_refused(toy_bench: Bench) -> None:
    with FlopCounterMode(display=False), torch.device("cpu"):
        toy_bench.run(RunSpec("clip", Toy("default"), ToyCLIP(), limit=3))
