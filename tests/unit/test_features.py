"""The feature store: what is written is read back, and nothing else ever is."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from tta_bench.errors import StoreError
from tta_bench.features.options import FeatureType
from tta_bench.features.store import STORE_VERSION, Entry, FeatureKey, FeatureStore, check_free_space

SHAPE = (10, 3, 8)


def features(images: int = SHAPE[0]) -> Tensor:
    return normalize(torch.randn(images, *SHAPE[1:], generator=torch.Generator().manual_seed(1)), dim=-1)


def entry(root: Path, dtype: FeatureType = "float16", batch_size: int = 12) -> Entry:
    return FeatureStore(root).entry(FeatureKey("data", "model", "AugMix(3)", 0, dtype), SHAPE, batch_size)


def fill(target: Entry, blocks: list[int]) -> None:
    with target.writing() as writer:
        for block in blocks:
            writer.claim([block])
            images = target.images_of(block)
            writer.write(block, features()[images.start : images.stop])


@pytest.mark.parametrize(("dtype", "tolerance"), [("float16", 1e-3), ("float32", 1e-7)])
def test_round_trip(tmp_path: Path, dtype: FeatureType, tolerance: float) -> None:
    target = entry(tmp_path, dtype)
    assert target.images_per_block == 4
    assert target.missing(range(10)) == [0, 1, 2]
    fill(target, [0, 1, 2])
    again = entry(tmp_path, dtype)
    assert again.missing(range(10)) == []
    read = torch.stack([again.read(i) for i in range(10)])
    assert read.dtype == torch.float32
    assert torch.allclose(read, features(), atol=tolerance)
    assert torch.allclose(read.norm(dim=-1), torch.ones(10, 3), atol=1e-6)


def test_only_what_is_needed_is_missing(tmp_path: Path) -> None:
    target = entry(tmp_path)
    assert target.missing([9]) == [2]
    fill(target, [2])
    assert target.missing([8, 9]) == []
    assert target.missing([0, 9]) == [0]
    with pytest.raises(StoreError, match="not encoded yet"):
        target.read(0)


def test_a_grid_has_an_entry_of_its_own(tmp_path: Path) -> None:
    """What was encoded together decides last bits: no request is answered with what another batch size left."""
    first, second = entry(tmp_path, batch_size=12), entry(tmp_path, batch_size=100)
    assert (first.images_per_block, second.images_per_block) == (4, 16)
    assert first.folder != second.folder
    assert entry(tmp_path, batch_size=13).folder == first.folder
    assert entry(tmp_path, batch_size=48).folder == second.folder


def test_every_part_of_the_key_counts() -> None:
    keys = [
        FeatureKey("data", "model", "AugMix(3)", 0),
        FeatureKey("other", "model", "AugMix(3)", 0),
        FeatureKey("data", "other", "AugMix(3)", 0),
        FeatureKey("data", "model", "AugMix(4)", 0),
        FeatureKey("data", "model", "AugMix(3)", 1),
        FeatureKey("data", "model", "AugMix(3)", 0, "float32"),
        FeatureKey("data", "model", "AugMix(3)", 0, version=STORE_VERSION + 1),
    ]
    assert len({key.digest for key in keys}) == len(keys)


@pytest.mark.parametrize("cut", [b"1 0", b"2 deadbee", b"x", b"2 deadbeef"])
def test_a_journal_line_that_was_cut_off_does_not_count(tmp_path: Path, cut: bytes) -> None:
    target = entry(tmp_path)
    fill(target, [0])
    journal = target.folder / "journal.txt"
    journal.write_bytes(journal.read_bytes() + cut)
    again = entry(tmp_path)
    assert again.missing(range(10)) == [1, 2]
    fill(again, [1, 2])
    assert entry(tmp_path).missing(range(10)) == []


def test_data_without_its_journal_line_does_not_count(tmp_path: Path) -> None:
    target = entry(tmp_path)
    fill(target, [0, 1])
    (target.folder / "journal.txt").write_bytes((target.folder / "journal.txt").read_bytes().splitlines(True)[0])
    assert entry(tmp_path).missing(range(10)) == [1, 2]


@pytest.mark.parametrize("position", [0, 100, 191])
def test_a_flipped_bit_is_noticed(tmp_path: Path, position: int) -> None:
    target = entry(tmp_path)
    fill(target, [0, 1, 2])
    content = bytearray((target.folder / "features.bin").read_bytes())
    content[position] ^= 4
    (target.folder / "features.bin").write_bytes(content)
    again = entry(tmp_path)
    assert again.missing(range(10)) == [0]
    assert again.damaged == 1


def test_a_block_of_a_wrong_shape_is_refused(tmp_path: Path) -> None:
    with entry(tmp_path).writing() as writer, pytest.raises(ValueError, match=r"block 2 wants \(2, 3, 8\)"):
        writer.write(2, features(4))


def test_a_claim_lasts_until_its_blocks_are_written(tmp_path: Path) -> None:
    ours, theirs = entry(tmp_path).writing(), entry(tmp_path).writing()
    with ours, theirs:
        assert ours.claim([1]) == [1]
        assert theirs.claim([1]) == []
        assert theirs.claim([2]) == [2]
        ours.wait(1)  # returns at once: it is our own
        assert ours.claim([1]) == [1]
        ours.write(1, features()[4:8])
        assert theirs.claim([1]) == []
        ours.flush()
        assert theirs.claim([1]) == []  # it is done
    assert entry(tmp_path).missing(range(10)) == [0, 2]


def test_too_little_space_is_said_beforehand(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="TTABENCH_HOME"):
        check_free_space(tmp_path, 10**18)
