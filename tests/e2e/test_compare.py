"""`ttabench compare`: what it says, to whom, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from rich.console import Console

from tests.conftest import Invoke
from tests.unit.test_comparison import saved
from tta_bench.records import load_all
from tta_bench.report.comparison import between, compare
from tta_bench.report.comparison_text import duels_to_console, to_console


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """Two seeds of a baseline, of one that is better, of one that loses one class, and of the other baseline."""
    root = tmp_path / "runs"
    for seed in (0, 1):
        saved(root, "clip", 1.0, seed)
        saved(root, "good", 3.5, seed)
        saved(root, "odd", [1.0, 1.0, 1.0, -2.5], seed)
        saved(root, "regions", 1.1, seed)
    return root


def rows(text: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(text)))


def test_all_against_the_baseline(invoke: Invoke, runs: Path) -> None:
    done = invoke("compare", "--results", str(runs))
    assert done.code == 0
    assert "Of 3 set against clip: 1 better" in done.out
    assert next(line.split()[1] for line in done.out.splitlines() if line.startswith("│")) == "good"
    assert "2 runs each" in done.out


def test_the_csv_begins_as_scripts_expect(invoke: Invoke, runs: Path) -> None:
    done = invoke(
        "compare", "--baseline", "regions", "--metric", "mAP,mAP_softmax", "--format", "csv", "--results", str(runs)
    )
    assert done.out.startswith("method,baseline,dataset,backbone,prompt,metric,delta,low,high,p,p_adjusted")
    assert [row["metric"] for row in rows(done.out)] == ["mAP"] * 3 + ["mAP_softmax"] * 3
    deltas = [float(row["delta"]) for row in rows(done.out)[:3]]
    assert deltas == sorted(deltas, reverse=True)
    assert json.loads(invoke("compare", "--format", "json", "--results", str(runs)).out)[0]["method"] == "good"


def test_looking_at_fewer_methods_makes_none_more_certain(invoke: Invoke, runs: Path) -> None:
    def p_of_odd(*options: str) -> str:
        found = rows(invoke("compare", "--format", "csv", "--results", str(runs), *options).out)
        return next(row["p_adjusted"] for row in found if row["method"] == "odd")

    assert p_of_odd("--method", "odd") == p_of_odd()


def test_two_methods_class_by_class(invoke: Invoke, runs: Path) -> None:
    done = invoke("compare", "odd", "clip", "--results", str(runs))
    assert done.code == 0
    assert "odd is worse than clip by" in done.out
    assert "1 significantly harmed" in done.out
    assert [line.split()[1] for line in done.out.splitlines() if line.startswith("│")][-1] == "dog"
    found = rows(invoke("compare", "odd", "clip", "--format", "csv", "--results", str(runs)).out)
    assert found[0]["class"] == ""
    assert {row["class"] for row in found[1:]} == {"ant", "bee", "cat", "dog"}
    assert float(found[0]["delta"]) == pytest.approx(sum(float(row["delta"]) for row in found[1:]) / 4)


def test_two_runs(invoke: Invoke, runs: Path) -> None:
    def run_of(method: str, seed: int) -> str:
        found = [json.loads(file.read_text()) for file in runs.glob(f"{method}-*/run.json")]
        return str(next(content["run_id"] for content in found if content["seed"] == seed))

    assert (
        "good is better than clip"
        in invoke("compare", run_of("good", 0), run_of("clip", 0), "--results", str(runs)).out
    )
    refused = invoke("compare", run_of("good", 0), run_of("clip", 1), "--results", str(runs))
    assert refused.code == 2
    assert "can't be paired" in refused.err


def test_all_pairs_are_marked_exploratory(invoke: Invoke, runs: Path) -> None:
    done = invoke("compare", "--all-pairs", "--format", "md", "--results", str(runs))
    assert "Exploratory:" in done.out
    assert "of 6 pairs differ" in done.out
    assert "| good − " in done.out
    for method in ("clip", "good", "odd", "regions"):  # whichever side it stands on
        shown = invoke("compare", "--all-pairs", "--method", method, "--format", "csv", "--results", str(runs))
        assert [method in (row["method"], row["baseline"]) for row in rows(shown.out)] == [True] * 3


@pytest.mark.parametrize("width", [60, 80, 160])
def test_tables_fit_a_terminal_and_no_number_is_cut(runs: Path, width: int) -> None:
    found = load_all(runs)[0]
    duels, _ = between([run for run in found if run.method == "odd"], [run for run in found if run.method == "clip"])
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for part in (*to_console(compare(found).rows, width), *duels_to_console(duels, width)):
        console.print(part)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert max(map(len, text.splitlines())) <= width
    assert f"{duels[0].row['low']:+.2f} to {duels[0].row['high']:+.2f}" in text
    assert "…" not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--baseline", "clop"), "Did you mean clip?"),
        (("good",), "name two"),
        (("good", "clip", "--all-pairs"), "another comparison"),
        (("--metric", "mapp"), "unknown metric"),
        (("good", "good"), "can't be paired"),
        (("#ffffff0", "clip"), "no run among these"),
        (("--method", "gud"), "good"),
    ],
)
def test_what_is_refused_is_refused_in_a_line(
    invoke: Invoke, runs: Path, arguments: tuple[str, ...], said: str
) -> None:
    done = invoke("compare", *arguments, "--results", str(runs))
    assert done.code == 2
    assert said in done.err
    assert len(done.err.strip().splitlines()) == 1


def test_a_method_of_two_configurations_has_to_be_named_exactly(invoke: Invoke, runs: Path) -> None:
    other = saved(runs, "good", 2.0, config="shots=5")
    done = invoke("compare", "good", "clip", "--results", str(runs))
    assert done.code == 2
    assert f"#{other.config.digest[:6]} (setting=shots=5)" in done.err
    chosen = invoke("compare", f"#{other.config.digest[:6]}", "clip", "--results", str(runs))
    assert "good setting=shots=5" in chosen.out
