"""A finished run of an instance is taken for done only by an instance that gives the same to its end."""

from __future__ import annotations

import gc
import importlib
import sys
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
