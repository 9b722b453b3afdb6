"""The shared formulas, and the two methods that are nothing but a formula."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from tta_bench.functional import (
    EMPTY,
    affinity,
    among_highest,
    classifier,
    entropy,
    entropy_of_logits,
    highest,
    insert_by_entropy,
    insert_fifo,
    kept_count,
    low_entropy_pool,
    lowest,
    normalised_entropy,
    number,
    select_confident,
    stack_views,
    standard_scores,
)
from tta_bench.interfaces import Observation, Task
from tta_bench.methods.clip import CLIP
from tta_bench.methods.regions import Regions

Insert = Callable[..., object]  # insert_by_entropy or insert_fifo
CACHE_EVENTS = Path(__file__).parents[1] / "golden" / "golden_cache_update.npz"


def rng(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def unit(*shape: int, seed: int) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(shape, generator=rng(seed)), dim=-1)


def make_task(text: Tensor, scale: float) -> Task:
    return Task([f"class {c}" for c in range(len(text))], text, text[:, None], scale)


# -------------------------------------------------------------------------------------------------------- entropy


def test_the_image_alone_is_one_view() -> None:
    """As the only view it was there twice, and boosted itself: 45.63 in place of 45.79."""
    image, other = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])
    for views in (None, image[None][:0], image[None]):
        assert torch.equal(stack_views(image, views), image[None])
    assert torch.equal(stack_views(image, other[None]), torch.stack([image, other]))
    assert len(stack_views(image, torch.stack([image, image]))) == 3


def test_entropy_is_in_nats_and_safe_at_zero() -> None:
    probs = torch.tensor([[0.25, 0.25, 0.25, 0.25], [1.0, 0.0, 0.0, 0.0], [0.5, 0.5, 0.0, 0.0]])
    torch.testing.assert_close(entropy(probs), torch.tensor([math.log(4), 0.0, math.log(2)]))


def test_entropy_of_logits_agrees_and_survives_underflow() -> None:
    logits = 5 * torch.randn(7, 9, generator=rng(0))
    torch.testing.assert_close(entropy_of_logits(logits), entropy(logits.softmax(-1)))
    assert entropy_of_logits(torch.tensor([1000.0, 0.0, -1000.0])) == 0.0


def test_normalised_entropy_divides_nats_by_bits() -> None:
    assert normalised_entropy(math.log(8), 8) == pytest.approx(math.log(2))
    assert normalised_entropy(math.log(2), 2) == pytest.approx(math.log(2))
    assert normalised_entropy(1.0, 1) == 0.0
    torch.testing.assert_close(normalised_entropy(torch.tensor(3.0), 8), torch.tensor(1.0))
    assert normalised_entropy(torch.tensor(0.5), 1) == 0.0


# ---------------------------------------------------------------------------------------------------------- views


@pytest.mark.parametrize(
    ("keep", "n_views", "expected"),
    [(0.1, 64, 6), (0.1, 32, 3), (0.1, 16, 1), (0.1, 5, 1), (0.1, 1, 1), (0.1, 70, 7), (0.29, 100, 29), (1.0, 9, 9)],
)
def test_kept_count(keep: float, n_views: int, expected: int) -> None:
    assert kept_count(keep, n_views) == expected


def test_kept_count_is_exact_in_hundredths() -> None:
    for percent in range(1, 101):
        for n_views in range(1, 130):
            assert kept_count(percent / 100, n_views) == max(1, percent * n_views // 100)


def test_lowest_prefers_the_first_of_equal_values() -> None:
    assert lowest(torch.tensor([2.0, 1.0, 1.0, 0.0, 1.0]), 3).tolist() == [3, 1, 2]


def test_among_highest_prefers_the_first_of_equal_values() -> None:
    values = torch.tensor([[1.0, 3.0, 2.0, 0.0], [1.0, 1.0, 0.0, 1.0]])
    assert among_highest(values, 2).tolist() == [[False, True, True, False], [True, True, False, False]]
    assert among_highest(values, 4).all()


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
def test_lowest_of_any_number_and_the_values_stay(count: int) -> None:
    values = torch.tensor([3.0, 2.0, 2.0, 1.0, 2.0], dtype=torch.float64)
    assert lowest(values, count).tolist() == highest(-values, count).tolist() == [3, 1, 2, 4, 0][:count]
    assert values.tolist() == [3.0, 2.0, 2.0, 1.0, 2.0]


def test_select_confident_orders_views_by_entropy() -> None:
    sharpness = torch.tensor([1.0, 9.0, 3.0, 7.0, 5.0])
    logits = sharpness[:, None] * torch.tensor([1.0, 0.0, -1.0])
    assert select_confident(logits, 0.6).tolist() == [1, 3, 4]
    assert select_confident(logits, 0.1).tolist() == [1]
    assert select_confident(logits[:1], 0.1).tolist() == [0]
    assert select_confident(logits[[2, 2, 2, 2]], 0.5).tolist() == [0, 1]


def test_a_number_is_an_ordinary_tensor_wherever_it_is_first_asked_for() -> None:
    with torch.inference_mode():
        seven = number(7.25, torch.float64, torch.device("cpu"))
    assert not seven.is_inference()  # a method with gradients may ask next
    assert (seven.item(), seven.dtype, seven.shape) == (7.25, torch.float64, ())


def test_standard_scores_by_hand() -> None:
    """Rows 1, 2, 6 with mean 3 and sd √7, and 5, 5, 5 without any spread; columns of two have sd |a − b|/√2."""
    values = torch.tensor([[1.0, 2.0, 6.0], [5.0, 5.0, 5.0]])
    torch.testing.assert_close(
        standard_scores(values), torch.tensor([[-2.0, -1.0, 3.0], [0.0, 0.0, 0.0]]) / math.sqrt(7)
    )
    half = math.sqrt(0.5)
    torch.testing.assert_close(standard_scores(values, 0), torch.tensor([[-half, -half, half], [half, half, -half]]))
    assert standard_scores(values[:1], 0).tolist() == [[0, 0, 0]]  # of one value nothing varies


def test_classifier_turns_features_into_logits() -> None:
    features, text = unit(6, 8, seed=0), unit(5, 8, seed=1)
    weights = classifier(text, 30.0)
    torch.testing.assert_close(features @ weights, 30 * features @ text.T)
    assert weights.is_contiguous()


def test_stack_views_puts_the_original_first() -> None:
    image, views = unit(4, seed=0), unit(3, 4, seed=1)
    assert torch.equal(stack_views(image, views), torch.stack((image, *views)))
    assert torch.equal(stack_views(image, None), image[None])
    assert torch.equal(stack_views(image, views[:0]), image[None])


def test_pool_averages_features_logits_and_probabilities_of_the_surest_views() -> None:
    features, text = unit(20, 8, seed=0), unit(5, 8, seed=1)
    logits = 20 * features @ text.T
    pool = low_entropy_pool(features, logits, 0.2)
    by_entropy = sorted(range(20), key=lambda v: float(entropy(logits[v].softmax(0))))
    torch.testing.assert_close(pool.feature, sum((features[v] for v in by_entropy[:4]), torch.zeros(8)) / 4)
    torch.testing.assert_close(pool.logits, 20 * text @ pool.feature)
    torch.testing.assert_close(pool.probs, logits.softmax(1)[by_entropy[:4]].mean(0))
    assert pool.entropy == pytest.approx(entropy(pool.probs).item())
    assert pool.kept.tolist() == by_entropy[:4]
    torch.testing.assert_close(-pool.certainties, entropy(logits.softmax(1)))
    assert pool.feature.norm() < 1 - 1e-3  # not re-normalised


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n_views", [3, 6, 10, 12, 19, 24, 48, 49])
def test_pool_of_equal_sure_views_has_their_entropy(n_views: int, dtype: torch.dtype) -> None:
    """p = 1 − 11 q and eleven times q = e⁻²⁵, so H = 11 q (25 + 1) but for terms of q²: far below the rounding of 1."""
    logits = torch.zeros(n_views, 12, dtype=dtype)
    logits[:, 0] = 25
    pool = low_entropy_pool(torch.ones(n_views, 4, dtype=dtype), logits, 1.0)
    q = math.exp(-25)
    assert pool.probs[0] <= 1
    assert pool.entropy == pytest.approx(11 * q * (25 if dtype == torch.float32 else 26), rel=1e-3)


def test_pool_of_one_view_is_that_view() -> None:
    features, text = unit(1, 8, seed=0), unit(5, 8, seed=1)
    pool = low_entropy_pool(features, 100 * features @ text.T, 0.1)
    assert torch.equal(pool.feature, features[0])
    torch.testing.assert_close(pool.probs, (100 * text @ features[0]).softmax(0))


# ---------------------------------------------------------------------------------------------------------- caches


@pytest.mark.parametrize("beta", [0.0, 1.0, 5.5, 200.0])
def test_affinity_is_zero_in_empty_slots(beta: float) -> None:
    query, features = unit(8, seed=0), unit(3, 2, 8, seed=1)
    features[1, 0] = query
    offsets = torch.full((3, 2), -beta)
    offsets[0, 1] = offsets[2, 0] = EMPTY
    expected = torch.exp(-beta * (1 - (features * query).sum(-1)))
    expected[0, 1] = expected[2, 0] = 0
    torch.testing.assert_close(affinity(query, features, offsets, beta), expected, rtol=1e-4, atol=1e-6)
    assert expected[1, 0] == pytest.approx(1.0, abs=1e-3)


@pytest.mark.parametrize(
    ("insert", "expected"),
    [
        (insert_by_entropy, "final_ids_tda"),
        (insert_by_entropy, "final_ids_boost_entropy"),
        (insert_fifo, "final_ids_boost_fifo"),
    ],
)
def test_insertion_follows_the_official_tie_rules(insert: Insert, expected: str) -> None:
    with np.load(CACHE_EVENTS) as events:
        capacity, n_classes = int(events["capacity"]), len(events[expected])
        entropies = torch.full((n_classes, capacity), float("inf"))
        ids = torch.full((n_classes, capacity), -1)
        for i, (c, h) in enumerate(zip(events["event_class"].tolist(), events["event_entropy"].tolist(), strict=True)):
            insert(entropies, c, h, (ids, torch.tensor(i)))
        np.testing.assert_array_equal(ids, events[expected])
        np.testing.assert_array_equal(entropies, events["event_entropy"][events[expected]])


def test_insertion_keeps_a_sorted_list() -> None:
    """Against the lists of the official codes, with many ties; and the number of items."""
    rng = torch.Generator().manual_seed(3)
    entropies, ids = torch.full((2, 3), math.inf), torch.full((2, 3), -1)
    official: list[tuple[float, int]] = []
    for i in range(60):
        h = float(torch.randint(12, (1,), generator=rng) * (1 - i / 80))
        count = insert_by_entropy(entropies, 1, h, (ids, torch.tensor(i)))
        before = list(official)
        if len(official) < 3:
            official.append((h, i))
        elif h < official[-1][0]:
            official[-1] = (h, i)
        official.sort(key=lambda entry: entry[0])
        n = len(official)
        assert count == (n if official != before else 0)
        assert entropies[1, :n].tolist() == [entry[0] for entry in official]
        assert ids[1, :n].tolist() == [entry[1] for entry in official]
    assert entropies[1].isfinite().all()
    assert entropies[0].tolist() == [math.inf] * 3  # the other class is left alone


def test_a_cache_without_slots_stays_empty() -> None:
    for insert in (insert_by_entropy, insert_fifo):
        insert(torch.empty(3, 0), 1, 0.5, (torch.empty(3, 0, 4), torch.ones(4)))


# ---------------------------------------------------------------------------------------- methods without adaptation


def test_clip_is_the_scaled_cosine() -> None:
    text, image = unit(5, 8, seed=0), unit(8, seed=1)
    method = CLIP()
    method.start(make_task(text, 40.0))
    torch.testing.assert_close(method.step(Observation(0, image)), torch.stack([40 * (t * image).sum() for t in text]))


@pytest.mark.parametrize("n_regions", [0, 1, 50])
def test_regions_is_the_log_of_the_mean_probability(n_regions: int) -> None:
    text, image, regions = unit(5, 8, seed=0), unit(8, seed=1), unit(n_regions, 8, seed=2)
    method = Regions()
    method.start(make_task(text, 10.0))
    probs = torch.stack([(10 * text @ f).softmax(0) for f in (image, *regions)])
    torch.testing.assert_close(method.step(Observation(0, image, {"regions": regions})), probs.mean(0).log())


def test_regions_stays_finite_when_probabilities_underflow() -> None:
    text = torch.eye(3)
    method = Regions()
    method.start(make_task(text, 1000.0))
    scores = method.step(Observation(0, text[0], {"regions": text[:1].expand(4, 3)}))
    torch.testing.assert_close(scores, torch.tensor([0.0, -1000.0, -1000.0]))
