"""BCP against an independent reference of the same reading, and its formulas by hand."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
import torch

from tests.golden.streams import close, make_task, part, read_golden, run, unit
from tta_bench.errors import UsageError
from tta_bench.interfaces import Observation
from tta_bench.methods.bcp import BCP


@pytest.mark.parametrize("name", ["main", "before", "anchor"])
def test_reference_stream(name: str) -> None:
    golden = read_golden("golden_bcp.npz")
    expected = part(golden, f"{name}__")
    method = BCP(**json.loads(str(expected["config_json"])))
    task = make_task(torch.from_numpy(golden["text"]), float(golden["scale"]))
    method.start(task)
    for i, image in enumerate(torch.from_numpy(golden["image"])):
        close(method.step(Observation(i, image)), expected["scores"][i], 1e-5)
    close(method.m, expected["m_end"], 1e-5)
    close(method.U, expected["U_end"], 1e-5)


def test_reference_anchors_and_corrections() -> None:
    golden = read_golden("golden_bcp.npz")
    expected = part(golden, "main__")
    method = BCP(**json.loads(str(expected["config_json"])))
    text = torch.from_numpy(golden["text"])
    method.start(make_task(text, float(golden["scale"])))
    for i, image in enumerate(torch.from_numpy(golden["image"])):
        anchor = method.anchor((float(golden["scale"]) * text @ image).softmax(0))
        assert (-1 if anchor is None else anchor) == expected["anchor"][i]
        if anchor is not None:
            others = np.arange(len(text)) != anchor
            close(method.pmi(anchor)[others], expected["pmi"][i][others], 1e-5)
        method.step(Observation(i, image))


def two_images(**settings: object) -> tuple[torch.Tensor, np.ndarray[tuple[int], np.dtype[np.float64]]]:
    """Scores of the second of two equal images, and their probabilities; three classes, α = 2."""
    image = torch.tensor([0.9, 0.4, 0.1])
    method = BCP(alpha=2.0, **settings)  # type: ignore[arg-type]  # as the test says
    scores = run(method, make_task(torch.eye(3), 2.0), [Observation(0, image), Observation(1, image)])
    p = np.exp(2 * image.numpy().astype(float))
    return scores[1] - 2 * image, p / p.sum()


def correction(p: np.ndarray[tuple[int], np.dtype[np.float64]], n: int) -> list[float]:
    """n (m_k + α/C)/(n + α) and so on, after n images of the same probabilities, with class 0 as the anchor."""
    marginal = [(n * p[k] + 2 / 3) / (n + 2) for k in range(3)]
    return [math.log((n * p[0] * p[k] + 2 * marginal[k]) / (n * p[0] + 2)) - math.log(marginal[k]) for k in range(3)]


def test_the_correction_by_hand() -> None:
    found, p = two_images()
    close(found, np.array([0.0, *correction(p, 1)[1:]]), 1e-6)


def test_order_weight_and_the_anchor_itself_by_hand() -> None:
    found, p = two_images(order="before", weight=0.5, anchor_score="add")
    close(found, 0.5 * np.array(correction(p, 2)), 1e-6)


def test_bounds() -> None:
    _, p = two_images()
    low, high = min(correction(p, 1)), max(correction(p, 1)[1:])
    middle = (low + high) / 2
    close(two_images(anchor_score="add", pmi_min=middle)[0], np.maximum(correction(p, 1), middle), 1e-6)
    close(two_images(anchor_score="add", pmi_max=middle)[0], np.minimum(correction(p, 1), middle), 1e-6)


def test_no_anchor_below_the_threshold_or_before_anything_was_seen() -> None:
    assert two_images(mu=0.7)[0].abs().max() == 0
    method = BCP(mu=0.0)
    method.start(make_task(torch.eye(3), 2.0))
    image = torch.tensor([0.9, 0.4, 0.1])
    assert torch.equal(method.step(Observation(0, image)), 2 * image)
    assert method.n == 1


def test_an_anchor_of_which_nothing_is_known_corrects_nothing() -> None:
    method = BCP()
    method.start(make_task(torch.eye(3), 1.0))
    method.observe(torch.tensor([1.0, 0.0, 0.0]))
    close(method.pmi(2), np.zeros(3), 1e-12)


def test_nonsense_is_refused() -> None:
    with pytest.raises(UsageError, match="alpha"):
        BCP(alpha=0.0)


def test_logits_at_full_scale_are_as_exact_as_single_precision_can_hold_them() -> None:
    text, image = unit(80, 512, seed=0), unit(512, seed=1) + unit(80, 512, seed=0)[3]
    expected = 100.0 * (text.double() @ image.double())
    close(run(BCP(), make_task(text), [Observation(0, image)])[0], expected.numpy(), 8e-6)
