"""Calls from Python: what was asked for is what is run and shown, or it is refused in one line."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

import tta_bench
from tests.conftest import TOY, Invoke
from tests.record_fixtures import record
from tta_bench import records
from tta_bench.errors import PluginError, UsageError
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.plugins import Registry, get_method
from tta_bench.records import Identity, Results
from tta_bench.report.along import baseline_of
from tta_bench.runs import hyperparameters
from tta_bench.runs.bench import Bench
from tta_bench.system.progress import TTABenchWarning


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


class ByHand(Own):
    """With an `__init__` of its own, beside a dataclass's."""

    name: ClassVar[str] = "byhand"

    def __init__(self, rate: float = 0.5) -> None:
        super().__init__()
        self.rate = rate


def test_arguments_of_an_own_init_are_changes(toy_bench: Bench) -> None:
    usual, tuned = (tta_bench.run(made, "toy", "toyclip", bench=toy_bench) for made in (ByHand(), ByHand(0.7)))
    assert (usual.tag, dict(usual.changes)) == ("default", {})
    assert (tuned.tag, dict(tuned.changes)) == ("tuned", {"rate": "0.7"})


# ------------------------------------------------------------------------------------------------- tables and names


@pytest.mark.parametrize("width", [0, -5])
def test_a_width_that_holds_nothing_is_refused(width: int) -> None:
    with pytest.raises(UsageError, match=f"width={width}"):
        Results([record("clip")]).leaderboard(width=width)


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


# ------------------------------------------------------------------------------------------- warnings, folders, words


@dataclass
class Constant(Own):
    """Its scores rank nothing, which is said."""

    name: ClassVar[str] = "constant"

    def step(self, x: Observation) -> Tensor:
        return torch.ones(len(self.text))


@pytest.mark.parametrize("force", [False, True])
def test_a_warning_that_was_made_an_error_is_that_warning_and_the_record_stays(force: bool, home: Path) -> None:
    bench = tta_bench.Bench(home, registry=Registry([TOY]))
    with warnings.catch_warnings():
        warnings.simplefilter("error", TTABenchWarning)
        for _ in range(2):
            with pytest.raises(TTABenchWarning, match="constant: the state that a checkpoint would hold is the same"):
                tta_bench.run(Constant(), "toy", "toyclip", bench=bench, force=force)
    (run,), problems = records.load_all(bench.runs)
    assert problems == []
    assert run.folder is not None
    assert not (run.folder / "checkpoint.pt").exists()


def test_results_of_a_relative_folder_stay_when_the_working_folder_changes(
    toy_bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tta_bench.run("clip", "toy", "toyclip", bench=toy_bench)
    monkeypatch.chdir(toy_bench.home)
    results = tta_bench.load_results("runs")
    monkeypatch.chdir(tmp_path)
    assert results[0].scores().shape == (24, 4)


@dataclass
class Asks(Own):
    name: ClassVar[str] = "asks"

    def start(self, task: Task) -> None:
        assert task.encode_texts is not None
        self.text = task.encode_texts("a photo of a cat")


def test_a_single_text_is_not_taken_for_its_letters(toy_bench: Bench) -> None:
    with pytest.raises(PluginError, match=r"encode_texts takes a list of texts: \['a photo of a cat'\] \(.*line \d+\)"):
        tta_bench.run(Asks(), "toy", "toyclip", bench=toy_bench)


@pytest.mark.parametrize("name", ["shots", "tree"])
def test_what_is_nested_too_deep_is_named(name: str, toy_bench: Bench) -> None:
    deep: Any = None
    for _ in range(3000):
        deep = [deep]
    made = Own()
    vars(made)[name] = deep
    with pytest.raises(UsageError, match=f"own.{name} is nested too deep"):
        tta_bench.run(made, "toy", "toyclip", bench=toy_bench)


# ------------------------------------------------------------------------------------------------- hyper-parameters


class Undecorated(Own):
    name: ClassVar[str] = "undecorated"
    shots = 9


def test_a_default_that_is_not_used_is_refused(toy_bench: Bench, invoke: Invoke, tmp_path: Path) -> None:
    """Without the decorator `__init__` has the other class's default."""
    wanted = "Undecorated gives shots another default, which is not used: put @dataclass above the class"
    with pytest.raises(PluginError, match=wanted):
        tta_bench.run(Undecorated(), "toy", "toyclip", bench=toy_bench)
    plugin = tmp_path / "mine.py"
    plugin.write_text(PLUGIN)
    for command in (["check", str(plugin)], ["run", "-m", "variant", "--plugin", str(plugin), "--limit", "4"]):
        done = invoke(*command)
        assert done.code != 0
        assert "Variant gives shots another default, which is not used" in " ".join((done.out + done.err).split())


PLUGIN = """
from __future__ import annotations
from dataclasses import dataclass
from typing import ClassVar
from tta_bench import hookimpl
from tta_bench.methods.tda import TDA


class Variant(TDA):
    name: ClassVar[str] = "variant"
    shots: int = 9


@hookimpl
def ttabench_methods():
    return [Variant]
"""


@dataclass
class Lists(Own):
    name: ClassVar[str] = "lists"
    layers: list[int] = field(default_factory=lambda: [1])
    sizes: tuple[int, ...] = (1,)
    words: Sequence[str] = ()
    chosen: frozenset[int] = frozenset()
    weights: dict[str, float] = field(default_factory=dict)
    bare: list = field(default_factory=list)  # type: ignore[type-arg]
    maybe: list[float] | None = None


@pytest.mark.parametrize(
    ("name", "text", "given", "value"),
    [
        ("layers", "[1, 2]", [1, 2], [1, 2]),
        ("layers", "[]", (), []),
        ("sizes", "[1, 2]", [1, 2], (1, 2)),
        ("words", "[a, b]", ["a", "b"], ("a", "b")),
        ("chosen", "[2, 1]", {1, 2}, frozenset([1, 2])),
        ("weights", "{a: 1}", {"a": 1}, {"a": 1.0}),
        ("bare", "[1, a]", [1, "a"], [1, "a"]),
        ("maybe", "[1]", [1], [1.0]),
        ("maybe", "null", None, None),
    ],
)
def test_a_field_of_several_values_can_be_set(name: str, text: str, given: Any, value: Any) -> None:
    for setting in (text, given):
        found = getattr(hyperparameters.build(Lists, {name: setting}).method, name)
        assert found == value
        assert type(found) is type(value)


ODD = {"layers": ["[1, a]", "3", "[1, 010]", "[1:30]"], "weights": ["[1]"], "sizes": ["x"]}


@pytest.mark.parametrize(("name", "text"), [(name, text) for name, texts in ODD.items() for text in texts])
def test_other_values_in_a_field_of_several_are_refused(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=rf"lists\.{name}="):
        hyperparameters.build(Lists, {name: text})


def test_annotations_that_only_type_checkers_know_are_no_matter(invoke: Invoke, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(ANNOTATED)
    done = invoke("run", "-m", "annotated", "--plugin", str(plugin), "--limit", "4", "--set", "alpha=0.25")
    assert done.code == 0, done.err
    assert tta_bench.load_results()[0].hyper_parameters == {"alpha": 0.25, "table": None}
    done = invoke("run", "-m", "annotated", "--plugin", str(plugin), "--limit", "4", "--set", "alpha=many")
    assert "annotated.alpha=many: a finite number is wanted" in done.err  # the others are read as ever


ANNOTATED = """
from __future__ import annotations
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Literal
from tta_bench import hookimpl
from tta_bench.interfaces import Method
if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass
class Annotated(Method):
    name: ClassVar[str] = "annotated"
    alpha: float = 0.5
    table: Mapping[str, int] | None = None

    def start(self, task):
        self.task = task

    def step(self, x):
        return self.alpha * (self.task.text @ x.image)


@hookimpl
def ttabench_methods():
    return [Annotated]
"""
