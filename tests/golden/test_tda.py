"""TDA against the official implementation's outputs on a synthetic stream, and on images that can be worked out."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.golden.streams import Golden, cache_settings, close, make_stream, make_task, read_golden, run, unit
from tta_bench.functional import kept_count, normalised_entropy
from tta_bench.interfaces import Observation
from tta_bench.methods.tda import TDA


@pytest.fixture(scope="module")
def golden() -> Golden:
    return read_golden("golden_tda_v64.npz")


def make_method(golden: Golden) -> TDA:
    return TDA(
        **cache_settings(golden),
    )


def test_official_stream(golden: Golden) -> None:
    text = torch.from_numpy(golden["text"])
    method = make_method(golden)
    method.start(make_task(text, float(golden["logit_scale"])))
    assert kept_count(method.keep, golden["features"].shape[1]) == golden["n_selected"]
    n_admitted = 0
    for i, x in enumerate(make_stream(torch.from_numpy(golden["features"]))):
        pool = method.summarise(x)
        close(pool.feature, golden["cache_feature"][i], 1e-6)
        close(pool.logits, golden["base_logits"][i], 2e-4)
        close(pool.probs, golden["prob_map"][i], 5e-5)
        close(pool.entropy, golden["entropy"][i], 5e-5)
        gate = normalised_entropy(float(pool.entropy), len(text))
        np.testing.assert_allclose(gate, golden["entropy_gate"][i], rtol=0, atol=5e-5)
        assert int(pool.logits.argmax()) == golden["pseudo_label"][i]
        assert method.is_uncertain(pool) == golden["neg_admitted"][i]
        n_admitted += method.is_uncertain(pool)
        close(method.step(x), golden["final_logits"][i], 2e-4)
    assert 0 < n_admitted < len(golden["features"])  # the gate opens and closes in this stream


def test_official_caches_at_the_end(golden: Golden) -> None:
    method = make_method(golden)
    method.start(make_task(torch.from_numpy(golden["text"])))
    for x in make_stream(torch.from_numpy(golden["features"])):
        method.step(x)
    positive, negative = (method.features, method.entropies), (method.neg_features, method.neg_entropies)
    for prefix, (features, entropies) in (("pos", positive), ("neg", negative)):
        filled = entropies.isfinite()
        np.testing.assert_array_equal(filled.sum(1), golden[f"{prefix}_count"])
        np.testing.assert_array_equal(filled, ~np.isnan(golden[f"{prefix}_entropy"]))
        close(entropies[filled], golden[f"{prefix}_entropy"][filled], 5e-5)
        close(features[filled], golden[f"{prefix}_features"][filled], 1e-6)
    probs, (low, high) = golden["neg_prob"][filled], method.mask
    np.testing.assert_array_equal(method.neg_masks[filled], (low < probs) & (probs < high))


def test_logit_scale_is_the_tasks() -> None:
    text, stream = unit(5, 16, seed=0), make_stream(unit(1, 30, 16, seed=1))
    (score,) = run(TDA(alpha=0.0, neg_alpha=0.0, keep=1.0), make_task(text, 7.0), stream)
    views = torch.cat((stream[0].image[None], stream[0]["views"]))
    torch.testing.assert_close(score, 7.0 * text @ views.mean(0))


def test_an_image_without_views_finds_itself() -> None:
    text, image = unit(6, 16, seed=0), unit(16, seed=1)
    for views in ({}, {"views": torch.empty(0, 16)}):
        method = TDA(neg_alpha=0.0)
        method.start(make_task(text))
        logits = 100 * text @ image
        expected = logits + 2.0 * torch.nn.functional.one_hot(logits.argmax(), 6)  # α⁺ · exp(0)
        torch.testing.assert_close(method.step(Observation(0, image, views)), expected, rtol=0, atol=2e-4)


def test_negative_items_count_against_every_class_inside_the_mask() -> None:
    """Three equal classes: p = 1/3 each, whose entropy over log2 3 is exactly at the top of what the gate can see."""
    text, image = unit(1, 16, seed=0).expand(3, 16), unit(16, seed=1)
    method = TDA(alpha=0.0, gate=(0.2, 0.7))
    method.start(make_task(text))
    expected = 100 * text @ image - 0.117
    torch.testing.assert_close(method.step(Observation(0, image)), expected, rtol=0, atol=2e-4)
