"""Stream order, and what a method sees; test_label_blind.py looks for ways to the labels."""

from __future__ import annotations

import dataclasses
import os
from typing import Any

import pytest
import torch

from tta_bench.features.encoding import EncodedViews
from tta_bench.features.options import EncodingOptions
from tta_bench.features.stream import AHEAD, Stream, observations
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


def test_features_are_sent_for_before_they_are_read(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, backbone = toy_bench.dataset("toy"), toy_bench.backbone("toyclip")
    stream = Stream.of(dataset, "shuffled", 0, None)
    image = EncodedViews(toy_bench.store, dataset, backbone, Original(), 0, EncodingOptions(workers=0))
    image.ensure(stream.indices, Silent())
    sent_for: list[int] = []
    monkeypatch.setattr(os, "posix_fadvise", lambda _file, offset, length, _: sent_for.append(offset // length))
    seen = observations(stream, image, {}, [], 0, "cpu")
    next(seen)
    assert sent_for == [stream.indices[AHEAD]]
    assert len(list(seen)) == len(stream) - 1
    assert sent_for == stream.indices[AHEAD:]
    monkeypatch.undo()
    (image.entry.folder / "features.bin").write_bytes(b"")
    image.entry.expect(23)  # a file that has become shorter is the reader's affair


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
