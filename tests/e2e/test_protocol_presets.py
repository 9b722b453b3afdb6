"""`--protocol-preset` on single-label and multi-label data, through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke
from tests.dataset_fixtures import photo
from tta_bench import records
from tta_bench.records import RunRecord


@pytest.fixture
def dtd(tmp_path: Path) -> tuple[str, ...]:
    """Options for a single-label dataset that is called as the suites call one."""
    for place in ("banded/a.jpg", "banded/b.png", "dotted/a.jpg"):
        photo(tmp_path / "data" / "dtd" / place)
    return ("--data-root", str(tmp_path / "data"), "--dataset", "folder:dtd")


def only(home: Path) -> RunRecord:
    (record,) = records.load_all(home / "runs")[0]
    return record


def test_a_suites_protocol_on_single_label_data(invoke: Invoke, home: Path, dtd: tuple[str, ...]) -> None:
    toy = ("--plugin", str(TOY), "--backbone", "toyclip", "--workers", "0")
    result = invoke("run", "--method", "tda", "--protocol-preset", "tta-vlm-online", *dtd, *toy)
    assert result.code == 0, result.err
    assert "tda on folder:dtd with toyclip, seed 0: top-1 " in result.out
    record = only(home)
    assert record.changes == {"protocol_preset": "tta-vlm-online", "preset": "dtd", "views": "image"}
    assert (record.tag, record.hyper_parameters["alpha"], record.hyper_parameters["beta"]) == ("paper", 2.0, 3.0)
    assert {"top1", "ECE"} < set(record.metrics)
    assert not [note for note in record.notes if "protocol" in note]


def test_own_options_win_and_the_record_says_so(toy_run: Invoke, home: Path) -> None:
    result = toy_run("clip", "--protocol-preset", "ttabc", "--seed", "3", "--precision", "fp32")
    assert result.code == 0, result.err
    record = only(home)
    assert record.seed == 3
    said = [note.removeprefix("not the protocol ttabc in full: ") for note in record.notes]
    assert "seed is 3 and not 2022" in said
    assert "precision is fp32 and not fp16" in said
    assert "top-1, which it reports, is for images with exactly one label" in said
    assert "top1" not in record.metrics
    assert "seed is 3 and not 2022" in result.err


def test_a_preset_is_part_of_what_was_asked_for(toy_run: Invoke, home: Path) -> None:
    """Or the record of a run without one would be found, which says nothing of it."""
    assert toy_run("clip").code == 0
    assert "done before" not in toy_run("clip", "--protocol-preset", "purf").out
    assert "done before" in toy_run("clip", "--protocol-preset", "purf").out
    assert len(records.load_all(home / "runs")[0]) == 2


def test_one_view_on_a_pack(toy_pack: Path, invoke: Invoke) -> None:
    """The image is always there, so that its being the only view needs no packed recipe."""
    result = invoke("run", "--method", "tda", "--protocol-preset", "tta-vlm-online", "--pack", str(toy_pack))
    assert result.code == 0, result.err
    assert "tda on toy with toyclip" in result.out


def test_a_misspelt_preset(toy_run: Invoke) -> None:
    result = toy_run("clip", "--protocol-preset", "ttabd")
    assert result.code == 2
    assert "Did you mean ttabc" in result.err
