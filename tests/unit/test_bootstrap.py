"""Resampled average precision against the plain metric on real resamples, and against scikit-learn's weights."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from tta_bench import metrics
from tta_bench.errors import BadData
from tta_bench.metrics import Floats, Labels, bootstrap
from tta_bench.metrics.bootstrap import ImageResamples, resampled_ap, resampled_map

IMAGES, RESAMPLES = 120, 30


@pytest.fixture
def drawn() -> ImageResamples:
    return ImageResamples(IMAGES, RESAMPLES, seed=3)


@pytest.fixture
def stream() -> tuple[Floats, Labels]:
    """Ties, ignored labels, a class with one positive and one without."""
    rng = np.random.default_rng(0)
    labels = (rng.random((IMAGES, 6)) < 0.15).astype(np.int8)
    labels[rng.random(labels.shape) < 0.1] = -1
    labels[:, 4:] = 0
    labels[7, 4] = 1
    scores = np.round(rng.standard_normal(labels.shape) + labels, 1)
    return scores, labels


def weights_of(drawn: ImageResamples) -> Labels:
    return np.concatenate(drawn.blocks, axis=1).astype(np.int64)  # [N, R]


def test_a_resample_draws_as_many_images_as_there_are(drawn: ImageResamples) -> None:
    weights = weights_of(drawn)
    assert weights.shape == (IMAGES, RESAMPLES)
    assert (weights.sum(axis=0) == IMAGES).all()
    assert len({column.tobytes() for column in weights.T}) == RESAMPLES


def test_resamples_follow_from_the_seed_and_not_from_the_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = weights_of(ImageResamples(IMAGES, RESAMPLES, seed=3))
    monkeypatch.setattr(bootstrap, "BLOCK_BYTES", 1)
    in_blocks = ImageResamples(IMAGES, RESAMPLES, seed=3)
    assert len(in_blocks.blocks) > 1
    np.testing.assert_array_equal(weights_of(in_blocks), whole)
    assert (weights_of(ImageResamples(IMAGES, RESAMPLES, seed=4)) != whole).any()
    assert (weights_of(ImageResamples(9, 5)) == weights_of(ImageResamples(9, 5, seed=0))).all()


def test_nothing_to_resample() -> None:
    with pytest.raises(ValueError, match="0 images"):
        ImageResamples(0, 10)
    with pytest.raises(ValueError, match="1 resamples"):
        ImageResamples(10, 1)


@pytest.mark.filterwarnings("error")  # a class that was not drawn is nothing to warn of
def test_every_resample_is_what_the_plain_metric_gives(drawn: ImageResamples, stream: tuple[Floats, Labels]) -> None:
    scores, labels = stream
    found = resampled_ap(scores, labels, drawn)
    assert np.isnan(found[:, 5]).all()
    assert np.isnan(found[:, 4]).any()  # its only positive is not always drawn
    assert not np.isnan(found[:, 4]).all()
    for r, weights in enumerate(weights_of(drawn).T):
        images = np.repeat(np.arange(IMAGES), weights)
        np.testing.assert_allclose(found[r], metrics.average_precision(scores[images], labels[images]), rtol=1e-6)


def test_every_resample_is_what_scikit_learn_gives(drawn: ImageResamples, stream: tuple[Floats, Labels]) -> None:
    scores, labels = stream
    found = resampled_ap(scores, labels, drawn)
    for r, weights in enumerate(weights_of(drawn).T):
        for c in range(4):
            kept = labels[:, c] != -1
            expected = average_precision_score(labels[kept, c], scores[kept, c], sample_weight=weights[kept])
            assert found[r, c] == pytest.approx(100 * expected, rel=1e-6)


def test_ties_by_row(drawn: ImageResamples, stream: tuple[Floats, Labels]) -> None:
    """Scores that fall from row to row, by less than any difference, rank the same without a tie."""
    scores, labels = stream
    untied = scores - 1e-6 * np.arange(IMAGES)[:, None]
    by_row = resampled_ap(scores, labels, drawn, ties="dataset")
    np.testing.assert_array_equal(by_row, resampled_ap(untied, labels, drawn))
    assert not np.array_equal(by_row, resampled_ap(scores, labels, drawn), equal_nan=True)


@pytest.mark.parametrize("empty", ["skip", "zero"])
def test_the_mean_follows_the_rule_for_classes_without_positives(empty: metrics.Empty) -> None:
    ap = np.array([[50, 100, np.nan], [np.nan, 40, np.nan], [np.nan] * 3, [10, 20, 60]], dtype=np.float32)
    expected = [metrics.mean_average_precision(row, empty) for row in ap.astype(np.float64)]
    np.testing.assert_allclose(resampled_map(ap, empty), expected)
    if empty == "skip":
        np.testing.assert_array_equal(resampled_map(ap), resampled_map(ap, empty))


def test_what_can_not_be_resampled(drawn: ImageResamples, stream: tuple[Floats, Labels]) -> None:
    scores, labels = stream
    with pytest.raises(ValueError, match="119 images, resamples of 120"):
        resampled_ap(scores[1:], labels[1:], drawn)
    with pytest.raises(BadData, match="1 non-finite value"):
        resampled_ap(np.where(np.arange(scores.size).reshape(scores.shape) == 5, np.nan, scores), labels, drawn)
    with pytest.raises(ValueError, match="'drop'"):
        resampled_map(np.zeros((2, 2), dtype=np.float32), "drop")  # type: ignore[arg-type]
