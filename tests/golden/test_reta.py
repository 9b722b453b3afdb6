"""ReTA against the official implementation's outputs on a synthetic stream, and its projection against a full SVD."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.golden.streams import Array, close, logits_close, make_stream, part, prototype_run_close, read_golden, replay
from tta_bench.functional import text_bank
from tta_bench.functional.prototypes import adamw_step
from tta_bench.interfaces import Observation, Task
from tta_bench.methods.reta import ReTA, eigenvectors, inverse_energy

RUNS = ("main", "lowratio", "modeA")


@pytest.fixture(scope="module")
def golden() -> Mapping[str, Array]:
    return read_golden("golden_reta.npz")


def by_official_axes(text: Tensor) -> Tensor:
    """[..., C, 3, D] -> [..., D, 3, C]."""
    return text.transpose(-1, -3)


class Replay:
    """One official run replayed, with what the official code does not return: residuals and single rows."""

    def __init__(
        self, golden: Mapping[str, Array], run: str, monkeypatch: pytest.MonkeyPatch, score: str = "native"
    ) -> None:
        config = json.loads(str(golden[f"{run}__config_json"]))
        cache, rates = config["positive"], config["learning_rate"]
        self.method = ReTA(
            shots=cache["shot_capacity"],
            alpha=cache["alpha"],
            beta=cache["beta"],
            lam=cache["lam"],
            ratio=cache["ratio"],
            lr=rates["text"],
            align=rates["align"],
            train_w=rates["train_w"],
            predict_from="selected" if config["dataset_name"] == "A" else "original",
            score="native" if score == "native" else "logits",
        )
        self.starts: list[Tensor] = []
        self.residuals: list[Tensor] = []
        rows: list[Tensor] = []

        def recording(x: Tensor, slope: Tensor, floor: Tensor, lr: float, fp16_norm: Tensor | None) -> Tensor:
            moved = adamw_step(x, slope, floor, lr, fp16_norm)
            samples = 1 + self.method.bank.updates  # x is a sum of so many
            self.starts.append(x / samples)
            self.residuals.append((moved - x) / samples)
            return moved

        def predict(method: ReTA, *arguments: Any) -> tuple[Tensor, Tensor]:
            original, calibrated = official_predict(method, *arguments)
            rows.append(torch.cat((original[None], calibrated)))
            return original, calibrated

        official_predict = ReTA.predict
        monkeypatch.setattr(text_bank, "adamw_step", recording)
        monkeypatch.setattr(ReTA, "predict", predict)
        prompts = torch.from_numpy(golden["prompt_embeddings"])
        text = torch.nn.functional.normalize(prompts.mean(1), dim=-1)
        self.method.start(Task([f"class {c}" for c in range(len(text))], text, prompts, 100.0))
        close(by_official_axes(self.method.text_bank), golden["text_weights"], 1e-6)
        self.outputs, self.reported = replay(self.method, make_stream(torch.from_numpy(golden["features"])))
        self.rows = torch.stack(rows).numpy()


@pytest.mark.parametrize("run", RUNS)
def test_official_run(golden: Mapping[str, Array], run: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Replay(golden, run, monkeypatch)
    method = ours.method
    expected = part(golden, f"{run}__")
    close(ours.outputs, expected["final_prob"], 1e-4)
    close(ours.outputs, expected["f64_final_prob"], 1e-4)
    logits_close(ours.rows, expected["final_rows"])
    close(ours.reported["consistency_weight"], expected["w_ent"], 1e-6)
    prototype_run_close(method, ours.reported, expected)
    close(by_official_axes(method.text_bank), expected["text_end"], 1e-5)
    residuals = expected.get("text_residual", expected.get("text_residual_first3"))
    assert residuals is not None
    close(by_official_axes(torch.stack(ours.residuals[: len(residuals)])), residuals, 5e-5)
    if run == "main":
        close(by_official_axes(torch.stack(ours.starts)), expected["text_start"], 1e-5)


def test_logit_scores_mix_the_same_rows(golden: Mapping[str, Array], monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Replay(golden, "lowratio", monkeypatch, score="logits")
    lam = ours.method.lam
    mixed = lam * ours.rows[:, 0] + (1 - lam) * ours.rows[:, 1:].mean(1)
    close(ours.outputs, mixed, 1e-5)


def project(text: Tensor, rank: int, near: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The projection [D, D] by which ReTA's embeddings vote, and the eigenvectors behind it."""
    energy, vectors = eigenvectors(text @ text.mT, near)
    return text.mT @ vectors @ torch.diag(inverse_energy(energy, rank)) @ vectors.mT @ text, vectors


def first_singular_vectors(text: Tensor, rank: int) -> Tensor:
    right: Tensor = torch.linalg.svd(text.double(), full_matrices=False).Vh[:rank].to(text.dtype)
    return right.mT @ right


@pytest.mark.parametrize(("classes", "dim", "rank"), [(30, 40, 12), (12, 40, 20), (20, 40, 20), (1, 8, 4)])
def test_projection_is_that_of_the_singular_vectors(classes: int, dim: int, rank: int) -> None:
    text = torch.nn.functional.normalize(torch.randn(classes, dim, generator=torch.Generator().manual_seed(1)), dim=-1)
    torch.testing.assert_close(project(text, rank)[0], first_singular_vectors(text, rank), rtol=0, atol=2e-5)


def test_equal_classes_add_no_direction() -> None:
    text = torch.eye(3, 8)[[0, 1, 1, 2]]
    torch.testing.assert_close(project(text, rank=4)[0], torch.diag(torch.tensor([1.0] * 3 + [0.0] * 5)))


def test_eigenvectors_follow_a_moving_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refined from image to image they stay those of a full decomposition, which is done again after a jump only."""
    rng = torch.Generator().manual_seed(3)
    text = torch.nn.functional.normalize(torch.randn(80, 128, generator=rng), dim=-1)
    anew = []
    eigh = torch.linalg.eigh

    def counted(gram: Tensor) -> Any:
        anew.append(gram)
        return eigh(gram)

    monkeypatch.setattr(torch.linalg, "eigh", counted)
    _, vectors = project(text, 64)
    for move in [1e-6] * 100 + [0.3, 1e-6]:
        text = torch.nn.functional.normalize(text + move * torch.randn(text.shape, generator=rng), dim=-1)
        projection, vectors = project(text, 64, vectors)
        torch.testing.assert_close(projection, first_singular_vectors(text, 64), rtol=0, atol=1e-4)
    assert 2 <= len(anew) <= 5  # at the beginning, after the jump, and where two eigenvalues come close


@pytest.mark.parametrize(
    ("votes", "label", "weight"),
    # ln(3/k · (1 or 2)); three different votes: the smallest class is the majority
    [((1, 1, 1), 1, 0.0), ((1, 2, 1), 1, 0.405465), ((1, 1, 1), 0, 0.693147), ((2, 1, 0), 0, 1.098612),
     ((2, 1, 2), 0, 1.098612), ((0, 1, 2), 1, 1.791759)],
)  # fmt: skip
def test_consistency_weight(votes: tuple[int, int, int], label: int, weight: float) -> None:
    bank = torch.tensor([0.5, 0.4, 0.3])[:, None, None].repeat(1, 3, 3)  # [C, 3, D]
    for slot, vote in enumerate(votes):
        bank[vote, slot] = 1.0
    method = ReTA(ratio=1.0)
    text = torch.eye(3)
    method.start(Task(list("abc"), text, text[:, None], 100.0))
    method.bank.sum = bank  # three dimensions are no more than the rank: no projection
    assert method.consistency_weight(torch.ones(3), torch.ones(3), label) == pytest.approx(weight, abs=1e-6)


def test_half_precision_moments_are_felt(golden: Mapping[str, Array]) -> None:
    prompts = torch.from_numpy(golden["prompt_embeddings"])
    text = torch.nn.functional.normalize(prompts.mean(1), dim=-1)
    moved = []
    for method in (ReTA(), ReTA(emulate_fp16=True)):
        method.start(Task([f"class {c}" for c in range(len(text))], text, prompts, 100.0))
        features = torch.from_numpy(golden["features"])[:20]
        moved.append(torch.stack([method.step(Observation(i, v[0], {"views": v[1:]})) for i, v in enumerate(features)]))
    assert (moved[0] - moved[1]).abs().max() > 0.05
