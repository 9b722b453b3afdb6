"""BoostAdapter against the official implementation's outputs on a synthetic stream and against lists and loops."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.golden.streams import Golden, cache_settings, close, make_stream, make_task, read_golden, run, unit
from tta_bench.errors import UsageError
from tta_bench.interfaces import Observation
from tta_bench.methods.boostadapter import Boost, BoostAdapter


@pytest.fixture(scope="module")
def golden() -> Golden:
    return read_golden("golden_boostadapter_v64.npz")


def make_method(golden: Golden) -> BoostAdapter:
    return BoostAdapter(
        **cache_settings(golden),
        delta=int(golden["delta"]),
        predict_from="original" if golden["predict_from_original_view"] else "selected",
    )


def test_official_stream(golden: Golden) -> None:
    method = make_method(golden)
    method.start(make_task(torch.from_numpy(golden["text"]), float(golden["logit_scale"])))
    inserted = 0
    for i, x in enumerate(make_stream(torch.from_numpy(golden["features"]))):
        pool, boost = method.summarise(x)
        close(pool.feature, golden["cache_feature"][i], 1e-6)
        close(pool.logits, golden["base_logits"][i], 2e-4)
        close(pool.probs, golden["prob_map"][i], 5e-5)
        close(pool.entropy, golden["entropy"][i], 5e-5)
        assert int(pool.logits.argmax()) == golden["pseudo_label"][i]
        assert method.is_uncertain(pool) == golden["neg_admitted"][i]
        (insertions,) = np.nonzero(golden["boost_sample"] == i)
        np.testing.assert_array_equal(boost.labels, golden["boost_pseudo_label"][insertions])
        close(boost.entropies, golden["boost_entropy"][insertions], 5e-5)
        inserted += len(insertions)
        close(method.step(x), golden["final_logits"][i], 2e-4)
    assert inserted == len(golden["boost_sample"])


def whole_boosted_cache(method: BoostAdapter, boost: Boost) -> tuple[Tensor, Tensor]:
    """Entropies [C, K⁺ + δ] and features [C, K⁺ + δ, D] of all classes, those without boosting views included."""
    n_classes, capacity = len(method.entropies), method.shots + method.delta
    entropies = torch.full((n_classes, capacity), float("inf"))
    features = torch.zeros(n_classes, capacity, method.features.shape[2])
    entropies[:, : method.shots], features[:, : method.shots] = method.entropies, method.features
    for label, row, items in zip(boost.labels.tolist(), *method.boosted(boost), strict=True):
        entropies[label] = row
        features[label] = torch.cat((method.features[label], boost.features))[items]
    return entropies, features


def test_official_caches_at_the_end(golden: Golden) -> None:
    method, stream = make_method(golden), make_stream(torch.from_numpy(golden["features"]))
    run(method, make_task(torch.from_numpy(golden["text"])), stream)
    _, boost = method.summarise(stream[-1])  # the persistent cache holds the last image already
    entropies, features = whole_boosted_cache(method, boost)
    for prefix, cached_features, cached_entropies in (
        ("pos", method.features, method.entropies),
        ("neg", method.neg_features, method.neg_entropies),
        ("last_boosted", features, entropies),
    ):
        filled = cached_entropies.isfinite()
        np.testing.assert_array_equal(filled.sum(1), golden[f"{prefix}_count"])
        np.testing.assert_array_equal(filled, ~np.isnan(golden[f"{prefix}_entropy"]))
        close(cached_entropies[filled], golden[f"{prefix}_entropy"][filled], 5e-5)
        close(cached_features[filled], golden[f"{prefix}_features"][filled], 1e-6)
    filled = method.neg_entropies.isfinite()
    probs, (low, high) = golden["neg_prob"][filled], method.mask
    np.testing.assert_array_equal(method.neg_masks[filled], (low < probs) & (probs < high))


def boosted_one_by_one(history: Tensor, boost: Boost, shots: int, delta: int) -> list[list[tuple[float, str, int]]]:
    """The official routine, literally: append, stable sort, cut to K⁺ + δ, one boosting view after the other."""
    cache = [[(float(h), "history", k) for k, h in enumerate(row) if h.isfinite()] for row in history]
    for j, (label, h) in enumerate(zip(boost.labels.tolist(), boost.entropies.tolist(), strict=True)):
        cache[label].append((h, "view", j))
        cache[label].sort(key=lambda item: item[0])
        del cache[label][shots + delta :]
    return cache


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize(("shots", "delta"), [(3, 3), (3, 0), (2, 1), (1, 5)])
def test_one_sort_equals_insertions_one_by_one(seed: int, shots: int, delta: int) -> None:
    """Entropies from a coarse grid, so that ties between history and views and among views occur."""
    rng = torch.Generator().manual_seed(seed)
    n_classes, n_views = 4, 6
    history = torch.randint(0, 5, (n_classes, shots), generator=rng).float().sort(dim=1).values
    filled = torch.randint(0, shots + 1, (n_classes, 1), generator=rng) > torch.arange(shots)
    history = history.where(filled, torch.tensor(float("inf")))
    boost = Boost(
        unit(n_views, 8, seed=seed),
        torch.randint(0, n_classes, (n_views,), generator=rng),
        torch.randint(0, 5, (n_views,), generator=rng).float().sort().values,
    )
    method = BoostAdapter(shots=shots, delta=delta)
    method.start(make_task(unit(n_classes, 8, seed=seed + 1)))
    method.entropies = history
    expected = boosted_one_by_one(history, boost, shots, delta)
    entropies, items = method.boosted(boost)
    assert len(entropies) == n_views
    for label, row, slots in zip(boost.labels.tolist(), entropies.tolist(), items.tolist(), strict=True):
        found = [(h, "view", i - shots) if i >= shots else (h, "history", i) for h, i in zip(row, slots, strict=True)]
        assert [item for item in found if item[0] < float("inf")] == expected[label]


def test_boosting_views_serve_their_own_image_only(golden: Golden) -> None:
    task, stream = make_task(torch.from_numpy(golden["text"])), make_stream(torch.from_numpy(golden["features"]))
    small, large = BoostAdapter(delta=0), BoostAdapter(delta=3)
    assert not torch.equal(run(small, task, stream), run(large, task, stream))
    assert torch.equal(small.features, large.features)


def literal_scores(text: Tensor, features: Tensor, delta: int, original: bool) -> Tensor:
    """The whole method with lists and loops in double precision; default settings otherwise."""
    positive: list[list[tuple[float, Tensor]]] = [[] for _ in text]
    negative: list[list[tuple[Tensor, Tensor]]] = [[] for _ in text]
    scores = []

    def insert(items: list[tuple[float, Tensor]], h: float, f: Tensor, capacity: int) -> None:
        items.append((h, f))
        items.sort(key=lambda item: item[0])
        del items[capacity:]

    for views in features.double():
        logits = 100 * views @ text.double().T
        probs = logits.softmax(1)
        entropies = [float(-(p * p.log()).sum()) for p in probs]
        sure = sorted(range(len(views)), key=lambda v: entropies[v])[: len(views) // 10]
        used = [0] if original else sure
        f, score, p = (x[used].mean(0) for x in (views, logits, probs))
        h, y = float(-(p * p.log()).sum()), int(score.argmax())
        insert(positive[y], h, f, 3)
        boosted = [list(items) for items in positive]
        for v in sure:
            insert(boosted[int(logits[v].argmax())], entropies[v], views[v], 3 + delta)
        if 0.2 < h / math.log2(len(text)) < 0.5:
            negative[y] = [*negative[y], (f, p)][-2:]
        for c, items in enumerate(boosted):
            score[c] += 2 * sum(math.exp(-5 * (1 - float(f @ g))) for _, g in items)
        for items_of_class in negative:
            for g, q in items_of_class:
                score -= 0.117 * math.exp(-(1 - float(f @ g))) * ((q > 0.03) & (q < 1))
        scores.append(score)
    return torch.stack(scores)


@pytest.mark.parametrize("predict_from", ["selected", "original"])
@pytest.mark.parametrize(("n_views", "delta"), [(64, 0), (64, 3), (40, 1), (16, 2)])
def test_equals_a_literal_transcription(
    golden: Golden, predict_from: Literal["selected", "original"], n_views: int, delta: int
) -> None:
    text, features = torch.from_numpy(golden["text"]), torch.from_numpy(golden["features"])[:, :n_views]
    scores = run(BoostAdapter(delta=delta, predict_from=predict_from), make_task(text), make_stream(features))
    expected = literal_scores(text, features, delta, predict_from == "original")
    torch.testing.assert_close(scores.double(), expected, rtol=0, atol=2e-4)


def test_without_views_nothing_boosts() -> None:
    text, image = unit(6, 16, seed=0), unit(16, seed=1)
    logits = 100 * text @ image
    for predict_from in ("selected", "original"):
        method = BoostAdapter(neg_alpha=0.0, predict_from=predict_from)
        method.start(make_task(text))
        expected = logits + 2.0 * torch.nn.functional.one_hot(logits.argmax(), 6)  # α⁺ · exp(0), once
        torch.testing.assert_close(method.step(Observation(0, image)), expected, rtol=0, atol=2e-4)


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="predict_from"):
        BoostAdapter(predict_from="both")  # type: ignore[arg-type]  # that is the point
    with pytest.raises(UsageError, match="delta"):
        BoostAdapter(delta=-1)
