"""A toy dataset, two toy backbones and small methods that go through every door of the interfaces. Tests only.

They are quick and deterministic. `TOY_DELAY` (seconds per rendered image and per step) gives a test the time to kill.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from tta_bench import hookimpl
from tta_bench.errors import BadData, UnknownName
from tta_bench.interfaces import Method, Observation, Preprocess, Sample, Task, ViewRecipe
from tta_bench.views import AugMix, Plain, RandomCrops

CLASSES = ("red", "green", "blue", "grey")


def delay() -> None:
    """Asked for each time: a variable that is another one after a restart would be taken for something learnt."""
    time.sleep(float(os.environ.get("TOY_DELAY", "0")))


def seeded(text: str) -> np.random.Generator:
    return np.random.default_rng(int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big"))


class Toy:
    """Noise images with a tint for each label. Variant `corrupt` has one image that can't be decoded."""

    name: ClassVar[str] = "toy"
    variants = ("default", "corrupt")
    class_names: tuple[str, ...] = CLASSES

    def __init__(self, variant: str) -> None:
        self.variant = variant
        self.fingerprint = f"toy/{variant}"

    @classmethod
    def open(cls, root: Path, variant: str = "default") -> Self:
        if variant not in cls.variants:
            raise UnknownName("variant of toy", variant, cls.variants)
        return cls(variant)

    def __len__(self) -> int:
        return 24

    def __getitem__(self, i: int) -> Sample:
        if not 0 <= i < len(self):
            raise IndexError(i)
        labels = (seeded(f"labels/{i}").random(4) < 0.5).astype(np.int8)
        return Sample(f"toy-{i:03d}", lambda: self._image(i, labels), labels)

    def _image(self, i: int, labels: np.ndarray[Any, Any]) -> Image.Image:
        delay()
        if self.variant == "corrupt" and i == 7:
            raise BadData("toy-007.png: the image is truncated")
        pixels = seeded(f"pixels/{i}").integers(0, 160, (20, 24, 3))
        pixels[..., :3] += 60 * labels[:3]
        return Image.fromarray(pixels.clip(0, 255).astype(np.uint8))


class ToyCLIP:
    """Random projections of pixels and of letters: features without sense, but with every property of real ones."""

    name: ClassVar[str] = "toyclip"
    embed_dim = 16
    image_size = 8
    logit_scale, logit_bias = 20.0, 0.0
    preprocess = Preprocess(8)

    def __init__(self) -> None:
        rng = seeded(self.name)
        size = 3 * self.image_size**2
        self.projection = torch.from_numpy(rng.standard_normal((size, self.embed_dim))).float()
        self.letters = torch.from_numpy(rng.standard_normal((128, self.embed_dim))).float()
        self.fingerprint = f"{self.name}-1"

    @classmethod
    def load(cls, device: str, weights: Path | None = None, precision: str = "fp32") -> Self:
        return cls()

    def encode_images(self, pixels: Tensor) -> Tensor:
        return normalize((pixels.flatten(1) - 0.5) @ self.projection, dim=-1)

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        return normalize(torch.stack([self._letters(text).mean(0) for text in texts]), dim=-1)

    def _letters(self, text: str) -> Tensor:
        return self.letters[[ord(c) % 128 for c in text or " "]]  # without a letter there would be no mean

    def init_context(self, words: str) -> Tensor:
        return self._letters(words)

    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        rows = [torch.cat([context, self._letters(f" {name}.")]).mean(0) for name in class_names]
        return normalize(torch.stack(rows), dim=-1)


class ToyReward(ToyCLIP):
    name: ClassVar[str] = "toyreward"
    embed_dim = 12


@dataclass
class TwoBranches(Method):
    """Returns two branches and fuses them in `finish`, with statistics of the whole run."""

    name: ClassVar[str] = "twobranches"
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(5), "regions": RandomCrops(3)}
    weight: float = 0.5  # of the first branch

    def start(self, task: Task) -> None:
        self.task = task
        self.mean = torch.zeros_like(task.text[0])
        self.seen = 0

    def step(self, x: Observation) -> Tensor:
        delay()
        self.seen += 1
        self.mean += (x.image - self.mean) / self.seen
        noise = torch.randn(x.image.shape, generator=self.task.rng)
        views, regions = x["views"].mean(0), x["regions"].amax(0)
        self.report({"seen": self.seen, "drift": self.mean.norm()})
        return torch.stack([self.task.text @ (views - self.mean), self.task.text @ (regions + 0.1 * noise)])

    def finish(self, outputs: Tensor) -> Tensor:
        low, high = outputs.amin((0, 2), keepdim=True), outputs.amax((0, 2), keepdim=True)
        scaled = (outputs - low) / (high - low)  # [N, 2, C]
        return self.weight * scaled[:, 0] + (1 - self.weight) * scaled[:, 1]


@dataclass
class PromptTuner(Method):
    """One gradient step on the prompt's context for each image."""

    name: ClassVar[str] = "prompttuner"
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": Plain(4)}
    tunes_prompts: ClassVar[bool] = True
    lr: float = 0.1

    def start(self, task: Task) -> None:
        assert task.prompts is not None
        self.task = task
        self.context = task.prompts.init_context("a photo of a")

    def step(self, x: Observation) -> Tensor:
        assert self.task.prompts is not None
        context = self.context.clone().requires_grad_()
        with torch.enable_grad():
            logits = self.task.scale * x["views"] @ self.task.prompts.encode_context(context, self.task.class_names).T
            (gradient,) = torch.autograd.grad(-logits.log_softmax(-1).amax(-1).mean(), context)
        tuned = self.task.prompts.encode_context(context.detach() - self.lr * gradient, self.task.class_names)
        return self.task.scale * tuned @ x.image


@dataclass
class SecondEyes(Method):
    """Scores with a second backbone's features beside its own."""

    name: ClassVar[str] = "secondeyes"
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": Plain(4)}
    reward: str = "toyreward"

    def second_backbone(self) -> str:
        return self.reward

    def start(self, task: Task) -> None:
        self.task = task

    def step(self, x: Observation) -> Tensor:
        assert self.task.reward_text is not None
        assert x["reward"].shape == (1 + len(x["views"]), self.task.reward_text.shape[-1])
        assert x.pixels("views").shape == (4, 3, 8, 8)
        return self.task.text @ x.image + (x["reward"] @ self.task.reward_text.T).mean(0)


@dataclass
class Broken(Method):
    """Goes wrong at the third image, in the way it is asked to."""

    name: ClassVar[str] = "broken"
    how: str = "nan"

    def start(self, task: Task) -> None:
        self.classes = len(task.class_names)

    def step(self, x: Observation) -> Tensor:
        scores = torch.zeros(self.classes)
        if x.index < 2:
            return scores
        if self.how == "raise":
            raise ZeroDivisionError("division by\nzero")
        return {"nan": scores / 0, "shape": scores[1:], "interrupt": scores}[self.how]


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [TwoBranches, PromptTuner, SecondEyes, Broken]


@hookimpl
def ttabench_datasets() -> list[type[Toy]]:
    return [Toy]


@hookimpl
def ttabench_backbones() -> list[type[ToyCLIP]]:
    return [ToyCLIP, ToyReward]
