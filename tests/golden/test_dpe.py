"""DPE against the official implementation's outputs on a synthetic stream."""

from __future__ import annotations

import json
from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.golden.streams import Array, close, logits_close, make_stream, part, prototype_run_close, read_golden, replay
from tta_bench.interfaces import Observation, Task
from tta_bench.methods import dpe
from tta_bench.methods.dpe import DPE, turn

RUNS = ("main", "modeA", "single")


@pytest.fixture(scope="module")
def golden() -> Mapping[str, Array]:
    return read_golden("golden_dpe.npz")


class Replay:
    """One official run replayed, with what the optimiser saw: the prototypes and the residuals they received."""

    def __init__(self, golden: Mapping[str, Array], run: str, monkeypatch: pytest.MonkeyPatch) -> None:
        config = json.loads(str(golden[f"{run}__config_json"]))
        cache, rates = config["positive"], config["learning_rate"]
        self.method = DPE(
            shots=cache["shot_capacity"],
            alpha=cache["alpha"],
            beta=cache["beta"],
            lr_text=rates["text"],
            lr_image=rates["image"],
            align=rates["align"],
            predict_from="selected" if config["dataset_name"] == "A" else "original",
        )
        self.starts: list[Tensor] = []  # text and visual prototypes in turns, [D, C]
        self.residuals: list[Tensor] = []

        def recording(
            x: Tensor, length: Tensor, down: Tensor, lr: float, eps: float, fp16_length: Tensor | None
        ) -> Tensor:
            moved = turn(x, length, down, lr, eps, fp16_length)
            is_text = x is self.method.text
            length = length / (1 + self.method.text_updates) if is_text else length
            self.starts.append(x * length)  # a class without an entry has no visual prototype: 0
            self.residuals.append((moved - x) * length)
            return moved

        monkeypatch.setattr(dpe, "turn", recording)
        prompts = torch.from_numpy(golden["prompt_embeddings"])
        text = torch.nn.functional.normalize(prompts.mean(1), dim=-1)
        close(text.mT, golden["text_weights"], 1e-6)
        self.method.start(Task([f"class {c}" for c in range(len(text))], text, prompts, 100.0))
        features = torch.from_numpy(golden["features"])
        self.logits, self.reported = replay(
            self.method, make_stream(features[:, :1] if config["single_view"] else features)
        )


@pytest.mark.parametrize("run", RUNS)
def test_official_run(golden: Mapping[str, Array], run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Replay(golden, run, monkeypatch)
    method = ours.method
    expected = part(golden, f"{run}__")
    logits_close(ours.logits, expected["final_logits"])
    logits_close(ours.logits, expected["f64_final_logits"])
    prototype_run_close(method, ours.reported, expected)
    close(method.text_bank.mT, expected["text_end"], 1e-5)

    text_residual = expected.get("text_residual", expected.get("text_residual_first3"))
    visual_residual = expected.get("visual_residual", expected.get("visual_residual_first3"))
    assert text_residual is not None
    assert visual_residual is not None
    n = len(text_residual)
    close(torch.stack(ours.residuals[0::2][:n]), text_residual, 5e-5)
    close(torch.stack(ours.residuals[1::2][:n]), np.nan_to_num(visual_residual), 5e-5)


def test_prototypes_before_each_step(golden: Mapping[str, Array], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Replay(golden, "main", monkeypatch)
    close(torch.stack(ours.starts[0::2]), golden["main__text_start"], 1e-5)
    close(torch.stack(ours.starts[1::2]), np.nan_to_num(golden["main__cache_keys_before"]), 1e-6)


def test_half_precision_moments_are_felt(golden: Mapping[str, Array]) -> None:
    """The emulated underflow makes small gradients take longer steps, so it must show in the scores."""
    features = torch.from_numpy(golden["features"])[:20]
    text = torch.from_numpy(golden["text_weights"]).mT.contiguous()
    exact, emulated = DPE(), DPE(emulate_fp16=True)
    moved = []
    for method in (exact, emulated):
        method.start(Task([f"class {c}" for c in range(len(text))], text, text[:, None], 100.0))
        moved.append(torch.stack([method.step(Observation(i, v[0], {"views": v[1:]})) for i, v in enumerate(features)]))
    assert (moved[0] - moved[1]).abs().max() > 0.05


def test_the_alignment_is_kept_only_while_no_prototype_moves(golden: Mapping[str, Array]) -> None:
    """Computed anew for every image it gives the same scores, bit for bit."""
    text = torch.from_numpy(golden["text_weights"]).mT.contiguous()
    keeping, forgetting = DPE(), DPE()
    for method in (keeping, forgetting):
        method.start(Task([f"class {c}" for c in range(len(text))], text, text[:, None], 100.0))
    kept = []
    for x in make_stream(torch.from_numpy(golden["features"])):
        kept.append(keeping.pulls is not None)
        forgetting.pulls = None
        assert torch.equal(keeping.step(x), forgetting.step(x))
    assert any(kept)
    assert not all(kept)
