"""The encoder's batches, and what it says when memory runs out."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from tests.toy_plugin import ToyCLIP
from tta_bench.features.encoder import Encoder, is_full, pace
from tta_bench.pixels.resize import to_floats
from tta_bench.system.progress import Silent


class Narrow(ToyCLIP):
    """Has room for a few views at a time, and says so in torch's words."""

    def __init__(self, room: int, words: Exception) -> None:
        super().__init__()
        self.room, self.words, self.batches = room, words, list[int]()

    def encode_images(self, pixels: Tensor) -> Tensor:
        self.batches.append(len(pixels))
        if len(pixels) > self.room:
            raise self.words
        return super().encode_images(pixels)


@pytest.fixture
def pixels() -> Tensor:
    size = ToyCLIP.load("cpu").preprocess.size
    return torch.randint(0, 256, (20, 3, size, size), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def test_features_are_the_backbones_in_whatever_batches(pixels: Tensor) -> None:
    backbone = ToyCLIP.load("cpu")
    expected = backbone.encode_images(to_floats(pixels))
    for batch_size in (1, 7, 20, 64):
        encoder = Encoder(backbone, batch_size, Silent())
        assert torch.allclose(encoder(pixels), expected, atol=1e-6)
        assert torch.allclose(encoder(to_floats(pixels[:3])), expected[:3], atol=1e-6)  # a recipe may render floats


@pytest.mark.parametrize(
    "words",
    [torch.OutOfMemoryError("CUDA out of memory"), RuntimeError("DefaultCPUAllocator: can't allocate memory: 9 bytes")],
    ids=["accelerator", "here"],
)
def test_batches_become_smaller_when_memory_runs_out(pixels: Tensor, words: Exception) -> None:
    backbone, reporter = Narrow(5, words), Silent()
    encoder = Encoder(backbone, 64, reporter)
    expected = ToyCLIP.load("cpu").encode_images(to_floats(pixels))
    assert torch.allclose(encoder(pixels), expected, atol=1e-6)
    assert backbone.batches == [20, 10, 5, 5, 5, 5]
    assert reporter.lines[-1] == "memory is full: encoding 5 views at a time from here on"
    assert torch.allclose(encoder(pixels), expected, atol=1e-6)
    assert backbone.batches[6:] == [5, 5, 5, 5]  # for good


def test_other_errors_and_a_single_view_that_does_not_fit_are_not_swallowed(pixels: Tensor) -> None:
    with pytest.raises(MemoryError):
        Encoder(Narrow(0, MemoryError()), 64, Silent())(pixels)
    with pytest.raises(RuntimeError, match="shapes"):
        Encoder(Narrow(5, RuntimeError("mat1 and mat2 shapes cannot be multiplied")), 64, Silent())(pixels)
    assert not is_full(RuntimeError("DataLoader worker (pid 1) is killed"))


def test_the_slower_half_is_named() -> None:
    assert pace(6.0, 10.0) == "the encoder sets the pace"
    assert pace(4.0, 10.0) == "rendering views sets the pace"
