"""MTA against the official implementation, and each of its formulas on views that can be worked out."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tests.golden.streams import close, make_stream, make_task, read_golden, run, unit
from tta_bench.errors import UsageError
from tta_bench.interfaces import Observation
from tta_bench.methods.mta import MTA, Cloud, gather, log_kernel, shift


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_official_stream(dtype: torch.dtype) -> None:
    golden = read_golden("golden_mta.npz")
    text, features = (torch.from_numpy(golden[name]).to(dtype) for name in ("text", "features"))
    method = MTA(lambda_y=float(golden["lambda_y"]), lambda_q=float(golden["lambda_q"]))
    scores = run(method, make_task(text, float(golden["scale"])), make_stream(features))
    close(scores, golden["logits"], 2e-4)
    close(scores, golden["f64_logits"], 1e-5)
    modes = [method.seek(views.double(), int(0.3 * (len(views) - 1))) for views in features]
    close(torch.stack([mode.inlierness for mode in modes]), golden["inlierness"], 1e-5)
    close(torch.stack([mode.feature for mode in modes]), golden["mode"], 1e-5)


def test_bandwidth_is_half_the_mean_square_to_the_nearest_others() -> None:
    angles = torch.tensor([0.0, 0.1, 0.3, 3.0], dtype=torch.float64)
    views = torch.stack((angles.cos(), angles.sin()), 1)

    def square(a: int, b: int) -> float:
        return 2 - 2 * math.cos(float(angles[a] - angles[b]))

    expected = [(square(0, 1) + square(0, 2)) / 4, (square(1, 0) + square(1, 2)) / 4]
    close(gather(views, 2).bandwidths[:2], np.array(expected), 1e-11)


def cloud_of(features: torch.Tensor, bandwidth: float) -> Cloud:
    return Cloud(features, features.square().sum(1), features.new_full((len(features),), bandwidth))


def test_kernel_by_hand() -> None:
    features = torch.eye(2, dtype=torch.float64)
    cloud = Cloud(features, torch.ones(2), torch.tensor([0.5, 2.0], dtype=torch.float64))
    close(log_kernel(cloud, features[0]), np.array([0.0, -2 / 4]), 1e-12)  # |e₁ − e₂|² = 2 over 2h²


def test_shift_goes_to_the_weighted_mean() -> None:
    """With a bandwidth that is nearly infinite, w = y and the mode is reached at once."""
    features = torch.eye(2, dtype=torch.float64)
    mode = shift(cloud_of(features, 1e12), features[0], torch.tensor([0.25, 0.75], dtype=torch.float64))
    close(mode, np.array([1, 3]) / math.sqrt(10), 1e-9)


def test_shift_far_from_every_view_goes_to_the_nearest() -> None:
    features = torch.tensor([[0.0, 1.0], [0.6, -0.8]], dtype=torch.float64)
    mode = shift(cloud_of(features, 1e-9), torch.tensor([1.0, 0.0]).double(), torch.tensor([0.5, 0.5]).double())
    close(mode, features[1].numpy(), 1e-12)


def test_inlierness_by_hand() -> None:
    """W = I: views agree with themselves alone, so y ← softmax((g + λ_q y) / λ_y), five times."""
    y = np.array([0.5, 0.5])
    density = np.array([0.9, 0.8])
    found = MTA(lambda_y=1.0, lambda_q=0.5).weigh(*map(torch.from_numpy, (y, density, np.eye(2))))
    for _ in range(5):
        e = np.exp(density + 0.5 * y)
        y = e / e.sum()
    close(found, y, 1e-6)


@pytest.mark.parametrize("views", [0, 1, 3])
def test_too_few_views_to_have_a_neighbour(views: int) -> None:
    text, features = unit(5, 16, seed=0), unit(1 + views, 16, seed=1)
    (scores,) = run(MTA(), make_task(text, 7.0), [Observation(0, features[0], {"views": features[1:]})])
    torch.testing.assert_close(scores, 7 * text @ features[0])


def test_identical_views_are_their_own_mode() -> None:
    text, image = unit(5, 16, seed=0), unit(16, seed=1)
    (scores,) = run(MTA(), make_task(text, 7.0), [Observation(0, image, {"views": image.expand(20, -1)})])
    torch.testing.assert_close(scores, 7 * text @ image)


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="lambda_y"):
        MTA(lambda_y=0.0)
