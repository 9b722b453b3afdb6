"""What is trusted is sealed: a checkpoint, a record or a store entry that is not what was written gives no number."""

from __future__ import annotations

import random
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tta_bench.errors import BadData, Interrupted
from tta_bench.records import RunRecord
from tta_bench.runs import known
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.runs.run import Run
from tta_bench.system.progress import Silent
from tta_bench.system.seal import opened

SPEC = RunSpec(method="twobranches", dataset="toy", backbone="toyclip")


@pytest.fixture
def bench(toy_bench: Bench) -> Bench:
    toy_bench.checkpoint_seconds = 0.0
    return toy_bench


def lines(bench: Bench) -> list[str]:
    assert isinstance(bench.reporter, Silent)
    return bench.reporter.lines


def interrupted(bench: Bench, spec: RunSpec = SPEC) -> Path:
    """The checkpoint of a run that was stopped at its last image."""

    def stop(*_: object) -> RunRecord:
        raise Interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Run, "_save", stop)
        with pytest.raises(Interrupted):
            bench.run(spec, force=True)
    (file,) = bench.runs.glob("*/checkpoint.pt")
    return file


def finished(bench: Bench, spec: RunSpec = SPEC) -> np.ndarray[Any, Any]:
    """The scores of the run, and its record out of the way of the next one."""
    record = bench.run(spec).record
    scores = record.scores()
    assert record.folder is not None
    shutil.rmtree(record.folder)
    return scores


# -------------------------------------------------------------------------------------------------------- checkpoints


def test_an_untouched_checkpoint_is_resumed(bench: Bench) -> None:
    undisturbed = finished(bench)
    interrupted(bench)
    assert np.array_equal(finished(bench), undisturbed)
    assert "resuming at image 23 of 24" in lines(bench)


def flips(content: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(count):
        flipped = bytearray(content)
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        yield bytes(flipped)


def test_a_flipped_bit_means_starting_afresh(bench: Bench) -> None:
    undisturbed = finished(bench)
    file = interrupted(bench)
    for flipped in flips(file.read_bytes(), 8):
        file.parent.mkdir(exist_ok=True)
        file.write_bytes(flipped)
        lines(bench).clear()
        assert np.array_equal(finished(bench), undisturbed)
        assert not any("resuming" in line for line in lines(bench))
        assert sum("checkpoint unusable" in line for line in lines(bench)) == 1


def test_no_flipped_bit_is_taken_for_a_checkpoint(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Run, "_writer", lambda run: "this code")
    content = interrupted(bench).read_bytes()
    assert opened(content, "this code")
    for flipped in (*flips(content, 1000), *(content[:-200] + tail for tail in flips(content[-200:], 1000, seed=1))):
        with pytest.raises(BadData):
            opened(flipped, "this code")


@pytest.mark.parametrize("kept", [0, 1, 150, -1, -148])
def test_a_truncated_checkpoint_is_not_resumed(bench: Bench, kept: int) -> None:
    undisturbed = finished(bench)
    file = interrupted(bench)
    file.write_bytes(file.read_bytes()[:kept])
    assert np.array_equal(finished(bench), undisturbed)
    assert not any("resuming" in line for line in lines(bench))


def test_other_code_does_not_go_on_from_a_checkpoint(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted(bench)
    monkeypatch.setattr(known, "code_digest", lambda: "edited between kill and resume")
    finished(bench)
    (line,) = [line for line in lines(bench) if "checkpoint" in line]
    assert line == "checkpoint unusable (other code or another run wrote it): starting from the first image"


def test_another_runs_checkpoint_is_not_resumed(bench: Bench) -> None:
    other = RunSpec(method="twobranches", dataset="toy", backbone="toyclip", seed=1)
    undisturbed = finished(bench)
    content = interrupted(bench, other).read_bytes()
    file = next(bench.runs.glob("*/checkpoint.pt"))
    shutil.rmtree(file.parent)
    file = interrupted(bench)
    file.write_bytes(content)
    assert np.array_equal(finished(bench), undisturbed)
    assert any("another run wrote it" in line for line in lines(bench))


def test_a_checkpoint_without_a_seal_is_not_resumed(bench: Bench) -> None:
    undisturbed = finished(bench)
    file = interrupted(bench)
    file.write_bytes(file.read_bytes().rpartition(b"\nttabench seal")[0])
    assert np.array_equal(finished(bench), undisturbed)
    assert any("it carries no seal" in line for line in lines(bench))
