"""What is trusted is sealed: a checkpoint, a record or a store entry that is not what was written gives no number."""

from __future__ import annotations

import dataclasses
import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tta_bench
from tests.conftest import Invoke
from tests.record_fixtures import on, record, write
from tta_bench import records
from tta_bench.errors import BadData, Interrupted
from tta_bench.features.options import EncodingOptions
from tta_bench.plugins import Registry
from tta_bench.records import Identity, Results, RunRecord
from tta_bench.report.board import boards
from tta_bench.report.frame import long_form
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
            bench.run(spec)
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


# ------------------------------------------------------------------------------------------------------------ records


def saved(runs: Path, run: RunRecord) -> Path:
    """The record on disk as a run leaves it, sealed, with scores of two images and three classes."""
    scores, labels = np.zeros((2, 3), np.float32), np.zeros((2, 3), np.int8)
    records.save(run, runs / run.run_id, scores[:, None], scores, labels, np.arange(2), ["x", "y"], {})
    return runs / run.run_id


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes what run.json says; nobody seals it again."""
    content = json.loads((folder / "run.json").read_text())
    change(content)
    (folder / "run.json").write_text(json.dumps(content, indent=1))


def only_warning(invoke: Invoke, runs: Path, method: str) -> str:
    """The one line that stands for a bad record; no format has a number of `method`, all have those of `clip`."""
    warnings = set()
    for format_ in ("csv", "md"):
        result = invoke("leaderboard", "--results", str(runs), "--format", format_)
        assert result.code == 0, result.err
        assert "clip" in result.out
        assert method not in result.out
        (line,) = result.err.strip().splitlines()
        warnings.add(line)
    found = tta_bench.load_results(runs)
    assert [run.method for run in found] == ["clip"]
    assert len(found.problems) == 1
    (warning,) = warnings
    return warning


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


@pytest.mark.parametrize("what", ["mAP", "a part", "a digest"])
def test_a_damaged_record_is_run_again(what: str, bench: Bench) -> None:
    before = bench.run(SPEC).record
    assert before.folder is not None
    edit(before.folder, CHANGED_DIGITS[what])
    outcome = bench.run(SPEC)
    assert not outcome.already
    assert outcome.record.metrics == before.metrics
    assert any("not what was written" in line and "running again" in line for line in lines(bench))


def test_a_run_is_not_taken_for_the_one_whose_name_its_folder_has(bench: Bench) -> None:
    before = bench.run(SPEC).record
    other = bench.run(RunSpec(method="twobranches", dataset="toy", backbone="toyclip", seed=1)).record
    assert before.folder is not None
    assert other.folder is not None
    shutil.rmtree(before.folder)
    other.folder.rename(before.folder)
    outcome = bench.run(SPEC)
    assert (outcome.already, outcome.record.seed, outcome.record.metrics) == (False, 0, before.metrics)


# ------------------------------------------------------------------------------------------------- types and ranges

MALFORMED: dict[str, tuple[str, Any]] = {
    "metrics: a list": ("metrics", [50.0]),
    "metrics: a text": ("metrics", {"mAP": "50"}),
    "metrics: NaN": ("metrics", {"mAP": float("nan")}),
    "metrics: infinite": ("metrics", {"mAP": float("inf")}),
    "metrics: 150": ("metrics", {"mAP": 150}),
    "metrics: negative": ("metrics", {"mAP": -1.0}),
    "metrics: true": ("metrics", {"mAP": True}),
    "metrics: enormous": ("metrics", {"mAP": 10**400}),
    "metrics: half a class": ("metrics", {"mAP": 50.0, "classes_without_positives": 0.5}),
    "per_class_ap: 101": ("per_class_ap", {"a": 101.0}),
    "per_class_ap: nested": ("per_class_ap", {"a": {"b": 1.0}}),
    "n: none": ("n", 0),
    "n: a text": ("n", "10"),
    "n: a float": ("n", 10.0),
    "n: enormous": ("n", 10**30),
    "seed: a text": ("seed", "0"),
    "seed: null": ("seed", None),
    "method: a number": ("method", 3),
    "method: a list": ("method", ["tda"]),
    "dataset: null": ("dataset", None),
    "changes: a text": ("changes", "shots=3"),
    "changes: null": ("changes", None),
    "tag: a mapping": ("tag", {}),
    "speed: a text": ("speed", {"images_per_s": "fast"}),
    "speed: a list": ("speed", []),
    "counts: negative": ("counts", {"encoder_forwards": -1}),
    "dataset_size: a text": ("dataset_size", "all"),
    "dataset_size: fewer than seen": ("dataset_size", 3),
    "random_weights: a text": ("random_weights", "no"),
    "notes: a text": ("notes", "note"),
    "files: elsewhere": ("files", {"../other/scores.safetensors": "0" * 64}),
    "provenance: a text": ("provenance", {"versions": "2.0"}),
    "identities: a list": ("identities", []),
    "identities: no parts": ("identities", {"protocol": {}, "config": {}, "replicate": {}}),
    "identities: two": ("identities", {"protocol": {"parts": {}}, "config": {"parts": {}}}),
    "schema: a text": ("schema", "1"),
    "schema: null": ("schema", None),
}


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_record_is_one_line_that_names_the_field(what: str, invoke: Invoke, tmp_path: Path) -> None:
    field, value = MALFORMED[what]
    write(tmp_path, record("clip"), record("tda"))
    folder = tmp_path / record("tda").run_id
    edit(folder, lambda content: content.update({field: value}))
    line = only_warning(invoke, tmp_path, "tda")
    assert str(folder / "run.json") in line
    assert f"'{field}'" in line


@pytest.mark.parametrize("field", ["method", "metrics", "identities", "n", "speed"])
def test_a_missing_field_is_named(field: str, invoke: Invoke, tmp_path: Path) -> None:
    write(tmp_path, record("clip"), record("tda"))
    edit(tmp_path / record("tda").run_id, lambda content: content.pop(field))
    assert f"'{field}' is missing" in only_warning(invoke, tmp_path, "tda")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"3", b"\xff\xfe", b"[" * 100_000, b'{"schema": 1}', b"1" * 9999]
)
def test_what_is_no_record_at_all(content: bytes, invoke: Invoke, tmp_path: Path) -> None:
    write(tmp_path, record("clip"), record("tda"))
    (tmp_path / record("tda").run_id / "run.json").write_bytes(content)
    only_warning(invoke, tmp_path, "tda")


def test_a_folder_or_a_pipe_in_the_place_of_a_record(tmp_path: Path) -> None:
    write(tmp_path, record("clip"))
    (tmp_path / "a" / "run.json").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "run.json")
    found, problems = records.load_all(tmp_path)
    assert len(found) == 1
    assert [line.endswith("not a run record (it is no file)") for line in problems] == [True, True]


# -------------------------------------------------------------------------------------------------------------- store


def entries(bench: Bench) -> list[Path]:
    return sorted(file.parent for file in (bench.home / "store").glob("*/*/meta.json") if "set-aside" not in str(file))


def set_aside(bench: Bench) -> list[Path]:
    return sorted((bench.home / "store").glob("*/*.set-aside-*"))


def test_swapped_entries_are_set_aside_and_encoded_afresh(bench: Bench) -> None:
    """Same dataset, backbone and shape, another seed: nothing but the key tells them apart."""
    other = dataclasses.replace(SPEC, seed=1)
    undisturbed = finished(bench), finished(bench, other)
    seeded = [folder for folder in entries(bench) if "AugMix" in (folder / "meta.json").read_text()]
    first, second = seeded
    kept = first.rename(first.with_name("for-a-moment"))
    second.rename(first)
    kept.rename(second)
    lines(bench).clear()
    assert np.array_equal(finished(bench), undisturbed[0])
    assert np.array_equal(finished(bench, other), undisturbed[1])
    assert sum("is that of another entry: set aside as" in line for line in lines(bench)) == 2
    assert len(set_aside(bench)) == 2
    assert all((folder / "features.bin").stat().st_size for folder in set_aside(bench))
    lines(bench).clear()
    assert np.array_equal(finished(bench), undisturbed[0])
    assert "0 encoder forwards" in lines(bench)


def test_data_and_journal_swapped_between_entries_are_encoded_afresh(bench: Bench) -> None:
    """Each meta.json stays where it is: only the journal's lines say whose blocks they are."""
    other = dataclasses.replace(SPEC, seed=1)
    undisturbed = finished(bench), finished(bench, other)
    first, second = (folder for folder in entries(bench) if "AugMix" in (folder / "meta.json").read_text())
    for name in ("features.bin", "journal.txt"):
        kept = (first / name).read_bytes()
        (first / name).write_bytes((second / name).read_bytes())
        (second / name).write_bytes(kept)
    lines(bench).clear()
    assert np.array_equal(finished(bench), undisturbed[0])
    assert np.array_equal(finished(bench, other), undisturbed[1])
    assert sum("damaged blocks" in line for line in lines(bench)) == 2


def test_entries_whose_journal_names_no_entry_are_still_read(bench: Bench) -> None:
    """As they were written before."""
    undisturbed = finished(bench)
    for folder in entries(bench):
        journal = (folder / "journal.txt").read_text().splitlines()
        (folder / "journal.txt").write_text("".join(f"{line.rpartition(' ')[0]}\n" for line in journal))
    lines(bench).clear()
    assert np.array_equal(finished(bench), undisturbed)
    assert "0 encoder forwards" in lines(bench)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, b'{"key": 1}', None])
def test_an_unreadable_meta_json_deletes_nothing(bench: Bench, content: bytes | None) -> None:
    undisturbed = finished(bench)
    folder = entries(bench)[0]
    features = (folder / "features.bin").read_bytes()
    for turn in (1, 2):
        if content is None:
            (folder / "meta.json").unlink()
        else:
            (folder / "meta.json").write_bytes(content)
        lines(bench).clear()
        assert np.array_equal(finished(bench), undisturbed)
        assert sum("set aside as" in line for line in lines(bench)) == 1
        assert (set_aside(bench)[turn - 1] / "features.bin").read_bytes() == features


@pytest.mark.parametrize("field", ["images_per_block", "shape", "key"])
def test_a_changed_meta_json_gives_no_other_features(bench: Bench, field: str) -> None:
    undisturbed = finished(bench)
    for folder in entries(bench):
        meta = json.loads((folder / "meta.json").read_text())
        meta[field] = {"images_per_block": 3, "shape": [24, 1, 8], "key": {**meta["key"], "seed": 9}}[field]
        (folder / "meta.json").write_text(json.dumps(meta))
    assert np.array_equal(finished(bench), undisturbed)


def test_what_was_asked_of_the_store_before_changes_no_bit(toy_registry: Registry, tmp_path: Path) -> None:
    def scores(home: str, *batches: tuple[int, int | None]) -> np.ndarray[Any, Any]:
        for batch_size, limit in batches:
            options = EncodingOptions(batch_size=batch_size, workers=0)
            bench = Bench(tmp_path / home, tmp_path, registry=toy_registry, encoding=options, progress=Silent())
            record = bench.run(dataclasses.replace(SPEC, limit=limit)).record
            assert record.hardware["batch_size"] == batch_size
        for file in (tmp_path / home / "store").glob("*/*/meta.json"):
            meta = json.loads(file.read_text())
            grids.setdefault(home, {}).setdefault(meta["key"]["recipe"], set()).add(meta["images_per_block"])
        return record.scores()

    grids: dict[str, dict[str, set[int]]] = {}
    assert np.array_equal(scores("fresh", (64, None)), scores("used", (1, 3), (64, None)))
    assert all(found < grids["used"][recipe] for recipe, found in grids["fresh"].items())  # and not the other's


def test_another_grid_is_said_once(bench: Bench) -> None:
    finished(bench)
    bench.encoding = EncodingOptions(batch_size=1, workers=0)
    finished(bench)
    assert sum("--batch-size 1 means 1: encoding it for that too" in line for line in lines(bench)) == 3
    lines(bench).clear()
    finished(bench)
    assert not any("--batch-size" in line for line in lines(bench))
    assert "0 encoder forwards" in lines(bench)


# ------------------------------------------------------------------------------------------------------------- tables


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
    first = bench.run(SPEC).record
    assert bench.run(dataclasses.replace(SPEC, order="shuffled:0")) == (first, True)
    other = bench.run(dataclasses.replace(SPEC, order="shuffled:1"))
    assert (other.already, other.record.order) == (False, "shuffled:1")


def by(ttabench: str, torch: str, seed: int, **changes: object) -> RunRecord:
    versions = {"versions": {"ttabench": ttabench, "torch": torch}}
    return record(seed=seed, replicate=Identity({"seed": seed}), provenance=versions, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("format_", ["console", "md", "latex"])
def test_different_versions_in_one_cell_are_said(format_: Any) -> None:
    mixed = Results([by("0.1.0", "2.9.0", 0), by("0.2.0", "2.15.0", 1)])
    text = " ".join(mixed.leaderboard(format_, width=300).split())
    assert "1 cell with runs recorded by different versions (ttabench 0.1.0, 0.2.0; torch 2.15.0, 2.9.0)" in text
    same = Results(
        [by("0.2.0", "2.15.0", 0), by("0.2.0", "2.15.0", 1), by("0.2.0", "2.9.0", 0, config=Identity({"method": "x"}))]
    )
    assert "different versions" not in same.leaderboard(format_)
    unknown = Results([by("0.2.0", "2.15.0", 0), record(seed=1, replicate=Identity({"seed": 1}))])
    assert "ttabench unknown, 0.2.0" in " ".join(unknown.leaderboard(format_, width=300).split())
