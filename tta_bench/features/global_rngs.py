"""The random numbers that a process has for everybody: torch's, numpy's and Python's.

A method should draw from `task.rng`. One that does not must still be repeated and resumed bit for bit, so they begin as
the run's seed says, and are part of the checkpoint of a method that is not built in. OpenCV's can't
be read: they begin anew before every step.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor

from tta_bench.system.files import digest

FOR_CODE = torch.zeros(1)

_ONE_AT_A_TIME = threading.RLock()
_LENT = threading.local()


def seed(rng: Tensor = FOR_CODE) -> None:
    """From the state of the run's own generator; without one as they are while a plugin is imported and made."""
    number = int(digest(rng.numpy().tobytes())[:8], 16)
    torch.manual_seed(number)
    np.random.seed(number)  # noqa: NPY002  # the global one is what is meant
    random.seed(number)
    cv2.setRNGSeed(number >> 1)  # it takes 31 bits


def seed_opencv(rng: torch.Generator, index: int) -> None:
    """Before the step on an image: whatever was drawn before, a run that goes on there draws the same."""
    cv2.setRNGSeed(int(digest([rng.initial_seed(), index])[:7], 16))


def state() -> dict[str, Any]:
    """As a checkpoint can hold it: tensors and plain numbers."""
    name, keys, *rest = np.random.get_state(legacy=True)  # noqa: NPY002
    return {
        "torch": torch.get_rng_state(),
        "numpy": [str(name), torch.from_numpy(np.asarray(keys, dtype=np.int64)), *rest],
        "python": random.getstate(),
    }


def restore(state: dict[str, Any]) -> None:
    torch.set_rng_state(state["torch"])
    name, keys, *rest = state["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(numbers), gauss))


@contextmanager
def untouched() -> Iterator[None]:
    """For what draws from them and decides nothing, such as weights that are filled in afterwards: nobody who draws, in
    this thread or another one, is to notice."""
    with _ONE_AT_A_TIME:
        before = state()
        try:
            yield
        finally:
            restore(before)


@contextmanager
def for_views(recipe: str, image_id: str, number: int) -> Iterator[None]:
    """While a recipe of somebody's own draws the views of an image, as torchvision's do: the same in whatever process,
    and after whatever other images."""
    with nullcontext() if _LENT.__dict__ else _ONE_AT_A_TIME:
        before = state()
        seed(torch.frombuffer(bytearray(digest([recipe, image_id, number]).encode()), dtype=torch.uint8))
        try:
            yield
        finally:
            restore(before)


@contextmanager
def lent() -> Iterator[None]:
    """In a thread that works for another one, which has them and waits."""
    _LENT.by_the_other = True
    try:
        yield
    finally:
        del _LENT.by_the_other


@contextmanager
def seeded(rng: Tensor) -> Iterator[None]:
    """For a run in a process that is somebody's own: afterwards they go on as if it had not been, OpenCV's aside."""
    with _ONE_AT_A_TIME:  # two threads would draw each other's
        before = state()
        seed(rng)
        try:
            yield
        finally:
            restore(before)
