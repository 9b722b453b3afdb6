"""The metrics against scikit-learn, against hand-computed cases, and against the properties they must have."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, precision_recall_fscore_support

from tta_bench import metrics
from tta_bench.errors import BadData

Array = npt.NDArray[Any]
FAMILY = ("CP", "CR", "CF1", "OP", "OR", "OF1")
seeds = st.integers(0, 2**32 - 1)
unhurried = settings(deadline=None)  # a busy machine is not a failure


def make(seed: int, n: int = 60, c: int = 7, ignore: float = 0.0) -> tuple[Array, Array]:
    """Scores that differ everywhere, on a grid coarse enough for float32, and labels that they predict a little."""
    rng = np.random.default_rng(seed)
    scores = rng.permutation(n * c).reshape(n, c) / 16
    labels = (scores + rng.normal(0, scores.std(), (n, c)) > np.quantile(scores, 0.7)).astype(np.int8)
    labels[rng.random((n, c)) < ignore] = -1
    return scores, labels


def ap_by_sklearn(scores: Array, labels: Array) -> list[float]:
    kept = labels != -1
    return [100 * average_precision_score(labels[kept[:, c], c], scores[kept[:, c], c]) for c in range(labels.shape[1])]


# ---- average precision


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ignore", [0.0, 0.3])
def test_ap_agrees_with_sklearn(dtype: type, ignore: float) -> None:
    scores, labels = make(0, n=500, c=20, ignore=ignore)
    scores = scores.astype(dtype)
    np.testing.assert_allclose(metrics.average_precision(scores, labels), ap_by_sklearn(scores, labels), rtol=1e-12)


def test_ap_by_hand_with_a_tie_and_an_ignored_image() -> None:
    scores = np.array([[0.9, 0.5], [0.8, 0.5], [0.7, 0.5], [0.6, 0.1]])
    labels = np.array([[1, 0], [-1, 0], [0, 1], [1, 1]], dtype=np.int8)
    # Class 0 without row 1: hits at ranks 1 and 3. Class 1: one hit of three at the first threshold, and two of four.
    expected = [100 * (1 / 1 + 2 / 3) / 2, 100 * (1 / 3 + 2 / 4) / 2]
    np.testing.assert_allclose(metrics.average_precision(scores, labels), expected, rtol=1e-14)
    labels[:, 1] = [1, 0, 0, 1]  # the same threshold, its hit listed first
    np.testing.assert_allclose(metrics.average_precision(scores, labels), expected, rtol=1e-14)
    by_rows = [expected[0], 100 * (1 / 1 + 2 / 4) / 2]
    np.testing.assert_allclose(metrics.average_precision(scores, labels, ties="dataset"), by_rows, rtol=1e-14)


def test_class_without_positives_is_nan_then_skipped_or_zero() -> None:
    scores = np.array([[3.0, 1.0, 1.0], [2.0, 2.0, 2.0]])
    labels = np.array([[1, 0, -1], [0, 0, -1]], dtype=np.int8)
    ap = metrics.average_precision(scores, labels)
    np.testing.assert_array_equal(ap, [100, np.nan, np.nan])
    assert metrics.mean_average_precision(ap) == 100
    assert metrics.mean_average_precision(ap, "zero") == pytest.approx(100 / 3)


def test_no_positives_at_all() -> None:
    ap = metrics.average_precision(np.zeros((2, 2)), np.zeros((2, 2), dtype=np.int8))
    assert np.isnan(metrics.mean_average_precision(ap))
    assert metrics.mean_average_precision(ap, "zero") == 0


def test_an_unknown_rule_for_empty_classes_is_refused() -> None:
    with pytest.raises(ValueError, match="'skip' or 'zero'"):
        metrics.mean_average_precision(np.ones(3), "ignore")  # type: ignore[arg-type]


def test_an_unknown_rule_for_ties_is_refused() -> None:
    with pytest.raises(ValueError, match="'threshold' or 'dataset', not 'row'"):
        metrics.average_precision(np.eye(2), np.eye(2, dtype=np.int8), "row")  # type: ignore[arg-type]


@unhurried
@given(seeds)
def test_order_of_the_images_does_not_matter(seed: int) -> None:
    scores, labels = make(seed, ignore=0.2)
    shuffled = np.random.default_rng(seed).permutation(len(scores))
    np.testing.assert_array_equal(
        metrics.average_precision(scores[shuffled], labels[shuffled]), metrics.average_precision(scores, labels)
    )


@unhurried
@given(seeds, st.sampled_from([np.cbrt, np.square, lambda s: 3 * s - 100]))
def test_a_global_monotone_map_changes_nothing(seed: int, monotone: Any) -> None:
    scores, labels = make(seed, ignore=0.2)  # scores >= 0, where all three maps increase
    np.testing.assert_array_equal(
        metrics.average_precision(monotone(scores), labels), metrics.average_precision(scores, labels)
    )


@unhurried
@given(seeds, st.floats(0, 1))
def test_ap_lies_between_0_and_100(seed: int, ignore: float) -> None:
    scores, labels = make(seed, n=12, ignore=ignore)
    ap = metrics.average_precision(np.round(scores), labels)  # rounding makes ties
    defined = ap[~np.isnan(ap)]
    assert ((defined > 0) & (defined <= 100)).all()
    np.testing.assert_array_equal(np.isnan(ap), ~(labels == 1).any(axis=0))


@unhurried
@given(seeds)
def test_perfect_and_worst_ranking(seed: int) -> None:
    scores, labels = make(seed, n=30)
    labels[0] = 1
    assert (metrics.average_precision(scores + 1000.0 * labels, labels) == 100).all()
    worst = [100 * sum(i / (30 - p + i) for i in range(1, p + 1)) / p for p in labels.sum(axis=0).tolist()]
    np.testing.assert_allclose(metrics.average_precision(scores - 1000.0 * labels, labels), worst, rtol=1e-12)


@unhurried
@given(seeds)
def test_a_value_under_an_ignored_label_does_not_matter(seed: int) -> None:
    scores, labels = make(seed, ignore=0.3)
    other = np.where(labels == -1, np.random.default_rng(seed).normal(0, 50, scores.shape), scores)
    np.testing.assert_allclose(
        metrics.average_precision(other, labels), metrics.average_precision(scores, labels), rtol=1e-12
    )


# ---- per-image maps


@unhurried
@given(seeds)
def test_centred_scores_forget_each_images_offset(seed: int) -> None:
    scores, labels = make(seed)
    offset = np.random.default_rng(seed).integers(-512, 512, (len(scores), 1))
    np.testing.assert_allclose(metrics.centered(scores + offset), metrics.centered(scores), atol=1e-10)
    np.testing.assert_allclose(metrics.centered(scores).mean(axis=1), 0, atol=1e-10)
    np.testing.assert_array_equal(metrics.centered(scores.astype(np.float32)), metrics.centered(scores))  # in float64
    assert metrics.summary(scores + 1e4 * offset, labels)["mAP"] != metrics.summary(scores, labels)["mAP"]


def test_softmax_is_exact_and_does_not_overflow() -> None:
    scores = np.array([[0.0, np.log(3)], [1e4, 1e4 - np.log(3)], [-1e4, 1e4]], dtype=np.float64)
    expected = np.array([[0.25, 0.75], [0.75, 0.25], [0.0, 1.0]])
    np.testing.assert_allclose(metrics.softmax(scores), expected, rtol=1e-9)
    assert metrics.softmax(scores.astype(np.float32)).dtype == np.float64
    assert metrics.checked(scores.astype(np.float32), np.zeros((3, 2), dtype=np.int8)).dtype == np.float64


# ---- decisions


def decisions_by_sklearn(predicted: Array, labels: Array) -> dict[str, float]:
    cp, cr, _, _ = precision_recall_fscore_support(labels, predicted, average="macro", zero_division=0)
    op, or_, of1, _ = precision_recall_fscore_support(labels, predicted, average="micro", zero_division=0)
    fractions = {"CP": cp, "CR": cr, "CF1": 2 * cp * cr / (cp + cr), "OP": op, "OR": or_, "OF1": of1}
    return {name: 100 * value for name, value in fractions.items()}


@pytest.mark.parametrize("seed", range(3))
def test_decisions_agree_with_sklearn(seed: int) -> None:
    scores, labels = make(seed, n=40, c=9)
    scores[:, 4] = -1  # a class that is never predicted: precision 0
    labels[:, 2] = 0  # a class without positives
    threshold = float(np.quantile(scores, 0.7))
    top_3 = scores >= np.sort(scores, axis=1)[:, [-3]]
    for ours, predicted in [
        (metrics.at_threshold(scores, labels, threshold, "zero"), scores > threshold),
        (metrics.at_top_k(scores, labels, 3, "zero"), top_3),
    ]:
        assert ours == pytest.approx(decisions_by_sklearn(predicted, labels), rel=1e-12)


def test_skipping_the_empty_class_is_leaving_its_column_out_of_the_class_means() -> None:
    scores, labels = make(5, c=9)
    labels[:, 2] = 0
    predicted = scores > np.quantile(scores, 0.7)
    others = np.delete(np.arange(9), 2)
    ours = metrics.threshold_metrics(predicted, labels)
    without = decisions_by_sklearn(predicted[:, others], labels[:, others])
    assert {k: ours[k] for k in ("CP", "CR", "CF1")} == pytest.approx({k: without[k] for k in ("CP", "CR", "CF1")})
    assert ours["OP"] == pytest.approx(decisions_by_sklearn(predicted, labels)["OP"])
    assert ours["OP"] < without["OP"]  # its false alarms still count there


def test_decisions_by_hand_with_ignored_labels() -> None:
    predicted = np.array([[1, 1], [1, 0], [0, 1], [1, 1]], dtype=np.bool_)
    labels = np.array([[1, -1], [0, 1], [1, 1], [-1, 0]], dtype=np.int8)
    # Class 0: 1 right of 2 claimed, 2 present. Class 1: 1 right of 2 claimed, 2 present.
    assert metrics.threshold_metrics(predicted, labels) == dict.fromkeys(FAMILY, 50.0)


def test_cf1_is_the_harmonic_mean_of_the_class_means() -> None:
    predicted = np.array([[1, 0], [1, 0], [1, 0], [1, 1]], dtype=np.bool_)
    labels = np.array([[1, 0], [0, 1], [0, 1], [0, 1]], dtype=np.int8)
    ours = metrics.threshold_metrics(predicted, labels)
    cp, cr = 100 * (1 / 4 + 1) / 2, 100 * (1 + 1 / 3) / 2
    assert ours["CP"] == pytest.approx(cp)
    assert ours["CR"] == pytest.approx(cr)
    assert ours["CF1"] == pytest.approx(2 * cp * cr / (cp + cr))


def test_top_k_ties_go_to_the_lowest_class() -> None:
    scores = np.array([[1.0, 5.0, 5.0, 5.0, 5.0]])
    labels = np.array([[1, 1, 1, 1, 0]], dtype=np.int8)
    ours = metrics.at_top_k(scores, labels)
    assert (ours["OP"], ours["OR"]) == (100, 75)  # classes 1, 2, 3
    assert metrics.at_top_k(scores, labels, k=1, empty="zero")["CR"] == 20  # class 1 alone
    many = np.random.default_rng(0).integers(0, 2, (1, 400)).astype(float)  # a short row is sorted stably by any sort
    first = np.zeros((1, 400), dtype=np.int8)
    first[0, np.flatnonzero(many[0])[:3]] = 1
    assert metrics.at_top_k(many, first)["OP"] == 100


def test_an_ignored_class_uses_up_a_place_in_the_top_k() -> None:
    scores, labels = np.array([[3.0, 2.0, 1.0]]), np.array([[-1, 1, 1]], dtype=np.int8)
    ours = metrics.at_top_k(scores, labels, k=2)
    assert (ours["OP"], ours["OR"]) == (100, 50)


def test_fewer_classes_than_k_predicts_them_all() -> None:
    assert metrics.at_top_k(np.eye(2), np.eye(2, dtype=np.int8))["OP"] == 50
    with pytest.raises(ValueError, match="k must be at least 1"):
        metrics.at_top_k(np.eye(2), np.eye(2, dtype=np.int8), k=0)


def test_the_threshold_itself_is_not_above_the_threshold() -> None:
    ours = metrics.at_threshold(np.array([[0.5, 0.51]]), np.array([[1, 1]], dtype=np.int8))
    assert ours["OR"] == 50


def test_nothing_predicted_is_zero_not_an_error() -> None:
    ours = metrics.threshold_metrics(np.zeros((3, 2), dtype=np.bool_), np.ones((3, 2), dtype=np.int8))
    assert ours == dict.fromkeys(FAMILY, 0.0)


# ---- summary


@pytest.mark.parametrize("empty", ["skip", "zero"])
def test_summary_is_its_parts(empty: metrics.Empty) -> None:
    scores, labels = make(3, c=9, ignore=0.1)
    labels[:, 2] = 0
    labels[5, 2] = -1  # an ignored label is no positive either
    ours = metrics.summary(scores, labels, empty)

    def map_of(s: Array) -> float:
        return metrics.mean_average_precision(metrics.average_precision(s, labels), empty)

    equal_share = metrics.at_threshold(metrics.softmax(scores), labels, 1 / 9, empty)
    top_3 = metrics.at_top_k(scores, labels, 3, empty)
    assert ours == {
        "mAP": map_of(scores),
        "mAP_centered": map_of(metrics.centered(scores)),
        "mAP_softmax": map_of(metrics.softmax(scores)),
        **{f"{name}@3": top_3[name] for name in FAMILY},
        **equal_share,
        "classes_without_positives": 1,
    }
    assert len({ours["mAP"], ours["mAP_centered"], ours["mAP_softmax"]}) == 3
    assert all(type(value) in (int, float) for value in ours.values())  # what json can write


def test_summary_takes_an_average_precision_that_is_known() -> None:
    scores, labels = make(3)
    known = metrics.summary(scores, labels, ap=np.array([30.0, 50.0]))
    assert known["mAP"] == 40
    assert known["mAP_centered"] == metrics.summary(scores, labels)["mAP_centered"]


def test_equal_scores_exceed_no_equal_share() -> None:
    """1/C is compared with exp(0) / C: the same float, so a blank image gets no class instead of a random few."""
    for c in range(1, 100):
        assert metrics.summary(np.full((1, c), 17.3), np.ones((1, c), dtype=np.int8))["OR"] == 0


def test_inputs_are_left_alone() -> None:
    scores, labels = make(1, ignore=0.1)
    before = scores.copy(), labels.copy()
    metrics.summary(scores, labels)
    np.testing.assert_array_equal(scores, before[0])
    np.testing.assert_array_equal(labels, before[1])


# ---- errors

TAKES_SCORES = [metrics.average_precision, metrics.at_top_k, metrics.at_threshold, metrics.summary]


@pytest.mark.parametrize("measure", TAKES_SCORES)
def test_non_finite_scores_are_counted_and_located(measure: Any) -> None:
    scores, labels = make(0)
    scores[5, 2], scores[4, 6], scores[9, 0] = np.nan, np.inf, -np.inf
    with pytest.raises(BadData, match=r"3 non-finite values, the first at \(row 4, class 6\)"):
        measure(scores, labels)


@pytest.mark.parametrize("measure", [*TAKES_SCORES, metrics.threshold_metrics])
@pytest.mark.parametrize(
    ("scores", "labels", "message"),
    [
        (np.zeros((3, 2)), np.zeros((2, 3), dtype=np.int8), r"scores \(3, 2\) and labels \(2, 3\)"),
        (np.zeros(3), np.zeros(3, dtype=np.int8), r"must both be \[images, classes\]"),
        (np.zeros((0, 2)), np.zeros((0, 2), dtype=np.int8), "0 images, 2 classes"),
        (np.zeros((2, 0)), np.zeros((2, 0), dtype=np.int8), "2 images, 0 classes"),
        (np.zeros((1, 2)), np.array([[0, 2]], dtype=np.int8), r"1, 0 or -1 \(ignore\), not 2"),
        (np.zeros((1, 2)), np.array([[-2, 1]], dtype=np.int8), "not -2"),
        (np.zeros((1, 2)), np.array([[255, 1]], dtype=np.uint8), "not 255"),
    ],
)
def test_unusable_input_is_refused(measure: Any, scores: Array, labels: Array, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        measure(scores.astype(np.bool_) if measure is metrics.threshold_metrics else scores, labels)


def test_metrics_import_neither_torch_nor_sklearn() -> None:
    code = "import sys, tta_bench.metrics; sys.exit(bool({'torch', 'sklearn', 'scipy'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# ---- oddities


def test_ordinary_scores_are_not_odd() -> None:
    rng = np.random.default_rng(0)
    assert metrics.oddities(rng.normal(size=(20, 5)).astype(np.float32)) == []
    assert metrics.oddities(rng.random((20, 5))) == []  # in [0, 1], but they are not shares of one image
    assert metrics.oddities(np.log(metrics.softmax(rng.normal(size=(20, 5))))) == []
    one_blank = rng.normal(size=(20, 5))
    one_blank[3], one_blank[:, 2] = 0, 0  # an image, and a class, but not all of them
    assert metrics.oddities(one_blank) == []


def test_odd_scores_get_a_sentence_each() -> None:
    logits = np.random.default_rng(0).normal(size=(20, 5))
    probabilities = metrics.softmax(logits).astype(np.float32)
    for scores, words in (
        (probabilities, "each image's scores sum to 1"),
        (np.tile(logits[:1], (20, 1)), "every image gets the same scores"),
        (np.tile(logits[:1], (2, 1)), "every image gets the same scores"),
        (np.tile(logits[:, :1], (1, 5)), "each image's scores are equal for all classes"),
        (np.tile(logits[:, :1], (1, 2)), "each image's scores are equal for all classes"),
        (np.zeros((20, 5)), "all scores are equal"),
        (np.zeros((1, 2)), "all scores are equal"),
    ):
        assert [sentence.startswith(words) for sentence in metrics.oddities(scores)] == [True]
    both = metrics.oddities(np.tile(probabilities[:1], (20, 1)))
    assert len(both) == 2
    assert all("mAP" in sentence for sentence in both)


def test_probabilities_may_be_zero_and_sum_to_nearly_one() -> None:
    sure = np.eye(3)[[0, 1, 1, 2]]
    for scores, odd in (
        (sure, True),
        (1.0009 * sure, True),
        (1.0015 * sure, False),
        (np.vstack([sure, 3 * sure]), False),
    ):
        assert len(metrics.oddities(scores)) == odd
    assert len(metrics.oddities(np.eye(2)[[0, 1, 1]])) == 1
    assert metrics.oddities(1.5 * sure - 0.25 * (sure == 0)) == []  # they sum to 1, but a share is not negative


@pytest.mark.parametrize("shape", [(0, 3), (3, 0), (1, 1), (5,)])
def test_where_nothing_can_be_odd(shape: tuple[int, ...]) -> None:
    assert metrics.oddities(np.ones(shape)) == []


def test_one_class_or_one_image_is_no_oddity_of_the_method() -> None:
    rng = np.random.default_rng(0)
    assert metrics.oddities(rng.normal(size=(9, 1))) == []
    assert metrics.oddities(rng.normal(size=(1, 9))) == []
    assert metrics.oddities(np.full((3, 2), np.nan)) == []  # worse than odd, and said elsewhere


@pytest.mark.parametrize("ties", ["threshold", "dataset"])
def test_ranking_a_few_classes_at_a_time_changes_no_bit(ties: metrics.Ties, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(300, 7)).round(1), rng.integers(-1, 2, (300, 7))
    together = metrics.average_precision(scores, labels, ties)
    for few in (600, 10):  # two classes at a time, and fewer scores than one class has
        monkeypatch.setattr(metrics, "RANKED_AT_ONCE", few)
        assert np.array_equal(metrics.average_precision(scores, labels, ties), together)
    monkeypatch.setattr(metrics, "RANKED_AT_ONCE", 6)  # of fewer images than classes
    assert len(metrics.average_precision(scores[:3], labels[:3], ties)) == 7
