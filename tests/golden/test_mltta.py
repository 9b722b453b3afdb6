"""ML-TTA against the official implementation's outputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from tests.golden.prompt_tower import Golden, close, close_context, load, make_task, stream
from tta_bench.functional import select_confident, stack_views
from tta_bench.functional.prompt_tuning import bind, marginal_entropy
from tta_bench.methods.mltta import MLTTA


@pytest.fixture(scope="module")
def golden() -> Golden:
    return load("mltta")


def make_method(golden: Golden, run: str) -> MLTTA:
    lr_view, lr_caption, steps, keep, bound = golden[f"{run}/hparams_lr1_lr2_steps_selp_bind"].tolist()
    captions = torch.from_numpy(golden["cap_emb"]), torch.from_numpy(golden["cap_k"])
    return MLTTA(lr_view, lr_caption, int(steps), keep, bind=bool(bound), captions=captions)


def ragged(golden: Golden, name: str) -> list[np.ndarray[Any, Any]]:
    return np.split(golden[f"{name}/flat"], np.cumsum(golden[f"{name}/len"])[:-1])


@pytest.mark.parametrize("run", ["A", "B"])
def test_official_stream(golden: Golden, run: str) -> None:
    method = make_method(golden, run)
    method.start(make_task(golden))
    outputs = []
    for i, x in enumerate(stream(golden)):
        outputs.append(method.step(x))
        close(outputs[-1][0], golden[f"{run}/logits_view"][i], 1e-4)
        close(outputs[-1][1], golden[f"{run}/logits_cap"][i], 1e-4)
        view_text, caption_text = method.tune(stack_views(x.image, x["views"]))
        close_context(view_text.context, golden[f"{run}/ctx_view"][i])
        close_context(caption_text.context, golden[f"{run}/ctx_cap"][i])
    close(method.finish(torch.stack(outputs)), golden[f"{run}/scores_final"], 1e-5)


@pytest.mark.parametrize("run", ["A", "B"])
def test_official_first_step(golden: Golden, run: str) -> None:
    method = make_method(golden, run)
    method.start(make_task(golden))
    text = method._tower.initial
    nearest, bound_captions = ragged(golden, f"{run}/uniq_cap_idx0"), ragged(golden, f"{run}/bound_cap_logits0")
    kept_captions = ragged(golden, f"{run}/sel_cap0")
    for i, x in enumerate(stream(golden)):
        views = stack_views(x.image, x["views"])
        sizes, found = method._retrieve(views)
        assert sizes.tolist() == golden[f"{run}/view_k0"][i].tolist()
        assert found.tolist() == nearest[i].tolist()
        bound = bind(method.scale * views @ text.features.T, sizes)
        close(bound, golden[f"{run}/bound_view_logits0"][i], 1e-4)
        assert select_confident(bound, method.keep).tolist() == golden[f"{run}/sel_view0"][i].tolist()
        loss = marginal_entropy(bound[select_confident(bound, method.keep)])
        close(loss, golden[f"{run}/loss_view0"][i], 1e-5)
        close(text.gradient(loss), golden[f"{run}/grad_view0"][i], 1e-5)
        caption_logits = method.scale * method._retrieve.embeddings[found] @ text.features.T
        bound = bind(caption_logits, method._retrieve.sizes[found])
        close(bound, bound_captions[i], 1e-4)
        assert select_confident(bound, method.keep).tolist() == kept_captions[i].tolist()
        loss = method.bound_entropy(caption_logits, method._retrieve.sizes[found])
        close(loss, golden[f"{run}/loss_cap0"][i], 1e-5)
        close(text.gradient(loss), golden[f"{run}/grad_cap0"][i], 1e-5)
