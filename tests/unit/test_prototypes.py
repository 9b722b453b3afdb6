"""The formulas that DPE, ReTA and PuRF share; every closed-form gradient against autograd in double precision; and what
must hold for the three methods on any stream."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from tta_bench.functional import select_confident, stack_views
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.methods.dpe import DPE
from tta_bench.methods.purf import PuRF
from tta_bench.methods.reta import ReTA
from tta_bench.prototypes import (
    adamw_step,
    adjacent_embeddings,
    cache_logits,
    columns,
    empty_cache,
    entropy_and_slope,
    info_nce,
    length,
    mean_entry,
    mean_unit,
    put,
    running_average,
    tangential,
    unit,
)


def random(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def unit_rows(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-1)


def unit_columns(x: Tensor) -> Tensor:
    return F.normalize(x, dim=-2)


# ---------------------------------------------------------------------------------------------- text embeddings


def test_adjacent_embeddings_are_nested_means_of_the_least_typical_prompts() -> None:
    # Four prompts on the circle at 0°, 10°, 20° and 90°. Sums of cosines to the others: 0°: .985+.940+0 = 1.92,
    # 10°: .985+.985+.174 = 2.14, 20°: .940+.985+.342 = 2.27, 90°: 0+.174+.342 = .52. So the order is 90°, 0°, 10°, 20°,
    # and with ⌊4/3⌋ = 1 the slots hold {90°}, {90°, 0°} (mean direction 45°) and all four.
    angles = torch.tensor([0.0, 10.0, 20.0, 90.0]).deg2rad()
    bank = torch.stack((angles.cos(), angles.sin()), -1)[None]
    slots = adjacent_embeddings(bank)[..., 0]
    torch.testing.assert_close(slots[0], torch.tensor([0.0, 1.0]), atol=1e-6, rtol=0)
    torch.testing.assert_close(slots[1], torch.tensor([math.sqrt(0.5)] * 2), atol=1e-6, rtol=0)
    torch.testing.assert_close(slots[2], unit_rows(bank[0].mean(0)))


@pytest.mark.parametrize("prompts", [1, 2])
def test_too_few_prompts_are_replicated(prompts: int) -> None:
    bank = unit_rows(random(4, prompts, 8))
    torch.testing.assert_close(adjacent_embeddings(bank), unit_rows(bank.mean(1)).mT.expand(3, 8, 4))


def test_first_accepted_sample_weighs_a_half_and_the_bank_stays_unnormalised() -> None:
    bank, first, second = torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0]), torch.tensor([0.0, -1.0])
    norm = torch.tensor(4.0)
    assert running_average(bank, 4 * first, norm, 1).tolist() == [0.5, 0.5]
    torch.testing.assert_close(
        running_average(bank, 4 * second, norm, 2), torch.tensor([1 / 3, 0.0]), atol=1e-7, rtol=0
    )


def test_columns_have_a_length() -> None:
    x = torch.tensor([[3.0, 0.0], [4.0, 0.0]])
    torch.testing.assert_close(length(x), torch.tensor([[5.0, 1e-12]]))
    torch.testing.assert_close(unit(x), torch.tensor([[0.6, 0.0], [0.8, 0.0]]))
    slots = random(3, 5, 4)
    torch.testing.assert_close(mean_unit(slots, length(slots)), unit(slots).mean(0))


@pytest.mark.parametrize("shape", [(3, 5), (1, 5), (3, 2, 5), (1, 1, 5)])
def test_columns_are_a_copy(shape: tuple[int, ...]) -> None:
    x = random(*shape)
    copy = columns(x)
    assert copy.shape == (*shape[1:], shape[0])
    assert copy.is_contiguous()
    copy.zero_()
    assert (x != 0).all()


# --------------------------------------------------------------------------------------------------- class cache


def test_put_like_a_sorted_list() -> None:
    """Against the lists of the official codes, with many ties."""
    rng = torch.Generator().manual_seed(3)
    features, entropies, _ = empty_cache(1, 3, torch.zeros(1, 1))
    official: list[tuple[float, float]] = []
    for i in range(60):
        h = float(torch.randint(12, (1,), generator=rng)) * (1 - i / 80)
        entered = put(features[0], entropies[0], torch.tensor([float(i)]), torch.tensor(h))
        h = float(torch.tensor(h))
        before = list(official)
        if len(official) < 3:
            official.append((h, i))
        elif h < official[-1][0]:
            official[-1] = (h, i)
        official.sort(key=lambda entry: entry[0])
        assert entered == (official != before)
        n = len(official)
        assert entropies[0, :n].tolist() == [entry[0] for entry in official]
        assert features[0, :n, 0].tolist() == [entry[1] for entry in official]
    assert entropies.isfinite().all()


def test_mean_entry_counts_only_stored_features() -> None:
    features = torch.tensor([[[2.0], [4.0], [0.0]], [[0.0], [0.0], [0.0]]])
    entropies = torch.tensor([[0.1, 0.2, math.inf], [math.inf] * 3])
    assert mean_entry(features, entropies).tolist() == [[3.0], [0.0]]


def test_cache_logits_are_zero_without_an_entry() -> None:
    logits = cache_logits(torch.tensor([1.0, 0.0, 1.0]), torch.tensor([0.0, 0.0, -math.inf]), alpha=6.0, beta=5.0)
    torch.testing.assert_close(logits, torch.tensor([6.0, 6 * math.exp(-5), 0.0]))


# ------------------------------------------------------------------------------------------ slopes against autograd


def grad(loss: Tensor, *inputs: Tensor) -> tuple[Tensor, ...]:
    return torch.autograd.grad(loss, inputs)


def test_entropy_slope() -> None:
    logits = (3 * random(4, 6)).requires_grad_()
    p = logits.softmax(-1)
    expected = -(p * p.log()).sum(-1)
    h, slope = entropy_and_slope(logits.detach())
    torch.testing.assert_close(h, expected.detach())
    torch.testing.assert_close(slope, grad(expected.sum(), logits)[0])


def test_entropy_slope_of_a_saturated_softmax_is_finite() -> None:
    h, slope = entropy_and_slope(torch.tensor([[0.0, 500.0, -500.0]]))
    assert 0 <= h.item() < 1e-20
    assert slope.abs().sum() < 1e-20


def reference_info_nce(queries: Tensor, keys: Tensor, present: Tensor) -> Tensor:
    """As the official codes have it, [D, C] each: the present classes only, normalised inside."""
    cosine = unit_columns(queries[:, present]).mT @ unit_columns(keys[:, present])
    return F.cross_entropy(cosine / 0.01, torch.arange(len(cosine)))


@pytest.mark.parametrize("present", [[0, 1, 2, 3, 4], [1, 3], [2]])
def test_info_nce_slope(present: list[int]) -> None:
    queries = unit_columns(random(8, 5)).requires_grad_()
    keys = unit_columns(random(8, 5) + 0.2 * random(8, 5, seed=1)).requires_grad_()
    log_present = torch.full((5,), -math.inf, dtype=torch.float64)
    log_present[present] = 0.0
    loss, slope = info_nce((queries.mT @ keys).detach(), log_present)
    expected = F.cross_entropy(queries[:, present].mT @ keys[:, present] / 0.01, torch.arange(len(present)))
    torch.testing.assert_close(loss, expected.detach())
    in_queries, in_keys = grad(expected, queries, keys)
    torch.testing.assert_close(100 * keys.detach() @ slope.mT, in_queries)
    torch.testing.assert_close(100 * queries.detach() @ slope, in_keys)


@pytest.mark.parametrize("shape", [(6, 4), (3, 6, 4), (1, 6, 4)])
def test_slope_through_normalisation(shape: tuple[int, ...]) -> None:
    """Also one slope for all slots, shape (1, D, C) against (3, D, C)."""
    x, slope = (2 * random(3, 6, 4)).requires_grad_(), random(*shape, seed=1)
    expected = grad((unit_columns(x) * slope).sum(), x)[0]
    norm = length(x.detach())
    torch.testing.assert_close(tangential(slope, x.detach(), norm) / norm, expected)
    torch.testing.assert_close(tangential(slope, unit(x.detach())) / norm, expected)


def one_adamw_step(x: Tensor, gradient: Tensor, lr: float, eps: float) -> Tensor:
    residual = torch.zeros_like(x, requires_grad=True)
    residual.grad = gradient
    torch.optim.AdamW([residual], lr=lr, eps=eps, weight_decay=0.1).step()
    return x + residual.detach()


def test_step_equals_the_optimiser() -> None:
    x, gradient = random(6, 4), 1e-3 * random(6, 4, seed=1)
    norm = length(x)
    torch.testing.assert_close(adamw_step(x, gradient * norm, norm, 0.1, 1e-3), one_adamw_step(x, gradient, 0.1, 1e-3))


@pytest.mark.parametrize(("g", "exact", "half"), [(5e-3, 0.83, 5.00), (1e-3, 0.50, 1.00), (6e-3, 0.86, 0.69)])
def test_half_precision_second_moment_underflows(g: float, exact: float, half: float) -> None:
    """Steps in units of lr, as an optimiser with half-precision parameters takes them."""
    x, slope, norm = torch.zeros(1, 1), torch.tensor([[2 * g]]), torch.tensor([[2.0]])
    assert -adamw_step(x, slope, norm, 1.0, 1e-3).item() == pytest.approx(exact, abs=6e-3)
    assert -adamw_step(x, slope, norm, 1.0, 1e-3, emulate_fp16=True).item() == pytest.approx(half, abs=6e-3)


# ------------------------------------------------------------------------------- whole steps against autograd + AdamW


def make_task(classes: int = 7, prompts: int = 6, dim: int = 12, dtype: torch.dtype = torch.float64) -> Task:
    centres = unit_rows(random(classes, 1, dim))
    bank = unit_rows(centres + 0.4 / dim**0.5 * random(classes, prompts, dim, seed=1)).to(dtype)
    return Task([f"class {c}" for c in range(classes)], unit_rows(bank.mean(1)), bank, scale=20.0)


def make_stream(task: Task, n: int = 12, views: int = 20, regions: int = 9, noise: float = 0.8) -> list[Observation]:
    text = task.text.double()
    classes, dim = text.shape
    rng = torch.Generator().manual_seed(5)
    stream = []
    for i in range(n):
        pair = text[torch.randint(classes, (2,), generator=rng)]
        shown = torch.rand(1 + views + regions, 2, generator=rng, dtype=torch.float64) @ pair
        features = unit_rows(shown + noise / dim**0.5 * random(1 + views + regions, dim, seed=100 + i))
        features = features.to(task.text.dtype)
        stream.append(Observation(i, features[0], {"views": features[1 : 1 + views], "regions": features[1 + views :]}))
    return stream


def warm(method: DPE | ReTA | PuRF, task: Task) -> Observation:
    """The method after some images, so that classes are present and absent; and the next image.

    Each visual prototype is put half-way between two classes, because the alignment loss is saturated otherwise.
    """
    method.start(task)
    *seen, x = make_stream(task, n=6)
    for observation in seen:
        method.step(observation)
    present = method.log_present == 0
    assert 1 < present.sum() < len(present)
    keys = method.keys[:, present]
    method.keys[:, present] = unit_columns(keys + 1.02 * keys.roll(1, 1))
    if isinstance(method, DPE):
        method.keys *= 0.7
        method.visual, method.visual_length = unit(method.keys), length(method.keys)
    loss = reference_info_nce(method.keys, columns(task.text), present)
    assert loss > 0.1
    return x


STEP: dict[str, Any] = {"eps": 10.0, "gate": 1.0}  # with a large eps the step is proportional to the gradient


def test_dpe_step_against_autograd() -> None:
    method = DPE(lr_text=2.0, lr_image=3.0, **STEP)
    task = make_task()
    x = warm(method, task)
    text_residual = torch.zeros_like(method.text_bank, requires_grad=True)
    visual_residual = torch.zeros_like(method.keys, requires_grad=True)
    text = unit_columns(method.text_bank + text_residual)
    visual = unit_columns(method.keys + visual_residual)
    logits = task.scale * x.image @ text
    present = method.log_present == 0
    cached = torch.where(present, method.alpha * torch.exp(-method.beta * (1 - x.image @ visual)), 0.0)
    p = (logits + cached).softmax(-1)
    loss = -(p * p.log()).sum() + method.align * reference_info_nce(visual, text, present)
    in_text, in_visual = grad(loss, text_residual, visual_residual)
    adapted_text, adapted_visual = method.adapt(x.image, logits.detach())
    torch.testing.assert_close(adapted_text, one_adamw_step(method.text_bank, in_text, 2.0, 10.0))
    expected = one_adamw_step(method.keys[:, present], in_visual[:, present], 3.0, 10.0)
    torch.testing.assert_close(adapted_visual[:, present], expected)


@pytest.mark.parametrize("ratio", [1.0, 0.3])
@pytest.mark.parametrize("calibrate", [True, False])
def test_reta_step_against_autograd(ratio: float, calibrate: bool) -> None:
    method = ReTA(lr=2.0, ratio=ratio, train_w=0.7, **STEP)
    task = make_task()
    x = warm(method, task)
    views, label = stack_views(x.image, x["views"]), 3
    residual = torch.zeros_like(method.text_bank, requires_grad=True)
    slots = unit_columns(method.text_bank + residual)  # [3, D, C]
    present = method.log_present == 0
    cached = torch.where(present, method.alpha * torch.exp(-method.beta * (1 - x.image @ method.keys)), 0.0)
    logits = task.scale * x.image @ slots[-1]
    p = (logits + cached).softmax(-1)
    aligned = slots[-1] if ratio >= 0.5 else slots.mean(0)
    loss = -(p * p.log()).sum() + method.align * reference_info_nce(method.keys, aligned, present)
    if calibrate:
        mean = slots.mean(0)
        deviation = slots - mean
        covariance = torch.einsum("mda,mdb->dab", deviation, deviation) / 4  # [D, C, C], as the official code has it
        spread = covariance[:, label, label, None] + torch.einsum("dcc->dc", covariance) - 2 * covariance[:, label]
        gaussian = task.scale * views @ mean + 0.5 * task.scale**2 * views.square() @ spread
        kept = select_confident(gaussian.detach(), method.keep)
        loss = loss + method.train_w * F.cross_entropy(gaussian[kept], torch.full((len(kept),), label))
    expected = one_adamw_step(method.text_bank, grad(loss, residual)[0], 2.0, 10.0)
    adapted = method.adapt(x.image, logits.detach(), views, label, calibrate)
    torch.testing.assert_close(adapted, expected)
    untouched = torch.allclose(adapted[:2], method.text_bank[:2], rtol=0, atol=1e-12)
    assert untouched == (ratio >= 0.5 and not calibrate)


@pytest.mark.parametrize("space", ["scaled", "cosine"])
def test_purf_step_against_autograd(space: Any) -> None:
    method = PuRF(lr=2.0, lambda_1=0.7, bce_space=space, kappa_g=0.5, **STEP)
    task = make_task()
    task.bias = -3.0
    x = warm(method, task)
    seen = method.purify_regions(x)
    present = method.log_present == 0
    cached = method.cache_scores(x.image, seen.regions)
    residual = torch.zeros_like(method.text_bank, requires_grad=True)
    text = unit_columns(unit_columns(method.text_bank + residual).mean(0))
    p = (task.scale * seen.confident @ text).softmax(-1)
    scores = task.scale * (0.5 * x.image @ text + 0.5 * (seen.regions @ text).amax(0)) + cached + task.bias
    loss = -(p * p.log()).sum(-1).mean()
    loss = loss + 0.7 * F.binary_cross_entropy_with_logits(
        scores if space == "scaled" else scores / task.scale, seen.labels.double(), reduction="sum"
    )
    loss = loss + method.lambda_2 * reference_info_nce(method.keys, text, present)
    expected = one_adamw_step(method.text_bank, grad(loss, residual)[0], 2.0, 10.0)
    torch.testing.assert_close(method.adapt_text(x.image, seen, cached), expected)


# -------------------------------------------------------------------------------------- what holds on any stream

METHODS = [
    DPE,
    ReTA,
    PuRF,
    lambda: DPE(predict_from="selected", emulate_fp16=True),
    lambda: ReTA(predict_from="selected", ratio=0.2, emulate_fp16=True),
    lambda: ReTA(rank=4, score="native"),
    lambda: PuRF(selection="abs", mu_stat="pooled", cache_mode="region_avg"),
    lambda: PuRF(selection="global_only", view_set="V"),
    lambda: PuRF(rp=False),
    lambda: PuRF(ep=False, tr=False),
]
every_method = pytest.mark.parametrize("make", METHODS, ids=lambda make: getattr(make, "__name__", ""))


def run(method: Method, task: Task, stream: list[Observation]) -> Tensor:
    method.start(task)
    return torch.stack([method.step(x) for x in stream])


@every_method
@pytest.mark.parametrize("views", [0, 5, 20])
@pytest.mark.parametrize("classes", [1, 2, 7])
def test_scores_are_finite(make: Any, views: int, classes: int) -> None:
    task = make_task(classes, dtype=torch.float32)
    scores = run(make(), task, make_stream(task, views=views))
    assert scores.shape == (12, classes)
    assert scores.isfinite().all()


@every_method
def test_degenerate_images(make: Any) -> None:
    """Duplicate classes, 50 identical regions, and an image whose views are all the same."""
    task = make_task(6, prompts=1, dtype=torch.float32)
    task.text_bank[1] = task.text_bank[0]
    task.text = unit_rows(task.text_bank.mean(1))
    image = unit_rows(random(12)).float()
    same = Observation(0, image, {"views": image.expand(63, -1), "regions": image.expand(50, -1)})
    flat = Observation(1, torch.full((12,), 12**-0.5), {"views": torch.full((63, 12), 12**-0.5)})
    scores = run(make(), task, [same, flat, same, same, flat])
    assert scores.isfinite().all()
    assert not scores.eq(scores[:, :1]).all()


def test_identical_regions_do_not_fail_their_own_mean() -> None:
    task = make_task(6, dtype=torch.float32)
    image = unit_rows(random(12)).float()
    method = PuRF(gate=0.0)  # the text stays, and with it the regions' confidence
    method.start(task)
    for i in range(20):
        method.step(Observation(i, image, {"regions": image.expand(50, -1)}))
        assert method.take_report()["kept_share"] == 1.0


@every_method
def test_classes_may_be_permuted(make: Any) -> None:
    task = make_task()
    stream = make_stream(task)
    order = torch.tensor([4, 2, 6, 0, 1, 5, 3])
    permuted = Task([task.class_names[i] for i in order], task.text[order], task.text_bank[order], task.scale)
    torch.testing.assert_close(run(make(), permuted, stream), run(make(), task, stream)[:, order], rtol=0, atol=1e-6)


@every_method
def test_start_forgets(make: Any) -> None:
    task = make_task(dtype=torch.float32)
    stream = make_stream(task)
    method = make()
    first = run(method, task, stream)
    assert torch.equal(run(method, task, stream), first)
    assert not torch.equal(first[-1], run(make(), task, stream[-1:])[0])  # otherwise nothing was there to forget


@every_method
def test_state_round_trip_is_bit_identical(make: Any) -> None:
    task = make_task(dtype=torch.float32)
    stream = make_stream(task)
    method = make()
    expected = run(method, task, stream)
    run(method, task, stream[:5])
    state = method.state_dict()
    method.step(stream[5])  # the copy must not follow
    resumed = make()
    resumed.start(task)
    resumed.load_state_dict(state)
    assert torch.equal(torch.stack([resumed.step(x) for x in stream[5:]]), expected[5:])


@every_method
def test_state_does_not_grow(make: Any) -> None:
    task = make_task(dtype=torch.float32)
    stream = make_stream(task)
    method = make()

    def size() -> int:
        return sum(value.numel() for value in method.state_dict().values() if isinstance(value, Tensor))

    run(method, task, stream[:1])
    after_one = size()
    run(method, task, stream * 3)
    assert size() == after_one


@every_method
def test_inputs_are_left_alone(make: Any) -> None:
    task = make_task(dtype=torch.float32)
    stream = make_stream(task)
    text, bank, image, views = (
        task.text.clone(),
        task.text_bank.clone(),
        stream[0].image.clone(),
        stream[0]["views"].clone(),
    )
    run(make(), task, stream)
    assert torch.equal(task.text, text)
    assert torch.equal(task.text_bank, bank)
    assert torch.equal(stream[0].image, image)
    assert torch.equal(stream[0]["views"], views)
