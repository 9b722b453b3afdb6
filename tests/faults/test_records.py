"""A record that is not what a run wrote is one line and no number: seals, copies, other names."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import Invoke, some_slow
from tests.faults.edited_records import edit, only_warning
from tests.faults.toy_runs import TOY_RUN, flips, lines
from tests.record_fixtures import record, write
from tta_bench import records
from tta_bench.records import Results, RunRecord
from tta_bench.runs.bench import Bench, RunSpec


def saved(runs: Path, run: RunRecord) -> Path:
    """The record on disk as a run leaves it, sealed, with scores of two images and three classes."""
    scores, labels = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int8)
    records.save(run, runs / run.run_id, scores[:, None], scores, labels, np.arange(2), ["x", "y"], {})
    return runs / run.run_id


def test_what_a_run_leaves_is_sealed(tmp_path: Path) -> None:
    made = records.load(saved(tmp_path, record("tda")), named=True)
    assert made.sealed
    assert made.run_id == record("tda").run_id


def test_a_record_of_version_0_1_counts_as_unsealed(tmp_path: Path) -> None:
    write(tmp_path, record("tda"))
    assert not records.load(tmp_path / record("tda").run_id, named=True).sealed


def test_a_seal_that_was_taken_off_is_one_line_and_no_number(invoke: Invoke, tmp_path: Path) -> None:
    saved(tmp_path, record("clip"))
    folder = saved(tmp_path, record("tda"))
    edit(folder, lambda content: content.pop("seal"))
    assert "it is not what was written: its seal is missing" in only_warning(invoke, tmp_path, "tda")


def test_another_layout_of_the_same_record_is_the_same_record(tmp_path: Path) -> None:
    folder = saved(tmp_path, record("tda", prompt="caf\u00e9 \ud83d\ude00"))
    edit(folder, lambda content: content.update(method=content.pop("method")))
    assert records.load(folder, named=True).sealed


CHANGED_DIGITS: dict[str, Callable[[dict[str, Any]], object]] = {
    "mAP": lambda c: c["metrics"].update(mAP=50.1),
    "another metric": lambda c: c["metrics"].update(mAP_softmax=52.1),
    "seed": lambda c: c.update(seed=1),
    "speed": lambda c: c["speed"].update(images_per_s=101.0),
    "a part": lambda c: c["identities"]["replicate"]["parts"].update(seed=1),
    "a digest": lambda c: c["identities"]["config"].update(digest="0" * 64),
    "the run's name": lambda c: c.update(run_id="tda-toy-tiny-000000000000"),
    "the seal": lambda c: c.update(seal="0" * 64),
    "no seal's type": lambda c: c.update(seal=None),
    "one field more": lambda c: c.update(more=1),
}


@pytest.mark.parametrize("what", CHANGED_DIGITS)
def test_a_changed_digit_is_one_line_and_no_number(what: str, invoke: Invoke, tmp_path: Path) -> None:
    saved(tmp_path, record("clip"))
    folder = saved(tmp_path, record("tda"))
    edit(folder, CHANGED_DIGITS[what])
    assert f"{folder / 'run.json'}: not a run record (it is not what was written" in only_warning(
        invoke, tmp_path, "tda"
    )


@pytest.mark.parametrize("what", ["a part", "a digest", "the run's name"])
def test_identities_are_recomputed_without_a_seal_too(what: str, invoke: Invoke, tmp_path: Path) -> None:
    write(tmp_path, record("clip"), record("tda"))
    folder = tmp_path / record("tda").run_id
    edit(folder, CHANGED_DIGITS[what])
    assert "digest is not that" in (line := only_warning(invoke, tmp_path, "tda")) or "'run_id' is not that" in line


def test_no_flipped_bit_of_a_record_gives_another_number(tmp_path: Path) -> None:
    folder = saved(tmp_path, record("tda"))
    before = records.load(folder)
    for flipped in flips((folder / "run.json").read_bytes(), 300):
        (folder / "run.json").write_bytes(flipped)
        found, problems = records.load_all(tmp_path)
        assert len(found) + len(problems) == 1
        assert found in ([], [before])  # a flip in the layout, or in the word "seal", changes nothing that is said


def test_a_copied_folder_is_no_second_run(invoke: Invoke, tmp_path: Path) -> None:
    folder = saved(tmp_path, record("clip"))
    shutil.copytree(folder, tmp_path / "copy")
    line = only_warning(invoke, tmp_path, "± 0.00")
    assert f"{tmp_path / 'copy'} holds the run {folder.name}: a copy" in line


def test_a_folder_under_another_runs_name(invoke: Invoke, tmp_path: Path) -> None:
    saved(tmp_path, record("clip"))
    folder = saved(tmp_path, record("tda"))
    other = record("bem").run_id
    folder.rename(tmp_path / other)
    assert "under another run's name" in only_warning(invoke, tmp_path, "tda")
    assert "under another run's name" in invoke("show", "bem", "--results", str(tmp_path)).err


def test_a_run_in_hand_twice_is_one_replicate() -> None:
    once, again = (Results(runs).leaderboard("csv") for runs in ([record()], [record(), record()]))
    assert once == again


@pytest.mark.parametrize("what", some_slow(["mAP"], ["a part", "a digest"]))
def test_a_damaged_record_is_run_again(what: str, bench: Bench) -> None:
    before = bench.run(TOY_RUN).record
    assert before.folder is not None
    edit(before.folder, CHANGED_DIGITS[what])
    outcome = bench.run(TOY_RUN)
    assert not outcome.already
    assert outcome.record.metrics == before.metrics
    assert any("not what was written" in line and "running again" in line for line in lines(bench))


@pytest.mark.slow
def test_a_run_is_not_taken_for_the_one_whose_name_its_folder_has(bench: Bench) -> None:
    before = bench.run(TOY_RUN).record
    other = bench.run(RunSpec(method="twobranches", dataset="toy", backbone="toyclip", seed=1)).record
    assert before.folder is not None
    assert other.folder is not None
    shutil.rmtree(before.folder)
    other.folder.rename(before.folder)
    outcome = bench.run(TOY_RUN)
    assert (outcome.already, outcome.record.seed, outcome.record.metrics) == (False, 0, before.metrics)
