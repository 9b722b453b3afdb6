"""Bound entropy against the official implementation's loss and gradients, at the corners of the label-set size too."""

from __future__ import annotations

import pytest
import torch

from tests.golden.prompt_tower import Golden, close, load
from tta_bench.functional import select_confident
from tta_bench.functional.prompt_tuning import bind, marginal_entropy
from tta_bench.methods.mltta import Captions

EVERYTHING_BOUND = 6


@pytest.fixture(scope="module")
def golden() -> Golden:
    return load("bem")


@pytest.mark.parametrize("case", range(8))
@pytest.mark.parametrize("branch", ["view", "cap"])
def test_official_bound_entropy(golden: Golden, case: int, branch: str) -> None:
    expected = {name.partition(f"case{case}/")[2]: array for name, array in golden.items()}
    logits = torch.from_numpy(expected[f"{branch}_logits"]).requires_grad_()
    bound = bind(logits, torch.from_numpy(expected[f"{branch}_k"]))
    close(bound, expected[f"{branch}_bound"], 1e-5)
    kept = select_confident(bound.detach(), float(expected["selp"]))
    assert len(kept) == len(expected[f"{branch}_sel"])
    if case != EVERYTHING_BOUND:  # there all entropies are ln C, and rounding chooses
        assert set(kept.tolist()) == set(expected[f"{branch}_sel"].tolist())
    loss = marginal_entropy(bound[kept])
    close(loss, expected[f"{branch}_loss"], 1e-5)
    (gradient,) = torch.autograd.grad(loss, logits)
    close(gradient, expected[f"{branch}_grad_logits"], 1e-5)


@pytest.mark.parametrize("case", range(8))
def test_official_retrieval(golden: Golden, case: int) -> None:
    expected = {name.partition(f"case{case}/")[2]: array for name, array in golden.items()}
    embeddings, sizes = torch.from_numpy(expected["cap_feat"]), torch.from_numpy(expected["cap_k_all"])
    view_sizes, found = Captions(embeddings, sizes, per_view=16)(torch.from_numpy(expected["img_feat"]))
    assert found.tolist() == expected["uniq_cap_idx"].tolist()
    assert view_sizes.tolist() == expected["view_k"].tolist()
    assert sizes[found].tolist() == expected["cap_k"].tolist()
