"""A store entry that is not the one wanted is set aside, never read and never deleted."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.conftest import some_slow
from tests.faults.toy_runs import TOY_RUN, finished, lines
from tta_bench.errors import StoreError
from tta_bench.features import entry_locks
from tta_bench.features.options import EncodingOptions
from tta_bench.features.store import Entry, FeatureKey, FeatureStore
from tta_bench.plugins import Registry
from tta_bench.runs.bench import Bench
from tta_bench.runs.spec import RunSpec
from tta_bench.system.progress import Silent


def entries(bench: Bench) -> list[Path]:
    return sorted(file.parent for file in (bench.home / "store").glob("*/*/meta.json") if "set-aside" not in str(file))


def set_aside(bench: Bench) -> list[Path]:
    return sorted((bench.home / "store").glob("*/*.set-aside-*"))


@pytest.mark.slow
def test_swapped_entries_are_set_aside_and_encoded_afresh(bench: Bench) -> None:
    """Same dataset, backbone and shape, another seed: nothing but the key tells them apart."""
    other = dataclasses.replace(TOY_RUN, seed=1)
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


@pytest.mark.slow
def test_data_and_journal_swapped_between_entries_are_encoded_afresh(bench: Bench) -> None:
    """Each meta.json stays where it is: only the journal's lines say whose blocks they are."""
    other = dataclasses.replace(TOY_RUN, seed=1)
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


def test_a_journal_that_names_no_entry_is_not_believed(bench: Bench) -> None:
    """It could be anybody's."""
    undisturbed = finished(bench)
    for folder in entries(bench):
        journal = (folder / "journal.txt").read_text().splitlines()
        (folder / "journal.txt").write_text("".join(f"{line.rpartition(' ')[0]}\n" for line in journal))
    lines(bench).clear()
    assert np.array_equal(finished(bench), undisturbed)
    assert "0 encoder forwards" not in lines(bench)


@pytest.mark.parametrize(
    "content", some_slow([b'{"key": 1}'], [b"", b"{", b"[]", b"null", b"\xff", b"[" * 100_000, None])
)
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


@pytest.mark.parametrize("field", some_slow(["key"], ["images_per_block", "shape"]))
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
            record = bench.run(dataclasses.replace(TOY_RUN, limit=limit)).record
            assert record.hardware["batch_size"] == batch_size
        for file in (tmp_path / home / "store").glob("*/*/meta.json"):
            meta = json.loads(file.read_text())
            grids.setdefault(home, {}).setdefault(meta["key"]["recipe"], set()).add(meta["images_per_block"])
        return record.scores()

    grids: dict[str, dict[str, set[int]]] = {}
    assert np.array_equal(scores("fresh", (64, None)), scores("used", (1, 3), (64, None)))
    assert all(found < grids["used"][recipe] for recipe, found in grids["fresh"].items())  # and not the other's


def test_views_encoded_one_by_one_have_an_entry_of_their_own(tmp_path: Path) -> None:
    """With many views a block is one image for every batch size, but its views are not encoded together."""
    key, shape = FeatureKey("toy", "toyclip", "AugMix(63)", 0), (3, 63, 2)
    folders = {batch: FeatureStore(tmp_path).entry(key, shape, batch).folder for batch in (64, 100, 1, 8)}
    assert folders[64] == folders[100]
    assert len(set(folders.values())) == 3


def small_entry(folder: Path) -> Entry:
    return FeatureStore(folder).entry(FeatureKey("toy", "toyclip", "Original()", 0), (2, 1, 4), 1)


def test_a_file_that_takes_anothers_place_under_its_writer_is_noticed(tmp_path: Path) -> None:
    """As rsync does it: what was written is in a file that has no name any more."""
    target = small_entry(tmp_path)
    writer = target.writing()
    for block in writer.claim([0, 1]):
        writer.write(block, torch.tensor([[[1.0, 0, 0, 0]]]))
    data = target.folder / "features.bin"
    data.with_suffix(".new").write_bytes(b"")
    data.with_suffix(".new").rename(data)
    with pytest.raises(StoreError, match="another file has taken its place"):
        writer.flush()
    assert small_entry(tmp_path).missing([0, 1]) == [0, 1]


def test_a_hole_is_no_feature(tmp_path: Path) -> None:
    target = small_entry(tmp_path)
    with target.writing() as writer:
        for block in writer.claim([0, 1]):
            writer.write(block, torch.tensor([[[0.6, 0.8, 0, 0]]]))
    assert torch.allclose(target.read(1), torch.tensor([[0.6, 0.8, 0, 0]]), atol=1e-3)
    with (target.folder / "features.bin").open("r+b") as data:  # under its reader, who has checked it before
        data.write(bytes(16))
    with pytest.raises(StoreError, match="it holds something else than features"):
        target.read(1)


@pytest.mark.slow
def test_another_grid_is_said_once(bench: Bench) -> None:
    finished(bench)
    bench.encoding = EncodingOptions(batch_size=1, workers=0)
    finished(bench)
    assert sum("--batch-size 1 means 1: encoding it for that too" in line for line in lines(bench)) == 3
    lines(bench).clear()
    finished(bench)
    assert not any("--batch-size" in line for line in lines(bench))
    assert "0 encoder forwards" in lines(bench)


def test_what_was_verified_holds_for_that_file_alone(tmp_path: Path) -> None:
    """Another command deletes the entry, and somebody encodes a part of it anew: the rest must not be read as zeros."""
    features = torch.nn.functional.normalize(torch.ones(4, 1, 8), dim=-1)

    def entry() -> Entry:
        return FeatureStore(tmp_path).entry(FeatureKey("d", "b", "r", 0), (4, 1, 8), 2)

    def write(into: Entry, block: int) -> None:
        with into.writing() as writer:
            writer.claim([block])
            writer.write(block, features[into.images_of(block).start : into.images_of(block).stop])

    first = entry()
    for block in range(2):
        write(first, block)
    early = entry()
    assert early.missing(range(4)) == []
    for name in ("features.bin", "journal.txt"):
        (early.folder / name).unlink()
    write(entry(), 1)
    assert torch.allclose(early.read(0), features[0], atol=1e-3)  # the file that it verified is still open
    assert early.missing(range(4)) == [0]
    write(early, 0)
    assert torch.allclose(early.read(1), features[0], atol=1e-3)


def test_copies_of_locks_and_a_folder_for_a_journal_are_no_obstacle(tmp_path: Path) -> None:
    entry = FeatureStore(tmp_path).entry(FeatureKey("d", "b", "r", 0), (4, 1, 8), 2)
    for name in ("lock-3~", "lock-3 (1)"):
        (entry.folder / name).touch()
    (entry.folder / "journal.txt").mkdir()
    assert entry.missing(range(4)) == [0, 1]
    assert not entry_locks.any_claimed(entry.folder)


def test_an_entry_knows_what_it_was_made_with(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """`No field differs`, said `diff`, of two runs whose features were made on two kinds of machine."""
    here = torch.backends.cpu.get_cpu_capability()
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "ANOTHER")
    toy_bench.run(RunSpec("clip", "toy", "toyclip", limit=3))
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: here)
    found = toy_bench.run(RunSpec("clip", "toy", "toyclip", seed=1, limit=3)).record.hardware
    assert found["instructions"] == here
    assert str(found["encoded_by"]).startswith("ANOTHER instructions, torch 2")
