"""Weights that are zero, all or in part, as in a copy that was cut short: they run, and that is said in one line."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tta_bench.backbones._weight_files import Weights, has_a_hole, read_weights
from tta_bench.backbones.tiny import WEIGHTS, Tiny

EMBEDDING = "token_embedding.weight"


def said(weights: Weights, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> list[str]:
    file = tmp_path / "zeros.safetensors"
    save_file(weights, file)
    with caplog.at_level(logging.WARNING):
        Tiny.load("cpu", file)
    lines = [record.getMessage() for record in caplog.records]
    assert all("\n" not in line and "zeros.safetensors" in line for line in lines)
    return lines


def holed(tensor: Tensor, start: int, count: int) -> Tensor:
    tensor = tensor.clone()
    tensor.view(-1)[start : start + count] = 0
    return tensor


@pytest.mark.parametrize("zeros", ["all", "matrices"])
def test_weights_that_are_all_zero_are_pointed_out(
    zeros: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    weights = read_weights(WEIGHTS)
    (line,) = said({n: t * 0 if zeros == "all" or t.dim() > 1 else t for n, t in weights.items()}, tmp_path, caplog)
    assert "its weights are all zero" in line


def test_sound_weights_are_not_talked_about(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights = read_weights(WEIGHTS)
    assert not said(weights, tmp_path, caplog)
    vectors = {n: t * 0 if t.dim() == 1 and n.endswith("bias") else t for n, t in weights.items()}  # many start so
    assert not said(vectors, tmp_path, caplog)


def test_a_matrix_that_is_zero_is_named(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights = read_weights(WEIGHTS)
    (line,) = said(weights | {EMBEDDING: weights[EMBEDDING] * 0}, tmp_path, caplog)
    assert f"its tensor {EMBEDDING} is all zero" in line


@pytest.mark.parametrize("share", [0, 0.123, 0.97])
def test_a_hole_in_a_matrix_is_named(share: float, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights = read_weights(WEIGHTS)
    size = weights[EMBEDDING].numel()
    (line,) = said(weights | {EMBEDDING: holed(weights[EMBEDDING], int(share * size), size // 50)}, tmp_path, caplog)
    assert f"its tensor {EMBEDDING} is zero in a long stretch" in line


def test_several_holes_are_one_line(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    weights = {n: holed(t, 0, 1500) if t.numel() > 3000 else t for n, t in read_weights(WEIGHTS).items()}
    (line,) = said(weights, tmp_path, caplog)
    assert "more of its tensors" in line


@pytest.mark.parametrize(
    ("shape", "start", "count", "seen"),
    [
        ((40, 50), 0, 1024, True),
        ((40, 50), 976, 1024, True),
        ((40, 50), 500, 1023, False),
        ((1001, 1), 0, 1001, True),  # all of it
        ((1001, 1), 0, 1000, False),
        ((1000, 1), 0, 1000, False),  # too small to say anything
        ((2000,), 0, 2000, False),  # vectors may be zero
        ((1000, 500), 123_456, 5001, True),  # more than 1 %
        ((1000, 500), 123_456, 5000, False),
        ((10, 500, 10, 10), 494_999, 5001, True),
    ],
)
def test_what_counts_as_a_hole(shape: tuple[int, ...], start: int, count: int, seen: bool) -> None:
    for shift in (0, 1, 17):
        assert has_a_hole(holed(torch.ones(shape), max(0, start - shift), count)) is seen


def test_zeros_here_and_there_are_no_hole() -> None:
    tensor = torch.ones(1000, 500)
    tensor[::2] = 0  # every other row
    tensor[:, ::3] = 0
    assert not has_a_hole(tensor)
