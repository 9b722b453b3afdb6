"""Datasets and backbones of others whose parameters nobody can see: what they give is looked at, and counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image, ImageFilter, ImageOps
from torch import Tensor
from torch.nn.functional import normalize

from tests.toy_plugin import Toy, ToyCLIP
from tta_bench.errors import BadData
from tta_bench.interfaces import Sample
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.system.progress import Silent


class Wrapped:
    """What it is made with is private, and its fingerprint says nothing of it."""

    name, fingerprint = "wrapped", "wrapped"

    def __init__(self, images: Sequence[int], change: Callable[[Image.Image], Image.Image], **options: Any) -> None:
        self._base, self._images, self._change, self._options = Toy("default"), list(images), change, options
        self.class_names = self._base.class_names

    def __len__(self) -> int:
        return len(self._images)

    def __getitem__(self, i: int) -> Sample:
        sample = self._base[self._images[i]]
        radius = self._options.get("radius", 0)
        return Sample(sample.id, lambda: self._change(sample.load().filter(ImageFilter.BoxBlur(radius))), sample.labels)


class Inverting:
    def __call__(self, image: Image.Image) -> Image.Image:
        return ImageOps.invert(image)


FIRST = range(12)
PAIRS: dict[str, tuple[Any, Any]] = {
    "other images": (Wrapped(FIRST, Image.Image.copy), Wrapped(range(12, 24), Image.Image.copy)),
    "an option": (Wrapped(FIRST, Image.Image.copy, radius=0), Wrapped(FIRST, Image.Image.copy, radius=6)),
    "an object": (Wrapped(FIRST, Image.Image.copy), Wrapped(FIRST, Inverting())),
    "a function": (Wrapped(FIRST, lambda image: image), Wrapped(FIRST, lambda image: ImageOps.invert(image))),
}


@pytest.mark.parametrize("what", PAIRS)
def test_datasets_that_differ_in_what_is_private_share_neither_features_nor_a_run(what: str, home: Any) -> None:
    one, other = PAIRS[what]
    shared = Bench(home / "shared", progress=Silent())
    first, second = (shared.run(RunSpec("clip", dataset, ToyCLIP())).record for dataset in (one, other))
    alone = Bench(home / "alone", progress=Silent()).run(RunSpec("clip", other, ToyCLIP())).record
    assert first.run_id != second.run_id == alone.run_id
    assert first.protocol != second.protocol
    assert np.array_equal(second.scores(), alone.scores())
    assert not np.array_equal(second.scores(), first.scores())


def test_a_dataset_that_keeps_what_it_has_read_is_the_same(toy_bench: Bench) -> None:
    class Keeping(Toy):
        def __init__(self) -> None:
            super().__init__("default")
            self._kept: dict[int, Sample] = {}

        def __getitem__(self, i: int) -> Sample:
            self._kept.setdefault(i, super().__getitem__(i))
            return self._kept[i]

    spec = RunSpec("clip", Keeping(), ToyCLIP())
    assert not toy_bench.run(spec).already
    assert toy_bench.run(spec).already


def test_a_picture_that_can_not_be_decoded_is_named_as_usual(toy_bench: Bench) -> None:
    with pytest.raises(BadData, match=r"toy-007\.png: the image is truncated"):
        toy_bench.run(RunSpec("clip", Toy("corrupt"), ToyCLIP()))


class Broken(Toy):
    """Behind the first hundred pictures."""

    def __len__(self) -> int:
        return 200

    def _image(self, i: int, labels: Any) -> Image.Image:
        if i >= 100:
            raise BadData(f"toy-{i}.png: gone")
        return super()._image(i, labels)


def test_pictures_that_a_run_does_not_see_need_not_be_sound(toy_bench: Bench) -> None:
    toy_bench.run(RunSpec("clip", Broken("default"), ToyCLIP(), limit=3, order="sequential"))


class Tuned(ToyCLIP):
    """Its weights are in a module, and its fingerprint is always the same."""

    def __init__(self) -> None:
        super().__init__()
        self._model = torch.nn.Linear(192, 16, bias=False).requires_grad_(False)
        self._model.weight.copy_(self.projection.T)
        self._texts: dict[str, Tensor] = {}

    def encode_images(self, pixels: Tensor) -> Tensor:
        return normalize(self._model(pixels.flatten(1) - 0.5), dim=-1)

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        for text in texts:
            self._texts.setdefault(text, super().encode_texts([text])[0])
        return torch.stack([self._texts[text] for text in texts])


@pytest.mark.parametrize("much", [0.0001, 1.0])
def test_a_backbone_that_was_tuned_in_place_is_another(much: float, toy_bench: Bench) -> None:
    backbone = Tuned()
    spec = RunSpec("clip", Toy("default"), backbone)
    first = toy_bench.run(spec).record
    assert toy_bench.run(spec).already  # though it keeps texts
    backbone._model.weight[3, 5] += much
    second = toy_bench.run(spec).record
    assert second.protocol != first.protocol
    assert second.counts["encoder_forwards"] > 0


def test_a_backbone_that_answers_otherwise_is_another(toy_bench: Bench) -> None:
    class Switched(ToyCLIP):
        def __init__(self, **options: bool) -> None:
            super().__init__()
            self._options = options

        def encode_images(self, pixels: Tensor) -> Tensor:
            return super().encode_images(pixels.flip(1) if self._options["flips"] else pixels)

    one, other = (toy_bench.run(RunSpec("clip", Toy("default"), Switched(flips=flips))) for flips in (False, True))
    assert one.record.protocol != other.record.protocol
    assert other.record.counts["encoder_forwards"] > 0


def test_another_machines_rounding_is_no_other_backbone(toy_bench: Bench) -> None:
    class Rounding(ToyCLIP):
        def __init__(self, noise: float) -> None:
            super().__init__()
            self._noise = [noise]

        def encode_images(self, pixels: Tensor) -> Tensor:
            return super().encode_images(pixels + self._noise[0])

    one, other = (toy_bench.run(RunSpec("clip", Toy("default"), Rounding(noise))) for noise in (0.0, 1e-6))
    assert one.record.run_id == other.record.run_id
