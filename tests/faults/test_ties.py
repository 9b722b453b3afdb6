"""Equal scores: no order in which images are listed may make a number better."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score

from tta_bench import metrics
from tta_bench.errors import UsageError
from tta_bench.metrics import AP_CONVENTIONS
from tta_bench.runs.spec import RunSpec

Array = npt.NDArray[Any]
unhurried = settings(deadline=None)


def tied(seed: int, levels: int, ignore: float = 0.0, n: int = 40, c: int = 4) -> tuple[Array, Array]:
    """Scores of few levels, and labels of every kind; every class has a positive."""
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, levels, (n, c)) / 7
    labels = (rng.random((n, c)) < 0.3).astype(np.int8)
    labels[rng.random((n, c)) < ignore] = -1
    labels[rng.integers(0, n, c), np.arange(c)] = 1
    return scores, labels


@pytest.mark.parametrize("positives", [1, 3, 10])
def test_constant_scores_with_the_positives_first_give_their_share(positives: int) -> None:
    scores, labels = np.full((10, 1), 0.5), np.zeros((10, 1), np.int8)
    labels[:positives] = 1
    for listed in (labels, labels[::-1]):
        assert metrics.average_precision(scores, listed) == [10.0 * positives]
        assert metrics.summary(scores, listed)["mAP"] == 10.0 * positives
    assert metrics.average_precision(scores, labels, ties="dataset") == [100]


@unhurried
@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.sampled_from([0.0, 0.3]))
def test_ties_are_scikit_learns(seed: int, levels: int, ignore: float) -> None:
    scores, labels = tied(seed, levels, ignore)
    kept = labels != -1
    expected = [100 * average_precision_score(labels[k, c], scores[k, c]) for c, k in enumerate(kept.T)]
    np.testing.assert_allclose(metrics.average_precision(scores, labels), expected, rtol=1e-12)


@unhurried
@given(st.integers(0, 2**32 - 1), st.integers(1, 12))
def test_no_listing_order_matters(seed: int, levels: int) -> None:
    """To the last bit, and in every number of the summary."""
    scores, labels = tied(seed, levels, ignore=0.2)
    order = np.random.default_rng(seed + 1).permutation(len(scores))
    assert metrics.summary(scores[order], labels[order]) == metrics.summary(scores, labels)
    np.testing.assert_array_equal(
        metrics.average_precision(scores[order], labels[order]), metrics.average_precision(scores, labels)
    )


@unhurried
@given(st.integers(0, 2**32 - 1))
def test_without_ties_both_conventions_are_one_number(seed: int) -> None:
    """To the last bit: records without ties read the same as before."""
    _, labels = tied(seed, 2, ignore=0.2)
    scores = np.random.default_rng(seed).permutation(labels.size).reshape(labels.shape) / 16
    np.testing.assert_array_equal(
        metrics.average_precision(scores, labels, "threshold"), metrics.average_precision(scores, labels, "dataset")
    )


def test_zeros_of_either_sign_are_equal() -> None:
    scores, labels = np.array([[0.0], [-0.0]]), np.array([[1], [0]], np.int8)
    assert metrics.average_precision(scores, labels) == [50]


def test_the_convention_is_part_of_the_protocol() -> None:
    """Numbers under different conventions must not meet in a table; `dataset` is what all earlier records say."""
    assert AP_CONVENTIONS["dataset"] == "non-interpolated; ties by the dataset's order"
    assert AP_CONVENTIONS["threshold"] == "non-interpolated; equal scores are one threshold"


def test_an_unknown_convention_is_refused() -> None:
    with pytest.raises(ValueError, match="'threshold' or 'dataset'"):
        metrics.average_precision(np.zeros((2, 1)), np.ones((2, 1), np.int8), ties="random")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="ties"):
        RunSpec("clip", ties="random")  # type: ignore[arg-type]
