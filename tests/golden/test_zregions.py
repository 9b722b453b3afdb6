"""zregions against an independent reference of its specification, and on two regions that can be worked out."""

from __future__ import annotations

import math

import pytest
import torch

from tests.golden.streams import close, make_task, read_golden, run, unit
from tta_bench.errors import UsageError
from tta_bench.interfaces import Observation
from tta_bench.methods.zregions import ZRegions


def test_reference_stream() -> None:
    golden = read_golden("golden_zregions.npz")
    features = torch.from_numpy(golden["features"])
    stream = [Observation(i, views[0], {"regions": views[1:]}) for i, views in enumerate(features)]
    task = make_task(torch.from_numpy(golden["text"]), float(golden["scale"]))
    close(run(ZRegions(beta=float(golden["beta"])), task, stream), golden["scores"], 1e-5)


def test_two_regions_by_hand() -> None:
    """Standard scores of (1, 0, 0) are (2, −1, −1)/√3, whatever the length of the region's logits."""
    text = torch.eye(3)
    (scores,) = run(ZRegions(beta=2.0), make_task(text), [Observation(0, text[0], {"regions": 0.1 * text[1:2]})])
    high, low = 2 / math.sqrt(3), -1 / math.sqrt(3)
    both = 0.5 * math.log((math.exp(2 * high) + math.exp(2 * low)) / 2)  # of the classes that one region shows
    logits = torch.tensor([both, both, low])
    torch.testing.assert_close(scores, logits - logits.logsumexp(0))


def test_the_scale_is_not_felt() -> None:
    text, features = unit(5, 16, seed=0), unit(9, 16, seed=1)
    stream = [Observation(0, features[0], {"regions": features[1:]})]
    assert torch.equal(run(ZRegions(), make_task(text, 3.0), stream), run(ZRegions(), make_task(text, 100.0), stream))


def test_a_region_in_which_all_classes_are_equal_counts_as_nothing() -> None:
    text = torch.eye(2)
    flat = torch.full((1, 2), 0.5)
    (scores,) = run(ZRegions(beta=1.0), make_task(text), [Observation(0, text[0], {"regions": flat})])
    u = 1 / math.sqrt(2)
    logits = torch.tensor([math.log((math.exp(u) + 1) / 2), math.log((math.exp(-u) + 1) / 2)])
    torch.testing.assert_close(scores, logits.log_softmax(0))


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="beta"):
        ZRegions(beta=0.0)
