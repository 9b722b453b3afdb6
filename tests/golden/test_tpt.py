"""TPT against the official implementation's outputs."""

from __future__ import annotations

import pytest
import torch

from tests.golden.prompt_tower import Golden, close, close_context, load, make_task, stream
from tta_bench.functional import select_confident, stack_views
from tta_bench.functional.prompt_tuning import marginal_entropy
from tta_bench.methods.tpt import TPT


@pytest.fixture(scope="module")
def golden() -> Golden:
    return load("tpt")


def make_method(golden: Golden, run: str) -> TPT:
    lr, steps, keep = golden[f"{run}/hparams_lr_steps_selp"]
    return TPT(lr=float(lr), steps=int(steps), keep=float(keep))


def test_zero_steps_are_zero_shot(golden: Golden) -> None:
    method, task = TPT(steps=0), make_task(golden)
    close(task.text, golden["text_features_init"], 1e-6)
    method.start(task)
    for i, x in enumerate(stream(golden)):
        close(method.step(x), golden["logits_zero_shot"][i], 1e-4)


@pytest.mark.parametrize("run", ["A", "B"])
def test_official_stream(golden: Golden, run: str) -> None:
    method = make_method(golden, run)
    method.start(make_task(golden))
    for i, x in enumerate(stream(golden)):
        close(method.step(x), golden[f"{run}/logits"][i], 1e-4)
        close_context(method.tune(stack_views(x.image, x["views"])).context, golden[f"{run}/ctx"][i])


@pytest.mark.parametrize("run", ["A", "B"])
def test_official_first_step(golden: Golden, run: str) -> None:
    method = make_method(golden, run)
    method.start(make_task(golden))
    text = method._tower.initial
    for i, x in enumerate(stream(golden)):
        logits = method.scale * stack_views(x.image, x["views"]) @ text.features.T
        close(logits, golden[f"{run}/views_logits0"][i], 1e-4)
        kept = select_confident(logits, method.keep)
        assert kept.tolist() == golden[f"{run}/sel0"][i].tolist()
        loss = marginal_entropy(logits[kept])
        close(loss, golden[f"{run}/loss0"][i], 1e-5)
        close(text.gradient(loss), golden[f"{run}/grad0"][i], 1e-5)


def test_images_do_not_influence_each_other(golden: Golden) -> None:
    images = stream(golden)[:4]
    method = make_method(golden, "B")
    method.start(make_task(golden))
    forth = [method.step(x) for x in images]
    back = [method.step(x) for x in reversed(images)]
    assert all(torch.equal(a, b) for a, b in zip(forth, reversed(back), strict=True))
    assert all("tower" not in key for key in method.state_dict())
