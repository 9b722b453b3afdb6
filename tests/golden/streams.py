"""What the golden tests of the cache methods share: reading a file, and tasks and streams from plain tensors."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tta_bench.interfaces import Method, Observation, Task
from tta_bench.methods.dpe import DPE
from tta_bench.methods.reta import ReTA

Array = np.ndarray[Any, Any]
Golden = Mapping[str, Array]


def read_golden(name: str) -> Golden:
    with np.load(Path(__file__).with_name(name)) as file:
        return dict(file)


def cache_settings(golden: Golden) -> dict[str, Any]:
    """The hyper-parameters that TDA and BoostAdapter have in common."""
    return {
        "shots": int(golden["pos_shot_capacity"]),
        "alpha": float(golden["pos_alpha"]),
        "beta": float(golden["pos_beta"]),
        "neg_shots": int(golden["neg_shot_capacity"]),
        "neg_alpha": float(golden["neg_alpha"]),
        "neg_beta": float(golden["neg_beta"]),
        "gate": (float(golden["neg_entropy_lower"]), float(golden["neg_entropy_upper"])),
        "mask": (float(golden["neg_mask_lower"]), float(golden["neg_mask_upper"])),
        "keep": float(golden["select_ratio"]),
    }


def make_task(text: Tensor, scale: float = 100.0) -> Task:
    return Task([f"class {c}" for c in range(len(text))], text, text[:, None], scale)


def make_stream(features: Tensor) -> list[Observation]:
    """Features [N, V, D] whose view 0 is the original."""
    return [Observation(i, views[0], {"views": views[1:]}) for i, views in enumerate(features)]


def unit(*shape: int, seed: int) -> Tensor:
    return torch.nn.functional.normalize(torch.randn(shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def close(actual: Any, expected: Array, atol: float) -> None:
    np.testing.assert_allclose(np.asarray(actual), expected, rtol=0, atol=atol)


def part(golden: Golden, prefix: str) -> Golden:
    """The arrays of one official run, without the prefix of their names."""
    return {key.removeprefix(prefix): value for key, value in golden.items() if key.startswith(prefix)}


def replay(method: Method, stream: list[Observation]) -> tuple[Array, dict[str, Array]]:
    """Outputs of a started method, and what it reported about every step."""
    outputs, reports = [], []
    for x in stream:
        outputs.append(method.step(x))
        reports.append(method.take_report())
    return torch.stack(outputs).numpy(), {key: np.array([report[key] for report in reports]) for key in reports[0]}


def run(method: Method, task: Task, stream: list[Observation]) -> Tensor:
    method.start(task)
    return torch.stack([method.step(x) for x in stream])


def logits_close(actual: Array, expected: Array) -> None:
    """g/(|g| + 1e-3) amplifies rounding where a softmax is saturated: rarely, so the bulk must be much closer."""
    difference = np.abs(actual - expected)
    assert difference.max() < 1e-2
    assert np.quantile(difference, 0.99) < 2e-3
    assert np.median(difference) < 1e-4


def prototype_run_close(method: DPE | ReTA, reported: Golden, expected: Golden) -> None:
    """What DPE and ReTA decide, lose and cache on the way, against an official run."""
    assert (reported["pseudo_label"] == expected["pred"]).all()
    assert (reported["text_updated"] == expected["updated"]).all()
    close(reported["cache_entropy"], expected["cache_entropy_in"], 1e-4)
    close(reported["loss_entropy"], expected["entropy_before"], 1e-3)
    close(reported["score_entropy"], expected["entropy_after"], 1e-3)
    close(reported["loss_align"], expected["infonce"], 1e-4)
    filled = method.cache.entropies.isfinite().numpy()
    assert (filled.sum(1) == expected["cache_count"]).all()
    close(method.cache.features.numpy()[filled], expected["cache_feat"][filled], 1e-6)
    close(method.cache.entropies.numpy()[filled], expected["cache_ent"][filled], 1e-4)
