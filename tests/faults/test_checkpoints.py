"""A checkpoint that is not what this run and this code wrote is not resumed, and that is said."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from tests.conftest import some_slow
from tests.faults.toy_runs import TOY_RUN, finished, flips, lines
from tta_bench.errors import BadData, Interrupted
from tta_bench.records import RunRecord
from tta_bench.runs import known
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.runs.run import Run
from tta_bench.system.seal import opened


def interrupted(bench: Bench, spec: RunSpec = TOY_RUN) -> Path:
    """The last checkpoint of a run that was stopped at its end. Its method is a plugin's: one is due each 4 images."""

    def stop(*_: object) -> RunRecord:
        raise Interrupted

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tta_bench.runs.recording.record", stop)
        with pytest.raises(Interrupted):
            bench.run(spec)
    (file,) = bench.runs.glob("*/checkpoint.pt")
    return file


def test_an_untouched_checkpoint_is_resumed(bench: Bench) -> None:
    undisturbed = finished(bench)
    interrupted(bench)
    assert np.array_equal(finished(bench), undisturbed)
    assert "resuming at image 20 of 24" in lines(bench)


def test_a_flipped_bit_means_starting_afresh(bench: Bench) -> None:
    undisturbed = finished(bench)
    file = interrupted(bench)
    for flipped in flips(file.read_bytes(), 4):
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


@pytest.mark.parametrize("kept", some_slow([-1], [0, 1, 150, -148]))
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
