"""Leaderboard and show: what is printed, in every format."""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Invoke
from tta_bench.records import Identity, RunRecord
from tta_bench.report.board import boards


def record(method: str = "tda", value: float = 50.0, **changes: object) -> RunRecord:
    """A record as small as it gets; `changes` overrides fields."""
    fields: dict[str, object] = {
        "protocol": Identity({"dataset": "toy"}),
        "config": Identity({"method": method}),
        "replicate": Identity({"seed": 0}),
        "method": method,
        "dataset": "toy",
        "backbone": "tiny",
        "prompt": "photo",
        "seed": 0,
        "order": "shuffled",
        "n": 10,
        "hyper_parameters": {},
        "tag": "default",
        "changes": {},
        "metrics": {"mAP": value, "mAP_centered": value + 1, "mAP_softmax": value + 2},
        "per_class_ap": {},
        "counts": {},
        "speed": {"images_per_s": 100.0},
    }
    return RunRecord(**{**fields, **changes})  # type: ignore[arg-type]


def test_a_cell_is_the_mean_over_replicates_and_nothing_else() -> None:
    runs = [record(value=50 + seed, seed=seed, replicate=Identity({"seed": seed})) for seed in range(3)]
    (board,) = boards([*runs, record("clip", 50.5)])
    cell = board.cells["tda", "toy mAP"]
    assert (cell.mean, cell.deviation, cell.runs) == (51.0, 1.0, 3)
    assert board.text("tda", "toy mAP", lambda t: f"*{t}*") == "*51.00* ± 1.00"
    assert board.text("clip", "toy mAP", lambda t: f"*{t}*") == "50.50"


def test_protocols_are_never_merged() -> None:
    limited = record(value=90.0, n=5, protocol=Identity({"dataset": "toy", "n": 5}))
    relabelled = record(value=10.0, protocol=Identity({"dataset": "toy", "labels": "other"}))
    (board,) = boards([record(), limited, relabelled])
    columns = [column for column in board.columns if column.endswith(" mAP") and not column.startswith("average")]
    assert len(columns) == 3
    assert "toy (n=5) mAP" in columns
    assert sum(" #" in column for column in columns) == 2  # n alone does not tell these two apart
    assert any("3 protocols, kept apart" in note for note in board.notes)


def test_configurations_of_one_method_are_rows_of_their_own() -> None:
    tuned = record(value=60.0, config=Identity({"shots": 5}), tag="tuned", changes={"shots": "5"})
    other_version = record(value=70.0, config=Identity({"version": "2"}))
    (board,) = boards([record(), tuned, other_version])
    assert "tda [tuned: shots=5]" in board.rows
    assert sum(row.startswith("tda #") for row in board.rows) == 2
    assert any("tuned" in note for note in board.notes)


def test_an_average_needs_every_dataset() -> None:
    elsewhere = record(value=60.0, dataset="other", protocol=Identity({"dataset": "other"}))
    (board,) = boards([record(), elsewhere, record("clip", 40.0)])
    assert board.cells["tda", "average mAP"].mean == 55.0
    assert board.text("clip", "average mAP", str) == "–"


def test_backbones_have_tables_of_their_own() -> None:
    assert [b.title for b in boards([record(), record(backbone="vit-b16")])] == [
        "tiny, prompt 'photo'",
        "vit-b16, prompt 'photo'",
    ]


@pytest.fixture
def two_runs(toy_run: Invoke) -> None:
    assert toy_run("twobranches").code == 0
    assert toy_run("prompttuner", "--set", "lr=0.2").code == 0


def test_csv_is_long_form(two_runs: None, invoke: Invoke) -> None:
    text = invoke("leaderboard", "--format", "csv").out
    assert text.startswith("method,dataset,backbone,prompt,seed,order,n,mAP,mAP_centered,mAP_softmax,")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert {row["method"] for row in rows} == {"twobranches", "prompttuner"}
    assert all(0 <= float(row["mAP"]) <= 100 for row in rows)


def test_markdown_latex_json_and_console(two_runs: None, invoke: Invoke) -> None:
    markdown = invoke("leaderboard", "--format", "md").out
    assert "| twobranches |" in markdown
    assert "**" in markdown
    latex = invoke("leaderboard", "--format", "latex").out
    assert r"\begin{tabular}{lrrrr}" in latex
    assert "prompttuner [tuned: lr=0.2] &" in latex
    assert len(json.loads(invoke("leaderboard", "--format", "json").out)) == 2
    console = invoke("leaderboard").out
    assert "toy mAP" in console
    assert "toy softmax" in console


def test_filters(two_runs: None, invoke: Invoke) -> None:
    assert "prompttuner" not in invoke("leaderboard", "--method", "twobranches", "--format", "csv").out
    assert invoke("leaderboard", "--dataset", "tou").code == 2


def test_show_finds_a_run_by_the_beginning_of_its_name(two_runs: None, invoke: Invoke, home: Path) -> None:
    shown = invoke("show", "twobranches").out
    for word in ("protocol", "config", "replicate", "hyper_parameters", "per_class_ap", "images_per_s", "torch"):
        assert word in shown
    content = json.loads(invoke("show", "twobranches", "--json").out)
    assert content["schema"] == 1
    folder = next((home / "runs").glob("twobranches*"))
    assert invoke("show", str(folder)).out == shown


def test_latex_escapes_what_latex_would_read_as_code() -> None:
    from tta_bench.report.board import to_latex, to_markdown

    nasty = record("a_b&c%", changes={"x": "$1"}, tag="tuned")
    assert r"a\_b\&c\% [tuned: x=\$1]" in to_latex([nasty])
    assert r"a\|b" in to_markdown([record("a|b")])


def test_the_console_has_room_for_many_datasets(capsys: pytest.CaptureFixture[str]) -> None:
    from rich.console import Console

    from tta_bench.report.board import to_console

    names = [f"scenes:variant{i}" for i in range(6)]
    runs = [record(value=40.0 + i, dataset=n, protocol=Identity({"d": n})) for i, n in enumerate(names)]
    console = Console(width=80)
    for table in to_console(runs, console.width):
        console.print(table)
    shown = capsys.readouterr().out
    assert "…" not in shown
    for i in range(6):
        assert f"{40 + i}.00" in shown
        assert f"{42 + i}.00" in shown
    assert "42.50" in shown  # the average


def test_a_dataset_under_two_protocols_is_not_averaged() -> None:
    twice = record(n=5, protocol=Identity({"dataset": "toy", "n": 5}))
    (board,) = boards([record(), twice, record(dataset="other", protocol=Identity({"dataset": "other"}))])
    assert not [column for column in board.columns if column.startswith("average")]


def test_a_terminal_without_unicode_still_gets_its_table(two_runs: None, home: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "TTABENCH_HOME": str(home)}
    command = [sys.executable, "-c", "from tta_bench.cli.main import main; main()", "leaderboard"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "twobranches" in done.stdout
