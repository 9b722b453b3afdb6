"""top-1, top-5 and ECE against scikit-learn and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import top_k_accuracy_score

from tta_bench.metrics.single_label import calibration_error, is_single_label, summary, top_k


def draw(images: int = 200, classes: int = 9) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    truth = np.concatenate([np.arange(classes), rng.integers(classes, size=images - classes)])
    labels = np.eye(classes, dtype=np.int8)[truth]
    return rng.normal(size=(images, classes)) + 1.5 * labels, labels, truth


@pytest.mark.parametrize("k", [1, 5])
def test_top_k_is_that_of_scikit_learn(k: int) -> None:
    scores, labels, truth = draw()
    assert top_k(scores, labels, k) == pytest.approx(100 * top_k_accuracy_score(truth, scores, k=k))


def test_equal_scores_go_to_the_lowest_class() -> None:
    labels = np.eye(3, dtype=np.int8)
    assert top_k(np.zeros((3, 3)), labels, 1) == pytest.approx(100 / 3)
    assert top_k(np.zeros((3, 3)), labels, 2) == pytest.approx(200 / 3)
    many = np.random.default_rng(0).integers(0, 2, (1, 400)).astype(float)  # a short row is sorted stably by any sort
    assert top_k(many, np.eye(400, dtype=np.int8)[[many.argmax()]], 1) == 100


def test_calibration_by_hand() -> None:
    """Two classes and two bins: of three images with confidence 0.9 two are right, and one with 0.5 is."""
    sure, even = np.log([0.9, 0.1]), np.log([0.5, 0.5])
    scores = np.stack([sure, sure, sure, even])
    labels = np.eye(2, dtype=np.int8)[[0, 0, 1, 0]]
    assert calibration_error(scores, labels, bins=2) == pytest.approx(100 * (abs(2 - 2.7) + abs(1 - 0.5)) / 4)
    assert calibration_error(scores + 7, labels, bins=2) == pytest.approx(30.0)  # an image's offset changes nothing


def test_summary_leaves_a_top_5_of_five_classes_out() -> None:
    scores, labels, _ = draw(classes=5)
    assert set(summary(scores, labels)) == {"top1", "ECE"}
    scores, labels, _ = draw(classes=6)
    assert summary(scores, labels) == {
        "top1": top_k(scores, labels, 1),
        "top5": top_k(scores, labels, 5),
        "ECE": calibration_error(scores, labels, bins=15),
    }


@pytest.mark.parametrize("labels", [[[1, 1], [1, 0]], [[0, 0], [1, 0]], [[1, -1], [1, 0]]])
def test_what_is_not_single_label(labels: list[list[int]]) -> None:
    assert not is_single_label(np.array(labels, np.int8))
    with pytest.raises(ValueError, match="exactly one label"):
        top_k(np.zeros((2, 2)), np.array(labels, np.int8), 1)
