"""Prompt and caption files, damaged or edited at random: refused in one line, or prompts that can be encoded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.faults.fuzzing import altered, damaged, few_and_many, for_all, outcome
from tta_bench.prompts import captions
from tta_bench.prompts.files import Coop, Maple, read_coop, read_cupl, read_maple
from tta_bench.system.text import is_text

CLASSES = ("dog", "potted plant")
CUPL = {"dog": ["A dog barks.", "Dogs have four legs."], "potted_plant": ["A plant in a pot."], "cat": ["A cat."]}
COCO = {"annotations": [{"id": 1, "caption": "a dog and two dogs"}, {"caption": "a potted plant"}, {"caption": "sky"}]}
LINES = "a dog runs\tdog\ntwo dogs and a plant\tdog, dogs,potted plant\n\nthe sky\tsky\n"


def check_cupl(file: Path) -> None:
    sentences = outcome(lambda: read_cupl(file, CLASSES))
    if sentences is not None:
        assert len(sentences) == len(CLASSES)
        assert all(text.strip() and is_text(text) for own in sentences for text in own)
        assert all(sentences)


def check_captions(file: Path) -> None:
    corpus = outcome(lambda: captions.read_source(str(file), CLASSES))
    if corpus is not None:
        assert len(corpus.texts) == len(corpus.labels) > 0
        assert all(map(is_text, corpus.texts))
        assert all(labels and set(labels) <= set(CLASSES) for labels in corpus.labels)


TEXTS: dict[str, tuple[str, str, Any]] = {
    "cupl": ("cupl.json", json.dumps(CUPL), check_cupl),
    "captions of COCO": ("captions.json", json.dumps(COCO), check_captions),
    "captions in lines": ("captions.txt", LINES, check_captions),
}


@pytest.mark.parametrize("what", TEXTS)
@few_and_many
def test_damaged_texts_are_refused_or_can_be_encoded(what: str, tmp_path: Path, examples: int) -> None:
    name, text, check_file = TEXTS[what]

    def check(content: bytes) -> None:
        (tmp_path / name).write_bytes(content)
        check_file(tmp_path / name)

    for_all(examples, damaged(text.encode()), check)


@pytest.mark.parametrize("what", ["cupl", "captions of COCO"])
@few_and_many
def test_edited_texts_are_refused_or_can_be_encoded(what: str, tmp_path: Path, examples: int) -> None:
    name, text, check_file = TEXTS[what]

    def check(content: Any) -> None:
        (tmp_path / name).write_text(json.dumps(content))
        check_file(tmp_path / name)

    for_all(examples, altered(json.loads(text)), check)


# ---------------------------------------------------------------------------------------------------- learned prompts


def maple_weights() -> dict[str, torch.Tensor]:
    weights = {"ctx": torch.randn(2, 4), "token_prefix": torch.randn(3, 1, 4)}
    weights |= {f"compound_prompts_text.{i}": torch.randn(2, 4) for i in range(2)}
    for name in ("proj", "compound_prompt_projections.0", "compound_prompt_projections.1"):
        weights |= {f"{name}.weight": torch.randn(6, 4), f"{name}.bias": torch.randn(6)}
    return {f"prompt_learner.{name}": tensor for name, tensor in weights.items()}


def check_learned(learned: Coop | Maple | None) -> None:
    if learned is None:
        return
    assert learned.context.dim() == 2
    prompts = [learned.context]
    if isinstance(learned, Maple):
        prompts += [*learned.text, *learned.vision]
    if learned.start is not None:
        prompts.append(learned.start)
    assert all(prompt.dtype == torch.float32 and torch.isfinite(prompt).all() for prompt in prompts)


@pytest.mark.parametrize("kind", ["coop", "maple"])
@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "pickle"])
@few_and_many
def test_damaged_checkpoints_are_refused_or_finite(kind: str, zipped: bool, tmp_path: Path, examples: int) -> None:
    file = tmp_path / "learned.pth"
    weights = {"ctx": torch.randn(4, 8), "token_prefix": torch.randn(2, 1, 8)} if kind == "coop" else maple_weights()
    torch.save({"state_dict": weights, "epoch": 50}, file, _use_new_zipfile_serialization=zipped)
    read: Any = read_coop if kind == "coop" else read_maple

    def check(content: bytes) -> None:
        file.write_bytes(content)
        check_learned(outcome(lambda: read(file)))

    assert read(file)
    for_all(examples, damaged(file.read_bytes()), check)


@pytest.mark.parametrize("kind", ["coop", "maple"])
@few_and_many
def test_edited_checkpoints_are_refused_or_finite(kind: str, tmp_path: Path, examples: int) -> None:
    file = tmp_path / "learned.pth"
    weights = {"ctx": torch.randn(4, 8), "token_prefix": torch.randn(2, 1, 8)} if kind == "coop" else maple_weights()
    content = {name: tensor.tolist() for name, tensor in weights.items()}
    read: Any = read_coop if kind == "coop" else read_maple

    def check(other: Any) -> None:
        tensors = {name: as_tensor(value) for name, value in other.items()} if isinstance(other, dict) else other
        torch.save({"state_dict": tensors}, file)
        check_learned(outcome(lambda: read(file)))

    for_all(examples, altered(content), check)


def as_tensor(value: Any) -> Any:
    try:
        return torch.tensor(value)
    except (ValueError, TypeError, RuntimeError, OverflowError):
        return value
