"""DiffTPT against the official implementation's outputs."""

from __future__ import annotations

import pytest
import torch

from tests.golden.prompt_tower import Golden, close, close_context, load, make_task, stream
from tta_bench.errors import UsageError
from tta_bench.functional.prompt_tuning import most_alike
from tta_bench.methods.difftpt import DiffTPT

GENERATED = 7


@pytest.fixture(scope="module")
def golden() -> Golden:
    return load("difftpt")


def test_official_stream(golden: Golden) -> None:
    lr, steps, keep_cosine, keep_entropy = golden["A/hparams_lr_steps_selcos_selent"].tolist()
    method = DiffTPT(lr, int(steps), keep_cosine, keep_entropy)
    task = make_task(golden)
    method.start(task)
    for i, x in enumerate(stream(golden, GENERATED)):
        rows = torch.from_numpy(golden["x_views"][i])
        logits = task.scale * rows @ task.text.T
        alike = most_alike(logits, 12)
        assert alike.tolist() == [0, *golden["A/sel_cos0"][i]]
        assert method.select(logits).tolist() == alike[golden["A/sel_ent0"][i]].tolist()
        close(method.step(x), golden["A/logits"][i], 1e-4)
        close_context(method.tune(rows).context, golden["A/ctx"][i])


def test_without_generated_images_it_says_so(golden: Golden) -> None:
    method = DiffTPT()
    with pytest.raises(UsageError, match="--set generated=DIR"):
        method.validate()
    method.start(make_task(golden))
    with pytest.raises(UsageError, match="--set generated=DIR"):
        method.step(stream(golden)[0])
