"""mAP against the values of ML-TTA's evaluation function."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tta_bench.metrics import average_precision, mean_average_precision

Golden = dict[str, npt.NDArray[Any]]


@pytest.fixture(scope="module")
def golden() -> Golden:
    with np.load(Path(__file__).parent / "golden_map.npz") as file:
        return {name: file[name] for name in file.files}


def as_official(ap: npt.NDArray[np.float64], labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
    """Ours in the units of the official function: fractions, divided by (positives + 1e-8), 0 without positives."""
    positives: npt.NDArray[np.int64] = labels.sum(axis=0)
    return np.nan_to_num(ap) / 100 * positives / (positives + 1e-8)


def test_ap_of_every_class(golden: Golden) -> None:
    ap = average_precision(golden["scores"], golden["labels"], ties="dataset")
    np.testing.assert_array_equal(np.flatnonzero(np.isnan(ap)), [7])  # the class without positives
    np.testing.assert_allclose(as_official(ap, golden["labels"]), golden["ap"], rtol=1e-12)


def test_map_with_either_rule_for_the_empty_class(golden: Golden) -> None:
    ap = average_precision(golden["scores"], golden["labels"], ties="dataset")
    assert mean_average_precision(ap, "zero") == pytest.approx(34.26493741, abs=1e-7)
    assert mean_average_precision(ap, "zero") == pytest.approx(float(golden["mAP"]), abs=1e-7)
    assert mean_average_precision(ap, "skip") == pytest.approx(float(golden["mAP_excluding_empty_class"]), abs=1e-7)


@pytest.mark.parametrize("kind", ["tied", "fp16"])
@pytest.mark.parametrize(("rule", "step"), [("stable_fwd", 1), ("stable_rev", -1)])
def test_ties_go_to_the_earlier_image(golden: Golden, kind: str, rule: str, step: int) -> None:
    """Reading the images backwards turns our rule (`fwd`) into the other one (`rev`)."""
    scores, labels = golden[f"scores_{kind}"][::step], golden["labels"][::step]
    ap = average_precision(scores, labels, ties="dataset")
    np.testing.assert_allclose(as_official(ap, labels), golden[f"ap_{kind}_{rule}"], rtol=1e-12)
    assert mean_average_precision(ap, "zero") == pytest.approx(float(golden[f"mAP_{kind}_{rule}"]), abs=1e-7)


def test_hand_computed_case(golden: Golden) -> None:
    ap = average_precision(golden["hand_scores"], golden["hand_labels"], ties="dataset")
    np.testing.assert_allclose(ap, [100 * (1 / 1 + 2 / 3 + 3 / 4) / 3], rtol=1e-14)
    np.testing.assert_allclose(100 * as_official(ap, golden["hand_labels"]), [golden["hand_mAP"]], rtol=1e-12)
