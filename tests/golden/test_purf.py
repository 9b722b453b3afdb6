"""PuRF against an independent reference's outputs on a synthetic stream (no official implementation exists)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tta_bench.interfaces import Observation, Task
from tta_bench.methods.purf import PuRF

Array = np.ndarray[Any, Any]


@pytest.fixture(scope="module")
def golden() -> Mapping[str, Array]:
    with np.load(Path(__file__).with_name("golden_purf.npz")) as file:
        return dict(file)


def make_task(golden: Mapping[str, Array]) -> Task:
    bank = torch.from_numpy(golden["text_bank"])
    text = torch.nn.functional.normalize(bank.mean(1), dim=-1)
    return Task([f"class {c}" for c in range(len(text))], text, bank, 100.0)


def make_stream(golden: Mapping[str, Array]) -> list[Observation]:
    image, views, regions = (torch.from_numpy(golden[key]) for key in ("image", "views", "regions"))
    return [Observation(i, image[i], {"views": views[i], "regions": regions[i]}) for i in range(len(image))]


def close(actual: Any, expected: Array, atol: float) -> None:
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=0, atol=atol)


def test_reference_stream(golden: Mapping[str, Array]) -> None:
    method = PuRF(**json.loads(str(golden["config_json"])))
    method.start(make_task(golden))
    scores, labels, reports = [], [], []
    for x in make_stream(golden):
        scores.append(method.step(x))
        labels.append(method.labels)
        reports.append(method.take_report())

    difference = np.abs(torch.stack(scores).numpy() - golden["scores"])
    assert difference.max() < 5e-3
    assert np.median(difference) < 1e-4
    assert (torch.stack(labels).numpy() == golden["pseudo_labels"]).all()
    for key in ("text_updated", "entries_in", "entries_out"):
        assert [report[key] for report in reports] == golden[key].tolist(), key
    close([report["kept_share"] for report in reports], golden["kept_share"], 1e-6)

    filled = method.cache.entropies.isfinite().numpy()
    assert (method.born.numpy() == golden["cache_born"])[filled].all()
    close(method.cache.features.numpy()[filled], golden["cache_features"][filled], 1e-6)
    close(method.cache.entropies.numpy()[filled], golden["cache_entropy"][filled], 1e-4)
    close(method.text_bank, golden["text_bank_end"], 1e-5)
    close(method.mu, golden["mu_end"], 1e-4)


def test_the_stream_refreshes_its_cache(golden: Mapping[str, Array]) -> None:
    """Without temporal refreshing other entries survive, so the golden above would notice a missing age."""
    frozen = PuRF(**(json.loads(str(golden["config_json"])) | {"tr": False}))
    frozen.start(make_task(golden))
    for x in make_stream(golden):
        frozen.step(x)
    assert (frozen.born.numpy() != golden["cache_born"]).any()
