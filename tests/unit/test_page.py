"""The page as text: what stands in it without scripts, what the scripts are given, and that nothing in it can harm."""

from __future__ import annotations

import base64
import json
import re
import struct
from html.parser import HTMLParser
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Invoke
from tests.page_fixtures import CLASSES, save_grid, save_run
from tests.record_fixtures import on, record
from tta_bench import records
from tta_bench.records import Identity, RunRecord
from tta_bench.report import kept
from tta_bench.report.comparison import ProtocolStatistics, compare
from tta_bench.report.page import data, page, statistics, stream, tables
from tta_bench.report.page.memory import Memory
from tta_bench.report.page.opening import Opening
from tta_bench.report.page.provenance import command
from tta_bench.report.standings import key_of, standings

HOSTILE = [
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "\"'&<b>",
    "\u202eevil",
    "a\nb",
    "{{7*7}}",
]
MOST_BYTES = 1_500_000


class Elements(HTMLParser):
    """Every element and its attributes, and the text of table cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))


def data_of(text: str) -> Any:
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


def points_of(text: str) -> list[float]:
    """Of 24 bits each."""
    raw = base64.b64decode(text)
    return [int.from_bytes(raw[i : i + 3], "little") / 10_000 for i in range(0, len(raw), 3)]


def codes(text: str) -> list[int]:
    content = base64.b64decode(text)
    return list(struct.unpack(f"<{len(content) // 2}H", content))


@pytest.fixture
def runs(tmp_path: Path) -> list[RunRecord]:
    save_grid(tmp_path / "runs")
    return records.load_all(tmp_path / "runs")[0]


def test_the_table_stands_in_the_html(runs: list[RunRecord]) -> None:
    text = page(runs).split('<script type="application/json"')[0]
    for word in ("clip", "purf", "toy", "second", "average", "centred", "softmax"):
        assert f">{word}<" in text
    means = [run.metrics["mAP"] for run in runs if (run.method, run.dataset) == ("purf", "toy")]
    assert f"<b>{sum(m for m in means if m) / 2:.2f}</b> <small>" in text


def test_nothing_is_asked_of_the_network(runs: list[RunRecord]) -> None:
    text = page(runs)
    (policy,) = [a["content"] for t, a in Elements(text).tags if a.get("http-equiv") == "Content-Security-Policy"]
    assert policy is not None
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "connect-src" not in policy
    assert "connect-src &#39;self&#39;" in page(runs, mark="1")
    addresses = [v for _, a in Elements(text).tags for name in ("src", "href", "action") if (v := a.get(name))]
    assert addresses == ["data:,"]


def test_names_and_values_from_anywhere_are_text() -> None:
    made = [
        record(name, dataset=name, prompt=name, backbone=name, tag=name, changes={name: name}, notes=[name])
        for name in HOSTILE
    ]
    text = page([*made, record("huge", 1e308), record("nan", float("nan")), record("none", None)])
    plain = Elements(page([record()]))
    kinds = {tag for tag, _ in Elements(text).tags}
    assert kinds - {tag for tag, _ in plain.tags} == set() | (kinds & {"b", "u", "small"})
    assert not [name for _, attributes in Elements(text).tags for name in attributes if name.startswith("on")]
    data = text.split('id="data">')[1].split("</script>\n<script>(() =>")[0]
    assert "<" not in data  # nothing can end the element, nor begin a comment in it
    assert "\u202e" not in text
    assert "49" not in [name["name"] for board in data_of(text)["boards"] for name in board["rows"]]
    assert len(text.encode()) < 200_000  # 10^308 is no 309 digits
    assert "1.00e+308" in text


def test_differences_are_those_of_the_statistics(runs: list[RunRecord]) -> None:
    (board,) = data_of(page(runs))["boards"]
    rows = [row["name"] for row in board["rows"]]
    (column,) = [i for i, column in enumerate(board["columns"]) if column["name"] == "toy"]
    pairs = board["statistics"]["mAP"]["pairs"][column]
    expected = {row["method"]: row for row in compare([run for run in runs if run.dataset == "toy"]).rows}
    against = codes(pairs["against"][str(rows.index("clip"))])
    for method in ("purf", "tda", "regions"):
        delta, half, *_ = against[4 * rows.index(method) :][:4]
        assert (delta - 20_000) / 100 == pytest.approx(expected[method]["delta"], abs=0.006)
        low, high = (expected[method][side] for side in ("low", "high"))
        assert isinstance(low, float)
        assert isinstance(high, float)
        assert half / 100 == pytest.approx((high - low) / 2, abs=0.006)
    assert len(codes(pairs["all"])) == 4 * 6  # of every two of four rows
    cells = [board["metrics"]["mAP"]["mean"][number * 3 + column] for number in range(4)]
    shown = [(code - 20_000) / 100 for code in codes(pairs["all"])[::4]]
    assert shown == pytest.approx([one - other for one, other in combinations(cells, 2)], abs=0.02)


def test_who_is_far_ahead_is_alone_at_the_top(runs: list[RunRecord]) -> None:
    (board,) = data_of(page(runs))["boards"]
    rows, said = [row["name"] for row in board["rows"]], board["statistics"]["mAP"]
    width = len(board["columns"])
    column = [c["name"] for c in board["columns"]].index("toy")
    close = {name for number, name in enumerate(rows) if said["close"][number * width + column] == "1"}
    ranks = {name: said["ranks"][number * width + column] for number, name in enumerate(rows)}
    assert close == {"clip"}  # regions is the best of its setting, and tda far behind that of its own
    assert ranks["purf"] == [1, 1]
    assert ranks["clip"][1] == 4


def test_a_page_of_fewer_rows_has_the_statistics_of_all(runs: list[RunRecord]) -> None:
    (whole,) = data_of(page(runs))["boards"]
    few = [run for run in runs if run.method in ("tda", "purf")]
    (board,) = data_of(page(few, family=runs))["boards"]
    assert [row["name"] for row in board["rows"]] == ["purf", "tda"]
    names, width = [row["name"] for row in whole["rows"]], len(whole["columns"])
    for metric, said in board["statistics"].items():
        assert said["ranked"] == whole["statistics"][metric]["ranked"]
        for number, name in enumerate(("purf", "tda")):
            there = names.index(name) * width
            ranks = whole["statistics"][metric]["ranks"][there : there + width]
            assert said["ranks"][number * width : (number + 1) * width] == ranks
    assert 4 in board["statistics"]["mAP"]["ranked"]


def test_many_rows_are_held_against_baselines_and_the_best(
    runs: list[RunRecord], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(statistics, "PAIRED", 3)
    (board,) = data_of(page(runs))["boards"]
    rows, said = [row["name"] for row in board["rows"]], board["statistics"]["mAP"]
    pairs = said["pairs"][[c["name"] for c in board["columns"]].index("toy")]
    assert pairs["all"] == ""
    assert set(pairs["against"]) == {str(rows.index(name)) for name in ("clip", "regions", "purf")}


def test_classes_curves_and_costs(runs: list[RunRecord]) -> None:
    (board,) = data_of(page(runs))["boards"]
    rows, width = [row["name"] for row in board["rows"]], len(board["columns"])
    cell = rows.index("purf") * width + [c["name"] for c in board["columns"]].index("toy")
    of_cell = [run for run in runs if (run.method, run.dataset) == ("purf", "toy")]
    expected = [sum(run.per_class_ap[name] or 0 for run in of_cell) / 2 for name in CLASSES]
    assert points_of(board["ap"][cell]) == pytest.approx(expected, abs=0.0001)
    curve = board["curves"][cell]
    assert curve["ends"][-1] == 60
    assert points_of(curve["own"])[-1] == pytest.approx(board["metrics"]["mAP"]["mean"][cell], abs=0.0002)
    assert len(points_of(curve["clip"])) == len(curve["ends"])
    assert board["cost"]["images_per_s"][cell] == 250
    assert [run["seed"] for run in board["runs"][cell]] == [0, 1]


def test_classes_are_tested_against_every_row(runs: list[RunRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    toy = [run for run in runs if run.dataset == "toy"]
    (board,) = data_of(page(toy))["boards"]
    rows, found = [row["name"] for row in board["rows"]], ProtocolStatistics(toy)
    digest = {run.method: run.config.digest for run in toy}
    (signs,) = board["signs"]
    assert len(signs) == 6  # every two of four rows
    for pair, text in signs.items():
        one, other = (rows[int(number)] for number in pair.split(","))
        expected = found.classes(digest[one], digest[other])
        certain = {name: change for name, change in expected.items() if change.p_adjusted < 0.05}
        digits = [(ord(letter) - ord("a")) // 3**k % 3 for letter in text for k in range(3)][: len(CLASSES)]
        shown = {name: (0, 1, -1)[digit] for name, digit in zip(CLASSES, digits, strict=False) if digit}
        assert shown == {name: 1 if change.estimate.value > 0 else -1 for name, change in certain.items()}
    assert any(signs.values())
    monkeypatch.setattr(statistics, "PAIRED_BY_CLASS", 3)
    (board,) = data_of(page(toy))["boards"]
    assert {pair.split(",")[1] for pair in board["signs"][0]} == {str(rows.index(name)) for name in ("clip", "regions")}


def test_what_was_worked_out_is_kept_for_the_next_page(
    runs: list[RunRecord], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    first = page(runs)
    with monkeypatch.context() as patch:
        patch.setattr(data, "ProtocolStatistics", pytest.fail)  # whoever asks again fails
        patch.setattr(stream, "curve", pytest.fail)
        assert page(runs) == first
    for file in (home / "statistics").glob("*.json"):
        file.write_text("{}")
    assert page(runs) == first


@pytest.mark.slow
def test_a_page_opens_as_it_was_asked_for(runs: list[RunRecord], invoke: Invoke, tmp_path: Path) -> None:
    asked = ("leaderboard", "--format", "html", "--results", str(tmp_path / "runs"), "-o", str(tmp_path / "a.html"))
    openings: list[tuple[tuple[str, ...], dict[str, str]]] = [
        ((), {}),
        (("--metric", "mAP_softmax", "--sort", "toy"), {"metric": "mAP_softmax", "sort": "-toy"}),
        (("--sort", "method", "--baseline", "clip"), {"sort": "method", "baseline": "clip"}),
        (("--sort", "CF1"), {"metric": "CF1"}),
    ]
    for options, opening in openings:
        assert invoke(*asked, *options).code == 0
        assert data_of((tmp_path / "a.html").read_text())["opening"] == opening
    refusals: list[tuple[tuple[str, ...], str]] = [
        (("--mixed",), "one protocol each"),
        (("--metric", "mAP,CF1"), "opens with one of them"),
        (("--metric", "images_per_s"), "in its view Cost"),
        (("--metric", "mAP", "--sort", "CF1"), "one metric at a time"),
        (("--sort", "nowhere"), "unknown column"),
    ]
    for options, why in refusals:
        refused = invoke(*asked, *options)
        assert (refused.code, len(refused.err.splitlines())) == (2, 1)
        assert why in refused.err


def test_a_fast_page_has_no_statistics(runs: list[RunRecord]) -> None:
    (board,) = data_of(page(runs, opening=Opening(fast=True)))["boards"]
    assert board["statistics"]["mAP"]["pairs"] == [None] * 3
    assert set(board["metrics"]["mAP"]["low"]) == {None}
    (other,) = data_of(page(runs, opening=Opening(baseline="tda")))["boards"]
    against = other["statistics"]["mAP"]["pairs"][1]["against"]
    assert str([row["name"] for row in other["rows"]].index("tda")) in against


def test_runs_without_their_scores_have_means_only() -> None:
    (board,) = data_of(page([record("clip"), record("tda", 60.0)]))["boards"]
    assert board["metrics"]["mAP"]["mean"] == [60.0, 50.0]
    assert board["metrics"]["mAP"]["low"] == [None, None]
    assert board["curves"] == [None, None]
    assert "No runs." in page([])


def test_results_in_python_open_a_page_as_the_command_does(runs: list[RunRecord]) -> None:
    """`fast` left no statistics out, and the baseline that was asked for was not the page's."""
    fast, full = (data_of(records.Results(runs).leaderboard("html", fast=fast))["boards"][0] for fast in (True, False))
    assert all(said is None for said in fast["statistics"]["mAP"]["pairs"])
    assert any(said is not None for said in full["statistics"]["mAP"]["pairs"])
    assert data_of(records.Results(runs).leaderboard("html", baseline="tda"))["opening"]["baseline"] == "tda"


def test_published_numbers_stand_beside_complete_default_runs_only() -> None:
    usual = {"backbone": "vit-b16", "dataset": "voc2007", "protocol": Identity({"dataset": "voc2007"})}
    part = {**usual, "dataset": "voc2012", "n": 5, "protocol": Identity({"dataset": "voc2012"})}
    changed = {**usual, "changes": {"shots": "9"}, "config": Identity({"shots": 9})}
    made = [record("tda", 80.0, **usual), record("tda", 80.0, **part), record("tda", 1.0, **changed)]
    (board,) = data_of(page(made))["boards"]
    (found,) = board["published"]
    assert board["rows"][found["cell"] // len(board["columns"])]["name"] == "tda"
    assert found["source"] == "purf, table1"


@pytest.mark.slow
def test_a_thousand_runs_are_a_file_that_can_be_sent() -> None:
    scores = {f"class {i}": 50.0 + i / 7 for i in range(80)}
    others = {f"metric {i}": 12.345 for i in range(13)}
    made = [
        on(f"dataset {d}", 50 + m / 3, f"method {m}", per_class_ap=scores, metrics={"mAP": 50 + m / 3, **others})
        for d in range(25)
        for m in range(40)
    ]
    pairs = 25 * 3 * 780 * 8 * 4 / 3  # what the differences of every two would take in base64: 8 bytes each
    assert len(page(made).encode()) + pairs < MOST_BYTES


def test_a_watched_page_does_not_work_out_twice(runs: list[RunRecord], monkeypatch: pytest.MonkeyPatch) -> None:
    memory, known = Memory(), standings(runs, ("mAP", "mAP_centered", "mAP_softmax"), "clip")
    first = page(runs, "1", memory)
    monkeypatch.setattr(kept, "read", lambda file: None)
    monkeypatch.setattr(data, "standings_of", lambda runs, metric, *_: known[key_of(runs, metric)])
    monkeypatch.setattr(data, "ProtocolStatistics", pytest.fail)  # whoever asks again fails
    assert page(runs, "1", memory) == first


def test_a_column_is_worked_out_again_when_it_has_a_new_run(runs: list[RunRecord], tmp_path: Path) -> None:
    memory = Memory()
    page(runs, "1", memory)
    save_run(tmp_path / "runs", "tda", "toy", seed=2)
    more = records.load_all(tmp_path / "runs")[0]
    assert page(more, "1", memory) == page(more, "1")


def test_the_command_repeats_the_run() -> None:
    fields: dict[str, Any] = {
        "dataset": "voc2007:mltta",
        "prompt": "coop:my file",
        "seed": 3,
        "order": "bursts:4",
        "n": 5,
        "hyper_parameters": {"shots": 5},
        "changes": {"preset": "imagenet", "shots": "5", "views": "plain63"},
        "protocol": Identity({"precision": "fp16", "features": "float16", "empty_classes": "zero"}),
        "provenance": {"code": {"method": "my_method.py", "dataset": "ttabench 0.1.0"}},
    }
    assert command(record("tda", **fields)) == (
        "ttabench run --method tda --dataset voc2007:mltta --backbone tiny --prompt 'coop:my file' --seed 3 "
        "--order bursts:4 --limit 5 --preset imagenet --set shots=5 --recipe views=plain63 --precision fp16 "
        "--empty-classes zero --plugin my_method.py"
    )


def test_a_notebook_shows_the_same_table(runs: list[RunRecord]) -> None:
    shown = records.Results(runs)._repr_html_()
    assert shown == tables(runs)
    assert shown in page(runs)
