"""RLCF (prompt version) against the official implementation's outputs."""

from __future__ import annotations

import dataclasses

import pytest

from tests.golden.prompt_tower import Golden, close, close_context, load, make_task, stream
from tta_bench.errors import UsageError
from tta_bench.functional import stack_views
from tta_bench.interfaces import Observation
from tta_bench.methods.rlcf import RLCF


@pytest.fixture(scope="module")
def golden() -> Golden:
    return load("rlcf")


@pytest.mark.parametrize("run", ["A", "B"])
def test_official_stream(golden: Golden, run: str) -> None:
    lr, decay, steps, keep, k, batch, amplify = golden[f"{run}/hparams_lr_wd_steps_selp_k_procbatch_amplify"].tolist()
    method = RLCF(lr, decay, int(steps), keep, int(k), bool(batch), bool(amplify))
    method.start(make_task(golden))
    for i, x in enumerate(stream(golden)):
        close(method.step(x), golden[f"{run}/logits"][i], 1e-4)
        tuned = method.tune(stack_views(x.image, x["views"]), method.rewards(x))
        close_context(tuned.context, golden[f"{run}/ctx"][i])


def test_without_a_reward_model_it_says_so(golden: Golden) -> None:
    task, method = make_task(golden), RLCF()
    with pytest.raises(UsageError, match="--set reward="):
        method.validate()
    with pytest.raises(UsageError, match="--set reward="):
        method.start(dataclasses.replace(task, reward_text=None))
    method.start(task)
    x = stream(golden)[0]
    with pytest.raises(UsageError, match="--set reward="):
        method.step(Observation(0, x.image, {"views": x["views"]}))
    assert RLCF(reward="tiny").second_backbone() == "tiny"
