"""A run's checkpoint and a backbone's weights, damaged at random."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from hypothesis import strategies as st
from safetensors.torch import save_file
from torch import Tensor

from tests.faults.fuzzing import damaged, few_and_many, for_all, outcome
from tta_bench.backbones._weight_files import read_weights
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.runs.replay import Adaptation, Checkpoints
from tta_bench.runs.state import Started
from tta_bench.system.progress import Silent
from tta_bench.system.seal import opened, sealed

CLASSES = ["dog", "cat"]


class Counting(Method):
    """Its state is how many images it has seen."""

    name = "counting"
    version = "1"

    def start(self, task: Task) -> None:
        self.seen = torch.zeros(2)

    def step(self, x: Observation) -> Tensor:
        self.seen += 1
        return self.seen.clone()


def a_task() -> Task:
    text = torch.eye(2)
    return Task(CLASSES, text, text[:, None], 100.0, rng=torch.Generator().manual_seed(0))


def a_checkpoint(file: Path) -> bytes:
    method, task = Counting(), a_task()
    method.start(task)
    progress = Adaptation(started=Started(method))
    for i in range(3):
        progress.record(method.step(Observation(i, torch.ones(2), {})), {"seen": float(i)}, 5)
    Checkpoints(file, 0.0, "this code", proven=False).after_step(progress, method, task, Silent())
    return file.read_bytes()


@few_and_many
def test_no_accident_to_a_checkpoint_is_resumed(tmp_path: Path, examples: int) -> None:
    whole = a_checkpoint(tmp_path / "checkpoint.pt")
    inside = opened(whole, "this code")

    def check(content: bytes) -> None:
        assert outcome(lambda: opened(content, "this code")) in (None, inside)
        if content != whole:
            assert outcome(lambda: opened(content, "this code")) is None

    for_all(examples, damaged(whole), check)


@few_and_many
def test_only_what_was_sealed_comes_out_of_a_seal(examples: int) -> None:
    def check(case: tuple[bytes, str, str]) -> None:
        content, writer, reader = case
        expected = content if writer == reader else None
        assert outcome(lambda: opened(sealed(content, writer), reader)) == expected

    writers = st.sampled_from(["a", "b", "\ud800", ""])
    for_all(examples, st.tuples(st.binary(max_size=300), writers, writers), check)


@pytest.mark.parametrize("kind", ["pt", "pickle", "safetensors"])
@few_and_many
def test_damaged_weights_are_refused_or_tensors(kind: str, tmp_path: Path, examples: int) -> None:
    file = tmp_path / ("weights.safetensors" if kind == "safetensors" else "weights.pt")
    weights = {"visual.proj": torch.randn(4, 4), "logit_scale": torch.tensor(4.6)}
    if kind == "safetensors":
        save_file(weights, file)
    else:
        torch.save({"state_dict": weights}, file, _use_new_zipfile_serialization=kind == "pt")

    def check(content: bytes) -> None:
        file.write_bytes(content)
        found = outcome(lambda: read_weights(file))
        assert found is None or all(isinstance(tensor, Tensor) for tensor in found.values())

    assert read_weights(file).keys() == weights.keys()
    for_all(examples, damaged(file.read_bytes()), check)
