"""Values that notebooks are full of: archives of numpy, moments of pandas, numbers of numpy; and arguments mixed up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
from torch import Tensor

import tta_bench
from tests.record_fixtures import record
from tta_bench.errors import BadData, UsageError
from tta_bench.features.labels import ids_and_labels
from tta_bench.interfaces import Method, Observation, Sample, Task
from tta_bench.methods.tda import TDA
from tta_bench.records import Results, RunRecord
from tta_bench.runs import hyperparameters
from tta_bench.runs.bench import Bench
from tta_bench.system.described import described
from tta_bench.system.files import digest
from tta_bench.views import AugMix, Plain, RandomCrops

NAMES = ("a_prior", "b_prior")
ARCHIVES: dict[str, Any] = {}  # by a test; a notebook's global
NOW: Any = pd.Timestamp("2026-01-01")


@dataclass
class Holding(Method):
    name: ClassVar[str] = "holding"
    value: Any = None

    def start(self, task: Task) -> None:
        self.task = task

    def step(self, x: Observation) -> Tensor:
        return self.task.text @ x.image


class Loaded(Holding):
    name = "loaded"

    def start(self, task: Task) -> None:
        self.task, self._scale = task, float(self.archive()["a_prior"][0])

    def archive(self) -> Any:
        return ARCHIVES["of the notebook"]

    def step(self, x: Observation) -> Tensor:
        return self._scale * super().step(x)


class Carrying(Loaded):
    name = "carrying"

    def archive(self) -> Any:
        return self._archive

    def __init__(self, archive: Any) -> None:
        super().__init__()
        self._archive = archive


class Timed(Holding):
    name = "timed"

    def start(self, task: Task) -> None:
        self.task, self._since = task, NOW


def run(bench: Bench, method: str | Method, **asked: Any) -> RunRecord:
    return tta_bench.run(method, "toy", "toyclip", bench=bench, **asked)


# ------------------------------------------------------------------------------------------------ archives of numpy


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Any]:
    """Opens an archive of these arrays, each in a file of its own."""
    made = iter(range(99))

    def saved(*values: Any, names: tuple[str, ...] = NAMES, how: Any = np.savez, **asked: Any) -> Any:
        file = tmp_path / f"{next(made)}.npz"
        how(file, **dict(zip(names, map(np.asarray, values), strict=True)))
        return np.load(file, **asked)

    return saved


def test_an_archive_is_what_it_holds_however_far_it_was_read(saved: Callable[..., Any]) -> None:
    one, same, packed = saved([1.0], [2.0]), saved([1.0], [2.0]), saved([1.0], [2.0], how=np.savez_compressed)
    before = described(one)
    same["b_prior"]
    assert before == described(one) == described(same) == described(packed)
    others = [
        saved([1.0], [3.0]),
        saved([1.0], [2]),
        saved([[1.0]], [2.0]),
        saved([2.0], [1.0], names=("b_prior", "a_prior")),
        saved([1.0], [2.0], names=("a_prior", "c_prior")),
        saved([1.0], names=("a_prior",)),
        saved([1.0], [2.0], allow_pickle=True),  # what can be read of it is more
    ]
    said = [str(described(other)) for other in (one, *others)]
    assert len(set(said)) == len(said)


def test_an_archive_that_is_closed_or_holds_objects_is_told_all_the_same(saved: Callable[..., Any]) -> None:
    closed = [saved([1.0], [2.0]) for _ in range(2)]
    for archive in closed:
        archive.close()
    assert described(closed[0]) == described(closed[1]) != described(saved([1.0], [2.0]))
    objects = [saved(np.array([{"a": k}], dtype=object), [1.0]) for k in (1, 1, 2)]  # which it refuses to read
    assert described(objects[0]) == described(objects[1]) != described(objects[2])


def test_an_archive_is_the_same_in_another_process(saved: Callable[..., Any]) -> None:
    archive = saved([1.0], [2.0])
    code = "import sys, numpy; from tta_bench.system.described import described; from tta_bench.system.files import "
    code += "digest; print(digest(described(numpy.load(sys.argv[1]))))"
    command = [sys.executable, "-c", code, archive.zip.filename]
    other = subprocess.run(command, capture_output=True, text=True, check=True)
    assert other.stdout.strip() == digest(described(archive))


def test_an_archive_beside_data_that_is_found_by_its_name(saved: Callable[..., Any]) -> None:
    def found(archive: Any) -> Any:
        made: dict[str, Any] = {"__name__": "__main__", "WEIGHTS_a": archive, "BAG_a": archive.f}
        exec("def step(kind): return globals()['WEIGHTS_' + kind]", made)
        return described(made["step"])

    open_ones = [saved([1.0], [2.0]), saved([1.0], [2.0]), saved([1.0], [3.0])]
    one, same, other = map(found, open_ones)
    assert one == same != other
    open_ones[0].close()
    found(open_ones[0])


def test_a_method_may_read_an_archive_of_the_notebook(bench: Bench, saved: Callable[..., Any]) -> None:
    runs = []
    for scale in (1.0, 1.0, 2.0):
        ARCHIVES["of the notebook"] = saved([scale], [0.0])
        runs.append(run(bench, Loaded()))
    assert runs[0].run_id == runs[1].run_id != runs[2].run_id
    assert not any(record.notes for record in runs)
    assert np.allclose(2 * runs[0].scores(), runs[2].scores())


def test_a_method_may_carry_an_archive(bench: Bench, saved: Callable[..., Any]) -> None:
    first = run(bench, Carrying(saved([1.0], [0.0])))
    again = run(bench, Carrying(saved([1.0], [0.0])), force=True)
    other = run(bench, Carrying(saved([2.0], [0.0])))
    assert first.run_id == again.run_id != other.run_id
    for found in (first, again, other):
        assert all("ran itself and not a copy" in note for note in found.notes)
    assert np.array_equal(first.scores(), again.scores())


def test_an_archive_may_be_a_field(bench: Bench, saved: Callable[..., Any]) -> None:
    one, same, other = (run(bench, Holding(saved([k], [0.0]))) for k in (1.0, 1.0, 2.0))
    assert one.run_id == same.run_id != other.run_id
    archive = saved([1.0], [0.0])
    described(archive.f)  # which says of nothing what it is, not even of itself


# ------------------------------------------------------------------------------------------------ moments of pandas

MOMENTS: list[Callable[[], Any]] = [
    lambda: pd.Timestamp("2026-01-01"),
    lambda: pd.Timestamp("2026-01-01 00:00:00.000000001"),
    lambda: pd.Timestamp("2026-01-01", tz="UTC"),
    lambda: pd.Timestamp("2026-01-01", tz="Europe/Berlin"),
    lambda: pd.Timestamp("2026-01-01").as_unit("s"),
    lambda: pd.Timedelta("1s"),
    lambda: pd.Timedelta("1ns"),
    lambda: pd.NaT,
    lambda: pd.Period("2026-01"),
    lambda: pd.Interval(0, 1),
    lambda: pd.NA,
]


def test_moments_of_pandas_are_told_by_their_values() -> None:
    said = [str(described(make())) for make in MOMENTS]
    assert said == [str(described(make())) for make in MOMENTS]
    assert len(set(said)) == len(said)
    assert str(described([pd.Timestamp(1), pd.Timestamp(2)])) != str(described([pd.Timestamp(1), pd.Timestamp(1)]))


@pytest.mark.parametrize("number", range(len(MOMENTS)))
def test_a_moment_of_pandas_may_be_a_field(bench: Bench, number: int) -> None:
    one, same = (run(bench, Holding(MOMENTS[number]())) for _ in range(2))
    assert one.run_id == same.run_id != run(bench, Holding(MOMENTS[number - 1]())).run_id
    assert not one.notes


def test_a_moment_of_pandas_may_be_a_global(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = []
    for day in ("2026-01-01", "2026-01-01", "2026-01-02"):
        monkeypatch.setattr(sys.modules[__name__], "NOW", pd.Timestamp(day))
        runs.append(run(bench, Timed()))
    assert runs[0].run_id == runs[1].run_id != runs[2].run_id


# ------------------------------------------------------------------------------------------------ numbers of numpy


def pairs(value: float) -> Any:
    return np.array([(1, value)], dtype=[("a", int), ("b", float)])


def test_a_structured_array_may_be_a_field(bench: Bench) -> None:
    one, same, other = (run(bench, Holding(pairs(value))) for value in (2.0, 2.0, 3.0))
    assert one.run_id == same.run_id != other.run_id
    assert one.tag == "tuned"


class Unasked:
    def __eq__(self, other: object) -> bool:
        raise LookupError("not today")

    __hash__ = None  # type: ignore[assignment]


def test_a_value_that_can_not_be_compared_is_a_change() -> None:
    assert hyperparameters.of_instance(Holding(Unasked())).tag == "tuned"


def test_a_recipe_takes_numbers_of_numpy(bench: Bench) -> None:
    assert repr(Plain(np.int64(7))) == repr(Plain(7))  # type: ignore[arg-type]  # what a loop over np.arange gives
    crops = RandomCrops(np.int16(7), (np.float64(0.5), np.float64(0.8)))  # type: ignore[arg-type]
    assert repr(crops) == repr(RandomCrops(7))
    assert crops.name == "crops7"
    made = [run(bench, "regions", recipes={"regions": Plain(n)}) for n in (3, np.int64(3))]  # type: ignore[arg-type]
    assert made[0].run_id == made[1].run_id


@pytest.mark.parametrize("count", [7.0, "7", None, np.float64(7), np.array([7, 8])])
def test_a_recipe_without_a_whole_count_is_refused(count: Any) -> None:
    with pytest.raises(UsageError, match="a view recipe makes a whole number of views per image"):
        AugMix(count)


def test_numbers_of_numpy_are_no_other_configuration_of_a_built_in(bench: Bench) -> None:
    usual = run(bench, TDA())
    given = TDA(alpha=np.float64(usual.hyper_parameters["alpha"]), shots=np.int64(usual.hyper_parameters["shots"]))  # type: ignore[arg-type]
    same = run(bench, given)
    assert (same.run_id, same.config, same.tag) == (usual.run_id, usual.config, "default")
    assert type(given.alpha) is np.float64  # the one that was given is left alone
    tuned = [run(bench, TDA(shots=shots)) for shots in (5, np.int64(5))]  # type: ignore[arg-type]
    assert tuned[0].run_id == tuned[1].run_id != usual.run_id
    fresh = run(bench, TDA(shots=np.int64(6)))  # type: ignore[arg-type]
    assert dict(fresh.changes) == {"shots": "6"}
    assert not fresh.notes


def test_numbers_of_numpy_in_somebodys_own_class_are_left_alone(bench: Bench) -> None:
    configured = hyperparameters.of_instance(Holding(np.float64(2.0)))
    assert type(configured.method.value) is np.float64  # type: ignore[attr-defined]
    assert run(bench, Holding(np.float64(2.0))).run_id != run(bench, Holding(2.0)).run_id


# ------------------------------------------------------------------------------------------------ arguments mixed up

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a recipe alone": ({"recipes": "plain7"}, "recipes are a mapping .*, such as {'views': 'plain63'}, not 'plain7'"),
    "a recipe object alone": ({"recipes": Plain(7)}, r"recipes are a mapping .* not Plain\(n=7\)"),
    "a recipe of a number": ({"recipes": {3: "plain7"}}, "recipes are a mapping .* not {3: 'plain7'}"),
    "a series": ({"settings": pd.Series({"shots": 5})}, "settings are a mapping .*, such as {'shots': 5}, not shots"),
    "a setting of a number": ({"settings": {3: 5}}, "settings are a mapping .* not {3: 5}"),
    "settings as a text": ({"settings": "shots=5"}, "settings are a mapping .* not 'shots=5'"),
    "a bench of a text": ({"bench": "x"}, r"bench 'x': a tta_bench.Bench\(\) is wanted"),
    "the class of a bench": ({"bench": Bench}, r"bench .*: a tta_bench.Bench\(\) is wanted"),
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("door", [tta_bench.run, tta_bench.grid])
def test_an_argument_of_another_kind_is_refused_in_a_line(door: Any, what: str, bench: Bench) -> None:
    asked, said = WRONG[what]
    with pytest.raises(UsageError, match=said) as refused:
        door("tda", "toy", "toyclip", **{"bench": bench, **asked})
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 250


def test_a_recipe_without_its_brackets_is_refused(bench: Bench) -> None:
    with pytest.raises(UsageError, match=r"recipe views=Plain: it is a class, make one of it: Plain\(\)"):
        run(bench, "tda", recipes={"views": Plain})


def test_a_baseline_is_a_name() -> None:
    results = Results([record("clip"), record("tda")])
    for made in (results.compare, results.leaderboard):
        asked: Any = made
        for given in (TDA(), ["clip"], 3):
            with pytest.raises(UsageError, match=r"baseline .*: a method's name is wanted, such as 'clip'"):
                asked(baseline=given)
    for resamples in (2.5, "x", None, 1):
        with pytest.raises(UsageError, match=r"resamples=.*: a whole number from 2 is wanted, and 1,000 for"):
            results.compare(resamples=resamples)  # type: ignore[arg-type]


@pytest.mark.parametrize("asked", [{"points": 1.5}, {"points": "x"}, {"window": 2.5}, {"points": None}, {"points": 0}])
def test_points_are_whole_numbers(asked: Any, bench: Bench) -> None:
    results = Results([run(bench, "clip")])
    with pytest.raises(UsageError, match="whole numbers are wanted: points from 1, and a window from 1 to 24 images"):
        results.along(**asked)
    assert len(results.along(np.int64(3), np.int64(2))) == 3  # type: ignore[arg-type]


@pytest.mark.parametrize("format_", ["xx", 5, ["md"]])
def test_an_unknown_format_is_told_of_all_formats(format_: Any) -> None:
    with pytest.raises(UsageError, match=r"unknown format .*console, md, csv, latex, json, html"):
        Results([record("clip")]).leaderboard(format_)


# ------------------------------------------------------------------------------------------------------ a dataset's ids


class Numbered:
    name, variant, class_names = "numbered", "default", ("cat", "dog")

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Sample:
        return Sample(7, None, np.array([1, 0], dtype=np.int8))  # type: ignore[arg-type]


def test_an_id_that_is_no_text_is_told_as_that() -> None:
    with pytest.raises(BadData) as refused:
        ids_and_labels(Numbered())  # type: ignore[arg-type]
    assert str(refused.value) == "dataset numbered, image 7: its id must be a text, and is of type int"
