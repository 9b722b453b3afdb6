"""Whether datasets and recipes of somebody's own give the same each time, in whatever process they are asked."""

from __future__ import annotations

import builtins
import copy
import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch

from tta_bench.errors import PluginError
from tta_bench.features.rendering import render
from tta_bench.interfaces import Dataset, Preprocess, ViewRecipe
from tta_bench.system.code import origin_of
from tta_bench.system.described import forget_caches
from tta_bench.system.whose import is_outside, own_packages

TWICE = 8  # of the first images, and as many of all: a mirror is turned for every second one only, or every fifth
NUMBERS = (bool, int, float, complex, type(None))  # whose hash is the same in every process


def refuse_chance(dataset: Dataset, recipe: ViewRecipe, images: Sequence[int], seed: int, size: Preprocess) -> bool:
    """Raises `PluginError` for pictures or views that are other ones the next time: features may be made in parts.

    Returns:
        Whether the dataset reads from a file that it keeps open: its place there would be the same for all workers.
    """
    drawn = not origin_of(dataset).built_in
    own_recipe = not origin_of(recipe).built_in
    if not drawn and not own_recipe:
        return False
    twin = _twin(recipe) if own_recipe else recipe
    with _no_hashes(recipe.name) if own_recipe else nullcontext():
        one = render(dataset, images[0], recipe, seed, size)
    if own_recipe:
        drawing = getattr(twin, "_recipe", twin)  # a watched one has it within
        forget_caches([type(drawing), vars(drawing)], own_packages(type(drawing).__module__))
    before = _places()
    if own_recipe and len(dataset) > 1:  # it may remember the image before
        render(dataset, (images[0] + 1) % len(dataset), twin, seed, size)
    other = render(dataset, images[0], twin, seed, size)
    for index in _some(images) if drawn else ():
        picture, again = (dataset[index] for _ in range(2))
        if picture.load().tobytes() != again.load().tobytes():
            raise PluginError(
                f"dataset '{dataset.name}' gives another picture for {picture.id} each time: load the same one"
            )
        if not (picture.labels == again.labels).all():
            raise PluginError(f"dataset '{dataset.name}' gives other labels for {picture.id} each time")
    if not torch.equal(one, other):
        raise other_views(recipe)
    if own_recipe:
        for index in _some(images):  # drawing in another order is what another process may do
            drawn_once, drawn_again = (render(dataset, index, each, seed, size) for each in (recipe, twin))
            if not torch.equal(drawn_once, drawn_again):
                raise other_views(recipe)
    return any(place != before.get(number, place) for number, place in _places().items())


def other_views(recipe: ViewRecipe) -> PluginError:
    return PluginError(
        f"recipe '{recipe.name}' makes other views of the same image each time: draw them from its seed, the "
        "image's id and the view's number alone, whatever images it has had before"
    )


def _some(images: Sequence[int]) -> list[int]:
    spread = {len(images) * k // TWICE for k in range(TWICE)}
    return [images[place] for place in sorted({*spread, *range(min(TWICE, len(images)))})]


def _twin(recipe: ViewRecipe) -> ViewRecipe:
    """The recipe as another process would have it, as far as it can be had: what it has kept of a draw is gone."""
    anew: Any = getattr(recipe, "anew", None)
    with suppress(Exception):  # what can't be copied has to do for both
        twin: ViewRecipe = copy.deepcopy(recipe) if anew is None else anew()
        return twin
    return recipe


@contextmanager
def _no_hashes(recipe: str) -> Iterator[None]:
    """Refuses views that are drawn by what Python makes another number in every process."""
    hashing = builtins.hash

    def asking(value: object) -> int:
        if sys.flags.hash_randomization and not os.environ.get("PYTHONHASHSEED", "").isdecimal():
            asker = sys._getframe(1).f_globals.get("__name__")
            if is_outside(asker) and not _is_of_numbers(value):
                raise PluginError(
                    f"recipe '{recipe}' asks for the hash() of a {type(value).__name__}, which is another number in "
                    "every process: take one of hashlib's, or zlib.crc32"
                )
        return hashing(value)

    builtins.hash = asking
    try:
        yield
    finally:
        builtins.hash = hashing


def _is_of_numbers(value: object) -> bool:
    if isinstance(value, tuple | frozenset):
        return all(map(_is_of_numbers, value))
    return type(value) in NUMBERS


def _places() -> dict[int, int]:
    """How far every file that is open for reading has been read."""
    found = {}
    for number in map(int, os.listdir("/dev/fd")):  # noqa: PTH208  # names, of which each is a number
        with suppress(OSError):  # one of them was this listing
            if stat.S_ISREG(os.fstat(number).st_mode) and not _is_written(number):
                found[number] = os.lseek(number, 0, os.SEEK_CUR)
    return found


def _is_written(number: int) -> bool:
    import fcntl

    return fcntl.fcntl(number, fcntl.F_GETFL) & os.O_ACCMODE == os.O_WRONLY
