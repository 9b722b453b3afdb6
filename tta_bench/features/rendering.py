"""Views rendered ahead by worker processes, as long as there is shared memory for them; otherwise in this process.

What workers hand over lies in /dev/shm, which is 64 MB in many containers. A worker that finds no room there says so:
left to torch, its queue prints a traceback and drops the block, for which the reader waits for ever. One that dies is
noticed.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from tta_bench.errors import BadData, PluginError, TTABenchError
from tta_bench.features import global_rngs
from tta_bench.interfaces import Dataset, Preprocess, ViewRecipe
from tta_bench.pixels.resize import to_floats
from tta_bench.system.progress import Reporter

FEW_BLOCKS = 4  # starting workers takes longer than rendering these
PREFETCH = 2  # blocks per worker that wait to be encoded
SHARED_MEMORY = Path("/dev/shm")
PIXEL_BYTES = 1  # of levels. A recipe of somebody's own may render floats: then `NoRoom` says what is missing
OVERSHOOT = 0.25  # beyond 0 and 1: interpolation leaves it at edges; levels and normalised pixels go far beyond
DEATH_SECONDS = 5.0  # until the system has told of a worker that has hung up
QUEUES = 2**17  # bytes for the semaphores of the queues, a page each


class WorkersLost(Exception):
    """Worker processes can't go on; this process can."""


@dataclass(frozen=True)
class NoRoom:
    """In place of a block's pixels: shared memory can't hold them."""

    why: str  # what the system said


Rendered = Tensor | TTABenchError | NoRoom


class Rendering(TorchDataset[Rendered]):
    """One item = the pixels of one block; an error travels as a value, so that its message stays one line."""

    def __init__(
        self, dataset: Dataset, work: Sequence[range], recipe: ViewRecipe, seed: int, preprocess: Preprocess
    ) -> None:
        self.dataset, self.work, self.recipe, self.seed, self.preprocess = dataset, work, recipe, seed, preprocess

    def __len__(self) -> int:
        return len(self.work)

    def __getitem__(self, job: int) -> Rendered:
        try:
            rendered = self.pixels(job)
        except TTABenchError as error:
            return error
        try:
            rendered.share_memory_()  # type: ignore[no-untyped-call]  # in the queue's thread nobody could catch it
        except (RuntimeError, OSError) as error:
            return NoRoom(str(error))
        return rendered

    def pixels(self, job: int) -> Tensor:
        """A block's pixels [images * V, 3, S, S] as they travel: in levels, if the recipe renders levels."""
        rendered = [_rendered(self.dataset, i, self.recipe, self.seed, self.preprocess) for i in self.work[job]]
        if len({views.dtype for views in rendered}) > 1:  # joined, levels would pass as numbers up to 1
            rendered = [to_floats(views) for views in rendered]
        return torch.cat(rendered)

    def from_here(self, jobs: Iterable[int]) -> Iterator[Tensor]:
        """Pixels [images * V, 3, S, S] of these jobs' blocks, rendered in this process."""
        return (self.pixels(job) for job in jobs)

    def from_workers(self, workers: int, jobs: Iterable[int]) -> Iterator[Tensor]:
        """The same by workers, which are a few jobs ahead. Raises `WorkersLost`, and what torch raises wherever this
        process may be when a worker dies: `is_loss` knows it."""
        loader = DataLoader(
            self,
            batch_size=None,
            sampler=jobs,
            num_workers=workers,
            prefetch_factor=PREFETCH,
            worker_init_fn=_quiet,
            generator=torch.Generator(),  # or it draws a seed for its workers from everybody's random numbers
        )  # no timeout: without one, torch looks every 5 s whether its workers live
        refusal = ""
        with _unraisable_ignored():  # torch takes down what it has not put up, and says so at length
            try:
                iterator = iter(loader)
            except OSError as error:  # no process, no semaphore, no descriptor
                refusal = error.strerror or str(error)
        if refusal:
            raise WorkersLost(f"worker processes can't be started ({refusal})")
        while (rendered := _next(iterator)) is not None:
            if isinstance(rendered, NoRoom):
                raise WorkersLost(f"{SHARED_MEMORY} can't hold what workers render ({rendered.why})")
            if isinstance(rendered, TTABenchError):
                raise rendered
            yield rendered

    def usable(self, workers: int, reporter: Reporter) -> int:
        """How many workers to start: none for a few blocks, or if what they render ahead would not fit."""
        if workers == 0 or len(self) <= FEW_BLOCKS:
            return 0
        if multiprocessing.current_process().daemon:  # as in a Pool: Python lets it have no processes of its own
            return 0
        free = free_shared_memory()
        images = max(len(block) for block in self.work)
        block = images * self.recipe.count * 3 * self.preprocess.size**2 * PIXEL_BYTES
        needed = QUEUES + block * min(len(self), PREFETCH * workers + 1)  # and the one that is being encoded
        if free is None or needed <= free:
            return workers
        reporter.line(
            f"{SHARED_MEMORY} has {free / 1e6:,.0f} MB left where {workers} workers need {needed / 1e6:,.0f} MB: "
            "rendering in this process"
        )
        return 0


def _next(iterator: Iterator[Rendered]) -> Rendered | None:
    try:
        return next(iterator, None)
    except (EOFError, ConnectionError):  # of a dying worker: that it died, torch raises in the midst of the pause
        time.sleep(DEATH_SECONDS)
        raise WorkersLost("a worker process has hung up") from None


def is_loss(error: Exception) -> bool:
    """Whether it says that workers are lost. torch raises RuntimeError from its handler of SIGCHLD, anywhere."""
    text = str(error)
    return isinstance(error, WorkersLost) or text.startswith("DataLoader worker")


def loss(error: Exception) -> str:
    return str(error) if isinstance(error, WorkersLost) else "a worker process died (out of memory?)"


def free_shared_memory() -> int | None:
    """Bytes; None where there is no such folder."""
    try:
        status = os.statvfs(SHARED_MEMORY)
    except OSError:
        return None
    return status.f_bavail * status.f_frsize


@contextmanager
def _unraisable_ignored() -> Iterator[None]:
    before, sys.unraisablehook = sys.unraisablehook, lambda _: None
    try:
        yield
    finally:
        sys.unraisablehook = before


def _quiet(_: int) -> None:
    """In a worker: the parent sees how it ends and speaks for it. Ctrl-C in a terminal reaches all of them at once."""
    signal.signal(signal.SIGINT, lambda *_: os._exit(0))
    signal.signal(signal.SIGBUS, signal.SIG_DFL)
    sys.excepthook = lambda *_: None  # the thread that hands tensors over prints at length when the parent turns away


def render(dataset: Dataset, index: int, recipe: ViewRecipe, seed: int, preprocess: Preprocess) -> Tensor:
    """Pixels [V, 3, S, S] of one image, float32 in [0, 1]."""
    return to_floats(_rendered(dataset, index, recipe, seed, preprocess))


def _rendered(dataset: Dataset, index: int, recipe: ViewRecipe, seed: int, preprocess: Preprocess) -> Tensor:
    """As the recipe gives them: levels, or floats."""
    sample = dataset[index]
    image = sample.image
    if not isinstance(image, Image.Image):
        kind = f"{type(image).__module__}.{type(image).__name__}".removeprefix("builtins.")
        raise PluginError(f"dataset '{dataset.name}', image {sample.id}: load() must give a PIL image, not {kind}")
    if not all(image.size):
        raise BadData(f"dataset '{dataset.name}', image {sample.id}: it has {image.width} x {image.height} pixels")
    ours = type(recipe).__module__.startswith("tta_bench.")
    if not ours:
        image = image.copy()  # a recipe may paint on it, and a dataset may keep it
    with nullcontext() if ours else global_rngs.for_views(recipe.name, sample.id, seed):
        views = recipe.render(image, sample.id, seed, preprocess)
    wanted = (recipe.count, 3, preprocess.size, preprocess.size)
    if not isinstance(views, Tensor) or views.shape != wanted:
        got = tuple(views.shape) if isinstance(views, Tensor) else type(views).__name__
        raise PluginError(f"view recipe {recipe.name}, image {sample.id}: {wanted} is wanted, not {got}")
    if views.dtype != torch.uint8 and (odd := _odd_values(views)):
        raise PluginError(
            f"view recipe {recipe.name}, image {sample.id}: uint8 levels or floats from 0 to 1 are wanted, not {odd}"
        )
    return views if ours else views.clone()  # it may have one buffer for all images


def _odd_values(views: Tensor) -> str:
    """What they are, if no encoder takes them so. Ours are levels and don't come here."""
    if not views.is_floating_point():
        return str(views.dtype)
    low, high = (float(value) for value in views.aminmax())
    return "" if low >= -OVERSHOOT and high <= 1 + OVERSHOOT else f"floats from {low:.3g} to {high:.3g}"
