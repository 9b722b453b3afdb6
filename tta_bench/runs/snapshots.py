"""What a method holds, and what it makes of one image, at one point of a stream.

The features of a run are replayed up to there, by the method and through the doors that runs use: it sees no label.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tta_bench.errors import UnknownName, UsageError
from tta_bench.features.stream import Stream
from tta_bench.functional.class_cache import ClassCache
from tta_bench.interfaces import BackboneExtras, Observation, ViewRecipe
from tta_bench.metrics import Floats
from tta_bench.pixels.decode import decode
from tta_bench.runs.replay import adapting_threads, limited_threads
from tta_bench.system.code import blamed
from tta_bench.views import RandomCrops, uniforms

if TYPE_CHECKING:
    from PIL import Image

    from tta_bench.runs.bench import Bench
    from tta_bench.runs.run import Run
    from tta_bench.runs.spec import RunSpec
    from tta_bench.system.progress import Reporter

ROLE = "regions"


@dataclass(frozen=True)
class CacheSnapshot:
    """The entries of one method's class cache."""

    method: str
    dataset: str
    backbone: str
    step: int  # images seen
    shots: int  # entries that a class may have
    features: Floats  # [n, D] unit-norm
    classes: npt.NDArray[np.int64]  # [n] the class of each entry's slot: what the method took it for
    class_names: Sequence[str]


@dataclass(frozen=True)
class RegionSnapshot:
    """One image's regions as a method saw them, and as frozen CLIP would."""

    method: str
    dataset: str
    backbone: str
    image_id: str
    step: int  # images seen, this one included
    photo: Image.Image
    boxes: Floats  # [Q, 4] left, top, right, bottom, as shares of width and height
    kept: npt.NDArray[np.bool_]  # [Q]
    votes: npt.NDArray[np.int64]  # [Q] the class of each region
    pseudo_labels: npt.NDArray[np.bool_]  # [C]
    own: Floats  # [Q, C] probabilities under the method's text
    frozen: Floats  # [Q, C] under the prompt's
    class_names: Sequence[str]


def cache_after(bench: Bench, spec: RunSpec) -> CacheSnapshot:
    """The cache when the stream of `spec`, which its limit cuts off, is over."""
    run = bench.prepare(spec)
    method = run.method
    with blamed(str(spec)):
        for _ in _adapted(run, bench.reporter):
            pass
    caches = [value for value in vars(method).values() if isinstance(value, ClassCache)]
    if len(caches) != 1:
        raise UsageError(f"{method.name} has no cache with slots for each class, as dpe, reta and purf have")
    filled = torch.isfinite(caches[0].entropies)  # [C, L]
    return CacheSnapshot(
        method=method.name,
        dataset=run.source.dataset_name,
        backbone=_backbone_of(run),
        step=len(run.stream),
        shots=filled.shape[1],
        features=_floats(caches[0].features[filled]),
        classes=filled.nonzero()[:, 0].numpy(),
        class_names=run.source.dataset.class_names,
    )


class _PurifiesRegions(Protocol):
    def purify_regions(self, x: Observation) -> _Purified: ...


class _Purified(Protocol):
    """What PuRF says about the regions of an image; the rows of the logits end with the whole image."""

    logits: Tensor  # [Q + 1, C]
    dominant: Tensor  # [Q]
    pure: Tensor  # [Q]
    labels: Tensor  # [C]


def regions_of(bench: Bench, spec: RunSpec, image_id: str | None = None, photo: Path | None = None) -> RegionSnapshot:
    """The regions of an image, or of the last one of the stream. A pack has no photo: it is handed in."""
    run = bench.prepare(spec if image_id is None else replace(spec, limit=_place(bench, spec, image_id)))
    if not hasattr(run.method, "purify_regions") or ROLE not in run.recipes:
        raise UsageError(f"{run.method.name} does not choose among regions, as purf does")
    index = run.stream.indices[-1]
    sample = run.source.dataset[index]
    image = sample.image if photo is None else decode(photo)
    boxes = _boxes(bench, spec, run.recipes[ROLE], index, sample.id, image.size)
    with blamed(str(spec)):
        for x in _adapted(run, bench.reporter):
            if x.index == len(run.stream) - 1:
                found = cast("_PurifiesRegions", run.method).purify_regions(x)  # as its step on this image begins
                break
    regions, (_, text) = x[ROLE], run.source.prompts.encode(run.source.backbone)  # [Q, D], [C, D]
    return RegionSnapshot(
        method=run.method.name,
        dataset=run.source.dataset_name,
        backbone=_backbone_of(run),
        image_id=sample.id,
        step=len(run.stream),
        photo=image,
        boxes=boxes,
        kept=found.pure.numpy(),
        votes=found.dominant.numpy(),
        pseudo_labels=found.labels.numpy(),
        own=_floats(found.logits[:-1].softmax(-1)),
        frozen=_floats((run.source.backbone.logit_scale * regions @ text.mT).softmax(-1)),
        class_names=run.source.dataset.class_names,
    )


def _adapted(run: Run, reporter: Reporter) -> Iterator[Observation]:
    """The images of the run's stream; each has passed through the method when the next one is asked for."""
    with torch.no_grad(), limited_threads(adapting_threads(run.method)):
        for x in run.begin(reporter):
            yield x
            run.method.step(x)


def _backbone_of(run: Run) -> str:
    untrained = BackboneExtras.of(run.source.backbone).random_weights
    return f"{run.source.backbone_name} (random weights)" if untrained else run.source.backbone_name


def _place(bench: Bench, spec: RunSpec, image_id: str) -> int:
    """How many images the stream has up to this one."""
    ids = Stream.of(bench.source(spec).dataset, spec.order, spec.seed, spec.limit).ids
    if image_id not in ids:
        raise UnknownName("image", image_id, ids)
    return ids.index(image_id) + 1


def _boxes(bench: Bench, spec: RunSpec, recipe: ViewRecipe, index: int, image_id: str, size: tuple[int, int]) -> Floats:
    """Where the regions lie, [Q, 4]."""
    if spec.pack is not None:
        pack = bench.pack(spec.pack)
        packed = pack.boxes(pack.source_of(recipe) or recipe.name, index)
        if packed is None:
            raise UsageError(f"{spec.pack} does not say where the regions {recipe.name} lie")
        return _floats(packed[: recipe.count])
    if not isinstance(recipe, RandomCrops):
        raise UsageError(f"where the regions {recipe.name} lie is not known: crops can be drawn")
    shares: Floats = crops_in(recipe, image_id, spec.seed, size) / np.array([*size, *size])
    return shares


def crops_in(recipe: RandomCrops, image_id: str, seed: int, size: tuple[int, int]) -> Floats:
    """The boxes [Q, 4] that `RandomCrops.render` cuts, in pixels.

    Its own lines would have to be taken apart for this, and every run's identity holds what views.py says: a test
    compares these boxes with the pixels that it renders.
    """
    share, x, y = uniforms(seed, "crops", image_id, recipe.count, 3).T  # [Q] each
    low, high = recipe.side
    side = np.maximum(1, np.floor((low + (high - low) * share) * min(size)))
    left, top = np.floor(x * (size[0] - side + 1)), np.floor(y * (size[1] - side + 1))
    return np.stack((left, top, left + side, top + side), 1)


def _floats(values: Tensor) -> Floats:
    floats: Floats = values.double().cpu().numpy()
    return floats
