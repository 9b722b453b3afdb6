"""mAP along a stream, against values that were computed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tta_bench import metrics
from tta_bench.metrics import along
from tta_bench.metrics.along import ScoredStream

# One class. Ranked by score: images 1, 0, 3, 2, 4, 5. Positive: 0, 3, 4.
SCORES = np.array([[0.8], [0.9], [0.3], [0.6], [0.2], [0.1]])
LABELS = np.array([[1], [0], [0], [1], [1], [0]], np.int8)
STREAM = ScoredStream(SCORES, LABELS, np.arange(6))


def test_cumulative_ranks_only_what_was_seen() -> None:
    """Up to image 0: rank 1 of 1. Up to 3: ranks 2 and 3 of 4. Up to 5: ranks 2, 3 and 5 of 6."""
    expected = [100.0, 100 * (1 / 2 + 2 / 3) / 2, 100 * (1 / 2 + 2 / 3 + 3 / 5) / 3]
    assert along.cumulative(STREAM, [1, 4, 6]).tolist() == pytest.approx(expected)


def test_sliding_waits_for_a_whole_window() -> None:
    """Images 0-2 rank 1, 0, 2 and 1-3 rank 1, 3, 2: the positive is second. Images 3-5: positives first and second."""
    found = along.sliding(STREAM, [2, 3, 4, 6], 3)
    assert np.isnan(found[0])
    assert found[1:].tolist() == pytest.approx([50.0, 50.0, 100.0])


def test_halves() -> None:
    """First: images 0-2 rank 1, 0, 2 and the positive is second. Second: images 3-5, positives first and second."""
    assert along.halves(STREAM) == pytest.approx({"first": 50.0, "second": 100.0})
    odd = ScoredStream(SCORES[:3], LABELS[:3], np.arange(3))
    assert along.halves(odd)["first"] == pytest.approx(100.0)  # image 0 alone
    assert np.isnan(along.halves(odd)["second"])  # images 1 and 2 have no label
    assert along.halves(ScoredStream(SCORES[:1], LABELS[:1], np.arange(1))) == {}


def test_domains_are_ranked_by_themselves() -> None:
    """Fog has images 0, 2, 4: ranks 0, 2, 4, positives first and third. Day has 1, 3, 5: the positive is second."""
    found = along.by_domain(STREAM, ["fog", "day", "fog", "day", "fog", "day"])
    assert found == pytest.approx({"fog": 100 * (1 + 2 / 3) / 2, "day": 50.0})
    assert list(found) == ["fog", "day"]


def test_what_a_record_keeps() -> None:
    domains = ["fog", "day"] * 3
    found = along.summary(STREAM, domains)
    assert found == {"halves": along.halves(STREAM), "domains": along.by_domain(STREAM, domains)}
    assert list(along.summary(STREAM, None)) == ["halves"]
    assert along.summary(ScoredStream(SCORES[:1], LABELS[:1], np.arange(1)), None) == {}


def test_classes_without_positives_follow_the_protocol() -> None:
    scores, labels = np.hstack([SCORES, SCORES]), np.hstack([LABELS, 0 * LABELS])
    for empty, expected in (("skip", 50.0), ("zero", 25.0)):
        stream = ScoredStream(scores, labels, np.arange(6), empty)  # type: ignore[arg-type]
        assert along.halves(stream)["first"] == pytest.approx(expected)


def test_ties_by_the_dataset_follow_its_order_and_not_the_stream() -> None:
    equal, labels = np.zeros((2, 1)), np.array([[1], [0]], np.int8)
    assert ScoredStream(equal, labels, np.array([0, 1]), ties="dataset").map_of([0, 1]) == 100.0
    assert ScoredStream(equal, labels, np.array([7, 3]), ties="dataset").map_of([0, 1]) == 50.0


@pytest.mark.parametrize(
    ("own", "expected"),
    [
        ([50, 50, 50, 50], 10),  # never below
        ([40, 60, 60, 60], 20),
        ([60, 40, 60, 50], 30),  # ahead at first, but that did not last
        ([40, 60, 40, 60], 40),
        ([40, 40, 40, 60], 40),
        ([60, 60, 60, 49], None),
        ([40, 60, 60, 40], None),
        ([40, 60, 40, 40], None),
        ([np.nan, 60, 60, 60], 10),
    ],
)
def test_break_even_is_where_it_stays_level_or_ahead(own: list[float], expected: int | None) -> None:
    assert along.break_even(np.array(own, float), np.full(4, 50.0), [10, 20, 30, 40]) == expected


def test_ends_are_spread_evenly_and_reach_the_last_image() -> None:
    assert along.ends(600)[:2] == [30, 60]
    assert along.ends(600)[-1] == 600
    assert len(along.ends(600)) == 20
    assert along.ends(7, 3) == [3, 5, 7]
    assert along.ends(2) == [1, 2]


def test_the_last_point_is_the_run_s_own_map() -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(40, 5)), (rng.random((40, 5)) < 0.3).astype(np.int8)
    whole = along.cumulative(ScoredStream(scores, labels, np.arange(40)), along.ends(40))[-1]
    assert whole == pytest.approx(metrics.summary(scores, labels)["mAP"], abs=1e-12)
