"""Every backbone that can be had offline passes its kit, and the kit notices what it is there to notice."""

from __future__ import annotations

import itertools
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar, Self

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn.functional import normalize

from tests.conftest import TOY, Invoke
from tests.unit.small_models import FAMILIES
from tta_bench.checks import backbones as kit
from tta_bench.errors import UsageError, WeightsMissing
from tta_bench.interfaces import Backbone, Preprocess
from tta_bench.plugins import Registry
from tta_bench.system.files import digest

REGISTRY = Registry()


@pytest.mark.parametrize("name", REGISTRY.names("backbones"))
def test_backbones_can_be_imported_and_say_who_they_are(name: str) -> None:
    assert REGISTRY.backbone(name).name == name


def test_tiny_conforms() -> None:
    assert [v for v in kit.examine(REGISTRY.backbone("tiny")).verdicts if not v.passed or v.skipped] == []


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_conforms_in_small(family: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cls: Any = FAMILIES[family].shrink(monkeypatch)
    untrained = kit.examine(cls, random_weights=True)
    assert [v for v in untrained.verdicts if not v.passed or v.skipped] == []
    assert "untrained" in untrained.remark
    file = tmp_path / "weights.safetensors"
    save_file({k: v.clone().contiguous() for k, v in cls.random("cpu").model.state_dict().items()}, file)
    loaded = kit.examine(cls, weights=file)
    assert [v for v in loaded.verdicts if not v.passed or v.skipped] == []
    assert not loaded.remark


# ------------------------------------------------------------------------------------------------- planted faults

SIZE, DIM = 4, 8


class Good:
    """A linear layer over pixels and one over letters; the faults below are planted into it."""

    name: ClassVar[str] = "good"
    preprocess: Any = Preprocess(SIZE)
    embed_dim = DIM
    logit_scale: Any = 20.0
    logit_bias = 0.0
    random_weights = False

    def __init__(self, state: dict[str, Tensor], precision: str) -> None:
        self.dtype = torch.bfloat16 if precision == "bf16" else torch.float32
        self.model = nn.Linear(3 * SIZE**2, DIM, bias=False)
        self.model.load_state_dict(state)
        self.letters = torch.randn(64, DIM, generator=torch.Generator().manual_seed(1))
        self.fingerprint = self.identify(state, precision)

    def identify(self, state: dict[str, Tensor], precision: str) -> str:
        return digest([{name: tensor.tolist() for name, tensor in state.items()}, precision])

    @classmethod
    def load(cls, device: str, weights: Path | None = None, precision: str = "fp32") -> Self:
        return cls(load_file(weights) if weights else cls.draw(0), precision)

    @classmethod
    def random(cls, device: str, precision: str = "fp32", seed: int = 0) -> Self:
        backbone = cls(cls.draw(seed), precision)
        backbone.random_weights = True
        return backbone

    @staticmethod
    def draw(seed: int) -> dict[str, Tensor]:
        return {"weight": torch.randn(DIM, 3 * SIZE**2, generator=torch.Generator().manual_seed(seed))}

    def encode_images(self, pixels: Tensor) -> Tensor:
        weight = self.model.weight.detach().to(self.dtype)
        return normalize(((pixels - 0.4).flatten(1).to(self.dtype) @ weight.T).float(), dim=-1)

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        return normalize(torch.stack([self.init_context(text).mean(0) for text in texts]), dim=-1)

    def init_context(self, words: str) -> Tensor:
        return self.letters[[ord(c) % 64 for c in words or " "]]

    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        rows = [torch.cat([context, self.init_context(f" {name}.")]).mean(0) for name in class_names]
        return normalize(torch.stack(rows), dim=-1)


class WantsNoSize(Good):
    preprocess = Preprocess(0)


class WantsAStrangeResize(Good):
    preprocess = Preprocess(SIZE, resize="stretch")  # type: ignore[arg-type]


class TurnsScoresRound(Good):
    logit_scale = -1.0


class HasAnInfiniteScale(Good):
    logit_scale = float("inf")


class ExponentiatesTwice(Good):
    logit_scale = math.exp(20.0)


class IsNotUnitNorm(Good):
    def encode_images(self, pixels: Tensor) -> Tensor:
        return 2 * super().encode_images(pixels)


class IsHalf(Good):
    def encode_images(self, pixels: Tensor) -> Tensor:
        return super().encode_images(pixels).half()


class IsNotFinite(Good):
    def encode_images(self, pixels: Tensor) -> Tensor:
        return normalize(pixels.flatten(1)[:, :DIM], dim=-1, eps=0)  # a black image: 0 / 0


class IsTooNarrow(Good):
    def encode_images(self, pixels: Tensor) -> Tensor:
        return normalize(super().encode_images(pixels)[:, :-1], dim=-1)


class KeepsTheGraph(Good):
    def encode_images(self, pixels: Tensor) -> Tensor:
        return normalize(self.model((pixels - 0.4).flatten(1)), dim=-1)


class FailsForNoText(Good):
    def init_context(self, words: str) -> Tensor:
        return self.letters[[ord(c) % 64 for c in words]]


class FailsBeyondAscii(Good):
    def init_context(self, words: str) -> Tensor:
        return super().init_context(words.encode("ascii").decode())


class NormalisesTheBatch(Good):
    def encode_images(self, pixels: Tensor) -> Tensor:
        return super().encode_images(pixels - pixels.mean(0) if len(pixels) > 1 else pixels)


class DropsOut(Good):
    def encode_images(self, pixels: Tensor) -> Tensor:
        return super().encode_images(pixels * (torch.rand(pixels.shape) > 0.1))


class SeesNothing(Good):
    def encode_images(self, pixels: Tensor) -> Tensor:
        return super().encode_images(torch.ones_like(pixels))


class SubtractsInPlace(Good):
    def encode_images(self, pixels: Tensor) -> Tensor:
        return super().encode_images(pixels.sub_(0.1))


class HasAFingerprintPerLoading(Good):
    loaded: ClassVar[Any] = itertools.count()

    def identify(self, state: dict[str, Tensor], precision: str) -> str:
        return str(next(self.loaded))


class HasOneFingerprintForAllPrecisions(Good):
    def identify(self, state: dict[str, Tensor], precision: str) -> str:
        return super().identify(state, "")


class HasOneFingerprintForAllWeights(Good):
    def identify(self, state: dict[str, Tensor], precision: str) -> str:
        return f"{type(self).__name__}-{precision}"


class HasOneFingerprintForAllSeeds(HasOneFingerprintForAllWeights):
    """As above, but it reads no weights file."""

    @classmethod
    def load(cls, device: str, weights: Path | None = None, precision: str = "fp32") -> Self:
        if weights is not None:
            raise UsageError("there is no weights file to name")
        return cls(cls.draw(0), precision)


class HasAnotherContext(Good):
    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        return super().encode_context(context, [name.upper() for name in class_names])


class TunesNothing(Good):
    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        return super().encode_context(context.detach(), class_names)


class PretendsToBeUntrained(Good):
    random_weights = True


@pytest.mark.parametrize(
    ("backbone", "check"),
    [
        (WantsNoSize, "preprocess makes sense"),
        (WantsAStrangeResize, "preprocess makes sense"),
        (TurnsScoresRound, "logit scale and bias"),
        (HasAnInfiniteScale, "logit scale and bias"),
        (ExponentiatesTwice, "logit scale and bias"),
        (IsNotUnitNorm, "image features"),
        (IsHalf, "image features"),
        (IsNotFinite, "image features"),
        (IsTooNarrow, "image features"),
        (KeepsTheGraph, "image features"),
        (FailsForNoText, "text features"),
        (FailsBeyondAscii, "text features"),
        (NormalisesTheBatch, "the batch does not matter"),
        (DropsOut, "deterministic"),
        (SeesNothing, "tells inputs apart"),
        (SubtractsInPlace, "leaves its inputs alone"),
        (HasAFingerprintPerLoading, "fingerprint is stable"),
        (HasOneFingerprintForAllPrecisions, "fingerprint knows the precision"),
        (HasOneFingerprintForAllWeights, "fingerprint knows the weights"),
        (HasOneFingerprintForAllSeeds, "fingerprint knows the weights"),
        (HasAnotherContext, "a context of words is the words"),
        (TunesNothing, "a context of words is the words"),
        (PretendsToBeUntrained, "untrained says so"),
    ],
)
def test_the_kit_notices(backbone: type[Backbone], check: str) -> None:
    verdicts = {v.check: v for v in kit.examine(backbone).verdicts}
    assert not verdicts[check].passed
    assert verdicts[check].reason


def test_the_kit_has_nothing_against_a_good_one() -> None:
    for untrained in (False, True):
        assert [v for v in kit.examine(Good, None, untrained).verdicts if not v.passed or v.skipped] == []


def test_every_check_has_a_planted_fault() -> None:
    planted = next(m for m in test_the_kit_notices.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    assert {check for _, check in planted.args[1]} == set(kit.CHECKS)


class CanNotBeTuned(Good):
    @property
    def start_embedding(self) -> Tensor:
        raise UsageError("the prompts of this kind of text tower can't be tuned")

    def init_context(self, words: str) -> Tensor:
        return self.start_embedding

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        return normalize(torch.stack([Good.init_context(self, text).mean(0) for text in texts]), dim=-1)


def test_what_does_not_apply_counts_against_nobody() -> None:
    examination = kit.examine(CanNotBeTuned)
    assert examination.passed
    assert {v.check: v.reason for v in examination.verdicts if v.skipped} == {
        "a context of words is the words": "the prompts of this kind of text tower can't be tuned"
    }


def test_an_untrained_backbone_that_does_not_say_so() -> None:
    class Hides(Good):
        @classmethod
        def random(cls, device: str, precision: str = "fp32", seed: int = 0) -> Self:
            return cls(cls.draw(seed), precision)

    verdicts = {v.check: v for v in kit.examine(Hides, random_weights=True).verdicts}
    assert "pass for real ones" in verdicts["untrained says so"].reason


def test_what_loading_raises_is_a_verdict_and_missing_weights_are_not() -> None:
    class Exits(Good):
        @classmethod
        def load(cls, device: str, weights: Path | None = None, precision: str = "fp32") -> Self:
            sys.exit("no GPU\nfound")

    class LacksWeights(Good):
        @classmethod
        def load(cls, device: str, weights: Path | None = None, precision: str = "fp32") -> Self:
            raise WeightsMissing("not here")

    (verdict,) = kit.examine(Exits).verdicts
    assert verdict.reason.startswith("SystemExit: no GPU found (test_backbones.py, line ")
    with pytest.raises(WeightsMissing, match=r"not here\nOr check the architecture without them: --random-weights"):
        kit.examine(LacksWeights)


def test_check_on_the_command_line(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    good = invoke("check", "tiny")
    assert good.code == 0, good.err
    assert good.out.count("passed") == len(kit.CHECKS)
    FAMILIES["clip-vit"].shrink(monkeypatch)
    untrained = invoke("check", "backbones.vit-b16", "--random-weights")
    assert untrained.code == 0, untrained.err
    assert "backbones.vit-b16 (untrained: the architecture with random weights)" in untrained.out
    assert invoke("check", "toyclip", "--plugin", str(TOY)).out.count("can't tell") == 2
    assert "can't be had with random weights" in invoke("check", "tiny", "--random-weights").err
