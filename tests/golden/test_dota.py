"""DOTA against the official implementation, and each of its updates by hand."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from tests.golden.streams import Golden, close, make_stream, make_task, read_golden, run, unit
from tta_bench.errors import UsageError
from tta_bench.interfaces import Observation
from tta_bench.methods.dota import DOTA, Scatters


@pytest.fixture(scope="module")
def golden() -> Golden:
    return read_golden("golden_dota.npz")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_official_stream(golden: Golden, dtype: torch.dtype) -> None:
    method = DOTA(**json.loads(str(golden["config_json"])))
    text, features = (torch.from_numpy(golden[name]).to(dtype) for name in ("text", "features"))
    method.start(make_task(text, float(golden["scale"])))
    for i, x in enumerate(make_stream(features)):
        glance = method.look(x)
        close(method.weight(len(glance.features)), golden["weight"][i], 1e-6)
        close(method.log_density(glance.features.mean(0)), golden["gauss"][i], 1e-4)
        scores = method.step(x)
        close(scores, golden["logits"][i], 1e-4)
        close(scores, golden["f64_logits"][i], 1e-4)
    close(method.mu, golden["mu_end"], 1e-6)
    close(method.c, golden["c_end"], 2e-5)
    identity = torch.eye(features.shape[-1], dtype=torch.float64)
    close((method.pooled() - method.eps * identity) / (1 - method.eps), golden["pooled_end"], 1e-7)


def test_one_image_by_hand() -> None:
    """The first prediction adds the same to both classes; then means, covariances and evidence move as written."""
    image = np.array([0.8, 0.6])
    method = DOTA(eps=0.1, sigma=0.5, eta=9.0, rho=0.25, mu_0=0.1)
    method.start(make_task(torch.eye(2, dtype=torch.float64), 2.0))
    first = method.step(Observation(0, torch.from_numpy(image)))
    g = (0.1 / 0.5) * (image.sum() - 0.1)  # ⟨x, μ⟩/σ − ½ ⟨μ, μ⟩/σ with μ = (0.1, 0.1)
    close(first, 2 * image + 0.25 * g, 1e-12)  # w = ρ · mean(c) / n = 0.25
    p = np.exp(2 * image) / np.exp(2 * image).sum()
    mu = [(np.full(2, 0.1) + p[j] * image) / (1 + p[j]) for j in range(2)]
    away = np.outer(image - 0.1, image - 0.1)  # from the old mean
    sigma = [(0.5 * np.eye(2) + p[j] * away) / (1 + p[j]) for j in range(2)]
    pooled = 0.9 * (sigma[0] + sigma[1]) / 2 + 0.1 * np.eye(2)
    close(method.mu, np.array(mu), 1e-12)
    close(method.c, 1 + p, 1e-12)
    close(method.pooled(), pooled, 1e-12)
    second = method.step(Observation(1, torch.from_numpy(image)))
    inverse = np.linalg.inv(pooled)
    g = [image @ inverse @ mu[j] - mu[j] @ inverse @ mu[j] / 2 for j in range(2)]
    close(second, 2 * image + 0.25 * (1 + p).mean() * np.array(g), 1e-12)


def test_the_weight_stops_at_eta() -> None:
    method = DOTA(rho=0.2, eta=0.3)
    method.start(make_task(torch.eye(2)))
    assert method.weight(1) == pytest.approx(0.2)
    assert method.weight(4) == pytest.approx(0.05)
    method.c += 9
    assert method.weight(1) == 0.3


@pytest.mark.parametrize("dim", [1, 3, 8, 9])
def test_strips_are_the_whole_matrices(dim: int) -> None:
    whole = torch.eye(dim).expand(3, -1, -1).clone()
    scatters = Scatters(3, torch.eye(dim))
    for seed in range(4):
        weights, deviations = unit(3, 5, seed=seed).abs(), unit(3, 5, dim, seed=10 + seed)
        classes = [seed % 3] if seed % 2 else [0, 1, 2]  # one by itself, or all at once
        scatters.add(classes, weights, deviations)
        whole[classes] += torch.einsum("cb,cbi,cbj->cij", weights, deviations, deviations)[classes]
    shares = torch.tensor([0.2, 0.5, 0.3])
    torch.testing.assert_close(scatters.combined(shares).float(), torch.einsum("c,cij->ij", shares, whole))
    other, state = Scatters(3, torch.zeros(dim, dim)), scatters.state_dict()
    scatters.add([0, 1, 2], weights, deviations)  # a checkpoint does not go on with the run
    other.load_state_dict(state)
    torch.testing.assert_close(other.combined(shares).float(), torch.einsum("c,cij->ij", shares, whole))


def test_presets_are_the_official_sets() -> None:
    assert len(DOTA.presets) == 15
    assert DOTA.presets["food101"] == {"eps": 4e-5, "eta": 0.1, "rho": 0.01}
    for values in DOTA.presets.values():
        task = make_task(unit(3, 8, seed=0))
        assert run(DOTA(**values), task, make_stream(unit(2, 4, 8, seed=1))).isfinite().all()  # type: ignore[arg-type]


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="sigma"):
        DOTA(sigma=0.0)
