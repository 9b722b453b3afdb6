"""What PuRF is set to, and what it can't be set to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tta_bench.errors import UsageError
from tta_bench.interfaces import Observation, Task
from tta_bench.methods.purf import SLOTS, PuRF, ttabench_methods
from tta_bench.views import AugMix, RandomCrops


def test_the_defaults() -> None:
    method = PuRF()
    # The paper prints these.
    assert (method.kappa_g, method.delta, method.lambda_1, method.lambda_2) == (0.1, 1000, 0.2, 0.5)
    assert (method.shots, method.keep, SLOTS) == (3, 0.1, 3)
    # The crops' size and the following are readings of it: docs/adr/purf-readings.md.
    assert method.recipes["views"] == AugMix(63)
    assert method.recipes["regions"] == RandomCrops(50, side=(0.5, 0.8))
    assert (method.alpha, method.beta, method.lr, method.eps, method.gate) == (6, 5, 1e-3, 1e-3, 0.1)
    assert (method.view_set, method.mu_stat, method.selection) == ("Vf", "dominated", "rel")
    assert (method.bce_space, method.empty_labels, method.cache_mode) == ("scaled", "zero", "region_max")
    assert method.rp
    assert method.ep
    assert method.tr


def test_what_it_says_of_itself() -> None:
    assert (PuRF.name, PuRF.title, PuRF.status, PuRF.setting) == ("purf", "PuRF", "reading of the paper", "online")
    assert PuRF.paper is not None
    assert PuRF.paper.title == "Towards Purified Multi-Label Test-Time Adaptation of Vision-Language Models"
    assert PuRF.paper.venue == "ECCV 2026"
    assert ttabench_methods() == [PuRF]


def started(**settings: Any) -> PuRF:
    """Three classes whose text is e0, e1 and e2."""
    method = PuRF(**settings)
    method.start(Task(list("abc"), torch.eye(3), torch.eye(3)[:, None], 10.0))
    return method


def test_a_stream_begins_without_labels() -> None:
    labels = started().labels
    assert (labels.tolist(), labels.dtype) == ([False] * 3, torch.bool)


@pytest.mark.parametrize(
    ("views", "expected"),
    [([], {2}), ([0], {0}), ([0, 0], {0}), ([1, 0], set())],  # without views there is only the original
)
def test_all_views_must_agree_but_not_the_original(views: list[int], expected: set[int]) -> None:
    """Each view is one class's text and proposes that class, as the original proposes class 2."""
    method = started(view_set="V", selection="all", kappa_g=0.34, keep=0.5)
    text = torch.eye(3)
    seen = method.purify_regions(Observation(0, text[2], {"views": text[views], "regions": text}))
    assert set(seen.labels.nonzero()[:, 0].tolist()) == expected


def test_without_region_purification_there_is_no_bce() -> None:
    method = started(rp=False)
    method.step(Observation(0, torch.eye(3)[2], {"regions": torch.eye(3)}))
    assert method.take_report()["loss_bce"] == 0


def test_a_gate_of_zero_lets_no_image_through() -> None:
    """Not even one whose scores have no entropy at all."""
    method = started(gate=0.0)
    method.evolve_text(method.bank.directions, torch.tensor([1000.0, 0.0, 0.0]))
    assert method.bank.updates == 0
    method.gate = 1e-9
    method.evolve_text(method.bank.directions, torch.tensor([1000.0, 0.0, 0.0]))
    assert method.bank.updates == 1


def test_absolute_thresholds_are_cosines() -> None:
    method = started(selection="abs")
    regions = torch.tensor([[1.0, 0.0, 0.0], [0.8, 0.6, 0.0], [0.0, 0.6, 0.8]])
    method.purify_regions(Observation(0, torch.eye(3)[0], {"regions": regions}))
    torch.testing.assert_close(method.mu, torch.tensor([0.9, 0.0, 0.8]))


def test_the_preset_is_what_the_text_prints() -> None:
    settings: Any = PuRF.presets["paper_text"]
    assert PuRF(**settings).view_set == "V"  # all views must agree in G, and they are holistic
    assert PuRF.preset_recipes["paper_text"] == {"views": "holistic63"}


def test_a_choice_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="mu_stat"):
        PuRF(mu_stat="median")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "refused", "accepted"),
    [
        ("keep", (0, 1.01), (0.01, 1)),
        ("kappa_g", (0, 1.01), (0.01, 1)),
        ("shots", (0,), (1,)),
        ("eps", (0,), (1e-9,)),
        ("alpha", (-0.01,), (0, 0.01)),
        ("delta", (0,), (0.5,)),
    ],
)
def test_what_a_hyper_parameter_can_not_be(name: str, refused: Sequence[float], accepted: Sequence[float]) -> None:
    for value in refused:
        with pytest.raises(UsageError, match=f"^purf: {name} "):
            PuRF(**{name: value})  # type: ignore[arg-type]
    for value in accepted:
        assert getattr(PuRF(**{name: value}), name) == value  # type: ignore[arg-type]
