"""Train the embedded backbone `tiny` from scratch on clean training scenes. See docs/embedded.md.

python training/train_tiny.py                  # writes tta_bench/data/tiny.safetensors
"""

from __future__ import annotations

import argparse
import math
import random
import time
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, fields
from multiprocessing import Pool
from pathlib import Path

import numpy as np
import torch
from evaluate_tiny import evaluate
from safetensors.torch import save_file
from torch import Tensor
from torch.nn.functional import log_softmax
from torchvision.ops import roi_align

from tta_bench.backbones._open_clip import trimmed_text_features
from tta_bench.backbones.tiny import WEIGHTS, build_model, build_tokenizer, read_config
from tta_bench.datasets._scenes_layout import CLASS_NAMES, SIDE, render
from tta_bench.datasets._scenes_places import PLACES
from tta_bench.datasets.scenes import layout_of

MOST_OBJECTS = 6
# How often a training view is the whole scene, a random square, a square around an object: mostly one object at a time
# first, so that shapes are learned before scenes.
FIRST_VIEWS, LAST_VIEWS = (0.05, 0.05, 0.90), (0.40, 0.35, 0.25)
TEMPLATES = ("a photo of a {}.", "a photo of a {}.", "a {}.", "a picture of a {}.", "a drawing of a {}.", "the {}",
             "a photo of the {}.", "there is a {}", "a small {}.", "a large {}.", "one {} and more.")  # fmt: skip
NUMBERS = ("no", "one", "two", "three", "four", "five", "six")


@dataclass(frozen=True)
class Recipe:
    """Everything that shapes the weights."""

    scenes: int = 24000
    steps: int = 4000
    batch: int = 128
    captions: int = 24
    muon_rate: float = 8e-3
    adam_rate: float = 2e-3
    weight_decay: float = 0.05  # of Muon
    warmup: int = 100
    curriculum: float = 0.4  # share of the steps after which the views are mixed as at the end
    seed: int = 0


# ------------------------------------------------------------------------------------------------ scenes and crops


@dataclass(frozen=True)
class Shelf:
    """Rendered training scenes, and what is where in them."""

    pixels: Tensor  # [N, 3, S, S] uint8
    boxes: Tensor  # [N, 6, 4] in pixels; an empty place holds zeros
    classes: Tensor  # [N, 6], -1 where there is no object
    places: Tensor  # [N]


def render_shelf(indices: range) -> Shelf:
    count = len(indices)
    pixels = np.empty((count, 3, SIDE, SIDE), np.uint8)
    boxes = np.zeros((count, MOST_OBJECTS, 4), np.float32)
    classes = np.full((count, MOST_OBJECTS), -1)
    places = np.empty(count, np.int64)
    for i, index in enumerate(indices):
        layout = layout_of("train", index)
        pixels[i] = np.asarray(render(layout)).transpose(2, 0, 1)
        places[i] = PLACES.index(layout.place)
        for j, thing in enumerate(layout.objects):
            classes[i, j] = CLASS_NAMES.index(thing.name)
            boxes[i, j] = np.clip(thing.box, 0, 1)
    return Shelf(*map(torch.from_numpy, (pixels, boxes * SIDE, classes, places)))


def fill_shelf(count: int, workers: int) -> Shelf:
    """The first `count` training scenes, rendered in several processes."""
    chunks = [range(i, min(i + 500, count)) for i in range(0, count, 500)]
    with Pool(workers) as pool:
        shelves = pool.map(render_shelf, chunks, chunksize=1)
    parts = ([getattr(shelf, field.name) for shelf in shelves] for field in fields(Shelf))
    return Shelf(*map(torch.cat, parts))


@dataclass(frozen=True)
class Batch:
    pixels: Tensor  # [B, 3, S, S] in [0, 1]
    counts: Tensor  # [B, C] how many objects of each class the view shows
    places: Tensor  # [B]


def draw_batch(shelf: Shelf, size: int, pixels: int, kinds: Tensor, rng: torch.Generator) -> Batch:
    """Random views of random scenes. An object counts when at least 40 % of its box lies in the view."""
    chosen = torch.randint(len(shelf.places), (size,), generator=rng)
    boxes, classes = shelf.boxes[chosen], shelf.classes[chosen]
    views = draw_views(boxes, classes, kinds, rng)  # [B, 4]
    corner = torch.maximum(boxes[..., :2], views[:, None, :2])
    overlap = (torch.minimum(boxes[..., 2:], views[:, None, 2:]) - corner).clamp(min=0).prod(-1)
    area = (boxes[..., 2:] - boxes[..., :2]).prod(-1)
    shown = (overlap > 0.4 * area) & (classes >= 0)  # [B, 6]
    counts = torch.zeros(size, len(CLASS_NAMES)).scatter_add_(1, classes.clamp(min=0), shown.float())
    numbered = torch.cat([torch.arange(size)[:, None], views], dim=1)
    crops = roi_align(shelf.pixels[chosen].float() / 255, numbered, pixels, sampling_ratio=2, aligned=True)
    mirrored = torch.rand(size, generator=rng) < 0.5
    crops[mirrored] = crops[mirrored].flip(-1)
    return Batch(crops, counts, shelf.places[chosen])


def draw_views(boxes: Tensor, classes: Tensor, kinds: Tensor, rng: torch.Generator) -> Tensor:
    """One square per scene, [B, 4] in pixels; `kinds` [3]: how often the whole, any, one around an object."""
    size = len(boxes)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(size, *shape, generator=rng)

    kind = torch.multinomial(kinds, size, replacement=True, generator=rng)
    which = (uniform(0, 1) * (classes >= 0).sum(1)).long()  # one of the scene's objects
    box = boxes[torch.arange(size), which]
    extent = (box[:, 2:] - box[:, :2]).amax(1)
    side = torch.full((size,), float(SIDE))
    side = torch.where(kind == 1, SIDE * uniform(0.4, 0.95), side)
    side = torch.where(kind == 2, extent * uniform(1.05, 2.2), side).clamp(16, SIDE)
    about = (box[:, :2] + box[:, 2:]) / 2 + 0.2 * (side - extent)[:, None] * uniform(-1, 1, 2)
    room = (SIDE - side)[:, None]
    corner = torch.where((kind == 2)[:, None], about - side[:, None] / 2, uniform(0, 1, 2) * room)
    corner = corner.clamp(min=0).minimum(room)
    return torch.cat([corner, corner + side[:, None]], dim=1)


# -------------------------------------------------------------------------------------------------------- captions


@dataclass
class Captions:
    """Texts, and for which views each of them is true."""

    texts: list[str]
    true: Tensor  # [B, T] bool


def class_captions(batch: Batch, rng: random.Random) -> Captions:
    """One caption per class."""
    return Captions([rng.choice(TEMPLATES).format(name) for name in CLASS_NAMES], batch.counts > 0)


def view_captions(batch: Batch, count: int, rng: random.Random) -> Captions:
    """A caption for each of the first views: objects and their place, or how many there are of one class."""
    texts, truths = [], []
    for counts, place in zip(batch.counts[:count], batch.places[:count].tolist(), strict=True):
        present = counts.nonzero()[:, 0].tolist()
        rng.shuffle(present)
        here = batch.places == place
        if not present:
            texts.append(f"a photo of the {PLACES[place]}.")
            truths.append(here)
        elif rng.random() < 0.2:
            number = int(counts[present[0]])
            name = CLASS_NAMES[present[0]]
            texts.append(f"{NUMBERS[number]} {name if number == 1 else plural(name)}.")
            truths.append(batch.counts[:, present[0]] == number)
        else:
            named = present[: rng.randint(1, 4)]
            text = rng.choice(("a photo of ", "a picture of ", "")) + " and ".join(f"a {CLASS_NAMES[c]}" for c in named)
            true = (batch.counts[:, named] > 0).all(1)
            if rng.random() < 0.3:
                text, true = f"{text} in the {PLACES[place]}", true & here
            texts.append(f"{text}.")
            truths.append(true)
    return Captions(texts, torch.stack(truths, dim=1))


def plural(name: str) -> str:
    return {"fish": "fish", "butterfly": "butterflies"}.get(name, f"{name}s")


# -------------------------------------------------------------------------------------------------------- training


def contrastive(logits: Tensor, true: Tensor) -> Tensor:
    """Cross-entropy in both directions; the target is shared evenly by all captions (views) that are true.

    With two dozen classes a batch is full of captions that are true of other views too: counting them as negatives, as
    plain InfoNCE does, would teach the model to deny what it sees.
    """
    return soft_cross_entropy(logits, true) + soft_cross_entropy(logits.T, true.T)


def soft_cross_entropy(logits: Tensor, true: Tensor) -> Tensor:
    rows = true.any(1)
    target = true[rows].float()
    target = target / target.sum(1, keepdim=True)
    return -(target * log_softmax(logits[rows], dim=1)).sum(1).mean()


def schedule(step: int, recipe: Recipe) -> float:
    if step < recipe.warmup:
        return (step + 1) / recipe.warmup
    return 0.5 * (1 + math.cos(math.pi * (step - recipe.warmup) / (recipe.steps - recipe.warmup)))


def curriculum(step: int, recipe: Recipe) -> Tensor:
    """How often each kind of view is drawn, [3]."""
    progress = min(1.0, step / (recipe.curriculum * recipe.steps))
    return torch.tensor(FIRST_VIEWS).lerp(torch.tensor(LAST_VIEWS), progress)


class Muon:
    """Momentum whose update is brought near the closest orthogonal matrix, at AdamW's usual size.

    In float32, unlike PyTorch's own, whose bfloat16 products not every processor can do.
    """

    def __init__(self, parameters: list[torch.nn.Parameter], weight_decay: float, momentum: float = 0.95) -> None:
        self.parameters = parameters
        self.averages = [torch.zeros_like(p) for p in parameters]
        self.weight_decay = weight_decay
        self.momentum = momentum

    @torch.no_grad()
    def step(self, rate: float) -> None:
        for p, average in zip(self.parameters, self.averages, strict=True):
            assert p.grad is not None
            average.lerp_(p.grad, 1 - self.momentum)
            update = orthogonal(p.grad.lerp(average, self.momentum).flatten(1)).view_as(p)
            p.mul_(1 - rate * self.weight_decay)
            p.sub_(update, alpha=0.2 * rate * max(p.flatten(1).shape) ** 0.5)


def orthogonal(matrix: Tensor) -> Tensor:
    """All singular values near 1, by five Newton-Schulz steps."""
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonal(matrix.t()).t()
    x: Tensor = matrix / (matrix.norm() + 1e-7)
    for _ in range(5):
        gram = x @ x.T
        x = 3.4445 * x + (-4.7750 * gram + 2.0315 * gram @ gram) @ x
    return x


def build_optimizers(model: torch.nn.Module, recipe: Recipe) -> tuple[Muon, torch.optim.AdamW]:
    """Muon for the matrices of the image tower, AdamW for everything else."""
    matrices: list[torch.nn.Parameter] = []
    others: list[torch.nn.Parameter] = []
    for name, p in model.named_parameters():
        hidden = name.startswith(("visual.transformer", "visual.conv1")) and p.ndim >= 2
        if p.requires_grad:  # the position codes of the image tower are fixed
            (matrices if hidden else others).append(p)
    return Muon(matrices, recipe.weight_decay), torch.optim.AdamW(others, weight_decay=0.0, betas=(0.9, 0.98))


def train(recipe: Recipe, shelf: Shelf, output: Path) -> None:
    torch.manual_seed(recipe.seed)
    rng, words = torch.Generator().manual_seed(recipe.seed), random.Random(recipe.seed)
    config = read_config()
    pixels = config["preprocess_cfg"]
    model, tokenizer = build_model(config), build_tokenizer(config)
    mean, std = (torch.tensor(pixels[key]).view(3, 1, 1) for key in ("mean", "std"))

    began = time.perf_counter()
    muon, adam = build_optimizers(model, recipe)
    prefetch = ThreadPoolExecutor(1)  # one thread draws the batches, one after the other: their order is fixed

    def draw(step: int) -> Future[Batch]:
        return prefetch.submit(draw_batch, shelf, recipe.batch, pixels["size"], curriculum(step, recipe), rng)

    upcoming = draw(0)
    for step in range(recipe.steps):
        batch, upcoming = upcoming.result(), draw(step + 1)
        named, described = class_captions(batch, words), view_captions(batch, recipe.captions, words)
        tokens = tokenizer(named.texts + described.texts)
        image = model.encode_image((batch.pixels - mean) / std, normalize=True)  # [B, D]
        text = trimmed_text_features(model, tokens)  # [C + T, D]
        logits = model.logit_scale.exp() * image @ text.T
        split = len(CLASS_NAMES)
        loss = contrastive(logits[:, :split], named.true) + contrastive(logits[:, split:], described.true)
        model.zero_grad()
        torch.autograd.backward(loss)
        share = schedule(step, recipe)
        muon.step(recipe.muon_rate * share)
        adam.param_groups[0]["lr"] = recipe.adam_rate * share
        adam.step()
        with torch.no_grad():
            model.logit_scale.clamp_(0, math.log(100))
        if (step + 1) % 100 == 0 or step + 1 == recipe.steps:
            save(model, output)
            score = evaluate(output, "validation", ("clean",), 300, regions=0)["clean"][0]
            seconds, scale = time.perf_counter() - began, float(model.logit_scale.detach().exp())
            print(f"step {step + 1} loss {loss:.3f} scale {scale:.1f} clean {score:.1f} {seconds:.0f} s", flush=True)


def save(model: torch.nn.Module, output: Path) -> None:
    """Half precision: 16 bits are enough for what is loaded as float32 again, and halve the package."""
    save_file({name: value.half().contiguous() for name, value in model.state_dict().items()}, output)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Train the embedded backbone.")
    parser.add_argument("--output", type=Path, default=WEIGHTS)
    parser.add_argument("--steps", type=int, default=Recipe.steps)
    parser.add_argument("--workers", type=int, default=2, help="processes that render; the weights don't depend on it")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # sums are split over threads: another number would give other last digits
    torch.use_deterministic_algorithms(True)
    recipe = Recipe(steps=arguments.steps)
    began = time.perf_counter()
    shelf = fill_shelf(recipe.scenes, arguments.workers)
    print(f"{recipe.scenes} scenes rendered in {time.perf_counter() - began:.0f} s", flush=True)
    train(recipe, shelf, arguments.output)
