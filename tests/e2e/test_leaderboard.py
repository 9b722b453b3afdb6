"""Leaderboard and show: what is printed, in every format."""

from __future__ import annotations

import csv
import io
import json
import math
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

import tta_bench
from tests.conftest import TOY, Invoke
from tests.record_fixtures import on, record
from tta_bench.errors import UnknownName
from tta_bench.plugins import Registry
from tta_bench.records import Identity, Results, RunRecord
from tta_bench.report.board import Board, Column, Row, boards
from tta_bench.report.console import to_text
from tta_bench.report.formats import to_markdown
from tta_bench.report.frame import long_form
from tta_bench.report.latex import to_latex


def boards_of(*runs: RunRecord) -> list[Board]:
    return boards(long_form(runs))


def columns(board: Board) -> dict[str, Column]:
    return {column.name: column for column in board.columns}


def rows(board: Board) -> dict[str, Row]:
    return {row.name: row for row in board.rows}


def text(board: Board, row: str, column: str) -> str:
    """The mAP in a cell."""
    return board.text(rows(board)[row], columns(board)[column], "mAP", lambda t: f"*{t}*")


def test_a_cell_is_the_mean_over_replicates_and_nothing_else() -> None:
    runs = [record(value=50 + seed, seed=seed, replicate=Identity({"seed": seed})) for seed in range(3)]
    (board,) = boards_of(*runs, record("clip", 50.5))
    cell = board.cells[rows(board)["tda"], columns(board)["toy"], "mAP"]
    assert (cell.mean, cell.deviation, cell.runs) == (51.0, 1.0, 3)
    assert text(board, "tda", "toy") == "*51.00* ± 1.00"
    assert text(board, "clip", "toy") == "50.50"


def test_protocols_are_never_merged() -> None:
    limited = on("toy", 90.0, n=5, dataset_size=10)
    relabelled = record(value=10.0, protocol=Identity({"dataset": "toy", "labels": "other"}))
    (board,) = boards_of(record(), limited, relabelled)
    names = list(columns(board))
    assert len(names) == 3
    assert "toy (5 of 10)" in names
    assert sum(" #" in name for name in names) == 2  # n alone does not tell these two apart
    assert any("3 protocols, kept apart" in note for note in board.notes)


def test_configurations_of_one_method_are_rows_of_their_own() -> None:
    tuned = record(value=60.0, config=Identity({"shots": 5}), tag="tuned", changes={"shots": "5"})
    other_version = record(value=70.0, config=Identity({"version": "2"}))
    (board,) = boards_of(record(), tuned, other_version)
    assert "tda [tuned: shots=5]" in rows(board)
    assert sum(name.startswith("tda #") for name in rows(board)) == 2
    assert any("tuned" in note for note in board.notes)


def test_an_average_needs_every_dataset() -> None:
    (board,) = boards_of(record(), on("other", 60.0), record("clip", 40.0))
    assert text(board, "tda", "average") == "55.00"  # alone in its column: not the best of anything
    assert text(board, "clip", "average") == "–"


def test_an_average_is_over_complete_columns() -> None:
    (board,) = boards_of(on("a", 50.0), on("b", 60.0), on("c", 99.0, n=5))
    assert text(board, "tda", "average of 2") == "55.00"
    for partial in (on("b", n=5), on("b", dataset_size=None)):
        (board,) = boards_of(on("a"), partial)
        assert not any(name.startswith("average") for name in columns(board))
        assert "No average: it takes two complete datasets." in board.notes


def test_backbones_have_tables_of_their_own() -> None:
    assert [board.title for board in boards_of(record(), record(backbone="vit-b16"))] == [
        "tiny, prompt 'photo'",
        "vit-b16, prompt 'photo'",
    ]


def test_a_dataset_may_be_called_average() -> None:
    (board,) = boards_of(on("average", 10.0), on("other", 20.0))
    assert sorted(column.name for column in board.columns) == ["average", "average", "other"]
    assert len(board.cells) == 2 * 4 + 3


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    bench = tta_bench.Bench(home, registry=Registry([TOY]))
    tta_bench.run("twobranches", "toy", "toyclip", bench=bench)
    tta_bench.run("prompttuner", "toy", "toyclip", settings={"lr": 0.2}, bench=bench)
    return home / "runs"


@pytest.fixture
def two_runs(ran: Path, home: Path) -> None:
    shutil.copytree(ran, home / "runs")


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
    assert r"\begin{tabular}{lr@{}lrr}" in latex  # mAP alone, its interval, the rank
    assert "prompttuner [tuned: lr=0.2] &" in latex
    assert len(json.loads(invoke("leaderboard", "--format", "json").out)) == 2
    console = invoke("leaderboard").out
    assert "toy" in console
    assert "softmax" in console


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


def test_latex_and_markdown_escape_what_they_would_read_as_code() -> None:
    nasty = long_form([record("a_b&c%", changes={"x": "$1"}, tag="tuned")])
    assert r"a\_b\&c\% [tuned: x=\$1]" in to_latex(nasty)
    assert "\n{}[a]* &" in to_latex(long_form([record("[a]*")]))  # no argument of the row break before it
    assert r"a\|b" in to_markdown(long_form([record("a|b")]))
    assert r"[x]\(y) coco_mini \_z\_ &#92;\| &amp;lt; \`c\`" in to_markdown(
        long_form([record(r"[x](y) coco_mini _z_ \| &lt; `c`")])
    )


LONG = "tda [tuned: shots=12 alpha=2.5 beta=5.5 views=augmix15 predict_from=selected]"


@pytest.mark.parametrize("width", [40, 60, 80, 160])
def test_nothing_is_cut_off_at_any_width(width: int) -> None:
    names = [f"scenes:variant{i}" for i in range(6)]
    settings = dict(part.split("=") for part in LONG[len("tda [tuned: ") : -1].split())
    runs = [
        on(name, 40.0 + i, seed=seed, replicate=Identity({"seed": seed}), changes=settings, tag="tuned")
        for i, name in enumerate(names)
        for seed in range(3)
    ]
    for given in (runs, runs[:3]):
        shown = to_text(long_form(given), width)
        assert "…" not in shown
        assert max(map(len, shown.splitlines())) <= width
        for i in range(len(given) // 3):
            assert f"{40 + i}.00 ± 0.00" in shown
            assert f"{42 + i}.00 ± 0.00" in shown
        # The names stand there whole, although folded: all letters in order.
        first_cells = "".join(line.split("│")[1].strip() for line in shown.splitlines() if line.startswith("│"))
        assert LONG.replace(" ", "") in first_cells.replace(" ", "")
    assert "42.50" in to_text(long_form(runs), width)  # the average


def test_a_dataset_under_two_protocols_is_not_averaged() -> None:
    twice = record(protocol=Identity({"dataset": "toy", "labels": "other"}))
    (board,) = boards_of(record(), twice, on("other"))
    assert not any(name.startswith("average") for name in columns(board))
    assert any("would count twice" in note for note in board.notes)


def test_a_terminal_without_unicode_still_gets_its_table(two_runs: None, home: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "ascii", "TTABENCH_HOME": str(home)}
    command = [sys.executable, "-c", "from tta_bench.cli.main import main; main()", "leaderboard"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "twobranches" in done.stdout


def ordered(order: str, value: float) -> RunRecord:
    return record(value=value, order=order, replicate=Identity({"seed": 0, "order": order}))


def test_kinds_of_order_are_never_averaged_into_one_cell() -> None:
    runs = [ordered("shuffled", 50.0), ordered("shuffled:1", 52.0), ordered("rarest", 30.0), ordered("bursts:5", 40.0)]
    (board,) = boards_of(*runs)
    assert set(columns(board)) == {"toy", "toy (order rarest)", "toy (order bursts:5)"}
    assert text(board, "tda", "toy") == "51.00 ± 1.41"
    assert text(board, "tda", "toy (order rarest)") == "30.00"
    (board,) = boards_of(ordered("shuffled", 50.0), ordered("rarest", 30.0), on("other", 60.0))
    assert text(board, "tda", "average of 2") == "55.00"


def test_orders_gives_mean_worst_and_spread_of_each_kind() -> None:
    values = [("shuffled", 50.0), ("shuffled:1", 56.0), ("shuffled:2", 53.0), ("rarest", 30.0)]
    runs = [ordered(order, value) for order, value in values]
    rarest, shuffled = Results(runs).orders().to_dict("records")
    assert [shuffled[name] for name in ("order", "runs", "mean", "worst", "spread")] == ["shuffled", 3, 53.0, 50.0, 6.0]
    assert shuffled["worst_run"] == runs[0].run_id
    assert [rarest[name] for name in ("order", "runs", "mean", "worst")] == ["rarest", 1, 30.0, 30.0]
    assert math.isnan(rarest["spread"])  # one run has none
    with pytest.raises(UnknownName, match="mAP_softmax"):
        Results(runs).orders("mAP_softmx")


def test_of_an_error_the_largest_is_the_worst() -> None:
    runs = [ordered(order, 50.0) for order in ("shuffled", "shuffled:1", "shuffled:2")]
    told = [replace(run, metrics={**run.metrics, "ECE": ece}) for run, ece in zip(runs, (3.0, 9.0, 1.0), strict=True)]
    (row,) = Results(told).orders("ECE").to_dict("records")
    assert [row[name] for name in ("worst", "spread", "worst_run")] == [9.0, 8.0, runs[1].run_id]


def test_a_grid_ends_with_its_table(toy_run: Invoke) -> None:
    alone = toy_run("twobranches").out
    assert "┃" not in alone
    both = toy_run("twobranches,prompttuner").out
    lines = both.splitlines()
    table = next(i for i, line in enumerate(lines) if "┃ method" in line)
    assert table > max(i for i, line in enumerate(lines) if " on toy with " in line)  # behind a line for each run
    assert "leads in mAP with" in both
    assert "without statistics" in " ".join(both.split())


def test_a_file_in_place_of_the_terminal(two_runs: None, invoke: Invoke, tmp_path: Path) -> None:
    for format_ in ("md", "csv", "latex", "json", "console"):
        file = tmp_path / f"table.{format_}"
        done = invoke("leaderboard", "--format", format_, "-o", str(file))
        assert (done.code, done.out) == (0, "")
        assert "twobranches" in file.read_text()


@pytest.mark.slow
def test_options_that_make_no_sense_are_refused(two_runs: None, invoke: Invoke) -> None:
    for arguments in (
        ("--baseline", "nobody"),
        ("--metric", "mAPP"),
        ("--sort", "nothing"),
        ("--n", "12345"),
        ("--protocol", "zzz"),
        ("--columns", "huge"),
    ):
        done = invoke("leaderboard", *arguments)
        assert done.code == 2, arguments
        assert arguments[1] in done.err
    assert "┃   rank" not in invoke("leaderboard", "--fast").out
    shown = invoke("leaderboard", "--metric", "CF1", "--fast").out
    assert "CF1" in shown
    assert "softmax" not in shown


def test_rows_that_no_official_code_vouches_for_are_named_in_every_format() -> None:
    statuses = {"tda": "official code matched", "bcp": "reading of the paper", "bca": "port", "mine": "unstated"}
    made = [record(method, status=status, counts={"state_bytes": 7}) for method, status in statuses.items()]
    frame = long_form([*made, record("old")])  # version 0.1 said nothing
    said = "Not held against official code: bca (a third party's port); bcp (an unverified reading of the paper); "
    for text in (to_text(frame, 400), to_markdown(frame), to_latex(frame)):
        assert f"{said}mine (unstated)." in text
    assert dict(zip(frame["method"], frame["status"], strict=True)) == {**statuses, "old": ""}
    assert frame["state_bytes"].tolist() == [7, 7, 7, pd.NA, 7]
