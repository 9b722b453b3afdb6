"""The formulas of prompt tuning: against torch's optimiser, against literal sums, and at their corners."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tta_bench.errors import UsageError
from tta_bench.functional.prompt_tuning import (
    AdamW,
    ContextTower,
    advantages,
    bind,
    descend,
    marginal_entropy,
    minmax,
    most_alike,
    policy_loss,
)
from tta_bench.interfaces import Observation, Task
from tta_bench.methods.mltta import MLTTA
from tta_bench.methods.tpt import TPT


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize(("lr", "decay"), [(5e-3, 0.01), (7e-3, 5e-4), (0.1, 0.0)])
def test_adamw_is_torchs(lr: float, decay: float) -> None:
    parameter = torch.nn.Parameter(draw(4, 8))
    theirs = torch.optim.AdamW([parameter], lr=lr, weight_decay=decay)
    ours, context = AdamW(lr, decay), draw(4, 8)
    for step in range(4):
        gradient = draw(4, 8, seed=step) * 10.0 ** (-2 * step)  # down to the size of ε
        parameter.grad = gradient
        theirs.step()
        context = ours(context, gradient)
        torch.testing.assert_close(context, parameter.detach(), atol=1e-7, rtol=1e-6)


def test_the_first_adamw_step_is_a_sign_step() -> None:
    context, gradient = draw(4, 8), draw(4, 8, seed=1)
    expected = context * (1 - 1e-3 * 0.5) - 1e-3 * gradient / (gradient.abs() + 1e-8)
    torch.testing.assert_close(AdamW(1e-3, 0.5)(context, gradient), expected)


def test_marginal_entropy_is_that_of_the_mean_prediction() -> None:
    logits = 5 * draw(6, 9)
    mean = logits.softmax(-1).mean(0)
    torch.testing.assert_close(marginal_entropy(logits), -(mean * mean.log()).sum())
    certain = torch.tensor([[500.0, 0.0, 0.0], [500.0, 0.0, 0.0]], requires_grad=True)
    loss = marginal_entropy(certain)
    (gradient,) = torch.autograd.grad(loss, certain)
    assert loss == 0
    assert gradient.isfinite().all()
    assert marginal_entropy(torch.tensor([[0.0, -math.inf], [0.0, -math.inf]])) == 0  # a class that was ruled out


def test_binding_lifts_the_k_largest_and_leaves_the_gradient_alone() -> None:
    logits = torch.tensor([[1.0, 4.0, 3.0, 2.0], [7.0, 5.0, 6.0, 0.0]], requires_grad=True)
    bound = bind(logits, torch.tensor([2, 1]))
    assert bound.tolist() == [[1, 4, 4, 2], [7, 5, 6, 0]]
    weights = draw(2, 4)
    (gradient,) = torch.autograd.grad((weights * bound).sum(), logits)
    assert torch.equal(gradient, weights)
    beyond = bind(logits, torch.tensor([9, 4]))  # more labels than classes: all of them
    assert beyond.tolist() == [[4] * 4, [7] * 4]
    torch.testing.assert_close(marginal_entropy(beyond), torch.tensor(math.log(4)))


def test_most_alike_compares_logit_vectors_and_keeps_the_image() -> None:
    logits = torch.tensor([[1.0, 0.0], [0.0, 1.0], [5.0, 0.1], [-1.0, 0.0], [1.0, 1.0]])
    assert most_alike(logits, 2).tolist() == [0, 2, 4]
    assert most_alike(logits[:1], 0).tolist() == [0]


def test_advantages() -> None:
    rewards = torch.tensor([[1.0, 2.0, 6.0], [0.0, 0.0, 3.0]])
    assert advantages(rewards, over_batch=False, amplify=False).tolist() == [[-2, -1, 3], [-1, -1, 2]]
    assert advantages(rewards, over_batch=True, amplify=False).tolist() == [[-1, 0, 4], [-2, -2, 1]]
    lone = rewards[:, :1]
    assert torch.equal(advantages(lone, over_batch=False, amplify=True), lone)  # no baseline
    assert advantages(lone, over_batch=True, amplify=False).tolist() == [[0.5], [-0.5]]
    amplified = advantages(rewards, over_batch=False, amplify=True)
    torch.testing.assert_close(amplified.std(-1), torch.ones(2), atol=1e-4, rtol=0)
    assert torch.equal(advantages(torch.ones(2, 3), over_batch=False, amplify=True), torch.zeros(2, 3))
    # ±1e-5 have sd √2 e-5, to which 1e-5 is added: next to equal rewards are not blown up to full size.
    near = advantages(torch.tensor([[-1e-5, 1e-5]]), over_batch=False, amplify=True)
    torch.testing.assert_close(near, torch.tensor([[-1.0, 1.0]]) / (math.sqrt(2) + 1))


def test_policy_loss_is_weighted_cross_entropy() -> None:
    logits, classes, advantage = draw(5, 7), torch.randint(7, (5, 3)), draw(5, 3, seed=1)
    expected = torch.stack(
        [advantage[:, k] * cross_entropy(logits, classes[:, k], reduction="none") for k in range(3)]
    ).mean()
    torch.testing.assert_close(policy_loss(logits, classes, advantage), expected)


def test_minmax_uses_one_range_and_survives_equal_scores() -> None:
    assert minmax(torch.tensor([[0.0, 5.0], [10.0, 5.0]])).tolist() == [[0, 0.5], [1, 0.5]]
    assert minmax(torch.full((2, 2), 3.0)).tolist() == [[0, 0], [0, 0]]


class Counting:
    """A text tower that counts its forwards."""

    def __init__(self) -> None:
        self.forwards = 0
        self.names = draw(5, 16, seed=3)

    def init_context(self, words: str) -> Tensor:
        return draw(4, 16, seed=4)

    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        self.forwards += 1
        return normalize((context.tanh().mean(0) * self.names).sin() + self.names, dim=-1)


def make_task(tower: Counting | None) -> Task:
    text = normalize(draw(5, 16), dim=-1)
    return Task([f"class {i}" for i in range(5)], text, text[:, None], 30.0, prompts=tower)


def observe(i: int) -> Observation:
    rows = normalize(draw(11, 16, seed=10 + i), dim=-1)
    return Observation(i, rows[0], {"views": rows[1:]})


@pytest.mark.parametrize("steps", [0, 1, 3])
def test_the_first_forward_is_shared_by_all_images(steps: int) -> None:
    tower = Counting()
    method = TPT(steps=steps)
    method.start(make_task(tower))
    for i in range(7):
        scores = method.step(observe(i))
        assert not scores.requires_grad
    assert tower.forwards == 1 + 7 * steps


def test_only_a_context_that_another_step_follows_has_a_graph() -> None:
    tower = ContextTower(make_task(Counting()))
    assert tower.initial.features.requires_grad
    text = descend(tower, lambda features: features.square().sum(), AdamW(1e-3, 0.0), steps=2)
    assert not text.features.requires_grad
    assert not text.context.requires_grad


def test_a_shared_graph_gives_what_a_new_one_gives() -> None:
    shared = TPT(steps=2, keep=0.3)
    shared.start(make_task(Counting()))
    for i in range(4):
        fresh = TPT(steps=2, keep=0.3)
        fresh.start(make_task(Counting()))
        assert torch.equal(shared.step(observe(i)), fresh.step(observe(i)))


def test_mltta_without_binding_and_with_tpts_rate_is_tpt_on_its_views() -> None:
    captions = normalize(draw(40, 16, seed=9), dim=-1), torch.full((40,), 3)
    mltta, tpt = MLTTA(lr_view=5e-3, bind=False, captions=captions), TPT()
    for method in (mltta, tpt):
        method.start(make_task(Counting()))
    for i in range(3):
        torch.testing.assert_close(mltta.step(observe(i))[0], tpt.step(observe(i)))


def test_without_a_tunable_backbone_it_says_so() -> None:
    with pytest.raises(UsageError, match="tunes prompts"):
        ContextTower(make_task(None))
