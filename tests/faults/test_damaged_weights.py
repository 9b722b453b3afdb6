"""Weights and learned prompts whose file tells that it is damaged, or that holds two of them: refused in one line."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.faults.test_inputs import one_line
from tta_bench.backbones._weight_files import read_weights
from tta_bench.errors import BadData
from tta_bench.prompts.files import read_coop

Read = Callable[[Path], object]
READERS: list[tuple[str, Read]] = [("weights.pt", read_weights), ("model.pth.tar-50", read_coop)]
reads = pytest.mark.parametrize(("name", "read"), READERS)


def saved(file: Path) -> Path:
    torch.save({"state_dict": {"ctx": torch.randn(4, 32)}}, file)
    return file


def flip_in_tensor(file: Path) -> None:
    """One bit of one number, as a disk or a download does it: torch reads the file as if nothing had happened."""
    content = bytearray(file.read_bytes())
    with zipfile.ZipFile(file) as archive:
        (member,) = (entry for entry in archive.infolist() if entry.filename.endswith("data/0"))
    header = member.header_offset + 30
    name, extra = (int.from_bytes(content[header - n : header - n + 2], "little") for n in (4, 2))
    content[header + name + extra + 7] ^= 0x40
    file.write_bytes(content)


@reads
def test_a_flipped_bit_is_seen_by_the_files_own_checksum(name: str, read: Read, tmp_path: Path) -> None:
    """55.70 in place of 55.32, and 53.37 for a learned prompt."""
    file = saved(tmp_path / name)
    read(file)
    flip_in_tensor(file)
    torch.load(file, weights_only=True)
    with pytest.raises(BadData, match="data/0 in it is not what its checksum is of; get it again") as caught:
        read(file)
    one_line(caught.value)


@reads
@pytest.mark.parametrize(("kept", "said"), [(0, "is empty"), (300, "is cut short"), (-40, "is cut short")])
def test_a_file_that_was_cut_is_called_so(name: str, read: Read, kept: int, said: str, tmp_path: Path) -> None:
    file = saved(tmp_path / name)
    file.write_bytes(file.read_bytes()[:kept])
    with pytest.raises(BadData, match=said) as caught:
        read(file)
    assert "miniz" not in one_line(caught.value)


@pytest.mark.parametrize(("one", "other"), [("state_dict", "state_dict_ema"), ("model", "model_ema"), ("model", "ema")])
def test_two_sets_of_weights_in_a_file_are_refused(one: str, other: str, tmp_path: Path) -> None:
    """Training scripts keep the averaged weights beside the last ones: one of them was taken without a word."""
    file = tmp_path / "checkpoint.pth"
    weights: dict[str, Tensor] = {"module.weight": torch.ones(2)}
    optimiser = {"state": {0: {"exp_avg": torch.ones(2)}}, "param_groups": []}
    torch.save({one: weights, "epoch": 3, "optimizer": optimiser}, file)
    assert read_weights(file).keys() == {"weight"}
    torch.save({one: weights, other: {"weight": torch.zeros(2)}}, file)
    with pytest.raises(BadData, match=f"holds weights twice, as '{one}' and as '{other}'"):
        read_weights(file)
