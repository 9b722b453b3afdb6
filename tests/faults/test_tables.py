"""Tables group by digests and not by names: nothing is averaged that was not the same."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from tests.faults.toy_runs import TOY_RUN
from tests.record_fixtures import on, record
from tta_bench.metrics.significance import Estimate
from tta_bench.records import Identity, Results, RunRecord
from tta_bench.report.board import boards
from tta_bench.report.comparison import Cell
from tta_bench.report.frame import long_form
from tta_bench.runs.bench import Bench


def cells(*runs: RunRecord) -> dict[tuple[str, str], tuple[float, int]]:
    """(row, column) as a reader sees them -> mean mAP and runs; every name stands once."""
    found: dict[tuple[str, str], tuple[float, int]] = {}
    for board in boards(long_form(runs)):
        for (row, column, kind), cell in board.cells.items():
            if kind == "mAP" and column.protocol:
                assert (row.name, column.name) not in found
                found[row.name, column.name] = cell.mean, cell.runs
    return found


def test_a_pack_that_is_named_like_a_column_is_not_averaged_with_it() -> None:
    for name, size in (("scenes (n=20)", None), ("scenes (20 of 60)", 60)):
        real = on("scenes", 50.0, n=20, dataset_size=size)
        pack = on(name, 90.0, n=20, dataset_size=20)
        other = Identity({"dataset": name, "labels": "other"})
        alike = record(value=70.0, dataset=name, n=20, dataset_size=20, protocol=other)
        assert sorted(cells(real, pack).values()) == [(50.0, 1), (90.0, 1)]
        assert sorted(cells(real, pack, alike).values()) == [(50.0, 1), (70.0, 1), (90.0, 1)]


def test_two_datasets_of_one_name_are_two_columns() -> None:
    mine = record(value=90.0, protocol=Identity({"dataset": "toy", "images": "mine"}))
    assert sorted(cells(record(), mine).values()) == [(50.0, 1), (90.0, 1)]
    mimic = f"toy #{record().protocol.digest[:6]}"
    third = record(value=70.0, dataset=mimic, protocol=Identity({"dataset": mimic}))
    assert sorted(cells(record(), mine, third).values()) == [(50.0, 1), (70.0, 1), (90.0, 1)]


def test_two_backbones_or_methods_of_one_name_are_kept_apart() -> None:
    backbone = record(value=90.0, protocol=Identity({"dataset": "toy", "backbone_digest": "other"}))
    method = record(value=70.0, config=Identity({"method": "tda", "source": "edited"}))
    assert sorted(cells(record(), backbone, method).values()) == [(50.0, 1), (70.0, 1), (90.0, 1)]


def test_a_default_that_was_spelt_out_is_the_default() -> None:
    spelt = record(value=60.0, seed=1, replicate=Identity({"seed": 1}), tag="tuned", changes={"shots": "3"})
    assert cells(record(), spelt) == {("tda", "toy"): (55.0, 2)}


def test_the_order_of_the_own_seed_is_no_other_replicate(bench: Bench) -> None:
    first = bench.run(TOY_RUN).record
    assert bench.run(dataclasses.replace(TOY_RUN, order="shuffled:0")) == (first, True)
    other = bench.run(dataclasses.replace(TOY_RUN, order="shuffled:1"))
    assert (other.already, other.record.order) == (False, "shuffled:1")


def by(ttabench: str, torch: str, seed: int, **changes: Any) -> RunRecord:
    versions = {"versions": {"ttabench": ttabench, "torch": torch}}
    return record(seed=seed, replicate=Identity({"seed": seed}), provenance=versions, **changes)


@pytest.mark.parametrize("format_", ["console", "md", "latex"])
def test_different_versions_in_one_cell_are_said(format_: Any) -> None:
    mixed = Results([by("0.1.0", "2.9.0", 0), by("0.2.0", "2.15.0", 1)])
    text = " ".join(mixed.leaderboard(format_, width=300).split())
    assert (
        "1 cell with runs recorded by different versions or machines (ttabench 0.1.0, 0.2.0; torch 2.15.0, 2.9.0)"
        in text
    )
    same = Results(
        [by("0.2.0", "2.15.0", 0), by("0.2.0", "2.15.0", 1), by("0.2.0", "2.9.0", 0, config=Identity({"method": "x"}))]
    )
    assert "different versions" not in same.leaderboard(format_)
    unknown = Results([by("0.2.0", "2.15.0", 0), record(seed=1, replicate=Identity({"seed": 1}))])
    assert "ttabench unknown, 0.2.0" in " ".join(unknown.leaderboard(format_, width=300).split())


@pytest.mark.parametrize("format_", ["console", "md", "latex"])
def test_rows_by_different_code_of_ttabench_are_said(format_: Any) -> None:
    """Much of its code is in no configuration's identity: a difference may be that of the code."""
    other = {"method": "dota", "config": Identity({"method": "dota"})}
    apart = Results([by("0.2.0+a", "2.15.0", 0), by("0.2.0+b", "2.15.0", 0, **other)])
    said = "Rows recorded by 2 versions of ttabench (0.2.0+a, 0.2.0+b): part of the differences may be theirs."
    assert said in " ".join(apart.leaderboard(format_, width=300).split())
    same = Results([by("0.2.0+a", "2.15.0", 0), by("0.2.0+a", "2.9.0", 0, **other)])
    elsewhere = Identity({"dataset": "other"})  # another column, with which nothing is compared
    column = by("0.2.0+b", "2.15.0", 0, dataset="other", protocol=elsewhere)
    for alike in (same, Results([*same, column]), Results([by("0.1", "2.9.0", 0), by("0.2", "2.9.0", 1)])):
        assert "versions of ttabench" not in alike.leaderboard(format_)


def test_one_stream_under_two_names_is_said() -> None:
    own = record(seed=1, replicate=Identity({"seed": 1}))
    numbered = record(order="shuffled:1", replicate=Identity({"order": "shuffled:1"}))
    another = record(order="shuffled:2", replicate=Identity({"order": "shuffled:2"}))
    said = "1 run repeats the stream of another run of its cell"
    assert said in " ".join(Results([own, numbered, another]).leaderboard("md").split())
    assert "repeat" not in Results([own, another]).leaderboard("md")
    elsewhere = record("clip", order="shuffled:1", replicate=Identity({"order": "shuffled:1"}))
    assert "repeat" not in Results([own, elsewhere]).leaderboard("md")


def test_an_interval_ends_where_map_does() -> None:
    near_the_end = Estimate(value=99.0, low=96.0, high=102.0, p=0.0, error=1.5, freedom=99.0, detectable=4.0)
    assert Cell(near_the_end, 1).interval == (96.0, 100.0)
    assert Cell(dataclasses.replace(near_the_end, value=1.0, low=-2.0, high=4.0), 1).interval == (0.0, 4.0)
