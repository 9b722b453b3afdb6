"""What a plugin calls itself and its parts: no name breaks a record, a list or a spreadsheet."""

from __future__ import annotations

import csv
import io
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from torch import Tensor

from tests.conftest import TOY, Invoke
from tests.e2e.test_grid import METHOD
from tests.record_fixtures import record
from tta_bench import records
from tta_bench.errors import PluginError, UsageError
from tta_bench.interfaces import Observation
from tta_bench.methods.clip import CLIP
from tta_bench.plugins import Registry
from tta_bench.records import Identity, Results
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.runs.grid import _refuse_strangers
from tta_bench.runs.hyperparameters import Offer, settings_for

HALF = "\ud800"  # Python spells it, and no encoding has it
SOUND = METHOD.replace("SCORES", "self.task.text @ x.image")
TOYS = ("--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip", "--workers", "0", "--limit", "3")


# ------------------------------------------------------------------------------------------------------------- records


@pytest.mark.parametrize(
    "changed",
    [
        {"method": f"tda{HALF}", "config": Identity({"method": f"tda{HALF}"})},
        {"dataset": HALF, "protocol": Identity({"dataset": HALF})},
        {"per_class_ap": {f"dog{HALF}": 50.0}},
        {"hyper_parameters": {"words": HALF}},
        {"notes": [HALF]},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_half_a_character_can_be_recorded(changed: dict[str, object], tmp_path: Path) -> None:
    run = record(**changed)  # type: ignore[arg-type]
    scores, labels = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int8)
    folder = tmp_path / run.run_id
    columns = {f"loss{HALF}": np.zeros(2, np.float32)}
    records.save(run, folder, scores[:, None], scores, labels, np.arange(2), ["x", HALF], columns)
    again = records.load(folder, named=True)
    assert again.sealed
    assert {name: getattr(again, name) for name in changed} == changed
    assert again.ids() == ("x", HALF)
    assert list(again.diagnostics()) == ["loss\\ud800"]
    for format_ in ("console", "csv", "json", "md", "latex"):
        Results([again]).leaderboard(format_).encode()


@pytest.mark.slow
def test_a_method_whose_name_is_half_a_character_runs(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(SOUND.replace('= "mine"', '= "mine\\ud800"'))
    result = invoke("run", "-m", "all", "--plugin", str(plugin), *TOYS, "--no-plugin", "ttabench")
    assert "unexpected" not in result.err
    assert f"mine{HALF}" in {run.method for run in records.load_all(home / "runs")[0]}


def test_settings_reach_a_method_whose_name_has_a_dot() -> None:
    settings, nothing = {"my.own.shots": 3, "own.shots": 4}, frozenset[str]()
    assert settings_for("my.own", {"shots"}, settings) == {"shots": 3}
    assert settings_for("own", {"shots"}, settings) == {"shots": 4}
    offers = {name: Offer(frozenset({"shots"}), nothing, nothing) for name in ("my.own", "own")}
    _refuse_strangers(offers, settings)
    with pytest.raises(UsageError, match=r"unknown method in --set 'my.tda'"):
        _refuse_strangers(offers, {"my.tda.shots": 3})


# --------------------------------------------------------------------------------------------------- two of one name


@pytest.fixture
def two_of_one_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two distributions that offer the method "mine", one of them of that name itself."""
    for name in ("mine", "othermine"):
        info = tmp_path / "site" / f"{name}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[ttabench]\nmethods.mine = code_of_{name}\n")
        (tmp_path / "site" / f"code_of_{name}.py").write_text(SOUND)
    monkeypatch.syspath_prepend(str(tmp_path / "site"))


@pytest.mark.usefixtures("two_of_one_name")
@pytest.mark.parametrize(
    ("without", "only", "left"),
    [("othermine", None, "mine"), ("mine", None, "othermine"), ("", "mine", "mine"), ("", "othermine", "othermine")],
)
def test_a_distributions_name_means_that_one(
    without: str, only: str | None, left: str, invoke: Invoke, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if only is not None:
        monkeypatch.setenv("TTABENCH_PLUGINS", only)
    result = invoke("run", "-m", "mine", *TOYS, *(["--no-plugin", without] if without else []))
    assert result.code == 0, result.err
    (run,) = records.load_all(home / "runs")[0]
    assert run.provenance["code"]["method"] == f"{left} 1.0"


@pytest.mark.parametrize("without", ["clip", "ttabench"])
def test_a_method_may_take_the_name_of_a_built_in_that_is_left_out(
    without: str, invoke: Invoke, home: Path, tmp_path: Path
) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(SOUND.replace('= "mine"', '= "clip"'))
    result = invoke("run", "-m", "clip", "--plugin", str(plugin), *TOYS, "--no-plugin", without)
    assert result.code == 0, result.err
    (run,) = records.load_all(home / "runs")[0]
    assert run.provenance["code"]["method"] == "mine.py"


# --------------------------------------------------------------------------------------------------------------- lists

NONSENSE = [
    "presets = 3",
    "presets = None",
    'presets = {"a": 3}',
    'presets = {3: {"alpha": 1}}',
    "preset_recipes = [1]",
    "recipes = 5",
    'recipes = {"views": 7}',
    "__doc__ = 3",
    "tunes_prompts = 'often'",
    "version = None",
]


@pytest.mark.parametrize("attribute", NONSENSE)
def test_a_nonsensical_attribute_is_one_line_of_its_page(attribute: str, invoke: Invoke, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(SOUND.replace("    def start", f"    {attribute}\n\n    def start"))
    for more in ((), ("--json",)):
        page = invoke("list", "methods", "mine", "--plugin", str(plugin), *more)
        assert (page.code, page.err) == (0, "")
        assert "mine" in page.out
    assert page.out.count("mending: ") <= 1
    names = invoke("list", "methods", "--plugin", str(plugin)).out
    assert "mine" in names
    assert "purf" in names


def test_what_is_wrong_with_presets_is_said(invoke: Invoke, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(SOUND.replace("    def start", "    presets = 3\n\n    def start"))
    page = invoke("list", "methods", "mine", "--plugin", str(plugin))
    assert "mending: `presets` maps each name to a mapping, and is 3" in " ".join(page.out.split())


# -------------------------------------------------------------------------------------------------------- spreadsheets


@pytest.mark.parametrize("begins", ["=", "+", "-", "@"])
def test_no_name_is_a_formula(begins: str) -> None:
    name = f'{begins}HYPERLINK("x")'
    run = record(name, dataset=name, backbone=name, prompt=name, metrics={"mAP": 50.0, name: 1.5}, seed=-3)
    heads, cells = csv.reader(io.StringIO(Results([run]).leaderboard("csv")))
    row = dict(zip(heads, cells, strict=True))
    assert {row[column] for column in ("method", "dataset", "backbone", "prompt")} == {f"'{name}"}
    assert not [cell for cell in (*heads, *cells) if cell.startswith(("=", "+", "@"))]
    assert (row["seed"], row["mAP"], row[f"'{name}"]) == ("-3", "50.0", "1.5")  # a negative number is a number


def test_a_report_keeps_its_digits(toy_bench: Bench) -> None:
    @dataclass
    class Clock(CLIP):
        name = "clock"

        def step(self, x: Observation) -> Tensor:
            self.report({"time": 1763489000.0 + x.index})
            return super().step(x)

    run = toy_bench.run(RunSpec(Clock(), "toy", "toyclip", order="sequential", limit=5)).record
    assert run.diagnostics()["time"].tolist() == [1763489000.0 + i for i in range(5)]


@pytest.mark.parametrize("returned", ["", "return Mine", "return None"])
def test_a_hook_that_returns_no_list_says_so(returned: str, tmp_path: Path) -> None:
    file = tmp_path / "odd.py"
    hook = f"@hookimpl\ndef ttabench_methods():\n    {returned or 'pass'}\n"
    file.write_text(f"from tta_bench import hookimpl\nMine = int\n{hook}")
    with pytest.raises(PluginError, match="it must return a list of classes, not"):
        Registry([file])
