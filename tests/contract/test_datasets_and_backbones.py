"""What every registered dataset and backbone promises."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from tests.dataset_fixtures import build
from tta_bench.interfaces import Backbone, Dataset, DatasetExtras, Downloadable, PromptTunable
from tta_bench.plugins import Registry

REGISTRY = Registry()


@pytest.fixture(params=REGISTRY.names("datasets"))
def dataset(request: pytest.FixtureRequest, tmp_path: Path) -> Dataset:
    build(request.param, tmp_path)
    return REGISTRY.dataset(request.param).open(tmp_path)


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    """The one whose weights are everywhere; test_backbones.py has small models of every family."""
    return REGISTRY.backbone("tiny").load("cpu")


@pytest.mark.parametrize("name", REGISTRY.names("backbones"))
def test_backbones_can_be_imported_and_say_who_they_are(name: str) -> None:
    assert REGISTRY.backbone(name).name == name


def test_samples(dataset: Dataset) -> None:
    assert len(dataset) > 0
    assert len(set(dataset.class_names)) == len(dataset.class_names)
    ids = set()
    for i in range(len(dataset)):
        sample = dataset[i]
        ids.add(sample.id)
        assert sample.labels.shape == (len(dataset.class_names),)
        assert set(np.unique(sample.labels)) <= {-1, 0, 1}
    assert len(ids) == len(dataset)
    image = dataset[0].image
    assert image.mode == "RGB"
    assert np.array_equal(np.asarray(image), np.asarray(dataset[0].image))
    assert dataset.fingerprint


def test_what_a_dataset_says_of_itself(dataset: Dataset) -> None:
    extras = DatasetExtras.of(dataset)
    assert extras.sources is not None
    assert all(source.exists() for source in extras.sources)
    assert extras.full_size is None or extras.full_size >= len(dataset)
    assert extras.variants[:1] in ((), ("default",))


def test_what_a_dataset_on_disk_says_before_it_is_opened(dataset: Dataset, tmp_path: Path) -> None:
    cls = type(dataset)
    if issubclass(cls, Downloadable):
        (status,) = cls.status(tmp_path)
        assert status.found
        assert status.images >= len(dataset)
    else:
        assert DatasetExtras.of(dataset).sources == ()  # it needs no files


def test_features_are_unit_norm_float32_whatever_the_batch(backbone: Backbone) -> None:
    size = backbone.preprocess.size
    pixels = torch.rand(5, 3, size, size, generator=torch.Generator().manual_seed(0))
    features = backbone.encode_images(pixels)
    assert features.dtype == torch.float32
    assert features.shape == (5, backbone.embed_dim)
    assert torch.allclose(features.norm(dim=-1), torch.ones(5), atol=1e-5)
    assert torch.allclose(features[2:3], backbone.encode_images(pixels[2:3]), atol=1e-5)
    texts = backbone.encode_texts(["a photo of a dog.", "an unusual Ünïcode wörd", ""])
    assert texts.shape == (3, backbone.embed_dim)
    assert torch.allclose(texts.norm(dim=-1), torch.ones(3), atol=1e-5)
    assert not features.requires_grad


def test_the_fingerprint_tells_precisions_apart(backbone: Backbone) -> None:
    assert type(backbone).load("cpu").fingerprint == backbone.fingerprint
    assert type(backbone).load("cpu", precision="bf16").fingerprint != backbone.fingerprint


def test_a_context_of_words_equals_the_words(backbone: Backbone) -> None:
    assert isinstance(backbone, PromptTunable)
    names = ["dog", "umbrella", "traffic light"]
    context = backbone.init_context("a photo of a").requires_grad_()
    features = backbone.encode_context(context, names)
    assert torch.allclose(features, backbone.encode_texts([f"a photo of a {name}." for name in names]), atol=1e-5)
    (gradient,) = torch.autograd.grad(features[0, 0], context)
    assert gradient.abs().sum() > 0
