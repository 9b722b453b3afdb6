"""Records that were damaged or edited at random: the numbers that were written, or one line and none."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.faults.fuzzing import altered, damaged, few_and_many, for_all, outcome
from tests.record_fixtures import record
from tta_bench import records
from tta_bench.records import Identity, Results, RunRecord

RECORD = record(
    per_class_ap={"dog": 40.0, "cat": None},
    counts={"encoder_forwards": 4},
    hardware={"batch_size": 64},
    provenance={"versions": {"ttabench": "0.1.0", "torch": "2.9.0"}, "code": {"method": "built in"}},
    notes=["all scores are equal"],
    changes={"shots": "3"},
    hyper_parameters={"shots": 3, "alpha": [0.5, 1.5]},
    config=Identity({"method": "tda", "hyper_parameters": {"shots": 3, "alpha": [0.5, 1.5]}}),
    created="2026-01-01T00:00:00+00:00",
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sealed record as a run leaves it, with the scores of two images."""
    run = RECORD
    scores, labels = np.linspace(0, 1, 4, dtype=np.float32).reshape(2, 2), np.eye(2, dtype=np.int8)
    folder = tmp_path / "runs" / run.run_id
    diagnostics = {"entropy": np.ones(2, np.float32)}
    records.save(run, folder, scores[:, None], scores, labels, np.arange(2), ["x", "y"], diagnostics)
    return folder


def found(folder: Path) -> list[RunRecord]:
    """All records beside `folder`: none, with one line that says why, or that one."""
    sound, problems = outcome(lambda: records.load_all(folder.parent)) or ([], [])
    assert len(sound) + len(problems) == 1
    assert all("\n" not in line for line in problems)
    return sound


@few_and_many
def test_no_accident_gives_another_number(folder: Path, examples: int) -> None:
    before = records.load(folder)

    def check(content: bytes) -> None:
        (folder / "run.json").write_bytes(content)
        assert found(folder) in ([], [before])  # the layout, or the word "seal", may be another

    for_all(examples, damaged((folder / "run.json").read_bytes()), check)


@few_and_many
def test_no_edit_of_a_sealed_record_gives_another_number(folder: Path, examples: int) -> None:
    before = records.load(folder)

    def check(content: Any) -> None:
        if isinstance(content, dict) and "seal" in content:
            (folder / "run.json").write_text(json.dumps(content))
            assert found(folder) in ([], [before])

    for_all(examples, altered(json.loads((folder / "run.json").read_text())), check)


@few_and_many
def test_an_edited_record_without_a_seal_is_refused_or_can_be_shown(folder: Path, examples: int) -> None:
    """Nothing vouches for its numbers; they are possible ones all the same, and every table takes them."""

    def check(content: Any) -> None:
        (folder / "run.json").write_text(json.dumps(content))
        for run in found(folder):
            numbers = (*run.metrics.values(), *run.per_class_ap.values(), *run.speed.values(), *run.counts.values())
            assert all(number is None or math.isfinite(number) for number in numbers)
            assert 0 <= (run.metrics.get("mAP") or 0) <= 100.001
            show(run)

    content = json.loads((folder / "run.json").read_text())
    del content["seal"]
    content["schema"] = 1
    for_all(examples, altered(content), check)


def show(run: RunRecord) -> None:
    results = Results([run])
    repr(results)
    for shape in ("console", "md", "csv", "latex", "json"):
        results.leaderboard(shape).encode()
    results._repr_html_().encode()


@pytest.mark.parametrize("file", ["scores.safetensors", "diagnostics.safetensors"])
@few_and_many
def test_no_accident_to_the_arrays_gives_other_arrays(folder: Path, file: str, examples: int) -> None:
    run = records.load(folder)
    before = run.scores(), run.labels(), run.diagnostics()["entropy"]

    def check(content: bytes) -> None:
        (folder / file).write_bytes(content)
        loaded = outcome(lambda: (run.scores(), run.labels(), run.diagnostics()["entropy"]))
        assert loaded is None or all(map(np.array_equal, loaded, before))
        assert bool(records.damage(folder)) == (loaded is None)

    for_all(examples, damaged((folder / file).read_bytes()), check)


@few_and_many
def test_arrays_that_nothing_vouches_for_are_those_of_a_run_or_refused(folder: Path, examples: int) -> None:
    """A record of version 0.1 has no digests of its files."""
    content = json.loads((folder / "run.json").read_text())
    del content["seal"], content["files"]
    content["schema"] = 1
    (folder / "run.json").write_text(json.dumps(content))
    run = records.load(folder)

    def check(content: bytes) -> None:
        (folder / "scores.safetensors").write_bytes(content)
        loaded = outcome(lambda: records.load_scores(run))
        if loaded is not None:
            scores, labels, ids = loaded
            assert scores.shape == labels.shape == (len(ids), 2)
            assert scores.dtype == np.float32
            assert set(labels.flat) <= {-1, 0, 1}
            assert all(isinstance(name, str) for name in ids)

    for_all(examples, damaged((folder / "scores.safetensors").read_bytes()), check)
