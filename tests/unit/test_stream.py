"""Stream order, and what a method sees; test_label_blind.py looks for ways to the labels."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from tta_bench.features.encoding import EncodedViews
from tta_bench.features.options import EncodingOptions
from tta_bench.features.stream import Stream, observations
from tta_bench.interfaces import Observation, Task
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.system.progress import Silent
from tta_bench.views import Original, Plain


def test_observations_carry_features_and_no_labels(toy_bench: Bench) -> None:
    dataset, backbone = toy_bench.dataset("toy"), toy_bench.backbone("toyclip")
    stream = Stream.of(dataset, "shuffled", 0, 5)
    encoded = [
        EncodedViews(toy_bench.store, dataset, backbone, recipe, 0, EncodingOptions(workers=0))
        for recipe in (Original(), Plain(3))
    ]
    for each in encoded:
        each.ensure(stream.indices, Silent())
    seen = list(observations(stream, encoded[0], {"views": encoded[1]}, [], 0, "cpu"))
    assert [x.index for x in seen] == [0, 1, 2, 3, 4]
    assert {f.name for f in dataclasses.fields(Observation)} == {"index", "image", "views", "load_pixels"}
    assert "labels" not in {f.name for f in dataclasses.fields(Task)}
    for x in seen:
        assert x.image.shape == (16,)
        assert x["views"].shape == (3, 16)


def test_a_method_scores_the_same_whatever_the_labels(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    from safetensors.torch import load_file

    honest, _ = toy_bench.run(RunSpec("twobranches", "toy", "toyclip"))
    dataset = toy_bench.dataset("toy")
    original = type(dataset).__getitem__

    def relabelled(self: Any, i: int) -> Any:
        sample = original(self, i)
        return dataclasses.replace(sample, labels=1 - sample.labels)

    monkeypatch.setattr(type(dataset), "__getitem__", relabelled)
    other, already = toy_bench.run(RunSpec("twobranches", "toy", "toyclip"))
    assert not already
    assert other.protocol.digest != honest.protocol.digest
    assert other.config.digest == honest.config.digest
    scores = [load_file(record.folder / "scores.safetensors") for record in (honest, other) if record.folder]
    assert not torch.equal(scores[0]["labels"], scores[1]["labels"])
    assert torch.equal(scores[0]["scores"], scores[1]["scores"])
