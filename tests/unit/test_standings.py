"""Tables with statistics: ranks, marks, differences, the sentence above; and which runs a table shows."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from tests.conftest import Invoke
from tests.record_fixtures import on, record
from tests.unit.test_comparison import saved
from tta_bench.errors import UnknownName
from tta_bench.records import Identity, Results, RunRecord
from tta_bench.report import standings as module
from tta_bench.report.board import Board, Row, Wanted, boards
from tta_bench.report.console import to_text
from tta_bench.report.formats import render
from tta_bench.report.frame import long_form
from tta_bench.report.selection import Selection
from tta_bench.report.standings import NONE, Delta, Standings, standings
from tta_bench.system.progress import Advance, Silent

ONE_METRIC = Wanted(metrics=("mAP",))


def ranked(pairs: dict[str, dict[str, float]]) -> Standings:
    configs = {config for lower, higher in pairs.items() for config in (lower, *higher)}
    return Standings(dict.fromkeys(sorted(configs), (0.0, 1.0)), pairs)


def test_a_rank_is_a_range_over_what_cannot_be_told_apart() -> None:
    # a is above c for sure; b could be either's neighbour
    found = ranked({"b": {"a": 0.3}, "c": {"a": 0.01, "b": 0.2}})
    assert found.ranks == {"a": (1, 2), "b": (1, 3), "c": (2, 3)}
    assert (found.told_apart("a", "c"), found.told_apart("c", "b"), found.told_apart("a", "d")) == (True, False, None)
    assert ranked({"b": {"a": 0.01}, "c": {"a": 0.01, "b": 0.01}}).ranks == {"a": (1, 1), "b": (2, 2), "c": (3, 3)}


# ------------------------------------------------------------------------------------------------------ a whole board


@pytest.fixture
def runs(tmp_path: Path) -> list[RunRecord]:
    """Two seeds: `good` is far above clip and regions, `twin` is hardly below it."""
    gains = {"clip": 1.0, "regions": 1.2, "good": 4.0, "twin": 3.9}
    return [saved(tmp_path / "runs", method, gain, seed) for method, gain in gains.items() for seed in (0, 1)]


def board_of(runs: list[RunRecord], wanted: Wanted | None = None) -> Board:
    wanted = wanted or ONE_METRIC
    (board,) = boards(long_form(runs), wanted, standings(runs, wanted.metrics, wanted.baseline))
    return board


def row(board: Board, method: str) -> Row:
    return next(row for row in board.rows if row.method == method)


class Watched(Silent):
    """A reporter that counts what it is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.tasks: list[int] = []
        self.done = 0

    @contextmanager
    def task(self, title: str, total: int, unit: str, done: int = 0) -> Iterator[Advance]:
        self.tasks.append(total)
        yield self._advance

    def _advance(self, count: int, note: str = "") -> None:
        self.done += count


def test_python_says_what_the_command_says(runs: list[RunRecord], invoke: Invoke) -> None:
    folder = runs[0].folder
    assert folder is not None
    for format_ in ("md", "csv", "latex"):
        said = invoke("leaderboard", "--format", format_, "--sort", "mAP_softmax", "--results", str(folder.parent))
        assert Results(runs).leaderboard(format_, sort="mAP_softmax") == said.out
    plain = Results(runs).leaderboard("md", metric="mAP", baseline="regions")
    assert "Δ regions" in plain
    assert "softmax" not in plain
    assert "Δ" not in Results(runs).leaderboard("md", fast=True)


def test_who_waits_for_statistics_is_told_how_far_they_are(runs: list[RunRecord]) -> None:
    first, second = Watched(), Watched()
    standings(runs, ("mAP", "mAP_softmax"), "clip", first)
    assert (first.tasks, first.done) == ([16], 16)  # 8 runs in two score spaces
    standings(runs, ("mAP", "mAP_softmax"), "clip", second)
    assert second.tasks == []  # from disk: nothing to wait for


def texts(board: Board, method: str) -> dict[str, str]:
    (column,) = board.columns
    marks = (lambda t: f"*{t}", lambda t: f"~{t}")
    return {kind: board.text(row(board, method), column, kind, *marks) for kind in board.kinds}


def test_the_best_stands_first_and_what_is_close_is_marked(runs: list[RunRecord]) -> None:
    board = board_of(runs)
    assert [row.method for row in board.rows][:2] in (["good", "twin"], ["twin", "good"])
    best, second = board.rows[0].method, board.rows[1].method
    assert texts(board, best)["mAP"].startswith("*")
    assert texts(board, second)["mAP"].startswith("~")
    assert texts(board, "clip")["mAP"][0].isdigit()
    assert (texts(board, best)["rank"], texts(board, second)["rank"]) == ("1-2", "1-2")
    assert texts(board, "clip")["Δ clip"] == "–"
    assert texts(board, best)["Δ clip"].startswith("+")
    assert not texts(board, best)["Δ clip"].endswith("ns")
    low, high = map(float, texts(board, best)["95 %"][1:-1].split(", "))
    assert low < float(texts(board, best)["mAP"][1:].split(" ")[0]) < high


def test_the_sentence_says_who_leads_and_whether_baselines_are_beaten(runs: list[RunRecord]) -> None:
    board = board_of(runs)
    best, second = board.rows[0].method, board.rows[1].method
    assert f"{best} leads in mAP with" in board.sentence
    assert f"above {second}, not significantly" in board.sentence
    assert f"clip is beaten by {best} (" in board.sentence
    assert ", significantly) in mAP" in board.sentence
    without = [run for run in runs if run.method != second]
    assert "above regions, significantly" in board_of(without).sentence
    lonely = [run for run in runs if run.method in ("clip", "regions")]
    assert "training-free" not in board_of(lonely).sentence
    assert board_of(runs[:2]).sentence == ""


def test_without_statistics_nothing_is_called_significant(runs: list[RunRecord]) -> None:
    (board,) = boards(long_form(runs))
    assert "without statistics" in board.sentence
    assert "rank" not in board.kinds
    assert not any(board.is_close(row, column, kind) for row in board.rows for column, kind in board.fields)


def test_settings_are_not_compared_in_silence(runs: list[RunRecord]) -> None:
    settings = {"clip": "episodic", "regions": "episodic", "good": "online", "twin": "transductive"}
    runs = [replace(run, setting=settings[run.method]) for run in runs]
    board = board_of(runs)
    assert board.settings == ["episodic", "online", "transductive"]
    marked = {name: texts(board, name)["mAP"][0] for name in settings}
    assert marked["regions"] == "*"  # the best of its setting, far below the others
    assert {marked["good"], marked["twin"]} == {"*", "~"}  # alone in theirs: held against the best of all
    assert "(online)" in board.sentence
    for shape in ("console", "md", "latex"):
        text = render(long_form(runs), shape, 100, Wanted(), None)
        assert "transductive" in text
        assert "of each setting in it" in " ".join(text.split())


def test_every_format_has_the_same_facts(runs: list[RunRecord]) -> None:
    wanted = ONE_METRIC
    found = standings(runs, wanted.metrics, "clip")
    board = board_of(runs, wanted)
    best = board.rows[0]
    interval, delta = texts(board, best.method)["95 %"], texts(board, best.method)["Δ clip"]
    frame = long_form(runs)
    markdown = render(frame, "md", wanted=wanted, standings=found)
    assert interval in markdown
    assert delta in markdown
    assert "<ins>" in markdown
    assert interval in render(frame, "latex", wanted=wanted, standings=found)
    console = to_text(frame, 160, wanted, found)
    assert interval in console
    assert delta in console
    rows = list(csv.DictReader(io.StringIO(render(frame, "csv", wanted=wanted, standings=found))))
    first = next(row for row in rows if row["method"] == best.method)
    assert (first["rank"], first["rank_last"], first["mark"], first["baseline"]) == ("1", "2", "best", "clip")
    assert f"[{float(first['low']):.2f}, {float(first['high']):.2f}]" == interval
    assert delta.startswith(f"{float(first['delta']):+.2f} [")
    assert next(row for row in rows if row["method"] == "clip")["delta"] == ""


@pytest.mark.parametrize("width", [40, 60, 80, 160])
def test_statistics_are_not_cut_off_either(runs: list[RunRecord], width: int) -> None:
    found = standings(runs, ONE_METRIC.metrics, "clip")
    shown = to_text(long_form(runs), width, ONE_METRIC, found)
    assert "…" not in shown
    assert max(map(len, shown.splitlines())) <= width
    for row in board_of(runs).rows:
        for text in texts(board_of(runs), row.method).values():
            assert text in shown


def test_a_baseline_of_ones_own(runs: list[RunRecord]) -> None:
    board = board_of(runs, Wanted(("mAP",), baseline="regions"))
    assert texts(board, "regions")["Δ regions"] == "–"
    assert texts(board, "clip")["Δ regions"].startswith("-")
    nobody = board_of(runs, Wanted(("mAP",), baseline="nobody"))
    assert not any(kind.startswith("Δ") for kind in nobody.kinds)
    assert any("no run of nobody" in note for note in nobody.notes)


def test_sorting(runs: list[RunRecord]) -> None:
    assert [row.method for row in board_of(runs, Wanted(("mAP",), "method")).rows] == [
        "clip",
        "good",
        "regions",
        "twin",
    ]
    by_softmax = board_of(runs, Wanted(metrics=("mAP", "mAP_softmax"), sort="mAP_softmax"))
    assert by_softmax.metrics == ("mAP_softmax", "mAP")
    two = [on("a", 50.0, "x"), on("a", 60.0, "y"), on("b", 70.0, "x"), on("b", 10.0, "y")]
    for sort, first in (("a", "y"), ("b", "x"), ("average", "x"), ("", "x")):
        (board,) = boards(long_form(two), Wanted(sort=sort))
        assert board.rows[0].name == first
    for bad in (Wanted(sort="nothing"), Wanted(metrics=("mAPP",))):
        with pytest.raises(UnknownName):
            boards(long_form(two), bad)


# ------------------------------------------------------------------------------------------------------- what is kept


def test_a_second_leaderboard_compares_nothing_again(runs: list[RunRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    first = standings(runs, ["mAP"], "clip")
    monkeypatch.setattr(module, "ProtocolStatistics", pytest.fail)
    assert standings(runs, ["mAP"], "clip") == {key: replace(s, notes=()) for key, s in first.items()}
    with pytest.raises(TypeError):
        standings(runs[:-1], ["mAP"], "clip")  # other runs: nothing is kept of them


def test_a_damaged_file_is_made_again(runs: list[RunRecord], home: Path) -> None:
    first = standings(runs, ["mAP"], "clip")
    (file,) = (home / "statistics").glob("*.json")
    written = file.read_text()
    another_digit = re.sub(r"(?<=\d\.)\d", lambda digit: str(9 - int(digit[0])), written)
    for content in ("{", "[]", '{"intervals": 1}', another_digit):
        file.write_text(content)
        assert standings(runs, ["mAP"], "clip") == first
    assert another_digit != written


def test_lost_scores_are_said_and_cost_only_their_statistics(runs: list[RunRecord]) -> None:
    folder = runs[0].folder
    assert folder is not None
    (folder / "scores.safetensors").unlink()
    board = board_of(runs)
    assert any("Without statistics: 1 run" in note for note in board.notes)
    assert board.tested
    assert standings([record()], ["mAP"], "clip") == {}  # never on disk


def test_scores_that_do_not_fit_together_cost_no_table(runs: list[RunRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ValueError("operands could not be broadcast together")

    monkeypatch.setattr(module, "ProtocolStatistics", refuse)
    (found,) = standings(runs, ["mAP"], "clip").values()
    assert not found.intervals
    assert "don't fit together" in found.notes[0]


def test_significance_is_that_of_the_adjusted_p() -> None:
    assert Delta(1.0, 0.5, 1.5, 0.04, 1).significant
    assert not Delta(1.0, 0.5, 1.5, 0.06, 1).significant
    assert NONE.ranks == {}


# ------------------------------------------------------------------------------------------------- which runs are shown


def coded(source: str, created: str, value: float = 50.0, **changes: object) -> RunRecord:
    config = Identity({"method": "mine", "source": source})
    return record("mine", value, config=config, created=created, **changes)


def test_of_an_edited_file_the_newest_row_is_shown() -> None:
    old, new = coded("a", "2026-01-01", 50.0), coded("b", "2026-01-02", 60.0)
    elsewhere = coded("a", "2026-01-01", protocol=Identity({"dataset": "other"}))
    kept, family, left_out = Selection({}).of([old, new, elsewhere])
    assert (kept, family, left_out) == ([new, elsewhere], [new, elsewhere], 1)
    assert Selection({}, edited=True).of([old, new]) == ([old, new], [old, new], 0)


def test_a_method_of_a_built_ins_name_is_no_edited_state_of_it() -> None:
    """It was: the newer of the two hid the other, as "edited since"."""
    ours, theirs = ("ttabench 0.2.0", "their-package 1.0")
    runs = [
        coded("a", "2026-01-01", provenance={"code": {"method": ours}}),
        coded("b", "2026-01-02", provenance={"code": {"method": theirs}}),
    ]
    assert Selection({}).of(runs).runs == runs
    later = coded("c", "2026-01-03", provenance={"code": {"method": "their-package 2.0"}})
    assert Selection({}).of([*runs, later]).runs == [runs[0], later]


def test_rows_that_are_not_shown_stay_in_the_family() -> None:
    """Who looks at fewer rows must not get smaller p, nor tighter ranks."""
    runs = [record("clip"), record("tda", tag="tuned"), record("purf"), record("purf", dataset="other")]
    found = Selection({"method": ["purf"], "dataset": ["toy"]}).of(runs)
    assert (found.runs, found.family) == ([runs[2]], runs[:3])
    assert Selection({"tag": ["default"]}).of(runs[:3]).family == runs[:3]


def test_filters_by_every_field() -> None:
    runs = [record("clip"), record("tda", prompt="ensemble", n=5, tag="tuned", order="shuffled:1")]
    for field, value in {
        "prompt": "ensemble",
        "n": "5",
        "tag": "tuned",
        "order": "shuffled:1",
        "method": "tda",
    }.items():
        assert Selection({field: [value]}).of(runs)[0] == runs[1:]
    assert Selection({"order": ["shuffled"]}).of(runs)[0] == runs  # all shuffles are of one kind
    digest = runs[0].protocol.digest
    assert Selection({"protocol": [digest[:5]]}).of(runs)[0] == runs
    for field in ("prompt", "n", "protocol"):
        with pytest.raises(UnknownName, match="There are"):
            Selection({field: ["zzz"]}).of(runs)


def test_latest_is_the_last_of_runs_alike_in_name() -> None:
    old = record(created="2026-01-01")
    relabelled = record(created="2026-01-02", protocol=Identity({"labels": "new"}))
    assert Selection({}, latest=True).of([relabelled, old])[0] == [relabelled]
    assert len(Selection({}).of([relabelled, old])[0]) == 2


def test_mixed_fills_gaps_and_marks_them() -> None:
    runs = [record("clip", 40.0), record("tda", 50.0), on("toy", 90.0, "purf", n=5, dataset_size=10)]
    (apart,) = boards(long_form(runs))
    assert len(apart.columns) == 2
    (board,) = boards(long_form(runs), Wanted(mixed=True))
    (column,) = board.columns
    assert column.name == "toy"
    assert board.text(row(board, "purf"), column, "mAP") == "90.00†"
    assert not board.is_best(row(board, "purf"), column, "mAP")
    assert board.is_best(row(board, "tda"), column, "mAP")
    assert any("†" in note for note in board.notes)
    assert any("2 protocols, kept apart" in note for note in apart.notes)
    assert any("2 protocols, in one column" in note for note in board.notes)
    assert "purf" not in board.sentence


def test_what_mixed_says_is_of_what_it_shows() -> None:
    runs = [record("clip", 40.0), record("tda", 50.0), on("toy", 90.0, "purf", n=5, dataset_size=10)]
    seeds = [{"seed": seed, "replicate": Identity({"seed": seed})} for seed in range(3)]
    unseen = [on("toy", 41.0, "clip", n=5, dataset_size=10, **one) for one in seeds]
    (board,) = boards(long_form([*runs, *unseen]), Wanted(mixed=True))
    (column,) = board.columns
    assert board.text(row(board, "clip"), column, "mAP") == "40.00"
    assert any(note == "1 run per cell." for note in board.notes)
    assert "3 runs of other protocols not shown: their cells have a number." in board.notes
    (all_shown,) = boards(long_form(runs), Wanted(mixed=True))
    assert not any("not shown" in note for note in all_shown.notes)
