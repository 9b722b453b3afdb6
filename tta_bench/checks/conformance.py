"""`ttabench check`: does a method keep the rules that make its numbers trustworthy?

The kit needs no data and no weights: it feeds the method random features, and structured ones in which an image is a
mixture of class prototypes, as views and regions of the real recipes would give them.
"""

from __future__ import annotations

import copy
import functools
import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tta_bench import metrics
from tta_bench.checks.verdicts import Checks, Examination
from tta_bench.interfaces import Method, Observation, Task, TextEncoder
from tta_bench.runs.roles import refuse_odd_roles
from tta_bench.system.fields import unused_default

DIM = 32
IMAGES = 24
VIEWS_AT_MOST = 31
TOLERANCE = 2e-3  # of a permuted sum of float32, amplified by the logit scale and by g / (|g| + eps)


@dataclass(frozen=True)
class World:
    """Synthetic features: class prototypes, and images with views that show some of the classes."""

    classes: int = 6
    views: int | None = None  # rows of every role; None: as many as the recipe says, within reason
    structured: bool = True
    duplicate: bool = False  # the last class is a copy of the first
    equal: bool = False  # all views and regions are the image itself
    seed: int = 0
    permutation: tuple[int, ...] | None = None

    def _draw(self, *shape: int, salt: int = 0) -> Tensor:
        return torch.randn(*shape, generator=torch.Generator().manual_seed(1000 * self.seed + salt))

    def _arranged(self, per_class: Tensor) -> Tensor:
        if self.duplicate:
            per_class = torch.cat([per_class[:-1], per_class[:1]]) if len(per_class) > 1 else per_class
        return per_class if self.permutation is None else per_class[list(self.permutation)]

    def task(self, method: Method) -> Task:
        prototypes = normalize(self._draw(self.classes, DIM), dim=-1)
        bank = normalize(prototypes[:, None] + 0.1 * self._draw(self.classes, 4, DIM, salt=1), dim=-1)
        bank = self._arranged(bank)  # [C, P, D]
        names = [f"class {c}" for c in range(self.classes)]
        if self.permutation is not None:
            names = [names[c] for c in self.permutation]
        rewarded = method.second_backbone() is not None
        return Task(
            class_names=names,
            text=normalize(bank.mean(1), dim=-1),
            text_bank=bank,
            scale=50.0,
            encode_texts=TextEncoder(_Letters().encode_texts),
            prompts=_Letters() if method.tunes_prompts else None,
            rng=torch.Generator().manual_seed(7),
            reward_text=self._arranged(normalize(self._draw(self.classes, 20, salt=2), dim=-1)) if rewarded else None,
        )

    def stream(self, method: Method, images: int = IMAGES) -> Iterator[Observation]:
        refuse_odd_roles(method)
        prototypes = normalize(self._draw(self.classes, DIM), dim=-1)
        for i in range(images):
            shown = self._draw(self.classes, salt=10 + i).sigmoid().square()  # [C] how much of each class is visible
            image = normalize(self._feature(shown, prototypes, 1, 100 + i)[0], dim=-1)
            roles = {role: self._rows(recipe.count) for role, recipe in method.recipes.items()}
            views = {
                role: image.expand(rows, DIM).clone()
                if self.equal
                else self._feature(shown, prototypes, rows, 10_000 * (r + 1) + i)
                for r, (role, rows) in enumerate(roles.items())
            }
            if method.second_backbone() is not None:
                views["reward"] = normalize(self._draw(1 + roles["views"], 20, salt=90_000 + i), dim=-1)
            yield _Watched(i, image, views, functools.partial(self._pixels, {"image": 1, **roles}, i))

    def _pixels(self, rows: Mapping[str, int], i: int, role: str) -> Tensor:
        return self._draw(rows[role], 3, 8, 8, salt=i).sigmoid()  # they need not fit the features

    def _rows(self, count: int) -> int:
        return min(count, VIEWS_AT_MOST) if self.views is None else self.views

    def _feature(self, shown: Tensor, prototypes: Tensor, rows: int, salt: int) -> Tensor:
        noise = self._draw(rows, DIM, salt=salt)
        if not self.structured:
            return normalize(noise, dim=-1)
        part = shown * self._draw(rows, self.classes, salt=salt + 5000).sigmoid()  # each view shows another part
        return normalize(part @ prototypes + 0.05 * noise, dim=-1)


class _Watched(Observation):
    """Remembers what a method asks for beyond the interface: there is nothing else, labels least of all."""

    forbidden: set[str] = set()  # noqa: RUF012  # shared on purpose, emptied by the check

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("__"):
            _Watched.forbidden.add(name)
        raise AttributeError(f"an observation has no '{name}'")


class _Letters:
    """A text tower of one linear layer over letters, for methods that tune prompts."""

    def __init__(self) -> None:
        self.table = torch.randn(128, DIM, generator=torch.Generator().manual_seed(3))

    def init_context(self, words: str) -> Tensor:
        return self.table[[ord(c) % 128 for c in words]]

    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        rows = [torch.cat([context, self.init_context(f" {name}.")]).tanh().mean(0) for name in class_names]
        return normalize(torch.stack(rows), dim=-1)

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        return normalize(torch.stack([self.init_context(text).tanh().mean(0) for text in texts]), dim=-1)


# --------------------------------------------------------------------------------------------------------- checks

Make = Callable[[], Method]


def scores_of(method: Method, world: World) -> Tensor:
    """The outputs [N, B, C] of a fresh start."""
    task = world.task(method)
    with torch.no_grad():
        method.start(task)
        return torch.stack([_branches(method.step(x)) for x in world.stream(method)])


def _branches(scores: Tensor) -> Tensor:
    return scores.detach().clone() if scores.dim() == 2 else scores.detach().clone()[None]


def _finished(method: Method, world: World) -> Tensor:
    """The scores [N, C] that are ranked: what branches hold besides is the method's own affair."""
    return method.finish(scores_of(method, world))


def _well_formed(make: Make, world: World) -> str:
    method = make()
    scores = scores_of(method, world)
    if scores.shape[0] != IMAGES or scores.shape[-1] != world.classes:
        return f"scores have shape {tuple(scores.shape[1:])}, not [{world.classes}] or [B, {world.classes}]"
    if not torch.isfinite(scores).all():
        return f"{int((~torch.isfinite(scores)).sum())} scores are not finite"
    kept = scores.clone()
    finished = method.finish(scores)
    if not torch.equal(scores, kept):
        return "finish changes what step returned in place"
    if finished.shape != (IMAGES, world.classes) or not torch.isfinite(finished).all():
        return "finish does not return finite scores [N, C]"
    return ""


def _no_labels(make: Make) -> str:
    _Watched.forbidden.clear()
    method = make()
    scores_of(method, World())
    if _Watched.forbidden:
        return f"it reads {', '.join(sorted(_Watched.forbidden))} of an observation"
    return ""


def _inputs_untouched(make: Make) -> str:
    method, world = make(), World()
    task = world.task(method)
    before = copy.deepcopy({name: getattr(task, name) for name in ("text", "text_bank", "reward_text")})
    stream = list(world.stream(method))
    kept = [(x.image.clone(), {k: v.clone() for k, v in x.views.items()}) for x in stream]
    with torch.no_grad():
        method.start(task)
        for x in stream:
            method.step(x)
    for name, old in before.items():
        if old is not None and not torch.equal(old, getattr(task, name)):
            return f"it changes task.{name} in place"
    for x, (image, views) in zip(stream, kept, strict=True):
        if not torch.equal(x.image, image) or any(not torch.equal(x[k], v) for k, v in views.items()):
            return "it changes an observation in place"
    return ""


def _permutation(make: Make) -> str:
    order = (3, 0, 5, 1, 4, 2)
    plain, permuted = (_finished(make(), World(permutation=p)) for p in (None, order))
    worst = float((plain[:, list(order)] - permuted).abs().max())
    return "" if worst <= TOLERANCE * (1 + float(plain.abs().max())) else f"scores differ by {worst:.3g}"


def _forgets(make: Make) -> str:
    method = make()
    first = scores_of(method, World())
    scores_of(method, World(seed=1))
    return "" if torch.equal(first, scores_of(method, World())) else "a second start() gives other scores"


def _deterministic(make: Make) -> str:
    same = torch.equal(scores_of(make(), World()), scores_of(make(), World()))
    return "" if same else "two runs on the same stream differ"


def _round_trip(make: Make) -> str:
    world, half = World(), IMAGES // 2
    whole = scores_of(make(), world)
    first, second = make(), make()
    task = world.task(first)
    stream = list(world.stream(first))
    with torch.no_grad():
        first.start(task)
        for x in stream[:half]:
            first.step(x)
        buffer = io.BytesIO()
        torch.save({"state": first.state_dict(), "rng": task.rng.get_state()}, buffer)
        buffer.seek(0)
        saved = torch.load(buffer, weights_only=True)
        task = world.task(second)
        second.start(task)
        second.load_state_dict(saved["state"])
        task.rng.set_state(saved["rng"])
        rest = torch.stack([_branches(second.step(x)) for x in stream[half:]])
    return "" if torch.equal(whole[half:], rest) else "after a restart in mid-stream the scores are not bit-identical"


def _memory(make: Make) -> str:
    method, world = make(), World(classes=3)
    sizes = []
    with torch.no_grad():
        method.start(world.task(method))
        for i, x in enumerate(world.stream(method, 120), start=1):
            method.step(x)
            if i in (60, 120):
                buffer = io.BytesIO()
                torch.save(method.state_dict(), buffer)
                sizes.append(buffer.tell())
    return (
        "" if sizes[1] <= 1.2 * sizes[0] else f"its state grows: {sizes[0]} bytes after 60 images, {sizes[1]} after 120"
    )


def _fields_are_data(make: Make) -> str:
    from tta_bench.runs.hyperparameters import values_of

    method = make()
    try:
        json.dumps(values_of(method))
    except TypeError as error:
        return f"hyper-parameters must be plain data: {error}"
    return unused_default(type(method))


CHECKS: Checks[Make] = {
    "hyper-parameters are plain data": _fields_are_data,
    "scores on structured features": lambda make: _well_formed(make, World()),
    "scores on random features": lambda make: _well_formed(make, World(structured=False)),
    "reads no labels": _no_labels,
    "leaves its inputs alone": _inputs_untouched,
    "class order does not matter": _permutation,
    "start() forgets": _forgets,
    "deterministic": _deterministic,
    "state survives a restart": _round_trip,
    "memory does not grow": _memory,
    "1 class": lambda make: _well_formed(make, World(classes=1)),
    "original view only": lambda make: _well_formed(make, World(views=0)),
    "1 view": lambda make: _well_formed(make, World(views=1)),
    "5 views": lambda make: _well_formed(make, World(views=5)),
    "duplicate classes": lambda make: _well_formed(make, World(duplicate=True)),
    "50 identical regions": lambda make: _well_formed(make, World(views=50, equal=True)),
    "all images equal": lambda make: _well_formed(make, _Same()),
}


@dataclass(frozen=True)
class _Same(World):
    """The same image again and again."""

    def stream(self, method: Method, images: int = IMAGES) -> Iterator[Observation]:
        first = next(super().stream(method, 1))
        for i in range(images):
            yield _Watched(i, first.image, first.views, first.load_pixels)


def examine(cls: type[Method]) -> Examination:
    examination = Examination(f"methods.{cls.name}")
    examination.judge(CHECKS, cls, cls)
    if examination.passed:
        examination.notes += _oddities(cls)
    return examination


def _oddities(make: Make) -> list[str]:
    """What is odd about the scores of a method that is otherwise sound."""
    return metrics.oddities(_finished(make(), World()).numpy())
