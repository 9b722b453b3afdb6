"""The stream of test images: which, in what order, and as which features. Labels stay on this side of it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tta_bench.errors import BadData, UsageError
from tta_bench.features.encoding import render
from tta_bench.features.source import StoredViews
from tta_bench.interfaces import Dataset, Observation
from tta_bench.views import Original


def stream_order(ids: Sequence[str], order: str, seed: int) -> list[int]:
    """The dataset's indices in stream order.

    `sequential` is the dataset's own order, `shuffled` a permutation by the run's seed, `shuffled:K` the permutation of
    seed K whatever the run's seed (other orders of the same views). A permutation sorts by hash(seed, id): no library's
    random numbers are in it, so it is the same everywhere and for ever.
    """
    kind, _, own_seed = order.partition(":")
    if kind == "sequential" and not own_seed:
        return list(range(len(ids)))
    if kind != "shuffled" or (own_seed and not own_seed.isdigit()):
        raise UsageError(f"--order {order}: choose shuffled, shuffled:K (K a number) or sequential")
    salt = f"order/{own_seed or seed}/"
    return sorted(range(len(ids)), key=lambda i: hashlib.sha256((salt + ids[i]).encode()).digest())


@dataclass
class Stream:
    """Test images in order, and their ground truth beside them."""

    ids: list[str]  # in stream order
    labels: np.ndarray[Any, np.dtype[np.int8]]  # [N, C], in stream order
    indices: list[int]  # the images' places in the dataset

    @classmethod
    def of(cls, dataset: Dataset, order: str, seed: int, limit: int | None) -> Stream:
        if len(dataset) == 0:
            raise UsageError(f"dataset {dataset.name} has no images")
        samples = [dataset[i] for i in range(len(dataset))]  # lazy: nothing is decoded here
        ids = [sample.id for sample in samples]
        if len(set(ids)) < len(ids):
            raise UsageError(
                f"dataset {dataset.name} has two images of one id; views are drawn by id, so it must be unique"
            )
        for sample in samples:
            if sample.labels.shape != (len(dataset.class_names),) or not np.isin(sample.labels, (1, 0, -1)).all():
                raise BadData(
                    f"dataset {dataset.name}, image {sample.id}: labels must be 1, 0 or -1 for each of the "
                    f"{len(dataset.class_names)} classes, not an array of shape {sample.labels.shape}"
                )
        indices = stream_order(ids, order, seed)[:limit]
        return cls([ids[i] for i in indices], np.stack([samples[i].labels for i in indices]), indices)

    def __len__(self) -> int:
        return len(self.indices)


def observations(
    stream: Stream,
    image: StoredViews,
    views: Mapping[str, StoredViews],
    reward: Sequence[StoredViews],
    start: int,
    device: str,
) -> Iterator[Observation]:
    """What the method sees, from position `start` on."""
    for position in range(start, len(stream)):
        index = stream.indices[position]
        features: dict[str, Tensor] = {role: encoded.read(index).to(device) for role, encoded in views.items()}
        if reward:
            features["reward"] = torch.cat([encoded.read(index) for encoded in reward]).to(device)  # [1+V, D']
        yield Observation(position, image.read(index)[0].to(device), features, _pixels(image, views, index, device))


def _pixels(image: StoredViews, views: Mapping[str, StoredViews], index: int, device: str) -> Callable[[str], Tensor]:
    """Renders the views of one image again: for methods that go through the image encoder themselves."""

    def load(role: str) -> Tensor:
        encoded = image if role == Original().name else views[role]
        return render(encoded.dataset, index, encoded.recipe, encoded.seed, encoded.preprocess).to(device)

    return load
