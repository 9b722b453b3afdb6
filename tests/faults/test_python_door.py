"""Calls from Python: what was asked for is what is run and shown, or it is refused in one line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import tta_bench
from tests.record_fixtures import record
from tta_bench.errors import UsageError
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.plugins import get_method
from tta_bench.records import Identity, Results
from tta_bench.report.along import baseline_of
from tta_bench.runs.bench import Bench


@dataclass
class Own(Method):
    name: ClassVar[str] = "own"
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {"paper": {"shots": 7}}
    shots: int = 3

    def start(self, task: Task) -> None:
        self.text = task.text

    def step(self, x: Observation) -> Tensor:
        return self.text @ x.image


# --------------------------------------------------------------------------------------------------------- grids


@pytest.mark.parametrize("settings", [{"shots": 5}, {"own.shots": 5}])
def test_settings_beside_an_instance_that_has_them_are_refused(settings: dict[str, Any], toy_bench: Bench) -> None:
    with pytest.raises(UsageError, match="own: an instance has its settings already, and it has shots"):
        tta_bench.grid(["tda", Own()], "toy", "toyclip", settings=settings, bench=toy_bench)


def test_a_preset_beside_an_instance_that_has_it_is_refused(toy_bench: Bench) -> None:
    with pytest.raises(UsageError, match="own: an instance has its settings already, and it has the preset paper"):
        tta_bench.grid(["tda", Own()], "toy", "toyclip", preset="paper", bench=toy_bench)


def test_settings_of_another_method_are_its_own(toy_bench: Bench) -> None:
    found = tta_bench.grid(["tda", Own()], "toy", "toyclip", settings={"tda.shots": 5}, bench=toy_bench)
    assert {run.method: run.hyper_parameters["shots"] for run in found} == {"tda": 5, "own": 3}


def test_what_was_put_in_the_place_of_ours_goes_to_no_other_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers import our files: they would give the number of what was replaced."""
    monkeypatch.setattr(get_method("tda"), "step", lambda self, x: torch.arange(24.0))
    with pytest.raises(UsageError, match=r"tta_bench\.methods\.tda\.TDA\.step .* other processes.*: use jobs=1"):
        tta_bench.grid(["tda", "clip"], limit=20, jobs=2)


# ------------------------------------------------------------------------------------------------- tables and names


@pytest.mark.parametrize("several", [pd.Series, np.array, torch.tensor, pd.Index, iter], ids=lambda kind: kind.__name__)
def test_a_filter_takes_values_and_no_labels_of_an_index(several: Any) -> None:
    runs = Results([record("clip", seed=seed, replicate=Identity({"seed": seed})) for seed in range(4)])
    assert [run.seed for run in runs.filter(seed=several([2, 3]))] == [2, 3]
    one: list[Any] = [np.int64(2), np.array(2)]
    assert [[run.seed for run in runs.filter(seed=number)] for number in one] == [[2], [2]]


@pytest.mark.parametrize("seeds", [np.int64(3), np.array(3), torch.tensor(3)], ids=lambda seeds: type(seeds).__name__)
def test_a_number_of_a_library_is_one_seed(seeds: Any, toy_bench: Bench) -> None:
    assert [run.seed for run in tta_bench.grid("clip", "toy", "toyclip", seeds=seeds, bench=toy_bench)] == [3]


def of(label: str, **changes: Any) -> Any:
    return record("clip", config=Identity({"by": label, **changes}), provenance={"code": {"method": label}})


@pytest.mark.parametrize("other", [of("notebook"), of("mine.py"), of("ttabench 0.2.0", replaced="abc")])
def test_frozen_clip_is_the_built_in_and_no_class_of_its_name(other: Any) -> None:
    clip = of("ttabench 0.2.0")
    asked = [(record(), [other, clip]), (record(), [clip, other]), (other, [other, clip])]
    assert [baseline_of(run, others) for run, others in asked] == [clip, clip, clip]
    assert baseline_of(record(), [other]) is None
    assert baseline_of(clip, [other, clip]) is None


def test_a_class_that_calls_itself_clip_is_not_its_own_baseline(toy_bench: Bench) -> None:
    class Clip(get_method("clip")):  # type: ignore[misc]
        def step(self, x: Observation) -> Tensor:
            return self.task.text @ -x.image  # type: ignore[no-any-return]

    runs = tta_bench.grid([Clip(), "clip"], "toy", "toyclip", bench=toy_bench)
    frozen = next(run for run in runs if run.provenance["code"]["method"].startswith("ttabench "))
    last = runs.along(points=1)
    assert last["mAP"].nunique() == 2
    assert last["clip"].tolist() == pytest.approx([frozen.metrics["mAP"]] * 2)
