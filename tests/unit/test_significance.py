"""Intervals, p and their corrections, against scipy and against cases that can be worked out."""

from __future__ import annotations

import math
import statistics

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats  # type: ignore[import-untyped]  # no stubs among the development tools
from sklearn.metrics import average_precision_score

from tta_bench.metrics import Empty, Floats
from tta_bench.metrics.bootstrap import ImageResamples
from tta_bench.metrics.paired import Resampled, class_differences, difference, mean_ap
from tta_bench.metrics.significance import (
    MOST_FREEDOM,
    benjamini_yekutieli,
    estimate,
    holm,
    satterthwaite,
    student_p,
    student_quantile,
)

FREEDOM = np.array([1.0, 1.5, 3.0, 10.0, 50.0, 400.0, MOST_FREEDOM])


@pytest.mark.parametrize("t", [0.0, 0.1, 2.0, 6.0, 20.0])
def test_student_p_is_scipys(t: float) -> None:
    found = student_p(np.full_like(FREEDOM, t), FREEDOM)
    np.testing.assert_allclose(found, 2 * stats.t.sf(t, FREEDOM), rtol=1e-6)
    assert (found <= 1).all()


@pytest.mark.parametrize("p", [0.001, 0.05, 0.4])
def test_student_quantile_is_scipys(p: float) -> None:
    np.testing.assert_allclose(student_quantile(p, FREEDOM), stats.t.isf(p / 2, FREEDOM), rtol=1e-6)


def test_satterthwaite_is_welchs() -> None:
    rng = np.random.default_rng(0)
    one, other = rng.normal(size=8), 3 * rng.normal(size=5)
    variances = np.array([one.var(ddof=1) / 8, other.var(ddof=1) / 5])
    expected = stats.ttest_ind(one, other, equal_var=False).df
    assert satterthwaite(variances, np.array([7.0, 4.0])) == pytest.approx(expected)
    assert satterthwaite(np.array([2.0, 0.0]), np.array([7.0, 0.0])) == 7  # what does not vary takes no part
    assert satterthwaite(np.zeros(2), np.ones(2)) == MOST_FREEDOM == 1000
    assert satterthwaite(np.array([1.0, 1.0]), np.array([0.1, 0.1])) == 1  # the least there is
    columns = satterthwaite(np.array([[4.0, 9.0], [0.0, 9.0]]), np.array([[7.0, 5.0], [1.0, 5.0]]))
    assert columns.tolist() == pytest.approx([7, 10])
    # Of a known part that was taken off, 4 − 1, only the total gets less: 3² / (16 / 8).
    assert satterthwaite(np.array([4.0]), np.array([8.0]), np.array(3.0)) == pytest.approx(4.5)


def test_holm_by_hand() -> None:
    np.testing.assert_allclose(holm(np.array([0.03, 0.01, 0.04])), [0.06, 0.03, 0.06])
    np.testing.assert_allclose(holm(np.array([0.03, np.nan, 0.01])), [0.03, np.nan, 0.02])
    np.testing.assert_allclose(holm(np.array([0.6, 0.7])), [1, 1])
    assert len(holm(np.array([]))) == 0


def test_benjamini_yekutieli_is_scipys() -> None:
    p = np.random.default_rng(0).random(30) ** 3
    np.testing.assert_allclose(benjamini_yekutieli(p), stats.false_discovery_control(p, method="by"))
    assert len(benjamini_yekutieli(np.array([]))) == 0


# ------------------------------------------------------------------------------------------------------------- levels


def with_noise(values: list[float], common: float, own: float, resamples: int = 4000) -> tuple[Floats, Floats]:
    """K replicates [K, 1] and their draws: noise of the images that all share, and noise of each alone."""
    rng = np.random.default_rng(1)
    shared = common * rng.standard_normal((1, resamples, 1))
    return np.array(values)[:, None], np.array(values)[:, None, None] + shared + own * rng.standard_normal(
        (len(values), resamples, 1)
    )


def test_one_replicate_has_the_error_of_its_images() -> None:
    (found,) = estimate(*with_noise([3.0], 1.0, 0.0), np.array([20.0]))
    assert found.error == pytest.approx(1.0, rel=0.05)
    assert found.freedom == 20
    t = stats.t.isf(0.025, 20)
    assert (found.low, found.high) == pytest.approx((3 - t * found.error, 3 + t * found.error))
    assert found.p == pytest.approx(2 * stats.t.sf(3 / found.error, 20))
    assert found.detectable == pytest.approx((t + stats.t.isf(0.2, 20)) * found.error)


def test_replicates_that_differ_add_to_the_error_as_a_mean_of_so_many_does() -> None:
    values = [1.0, 2.0, 3.0, 6.0]
    (found,) = estimate(*with_noise(values, 0.0, 0.0), np.array([500.0]))
    assert found.value == 3
    assert found.error == pytest.approx(np.std(values, ddof=1) / 2, rel=0.05)
    assert found.freedom == pytest.approx(3)
    (both,) = estimate(*with_noise(values, 2.0, 0.0), np.array([500.0]))
    assert both.error == pytest.approx(np.hypot(found.error, 2.0), rel=0.05)
    assert 3 < both.freedom < 500


def test_noise_of_each_replicate_on_the_images_counts_once() -> None:
    """Replicates that differ by no more than resampled images make them differ have no spread of their own."""
    (found,) = estimate(*with_noise([1.0, -1.0, 1.0, -1.0], 0.0, 2.0), np.array([500.0]))
    assert found.error == pytest.approx(2.0 / 2, rel=0.05)
    assert found.freedom > 3


def test_images_are_common_to_the_replicates() -> None:
    """Five runs on the same images are no five times as many images."""
    (found,) = estimate(*with_noise([1.0] * 5, 2.0, 0.0), np.array([500.0]))
    assert found.error == pytest.approx(2.0, rel=0.05)


@pytest.mark.parametrize("replicates", [2, 3])
def test_several_numbers_at_once_against_the_formula_in_words(replicates: int) -> None:
    rng = np.random.default_rng(4)
    values, draws = rng.normal(size=(replicates, 2)), rng.normal(size=(replicates, 50, 2)) * [1.0, 0.1]
    freedom = np.array([12.0, 30.0])
    for s, found in enumerate(estimate(values, draws, freedom)):
        by_resample = [statistics.mean(draws[:, r, s]) for r in range(50)]
        of_images = statistics.variance(by_resample)
        of_replicates = statistics.variance(values[:, s]) / replicates
        own = draws[:, :, s] - draws[:, :, s].mean(axis=1, keepdims=True)
        already = statistics.mean(statistics.variance(own[:, r]) for r in range(50)) / replicates
        variance = of_images + max(of_replicates - already, 0)
        # Satterthwaite: squares of the parts by their degrees of freedom.
        expected = variance**2 / (of_images**2 / freedom[s] + of_replicates**2 / (replicates - 1))
        assert found.error == pytest.approx(math.sqrt(variance))
        assert found.freedom == pytest.approx(max(expected, 1))
        assert found.p == pytest.approx(2 * stats.t.sf(abs(found.value) / found.error, found.freedom), rel=1e-4)
        assert found.value == pytest.approx(statistics.mean(values[:, s]))


def test_where_nothing_varies() -> None:
    same, other = estimate(np.array([[0.0, 1.0]]), np.zeros((1, 10, 2)), np.array([5.0, 5.0]))
    assert (same.p, same.low, same.high) == (1, 0, 0)
    assert np.isnan(other.p)


# -------------------------------------------------------------------------------------------------------------- pairs


def two_methods(images: int = 150) -> tuple[list[Resampled], list[Resampled]]:
    rng = np.random.default_rng(0)
    labels = (rng.random((images, 4)) < 0.2).astype(np.int8)
    labels[:, 3] = 0
    drawn = ImageResamples(images, 400)
    shared = rng.standard_normal(labels.shape)
    good, bad = (shared + gain * labels + 0.2 * rng.standard_normal(labels.shape) for gain in (2.0, 1.0))
    return [Resampled.of(good, labels, drawn)], [Resampled.of(bad, labels, drawn)]


def test_the_error_of_a_cell_is_that_of_scipys_bootstrap() -> None:
    run = two_methods()[0][0]
    few = 1 / (run.positives[:3] - 1).min()  # positives that are resampled spread less by at most that
    plain = np.nanmean(run.draws[:, :3], axis=1, dtype=np.float64).std(ddof=1)
    assert plain < mean_ap([run]).error < plain * np.sqrt(1 + few)
    scores = np.random.default_rng(2).standard_normal((60, 1))
    labels = (scores + np.random.default_rng(3).standard_normal((60, 1)) > 0.5).astype(np.int8)

    def ap(rows: npt.NDArray[np.int_]) -> float:
        return 100 * float(average_precision_score(labels[rows, 0], scores[rows, 0]))

    expected = stats.bootstrap((np.arange(60),), ap, vectorized=False, n_resamples=800, rng=0).standard_error
    found = mean_ap([Resampled.of(scores, labels, ImageResamples(60, 800))])
    positives = labels.sum()
    assert found.error == pytest.approx(expected * np.sqrt(positives / (positives - 1)), rel=0.1)
    assert found.value == pytest.approx(ap(np.arange(60)))


def test_a_pair_is_surer_than_its_cells() -> None:
    good, bad = two_methods()
    pair = difference(good, bad)
    assert pair.value == pytest.approx(mean_ap(good).value - mean_ap(bad).value)
    assert pair.error < 0.7 * np.hypot(mean_ap(good).error, mean_ap(bad).error)
    assert pair.p < 0.001
    back = difference(bad, good)
    assert (back.value, back.p) == pytest.approx((-pair.value, pair.p))


def test_a_method_against_itself() -> None:
    good, _ = two_methods()
    assert (difference(good, good).value, difference(good, good).p) == (0, 1)


def test_classes_one_by_one() -> None:
    good, bad = two_methods()
    *found, empty = class_differences(good, bad)
    assert empty is None
    for c, change in enumerate(found):
        assert change is not None
        assert change.value == pytest.approx(good[0].ap[c] - bad[0].ap[c])
        assert change.freedom == good[0].positives[c] - 1
        assert change.low < change.value < change.high
    backwards = ([Resampled(run.ap[::-1], run.draws[:, ::-1], run.positives[::-1])] for (run,) in (good, bad))
    assert class_differences(*backwards) == [None, *reversed(found)]


def test_rare_classes_widen_an_interval() -> None:
    """An error that rests on three positives is not known well: the same draws, with fewer degrees of freedom."""
    good, _ = two_methods()
    few = [Resampled(good[0].ap, good[0].draws, np.array([3, 3, 3, 0]))]
    many = mean_ap(good)
    assert mean_ap(few).error == pytest.approx(many.error, rel=0.25)
    assert mean_ap(few).high - mean_ap(few).value > 1.5 * (many.high - many.value)


def by_hand(size: float, level: float, along: list[float]) -> Resampled:
    """Two classes with 3 and 5 positives: four draws of the first go `along`, those of the other by √3 across it."""
    draws = level + size * np.stack([np.array(along), np.sqrt(3) * np.array([1, -1, 1, -1])], axis=1)
    return Resampled(np.array([level, level]), draws.astype(np.float32), np.array([3, 5]))


@pytest.mark.parametrize("size", [1.0, 0.1])
def test_the_error_of_a_cell_by_hand(size: float) -> None:
    """Variances 1 and 3, so the mean's is 1, and 4/3 from four draws. They are known from 2 and 4 degrees of freedom:
    16 / (1/2 + 9/4) for the sum. Three and five positives spread too little by 1 + 1/2 and 1 + 1/4: 5.25/4 in all."""
    found = mean_ap([by_hand(size, 50.0, [1, 1, -1, -1])])
    assert found.value == 50
    assert found.error == pytest.approx(size * math.sqrt(4 / 3 * 5.25 / 4), rel=1e-4)
    assert found.freedom == pytest.approx(16 / 2.75, rel=1e-4)


def test_the_error_of_a_difference_by_hand() -> None:
    """Draws along 3 and 2 leave 1; across they are equal and leave nothing. So it is half of class 0's, 4/3 · 1/4, and
    rests on its three positives."""
    one, other = by_hand(1.0, 50.0, [3, 3, -3, -3]), by_hand(1.0, 40.0, [2, 2, -2, -2])
    found = difference([one], [other])
    assert found.value == 10
    assert found.error == pytest.approx(math.sqrt(1 / 3), rel=1e-4)
    assert found.freedom == pytest.approx(2)
    first, second = class_differences([one], [other])
    assert first is not None
    assert second is not None
    assert (first.error, first.freedom, second.freedom) == pytest.approx((math.sqrt(4 / 3), 2, 4))
    assert second.error == pytest.approx(0, abs=1e-5)


def test_one_positive_leaves_one_degree_of_freedom() -> None:
    one, other = by_hand(1.0, 50.0, [3, 3, -3, -3]), by_hand(0.5, 40.0, [2, 2, -2, -2])
    few = [Resampled(run.ap, run.draws, np.array([1, 2])) for run in (one, other)]
    assert [change.freedom for change in class_differences(few[:1], few[1:]) if change] == [1, 1]


def test_replicates_are_paired_one_by_one() -> None:
    good, bad = two_methods()
    with pytest.raises(ValueError, match="zip"):
        class_differences(good, [*bad, *bad])


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("empty", ["skip", "zero"])
@pytest.mark.parametrize(("images", "positives"), [(1, 0), (1, 1), (6, 0), (6, 1)])
def test_streams_that_say_next_to_nothing(images: int, positives: int, empty: Empty) -> None:
    labels = np.zeros((images, 2), dtype=np.int8)
    labels[:positives, 0] = 1
    drawn = ImageResamples(images, 2)
    one, other = ([Resampled.of(np.random.default_rng(seed).random((images, 2)), labels, drawn)] for seed in (0, 1))
    assert np.isnan(mean_ap(one, empty).value) == (positives == 0 and empty == "skip")
    found = difference(one, other, empty)
    assert np.isnan(found.p) or 0 <= found.p <= 1
    assert [change is None for change in class_differences(one, other)] == [positives == 0, True]


def test_tiny_tails_are_no_error_of_a_caller_who_has_made_errors_of_them() -> None:
    with np.errstate(all="raise"):
        p = student_p(np.array([60.0, 2.0]), np.array([500.0, 3.0]))
        assert student_quantile(0.05, np.array([500.0]))[0] == pytest.approx(1.9647, abs=1e-3)
    assert p[0] < 1e-100
