"""The formulas that DPE, ReTA and PuRF share, and every closed-form gradient against autograd in double precision."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tests.structured import make_stream, make_task, random, unit_rows
from tta_bench.functional import select_confident, stack_views
from tta_bench.functional.class_cache import ClassCache
from tta_bench.functional.prototypes import (
    adamw_step,
    adjacent_embeddings,
    alignment_of,
    entropy_and_slope,
    info_nce,
    inverse_length,
    sum_unit,
    through_unit,
    unit,
)
from tta_bench.functional.text_bank import Directions, TextBank
from tta_bench.interfaces import Observation, Task
from tta_bench.methods.dpe import DPE, turn
from tta_bench.methods.purf import PuRF
from tta_bench.methods.reta import ReTA

# ---------------------------------------------------------------------------------------------- text embeddings


def test_adjacent_embeddings_are_nested_means_of_the_least_typical_prompts() -> None:
    # Four prompts on the circle at 0°, 10°, 20° and 90°. Sums of cosines to the others: 0°: .985+.940+0 = 1.92,
    # 10°: .985+.985+.174 = 2.14, 20°: .940+.985+.342 = 2.27, 90°: 0+.174+.342 = .52. So the order is 90°, 0°, 10°, 20°,
    # and with ⌊4/3⌋ = 1 the slots hold {90°}, {90°, 0°} (mean direction 45°) and all four.
    angles = torch.tensor([0.0, 10.0, 20.0, 90.0]).deg2rad()
    bank = torch.stack((angles.cos(), angles.sin()), -1)[None]
    slots = adjacent_embeddings(bank)[0]
    torch.testing.assert_close(slots[0], torch.tensor([0.0, 1.0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(slots[1], torch.tensor([math.sqrt(0.5)] * 2), atol=1e-6, rtol=0)
    torch.testing.assert_close(slots[2], unit_rows(bank[0].mean(0)))


def test_a_class_with_fewer_prompts_has_its_own_means() -> None:
    """A bank repeats them, and means were of the repeated list: 47.13 in place of 47.36."""
    drawn = unit(torch.randn(9, 4, generator=torch.Generator().manual_seed(0)))
    own = [drawn[:7], drawn[7:9], torch.cat((drawn[:3], drawn[:1], drawn[3:5]))]  # the last comes back to its first
    bank = torch.stack([of_class[torch.arange(7) % len(of_class)] for of_class in own])
    found = adjacent_embeddings(bank, 3)
    for slots, of_class in zip(found, own, strict=True):
        torch.testing.assert_close(slots, adjacent_embeddings(of_class[None], 3)[0])
        torch.testing.assert_close(slots[-1], unit(of_class.mean(0)))


@pytest.mark.parametrize("prompts", [1, 2])
def test_too_few_prompts_are_replicated(prompts: int) -> None:
    bank = unit_rows(random(4, prompts, 8))
    torch.testing.assert_close(adjacent_embeddings(bank), unit_rows(bank.mean(1, keepdim=True)).expand(4, 3, 8))


def test_vectors_have_a_length() -> None:
    x = torch.tensor([[3.0, 4.0], [0.0, 0.0]])
    torch.testing.assert_close(inverse_length(x), torch.tensor([[0.2], [1e12]]))
    torch.testing.assert_close(unit(x), torch.tensor([[0.6, 0.8], [0.0, 0.0]]))
    slots = random(4, 3, 5)
    torch.testing.assert_close(sum_unit(slots, inverse_length(slots)), unit(slots).sum(1))


# --------------------------------------------------------------------------------------------------- class cache


@pytest.mark.parametrize("alpha", [6.0, 1, 0])
def test_cache_scores_are_zero_without_an_entry(alpha: float) -> None:
    cache = ClassCache(torch.eye(3), shots=2, alpha=alpha, beta=5.0)
    assert cache.scores(torch.ones(3)).tolist() == [0.0] * 3
    for c in (0, 1):
        cache.offer_by_entropy(c, torch.eye(3)[c], 0.1)
    scores = cache.scores(torch.tensor([1.0, 0.0, 1.0]))
    torch.testing.assert_close(scores, torch.tensor([alpha, alpha * math.exp(-5), 0.0]))


def test_a_class_keeps_its_lowest_entropies() -> None:
    # Offered .3, .1, .2 and .3 to two slots: .3 is pushed out by .2, and the last .3 finds nothing above it.
    cache = ClassCache(torch.eye(3), shots=2, alpha=6.0, beta=5.0, dtype=torch.float64)
    offers = zip((0.3, 0.1, 0.2, 0.3), torch.eye(3)[[0, 1, 2, 0]], strict=True)
    assert [cache.offer_by_entropy(1, feature, h) for h, feature in offers] == [1, 2, 2, 0]
    assert cache.entropies[1].tolist() == [0.1, 0.2]
    torch.testing.assert_close(cache.keys[:, 1], torch.tensor([0.0, math.sqrt(0.5), math.sqrt(0.5)]))
    assert cache.present.tolist() == [False, True, False]


def test_an_offer_replaces_the_entry_of_the_largest_priority() -> None:
    # Class 0 is free and takes its item; class 2 has .2 and .4, whose priorities .5 and .4 put the first at risk: .45
    # is below .5 and takes its place. Class 1's item, .6, is not below its only free slot's infinity: it enters too.
    cache = ClassCache(torch.eye(3), shots=2, alpha=6.0, beta=5.0)
    for h in (0.2, 0.4):
        cache.offer_by_entropy(2, torch.eye(3)[2], h)
    priorities = torch.tensor([[math.inf, math.inf], [math.inf, math.inf], [0.5, 0.4]]).log()
    entered = cache.offer(torch.arange(3), torch.eye(3)[[1, 1, 0]], torch.tensor([0.3, 0.6, 0.45]), priorities)
    assert (entered.classes.tolist(), entered.slots.tolist(), entered.replaced) == ([0, 1, 2], [0, 0, 0], 1)
    assert cache.present.all()
    torch.testing.assert_close(cache.alignment.share, torch.full((3,), 1 / 3))
    torch.testing.assert_close(cache.entropies[2], torch.tensor([0.45, 0.4]))
    torch.testing.assert_close(cache.keys[:, 2], torch.tensor([math.sqrt(0.5), 0.0, math.sqrt(0.5)]))
    again = cache.offer(torch.tensor([2]), torch.eye(3)[:1], torch.tensor([0.45]), cache.entropies[2:].log())
    assert len(again.classes) == again.replaced == 0  # equal is not below


def test_a_cache_from_its_state() -> None:
    one, other = (ClassCache(torch.eye(3), shots=2, alpha=6.0, beta=5.0) for _ in range(2))
    one.offer_by_entropy(1, torch.eye(3)[0], 0.1)
    state = one.state_dict()
    one.offer_by_entropy(1, torch.eye(3)[1], 0.05)  # the copy must not follow
    other.load_state_dict(state)
    assert other.features[1].tolist() == [[1, 0, 0], [0, 0, 0]]
    torch.testing.assert_close(other.entropies[1], torch.tensor([0.1, math.inf]))
    assert other.keys[:, 1].tolist() == [1, 0, 0]
    assert other.scores(torch.ones(3)).tolist() == [0, pytest.approx(6), 0]
    other.offer_by_entropy(1, torch.eye(3)[2], 0.01)  # nor what was made of it
    assert state["features"][1].tolist() == [[1, 0, 0], [0, 0, 0]]


# ----------------------------------------------------------------------------------------------------- text bank


def test_a_bank_from_its_state() -> None:
    one, other = TextBank(torch.eye(2)[:1, None], eps=0.5), TextBank(torch.eye(2)[1:, None], eps=0.5)
    sample = Directions(torch.eye(2)[1:, None], torch.ones(1, 1, 1))
    one.accept(sample)
    state = one.state_dict()
    one.accept(sample)
    other.load_state_dict(state)
    assert (other.average.tolist(), other.updates) == ([[[0.5, 0.5]]], 1)
    torch.testing.assert_close(other.floor, torch.full((1, 1, 1), 0.5 * math.sqrt(0.5)))  # eps · ‖E‖
    torch.testing.assert_close(other.directions.mean(), torch.full((1, 2), math.sqrt(0.5)))
    other.accept(sample)
    assert state["sum"].tolist() == [[[1, 1]]]


def test_the_bank_is_a_running_average() -> None:
    # One class at e0, one slot. Samples in the directions e1 and e0, given as vectors of length 2 and 4.
    bank = TextBank(torch.eye(2)[:1, None], eps=1e-3)
    for sample, expected in ((2 * torch.eye(2)[1], [1 / 2, 1 / 2]), (4 * torch.eye(2)[0], [2 / 3, 1 / 3])):
        vectors = sample[None, None]
        bank.accept(Directions(vectors, inverse_length(vectors)))
        torch.testing.assert_close(bank.average[0, 0], torch.tensor(expected))
    torch.testing.assert_close(bank.lengths[0, 0, 0], torch.tensor(math.sqrt(5) / 3))


@pytest.mark.parametrize(("classes", "slots"), [(4, 1), (4, 3), (1, 3)])
def test_adapted_is_a_step_of_the_average(classes: int, slots: int) -> None:
    """Also one slope for all slots."""
    bank = TextBank(unit_rows(random(classes, 3, 6)), eps=1e-2)
    vectors = random(classes, 3, 6, seed=1)
    bank.accept(Directions(vectors, inverse_length(vectors)))
    slope = 1e-2 * random(classes, slots, 6, seed=2)
    average = bank.average.requires_grad_()
    gradient = grad((unit_rows(average) * slope).sum(), average)[0]
    expected = one_adamw_step(average.detach(), gradient, 0.1, 1e-2)
    adapted = bank.adapted(slope, 0.1)
    torch.testing.assert_close(adapted.vectors * adapted.inverse, unit_rows(expected))
    torch.testing.assert_close(adapted.mean(), unit_rows(expected).mean(1))
    torch.testing.assert_close(adapted.last(), unit_rows(expected)[:, -1])


# ------------------------------------------------------------------------------------------ slopes against autograd


def grad(loss: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, inputs)


def test_entropy_slope() -> None:
    logits = (3 * random(6)).requires_grad_()
    p = logits.softmax(-1)
    expected = -(p * p.log()).sum(-1)
    h, slope = entropy_and_slope(logits.detach())
    assert h == pytest.approx(expected.item(), rel=1e-12)
    torch.testing.assert_close(slope, grad(expected, logits)[0])


def test_entropy_slope_of_a_saturated_softmax_is_finite() -> None:
    h, slope = entropy_and_slope(torch.tensor([0.0, 500.0, -500.0]))
    assert 0 <= h < 1e-20
    assert slope.abs().sum() < 1e-20


def reference_info_nce(queries: Tensor, keys: Tensor, present: Tensor) -> Tensor:
    """As the official codes have it: the present classes only, normalised inside."""
    cosine = unit_rows(queries[present]) @ unit_rows(keys[present]).mT
    return F.cross_entropy(cosine / 0.01, torch.arange(len(cosine)))


@pytest.mark.parametrize("present", [[0, 1, 2, 3, 4], [1, 3], [2]])
def test_info_nce_slope(present: list[int]) -> None:
    queries = unit_rows(random(5, 8)).requires_grad_()
    keys = unit_rows(random(5, 8) + 0.2 * random(5, 8, seed=1)).requires_grad_()
    has_entry = torch.zeros(5, dtype=torch.float64)
    has_entry[present] = 1.0
    loss, slope = info_nce((keys @ queries.mT).detach(), alignment_of(has_entry))
    expected = F.cross_entropy(queries[present] @ keys[present].mT / 0.01, torch.arange(len(present)))
    assert loss == pytest.approx(expected.item(), rel=1e-12)
    in_queries, in_keys = grad(expected, queries, keys)
    torch.testing.assert_close(slope.mT @ keys.detach(), in_queries)
    torch.testing.assert_close(slope @ queries.detach(), in_keys)


def test_alignment_is_a_mean_over_the_present_classes() -> None:
    assert alignment_of(torch.tensor([1.0, 0.0, 1.0])).share.tolist() == [0.5, 0, 0.5]
    assert alignment_of(torch.tensor([0.0, 1.0, 0.0])).share.tolist() == [0, 1, 0]


def test_info_nce_without_entries_is_nothing() -> None:
    loss, slope = info_nce(random(5, 5), alignment_of(torch.zeros(5, dtype=torch.float64)))
    assert loss == 0
    assert (slope == 0).all()


def test_slope_through_normalisation() -> None:
    x, slope = (2 * random(4, 6)).requires_grad_(), random(4, 6, seed=1)
    expected = grad((unit_rows(x) * slope).sum(), x)[0]
    bank = x.detach()
    torch.testing.assert_close(through_unit(slope, unit_rows(bank), inverse_length(bank)), expected)


def one_adamw_step(x: Tensor, gradient: Tensor, lr: float, eps: float) -> Tensor:
    residual = torch.zeros_like(x, requires_grad=True)
    residual.grad = gradient
    torch.optim.AdamW([residual], lr=lr, eps=eps, weight_decay=0.1).step()
    return x + residual.detach()


def test_step_equals_the_optimiser() -> None:
    x, gradient = random(2, 6, 4), 1e-3 * random(2, 6, 4, seed=1)
    norm = x.norm(dim=-1, keepdim=True)
    expected = one_adamw_step(x, gradient, 0.1, 1e-3)
    torch.testing.assert_close(adamw_step(x, gradient * norm, 1e-3 * norm, 0.1), expected)
    columns, length = (x / norm).flatten(0, 1).T, norm.flatten()
    moved = turn(columns, length, -(gradient * norm).flatten(0, 1).T, 0.1, 1e-3, None)
    torch.testing.assert_close((moved * length).T, expected.flatten(0, 1))


def test_a_rate_of_zero_is_no_step() -> None:
    x, down = random(6, 4), random(6, 4, seed=1)
    down[:, 0] = 0
    assert torch.equal(turn(x, torch.ones(4), down, 0.0, 1e-3, None), x)


@pytest.mark.parametrize(("g", "exact", "half"), [(5e-3, 0.83, 5.00), (1e-3, 0.50, 1.00), (6e-3, 0.86, 0.69)])
def test_half_precision_second_moment_underflows(g: float, exact: float, half: float) -> None:
    """Steps in units of lr, as an optimiser with half-precision parameters takes them."""
    x, slope, norm = torch.zeros(1, 1), torch.tensor([[2 * g]]), torch.tensor([[2.0]])
    assert -adamw_step(x, slope, 1e-3 * norm, 1.0).item() == pytest.approx(exact, abs=6e-3)
    assert -adamw_step(x, slope, 1e-3 * norm, 1.0, fp16_norm=norm).item() == pytest.approx(half, abs=6e-3)
    assert -2 * turn(x, norm[0], -slope, 1.0, 1e-3, None).item() == pytest.approx(exact, abs=6e-3)
    assert -2 * turn(x, norm[0], -slope, 1.0, 1e-3, norm[0]).item() == pytest.approx(half, abs=6e-3)


# ------------------------------------------------------------------------------- whole steps against autograd + AdamW


def warm(method: DPE | ReTA | PuRF, task: Task) -> tuple[Observation, Tensor]:
    """The method after some images, so that classes are present and absent; the next image, and which are present.

    Each visual prototype is put half-way between two classes, because the alignment loss is saturated otherwise.
    """
    method.start(task)
    *seen, x = make_stream(task, n=6)
    for observation in seen:
        method.step(observation)
    assert (method.text_updates if isinstance(method, DPE) else method.bank.updates) > 0
    present = method.cache.present.clone()
    assert 1 < present.sum() < len(present)
    keys = method.cache.keys.T
    keys[present] = unit_rows(keys[present] + 1.02 * keys[present].roll(1, 0))
    if isinstance(method, DPE):
        method.visual_length.fill_(0.7)
        method.pulls = None
    assert reference_info_nce(keys, task.text, present) > 0.1
    return x, present


STEP: dict[str, Any] = {"eps": 10.0, "gate": 1.0}  # with a large eps the step is proportional to the gradient


def test_dpe_step_against_autograd() -> None:
    method = DPE(lr_text=2.0, lr_image=3.0, **STEP)
    task = make_task()
    x, present = warm(method, task)
    keys = 0.7 * method.cache.keys.T
    text_residual, visual_residual = torch.zeros(2, *keys.shape, dtype=keys.dtype).requires_grad_().unbind()
    text = unit_rows(method.text_bank + text_residual)
    visual = unit_rows(keys + visual_residual)
    logits = task.scale * text @ x.image
    cached = torch.where(present, method.alpha * torch.exp(-method.beta * (1 - visual @ x.image)), 0.0)
    p = (logits + cached).softmax(-1)
    loss = -(p * p.log()).sum() + method.align * reference_info_nce(visual, text, present)
    in_text, in_visual = grad(loss, text_residual, visual_residual)
    adapted_text, adapted_visual = method.adapt(x.image, logits.detach())  # [D, C]
    length = method.text_bank.norm(dim=1, keepdim=True)
    torch.testing.assert_close(adapted_text.T * length, one_adamw_step(method.text_bank, in_text, 2.0, 10.0))
    expected = one_adamw_step(keys[present], in_visual[present], 3.0, 10.0)
    torch.testing.assert_close(0.7 * adapted_visual.T[present], expected)


@pytest.mark.parametrize("ratio", [1.0, 0.3])
@pytest.mark.parametrize("calibrate", [True, False])
def test_reta_step_against_autograd(ratio: float, calibrate: bool) -> None:
    method = ReTA(lr=2.0, ratio=ratio, train_w=0.7, **STEP)
    task = make_task()
    x, present = warm(method, task)
    views, label = stack_views(x.image, x["views"]), 3
    residual = torch.zeros_like(method.bank.sum, requires_grad=True)
    slots = unit_rows(method.text_bank + residual)  # [C, 3, D]
    cached = torch.where(present, method.alpha * torch.exp(-method.beta * (1 - x.image @ method.cache.keys)), 0.0)
    logits = task.scale * slots[:, -1] @ x.image
    p = (logits + cached).softmax(-1)
    aligned = slots[:, -1] if ratio >= 0.5 else slots.mean(1)
    loss = -(p * p.log()).sum() + method.align * reference_info_nce(method.cache.keys.T, aligned, present)
    slope = torch.zeros_like(method.bank.sum)
    if calibrate:
        mean = slots.mean(1)
        deviation = slots - mean[:, None]
        covariance = torch.einsum("amd,bmd->dab", deviation, deviation) / 4  # [D, C, C], as the official code has it
        spread = covariance[:, label, label, None] + torch.einsum("dcc->dc", covariance) - 2 * covariance[:, label]
        gaussian = task.scale * views @ mean.mT + 0.5 * task.scale**2 * views.square() @ spread
        kept = select_confident(gaussian.detach(), method.keep)
        ce = F.cross_entropy(gaussian[kept], torch.full((len(kept),), label))
        loss = loss + method.train_w * ce
        reported, slope = method.calibration(views, label)
        assert reported == pytest.approx(ce.item(), rel=1e-9)
    expected = one_adamw_step(method.text_bank, grad(loss, residual)[0], 2.0, 10.0)
    adapted = method.adapt(x.image, logits.detach(), cached, slope).vectors / (1 + method.bank.updates)
    torch.testing.assert_close(adapted, expected)
    untouched = torch.allclose(adapted[:, :2], method.text_bank[:, :2], rtol=0, atol=1e-12)
    assert untouched == (ratio >= 0.5 and not calibrate)


@pytest.mark.parametrize("space", ["scaled", "cosine"])
def test_purf_step_against_autograd(space: Any) -> None:
    method = PuRF(lr=2.0, lambda_1=0.7, bce_space=space, kappa_g=0.5, **STEP)
    task = make_task()
    task.bias = -3.0
    x, present = warm(method, task)
    seen = method.purify_regions(x)
    pure = x["regions"][seen.pure]
    assert 0 < len(pure) < len(x["regions"])
    cached = method.cache_scores(seen)
    residual = torch.zeros_like(method.bank.sum, requires_grad=True)
    text = unit_rows(unit_rows(method.text_bank + residual).mean(1))
    p = (task.scale * seen.confident @ text.mT).softmax(-1)
    scores = task.scale * (0.5 * text @ x.image + 0.5 * (pure @ text.mT).amax(0)) + cached + task.bias
    loss = -(p * p.log()).sum(-1).mean()
    loss = loss + 0.7 * F.binary_cross_entropy_with_logits(
        scores if space == "scaled" else scores / task.scale, seen.labels.double(), reduction="sum"
    )
    loss = loss + method.lambda_2 * reference_info_nce(method.cache.keys.T, text, present)
    expected = one_adamw_step(method.text_bank, grad(loss, residual)[0], 2.0, 10.0)
    torch.testing.assert_close(method.adapt_text(seen, cached).vectors / (1 + method.bank.updates), expected)
