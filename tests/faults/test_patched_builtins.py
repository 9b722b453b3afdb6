"""A built-in of which a notebook has replaced a part is treated as that notebook's own."""

from __future__ import annotations

import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import Tensor

import tta_bench
from tests.conftest import TOY
from tests.faults.test_names import make_pack
from tta_bench.interfaces import Observation
from tta_bench.methods.clip import CLIP
from tta_bench.methods.tda import TDA
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord

Step = Callable[[Any, Observation], Tensor]
plain: Step = TDA.step


@pytest.fixture
def bench(home: Path) -> tta_bench.Bench:
    return tta_bench.Bench(home=home, registry=Registry([TOY]), checkpoint_seconds=0.0)


@pytest.fixture(params=["the class", "an instance"])
def patched(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Puts a step in the place of a method's own."""

    def patch(step: Step, cls: type[Any] = TDA) -> Any:
        method = cls()
        if request.param == "the class":
            monkeypatch.setattr(cls, "step", step)
        else:
            method.step = types.MethodType(step, method)
        return method

    return patch


def run(bench: tta_bench.Bench, method: Any, **more: Any) -> RunRecord:
    return tta_bench.run(method, "toy", "toyclip", bench=bench, **more)


def test_it_does_not_resume_without_what_it_keeps(
    bench: tta_bench.Bench, patched: Callable[..., Any], tmp_path: Path
) -> None:
    """The memory of its own was gone, or had met images already, and the number another one."""
    new: dict[str, Any] = {"n": 0, "mean": 0.0}
    kept, stop = dict(new), tmp_path / "stop"

    def step(self: TDA, x: Observation) -> Tensor:
        scores = plain(self, x)
        if x.index == 0:
            kept.update(new)
        kept["n"] += 1
        kept["mean"] = kept["mean"] + (scores - kept["mean"]) / kept["n"]
        if x.index == 10 and stop.exists():
            raise KeyboardInterrupt
        return scores - kept["mean"] if x.index >= 14 else scores

    method = patched(step)
    whole = run(bench, method).scores()
    bench = tta_bench.Bench(home=tmp_path, registry=Registry([TOY]), checkpoint_seconds=0.0)
    kept.update(new)  # as in a new process
    stop.touch()
    with pytest.raises(KeyboardInterrupt):
        run(bench, method)
    stop.unlink()
    kept.update(new)
    np.testing.assert_array_equal(run(bench, method).scores(), whole)


@pytest.mark.parametrize("door", ["numpy", "data"])
def test_it_changes_no_pack_under_others(
    door: str, bench: tta_bench.Bench, patched: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every later run of the bench was recorded with other numbers, and nothing said so."""
    file = make_pack(tmp_path / "toys.safetensors")
    before = tta_bench.run("clip", pack=file, bench=bench).scores().copy()
    untouched: Any = CLIP.step

    def step(self: TDA, x: Observation) -> Tensor:
        image: Any = x.image.numpy() if door == "numpy" else x.image.data
        image *= 0.0
        image[0] = 1.0
        scores: Tensor = untouched(self, x)
        return scores

    tta_bench.run(patched(step, CLIP), pack=file, bench=bench)
    monkeypatch.undo()
    np.testing.assert_array_equal(tta_bench.run("clip", pack=file, bench=bench, force=True).scores(), before)


def test_what_it_reads_is_named_and_looked_at_again(
    bench: tta_bench.Bench, patched: Callable[..., Any], tmp_path: Path
) -> None:
    alpha = tmp_path / "alpha.txt"
    alpha.write_text("0.0")

    def step(self: TDA, x: Observation) -> Tensor:
        return plain(self, x) * (1.0 - float(alpha.read_text()) * x.index)

    method = patched(step)
    first = run(bench, method)
    before = first.scores().copy()
    assert "alpha.txt" in " ".join(first.notes)
    alpha.write_text("0.9")
    assert not np.array_equal(run(bench, method).scores(), before)


def test_its_random_numbers_are_seeded(bench: tta_bench.Bench, patched: Callable[..., Any]) -> None:
    def step(self: TDA, x: Observation) -> Tensor:
        return plain(self, x) + float(np.random.rand())  # noqa: NPY002

    method = patched(step)
    one, other = (run(bench, method, force=True).scores() for _ in range(2))
    np.testing.assert_array_equal(one, other)


def test_the_record_says_where_it_ran(bench: tta_bench.Bench, patched: Callable[..., Any]) -> None:
    done = run(bench, patched(lambda self, x: plain(self, x) * 2))
    assert "parts of ours were replaced, not fenced off" in str(done.provenance)
    assert "number is not its own" in " ".join(done.notes)
