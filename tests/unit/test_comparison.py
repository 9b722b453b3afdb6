"""Comparisons of runs on disk: who is compared with whom, over which images, and what is kept of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.record_fixtures import record
from tta_bench import metrics, records
from tta_bench.errors import BadData, UnknownName
from tta_bench.metrics import AP_CONVENTIONS
from tta_bench.metrics.bootstrap import ImageResamples
from tta_bench.metrics.paired import Resampled
from tta_bench.records import Identity, Results, RunRecord
from tta_bench.report import comparison, draws
from tta_bench.report.comparison import EXPLORATORY, ProtocolStatistics, compare
from tta_bench.runs import soundness

IMAGES, CLASSES, RESAMPLES = 80, 4, 50
RNG = np.random.default_rng(0)
LABELS = (RNG.random((IMAGES, CLASSES)) < 0.3).astype(np.int8)
SHARED = RNG.standard_normal(LABELS.shape)
PROTOCOL = {"dataset": "toy", "class_names": ["ant", "bee", "cat", "dog"], "empty_classes": "skip"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TTABENCH_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def saved(
    root: Path,
    method: str,
    gain: Sequence[float] | float,
    seed: int = 0,
    config: str = "",
    protocol: str = "toy",
    **hidden: object,  # of the configuration, and no part of its name
) -> RunRecord:
    """A run on disk, its images in an order of its seed; `gain` is how far it puts positives above negatives."""
    rng = np.random.default_rng([seed, len(method)])
    scores = (SHARED + np.asarray(gain) * LABELS + 0.3 * rng.standard_normal(LABELS.shape)).astype(np.float32)
    order = rng.permutation(IMAGES)
    summary = metrics.summary(scores, LABELS)
    made = record(
        method,
        protocol=Identity({**PROTOCOL, "dataset": protocol}),
        config=Identity({"method": method, "setting": config, "hyper_parameters": hidden}),
        hyper_parameters=hidden,
        replicate=Identity({"seed": seed}),
        dataset=protocol,
        seed=seed,
        n=IMAGES,
        dataset_size=IMAGES,
        metrics={name: summary[name] for name in draws.SPACES},
        changes={"setting": config} if config else {},
    )
    folder = root / made.run_id
    arrays = (scores[order][:, None], scores[order], LABELS[order], order, [f"image {i}" for i in order])
    records.save(made, folder, *arrays, {})
    return records.load(folder, named=True)


@pytest.fixture
def runs(tmp_path: Path) -> list[RunRecord]:
    """Two seeds of a baseline, of one that is better, and of one that is worse in one class only."""
    found = []
    for seed in (0, 1):
        found += [saved(tmp_path, "clip", 1.5, seed), saved(tmp_path, "good", 3.0, seed)]
        found.append(saved(tmp_path, "odd", [1.5, 1.5, 1.5, -2.0], seed))
    return found


@pytest.mark.parametrize("metric", draws.SPACES)
def test_a_cell_is_the_mean_of_its_runs(runs: list[RunRecord], metric: str) -> None:
    statistics = ProtocolStatistics(runs, metric, RESAMPLES)
    for config, cell in statistics.cells().items():
        values = [run.metrics[metric] or 0.0 for run in runs if run.config.digest == config]
        assert cell.replicates == 2
        assert cell.estimate.value == pytest.approx(np.mean(values))
        assert cell.estimate.low < cell.estimate.value < cell.estimate.high


def test_every_method_against_the_baseline(runs: list[RunRecord]) -> None:
    frame = Results(runs).compare("clip", resamples=RESAMPLES)
    assert list(frame.columns[:6]) == ["method", "baseline", "dataset", "backbone", "prompt", "metric"]
    assert list(frame.columns[6:11]) == ["delta", "low", "high", "p", "p_adjusted"]
    assert frame["method"].tolist() == ["good", "odd"]  # the largest difference first
    of = {(run.method, run.seed): run.metrics["mAP"] for run in runs}
    expected = np.mean([(of["good", s] or 0) - (of["clip", s] or 0) for s in (0, 1)])
    good, odd = frame.to_dict("records")
    assert good["delta"] == pytest.approx(expected)
    assert good["low"] > 0 > odd["high"]
    assert good["p"] < 0.01
    assert (good["helped"], good["harmed"], good["significantly_harmed"]) == (4, 0, 0)
    assert odd["significantly_harmed"] == 1
    assert (frame["correction"] == "Holm").all()
    assert (frame["replicates"] == 2).all()


def test_runs_of_other_orders_are_brought_into_one(runs: list[RunRecord]) -> None:
    """`draws` of each run are those of its scores in the dataset's order, on resamples that all share."""
    for run in runs:
        scores = np.empty((IMAGES, CLASSES), dtype=np.float32)
        scores[[int(name.split()[1]) for name in run.ids()]] = run.scores()
        expected = Resampled.of(scores, LABELS, ImageResamples(IMAGES, RESAMPLES, draws.SEED))
        np.testing.assert_array_equal(draws.resampled(run, "mAP", RESAMPLES).draws, expected.draws)


def test_the_family_is_both_baselines_whichever_is_shown(runs: list[RunRecord], tmp_path: Path) -> None:
    runs += [saved(tmp_path, "regions", 1.6, seed) for seed in (0, 1)]
    to_clip, to_regions = (compare(runs, name, resamples=RESAMPLES).to_frame() for name in ("clip", "regions"))
    shown = [*to_clip.to_dict("records"), *to_regions.to_dict("records")]
    family = {frozenset((row["method"], row["baseline"])): row for row in shown}
    assert len(family) == 5  # clip and regions are one pair
    surest = min(family.values(), key=lambda row: float(row["p"]))
    assert surest["p_adjusted"] == pytest.approx(5 * surest["p"])
    one = to_clip.set_index("method").loc["regions"]
    other = to_regions.set_index("method").loc["clip"]
    assert (one.delta, one.low, one.p) == pytest.approx((-other.delta, -other.high, other.p))


def test_all_pairs_are_for_exploring(runs: list[RunRecord]) -> None:
    frame = Results(runs).compare(None, resamples=RESAMPLES)
    assert len(frame) == 3
    assert frame["delta"].is_monotonic_decreasing
    assert (frame["correction"] == EXPLORATORY).all()
    assert (frame["p_adjusted"] >= frame["p"]).all()


def test_only_replicates_that_both_have_are_compared(runs: list[RunRecord], tmp_path: Path) -> None:
    lonely = saved(tmp_path, "late", 2.0, seed=7)
    result = compare([*runs[:2], runs[4], lonely], "clip", resamples=RESAMPLES)  # clip 0, good 0 and 1, late 7
    frame = result.to_frame()
    assert frame[["method", "replicates"]].to_numpy().tolist() == [["good", 1]]
    assert "nothing to compare late with" in result.notes[0]
    assert frame.attrs["notes"] == list(result.notes)


def test_protocols_are_never_mixed(runs: list[RunRecord], tmp_path: Path) -> None:
    elsewhere = [saved(tmp_path, name, 2.0, protocol="other") for name in ("clip", "good")]
    frame = Results([*runs, *elsewhere]).compare("clip", resamples=RESAMPLES)
    assert frame.groupby("dataset").size().to_dict() == {"other": 1, "toy": 2}
    with pytest.raises(ValueError, match="one protocol"):
        ProtocolStatistics([*runs, *elsewhere], "mAP", RESAMPLES)


def test_configurations_of_a_method_are_rows_of_their_own(runs: list[RunRecord], tmp_path: Path) -> None:
    runs += [saved(tmp_path, "good", 0.5, seed, config="weak") for seed in (0, 1)]
    frame = Results([*runs, *runs]).compare("clip", resamples=RESAMPLES)  # twice the same run is one
    assert frame["changes"].tolist() == ["", "", "setting=weak"]
    assert frame["config"].nunique() == 3


def test_classes_by_name(runs: list[RunRecord]) -> None:
    statistics = ProtocolStatistics(runs, "mAP", RESAMPLES)
    config = {run.method: run.config.digest for run in runs}
    classes = statistics.classes(config["odd"], config["clip"])
    assert [name for name, change in classes.items() if change.significantly_harmed] == ["dog"]
    assert all(change.p_adjusted >= change.estimate.p for change in classes.values())


def test_the_rules_of_the_protocol_are_followed() -> None:
    for ties, words in AP_CONVENTIONS.items():
        assert soundness.ties_of(record(protocol=Identity({"average_precision": words}))) == ties
    for empty in ("skip", "zero"):
        assert soundness.empty_of(record(protocol=Identity({"empty_classes": empty}))) == empty


def test_what_nobody_ran(runs: list[RunRecord]) -> None:
    with pytest.raises(UnknownName, match=r"unknown baseline 'clp'\. Did you mean clip"):
        Results(runs).compare("clp")
    with pytest.raises(UnknownName, match="Did you mean mAP_centered"):
        Results(runs).compare(metric="mAP_centred")


# --------------------------------------------------------------------------------------------------------- what is kept


def test_a_second_call_reads_no_scores(runs: list[RunRecord], home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Results(runs).compare("clip", resamples=RESAMPLES)
    assert len(list((home / "statistics").iterdir())) == len(runs)

    def refuse(run: RunRecord) -> None:
        raise AssertionError("scores were read")

    monkeypatch.setattr(records, "load_in_dataset_order", refuse)
    assert Results(runs).compare("clip", resamples=RESAMPLES).equals(first)
    for other in ({"metric": "mAP_softmax", "resamples": RESAMPLES}, {"metric": "mAP", "resamples": 60}):
        with pytest.raises(AssertionError, match="scores were read"):
            Results(runs).compare("clip", **other)  # type: ignore[arg-type]


def test_what_is_damaged_is_made_again(runs: list[RunRecord], home: Path) -> None:
    first = Results(runs).compare("clip", resamples=RESAMPLES)
    for file in (home / "statistics").iterdir():
        file.write_bytes(file.read_bytes()[:100])
    assert Results(runs).compare("clip", resamples=RESAMPLES).equals(first)


def test_a_home_that_can_not_be_written(runs: list[RunRecord], home: Path) -> None:
    home.mkdir()
    (home / "statistics").write_text("in the way")
    assert len(Results(runs).compare("clip", resamples=RESAMPLES)) == 2


def test_one_lost_file_does_not_take_the_table_with_it(runs: list[RunRecord]) -> None:
    folder = runs[1].folder
    assert folder is not None
    (folder / records.SCORES).unlink()
    frame = Results(runs).compare("clip", resamples=RESAMPLES)
    assert frame.set_index("method")["replicates"].to_dict() == {"good": 1, "odd": 2}
    assert frame.attrs["notes"][0].startswith("left out: ")


def test_records_of_version_0_1_hold_no_digests(runs: list[RunRecord]) -> None:
    old = [replace(run, files={}) for run in runs]
    assert len(Results(old).compare("clip", resamples=RESAMPLES)) == 2
    assert old[0].folder is not None
    (old[0].folder / records.SCORES).unlink()
    with pytest.raises(BadData, match="scores can't be read"):
        draws.resampled(old[0], "mAP", RESAMPLES)
    assert comparison.by_protocol([*old, *old]) == [old]


@pytest.mark.parametrize("damage", ["a flipped bit", "half", "zeros", "empty"])
def test_damaged_resamples_are_made_again(runs: list[RunRecord], home: Path, damage: str) -> None:
    before = draws.resampled(runs[0], resamples=50)
    (file,) = (home / "statistics").glob("*.npz")
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    flipped = bytes(content)
    file.write_bytes(
        {"a flipped bit": flipped, "half": flipped[: len(flipped) // 2], "zeros": bytes(900)}.get(damage, b"")
    )
    assert np.array_equal(draws.resampled(runs[0], resamples=50).draws, before.draws, equal_nan=True)
