"""BCA against a third-party port, and each of its updates by hand."""

from __future__ import annotations

import json
import math
from typing import Literal

import numpy as np
import pytest
import torch

from tests.golden.streams import Golden, close, make_stream, make_task, read_golden, run, unit
from tta_bench.errors import UsageError
from tta_bench.interfaces import Observation
from tta_bench.methods.bca import BCA


@pytest.fixture(scope="module")
def golden() -> Golden:
    return read_golden("golden_bca.npz")


@pytest.mark.parametrize("score", ["native", "logits"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_ports_stream(golden: Golden, dtype: torch.dtype, score: Literal["native", "logits"]) -> None:
    method = BCA(**json.loads(str(golden["config_json"])), score=score)
    text, features = (torch.from_numpy(golden[name]).to(dtype) for name in ("text", "features"))
    scores = run(method, make_task(text, float(golden["scale"])), make_stream(features))
    if score == "native":
        close(scores, golden["posterior"], 5e-6)
        close(scores, golden["f64_posterior"], 5e-6)
    else:
        close(scores, golden["logits"], 2e-4)
    assert (scores.argmax(1).numpy() == golden["pred"]).all()
    close(method.mu, golden["mu_end"], 1e-6)
    close(method.prior, golden["prior_end"], 1e-6)
    assert (method.count_mu.numpy() == golden["n1_end"]).all()
    assert (method.count_prior.numpy() == golden["n2_end"]).all()


def test_nothing_adapted_is_clip() -> None:
    text, features = unit(5, 16, seed=0), unit(3, 16, seed=1)
    scores = run(BCA(tau_1=1.0, tau_2=1.0), make_task(text, 9.0), [Observation(i, f) for i, f in enumerate(features)])
    torch.testing.assert_close(scores, 9 * features @ text.T)


def test_both_updates_by_hand() -> None:
    """Two classes at right angles, an image at 30 degrees from the first: p = softmax(2 cos 30°, 2 sin 30°)."""
    image = torch.tensor([math.cos(math.pi / 6), math.sin(math.pi / 6)])
    method = BCA(tau_1=0.5, count_1=3.0, tau_2=0.5, count_2=1.0, score="native")
    method.start(make_task(torch.eye(2), 2.0))
    first = method.step(Observation(0, image))
    p = np.exp([math.sqrt(3), 1.0])
    p /= p.sum()
    close(first, p, 1e-6)
    moved = np.array([3 + math.sqrt(3) / 2, 0.5]) / 4
    close(method.mu, np.array([moved / np.linalg.norm(moved), [0, 1]]), 1e-6)
    close(method.prior, np.array([[(1 + p[0]) / 2, p[1] / 2], [0, 1]]), 1e-6)
    assert method.count_mu.tolist() == [4, 3]
    assert method.count_prior.tolist() == [2, 1]
    likelihood = np.exp(2 * method.mu.numpy() @ image.numpy())
    second = method.step(Observation(1, image))
    close(second, likelihood / likelihood.sum() @ np.array([[(1 + p[0]) / 2, p[1] / 2], [0, 1]]), 1e-6)


@pytest.mark.parametrize(("tau_1", "tau_2", "moved"), [(0.5, 1.0, (True, False)), (1.0, 0.5, (False, True))])
def test_each_gate_is_for_its_own_update(tau_1: float, tau_2: float, moved: tuple[bool, bool]) -> None:
    method = BCA(tau_1=tau_1, tau_2=tau_2)
    method.start(make_task(torch.eye(2), 2.0))
    method.step(Observation(0, torch.tensor([0.8, 0.6])))
    assert (not torch.equal(method.mu, torch.eye(2)), not torch.equal(method.prior, torch.eye(2))) == moved


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="count"):
        BCA(count_1=-1)
