"""A finished run of an instance is taken for done only by an instance that gives the same to its end."""

from __future__ import annotations

import gc
import importlib
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import tta_bench
from tests.conftest import TOY
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord
from tta_bench.system.described import described


@pytest.fixture
def bench(home: Path) -> tta_bench.Bench:
    return tta_bench.Bench(home=home, registry=Registry([TOY]))


def run(bench: tta_bench.Bench, method: Method) -> RunRecord:
    return tta_bench.run(method, "toy", "toyclip", bench=bench)


@dataclass
class Plain(Method):
    name: ClassVar[str] = "plain"

    def start(self, task: Task) -> None:
        self._task, self._seen = task, 0

    def step(self, x: Observation) -> Tensor:
        self._seen += 1
        return self._task.text @ x.image


@dataclass
class ByName(Plain):
    name: ClassVar[str] = "by-name"
    head: str = "linear"

    def finish(self, outputs: Tensor) -> Tensor:
        scores: Tensor = importlib.import_module(f"heads_{self.head}").SIGN * outputs[:, 0]
        return scores


@pytest.mark.slow  # all modules of the tests are looked through
def test_a_module_that_was_imported_and_is_asked_for_by_a_name_put_together_counts(
    bench: tta_bench.Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    found = []
    for sign in ("1.0", "-1.0"):
        (tmp_path / "heads_linear.py").write_text(f"SIGN = {sign}\n")
        monkeypatch.delitem(sys.modules, "heads_linear", raising=False)
        importlib.invalidate_caches()
        importlib.import_module("heads_linear")
        found += [run(bench, ByName()) for _ in range(2)]
    assert found[0].config == found[1].config != found[2].config == found[3].config
    assert not np.array_equal(found[0].scores(), found[2].scores())
    assert not any(record.notes for record in found)


@dataclass
class Validating(Plain):
    name: ClassVar[str] = "validating"
    file: str = ""

    def validate(self) -> None:
        self._sign = float(Path(self.file).read_text())

    def finish(self, outputs: Tensor) -> Tensor:
        return self._sign * outputs[:, 0]


def test_what_validate_reads_counts(bench: tta_bench.Bench, tmp_path: Path) -> None:
    file = tmp_path / "sign.txt"
    found = []
    for sign in ("1.0", "-1.0"):
        file.write_text(sign)
        found += [run(bench, Validating(str(file))) for _ in range(2)]
    assert found[0].created == found[1].created  # the second look has to validate as well
    assert found[0].config != found[2].config
    assert not np.array_equal(found[0].scores(), found[2].scores())


@dataclass
class Picking(Plain):
    name: ClassVar[str] = "picking"
    pick: Any = None
    usual: tuple[int, ...] = (0, 1)

    def finish(self, outputs: Tensor) -> Tensor:
        return -outputs[:, 0] if isinstance(self.pick, tuple) else outputs[:, 0]


def test_a_tuple_is_no_list(bench: tta_bench.Bench) -> None:
    """JSON, and so the record's plain values, knows lists only."""
    listed, tupled, nested = (run(bench, Picking(pick)) for pick in ([0, 1], (0, 1), [(0, 1)]))
    assert len({listed.run_id, tupled.run_id, nested.run_id}) == 3
    assert not np.array_equal(listed.scores(), tupled.scores())
    assert "attributes" not in listed.config.parts  # so that it is the same as one by name


class WhereNobodyLooks:
    """Where no identity looks."""

    sign = 1.0


def elsewhere() -> float:
    (found,) = (
        thing for thing in gc.get_objects() if isinstance(thing, type) and thing.__name__ == "WhereNobody" + "Looks"
    )
    sign: float = found.sign  # type: ignore[attr-defined]
    return sign


@dataclass
class Hidden(Plain):
    name: ClassVar[str] = "hidden"

    def finish(self, outputs: Tensor) -> Tensor:
        return elsewhere() * outputs[:, 0]


def test_what_finish_gives_is_looked_at_too(bench: tta_bench.Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    first, same = (run(bench, Hidden()) for _ in range(2))
    assert first.created == same.created
    monkeypatch.setattr(WhereNobodyLooks, "sign", -1.0)
    other = run(bench, Hidden())
    assert np.array_equal(other.scores(), -first.scores())


@dataclass
class Counting(Plain):
    name: ClassVar[str] = "counting"

    def finish(self, outputs: Tensor) -> Tensor:
        return outputs[:, 0] / self._seen


def test_a_finish_that_needs_the_whole_stream_runs_again(bench: tta_bench.Bench) -> None:
    first, again = (run(bench, Counting()) for _ in range(2))
    assert first.run_id == again.run_id
    assert first.created < again.created
    assert np.array_equal(first.scores(), again.scores())
    assert not again.notes


@dataclass
class Branching(Plain):
    name: ClassVar[str] = "branching"
    turned: bool = False

    def step(self, x: Observation) -> Tensor:
        scores = self._task.text @ x.image
        return torch.stack([scores, -scores])

    def finish(self, outputs: Tensor) -> Tensor:
        return outputs[:, 0].T.contiguous().T if self.turned else outputs[:, 0]


@pytest.mark.parametrize("turned", [True, False])
def test_scores_are_stored_in_their_own_order(bench: tta_bench.Bench, turned: bool) -> None:
    """A part of a larger tensor was written as its memory lies: mAP 53.78, and 22.12 by the scores that were kept."""
    plain, branching = run(bench, Plain()), run(bench, Branching(turned=turned))
    assert np.array_equal(branching.scores(), plain.scores())
    assert branching.metrics == plain.metrics


def by_two(*parts: Any) -> Any:
    return 2 * parts[-1]


def hooked_layer() -> torch.nn.Module:
    layer = torch.nn.Identity()
    layer.register_forward_hook(by_two)
    layer.register_forward_hook(by_two, with_kwargs=True)
    return layer


TABLES: dict[str, Callable[[int], Any]] = {
    "a series": lambda n: pd.Series([0, 0.02, n]),
    "a table": lambda n: pd.DataFrame({"a": [1, n], "b": ["x", "y"]}),
    "its columns": lambda n: pd.DataFrame({f"a{n}": [1]}),
    "an index": lambda n: pd.Index(["a", str(n)]),
    "the order of categories": lambda n: pd.Series(pd.Categorical(["x", "y"], ["x", "y"] if n == 1 else ["y", "x"])),
    "categories in an order": lambda n: pd.Series(pd.Categorical(["x", "y"], ordered=n == 1)),
    "categories in a table": lambda n: pd.DataFrame({"a": pd.Categorical([1], [1, 2, 3][:n])}),
    "categories of an index": lambda n: pd.CategoricalIndex(["x"], ["x", "y"] if n == 1 else ["y", "x"]),
    "levels": lambda n: pd.Series([1, 2], index=pd.MultiIndex.from_tuples([(1, 2), (3, n)])),
}


@pytest.mark.parametrize("what", TABLES)
def test_tables_of_pandas_are_told_by_what_is_in_them(what: str) -> None:
    """Every run was another row: what they are made of inside can't be looked into."""
    assert described(TABLES[what](1)) == described(TABLES[what](1)) != described(TABLES[what](2))


def test_a_hooks_number_makes_no_difference() -> None:
    """A cell that was run again made another row: the process counts its hooks."""
    assert described(hooked_layer()) == described(hooked_layer()) != described(torch.nn.Identity())


class Mixed(torch.nn.Module, Method):
    name = "mixed"

    def __init__(self, factor: float) -> None:
        super().__init__()
        self.factor = torch.nn.Parameter(torch.tensor(factor))

    def start(self, task: Task) -> None:
        assert list(self.parameters())  # which puts modules into a set
        self._task = task

    def step(self, x: Observation) -> Tensor:
        return self.factor.detach() * (self._task.text @ x.image)


@pytest.mark.slow
def test_a_layer_may_be_a_method(bench: tta_bench.Bench) -> None:
    assert Mixed(1.0) != Mixed(1.0)
    assert np.array_equal(run(bench, Mixed(1.0)).scores(), run(bench, Plain()).scores())
