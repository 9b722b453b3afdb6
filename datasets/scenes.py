"""`scenes`: everyday objects in five places, rendered from a seed with Pillow. No files, no download.

`scenes:clean` is what the `tiny` backbone was trained on (other seeds), `scenes:fog`, `:night`, `:sketch` and `:noise`
show the same scenes under one shift each, and `scenes` alone mixes the five.
"""

from __future__ import annotations

import hashlib
from functools import cached_property, partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from PIL import Image

from tta_bench import hookimpl
from tta_bench.datasets._scenes_layout import CLASS_NAMES, Layout, lay_out, render
from tta_bench.datasets._scenes_shifts import SHIFTS, apply_shift
from tta_bench.datasets._set_once import SetOnce
from tta_bench.errors import UnknownName
from tta_bench.system.sources import built_in_source

if TYPE_CHECKING:
    from tta_bench.interfaces import Sample

VERSION = "scenes-1"  # raise it whenever a pixel changes
TEST_IMAGES = 600
CLEAN = "clean"
MIXTURE = "default"
VARIANTS = (MIXTURE, CLEAN, *SHIFTS)


class Scenes(SetOnce):
    """600 test scenes, 24 classes, one to six objects each."""

    name: ClassVar[str] = "scenes"
    title: ClassVar[str] = "Scenes"
    variants: ClassVar[tuple[str, ...]] = VARIANTS
    sources: ClassVar[tuple[Path, ...]] = ()  # rendered: no file can change
    class_names: tuple[str, ...] = CLASS_NAMES

    def __init__(self, variant: str = MIXTURE, count: int = TEST_IMAGES) -> None:
        if variant not in VARIANTS:
            raise UnknownName("variant of scenes", variant, VARIANTS, f"There are: {', '.join(VARIANTS)}.")
        self.variant = variant
        self.count = count

    @classmethod
    def open(cls, root: Path, variant: str = MIXTURE) -> Self:
        """`root` is not looked at."""
        return cls(variant)

    @cached_property
    def fingerprint(self) -> str:
        """The code that draws them, and two images by content: another Pillow may round its polygons differently."""
        digest = hashlib.sha256(f"{VERSION}/{self.variant}/{self.count}/{built_in_source(__name__)}".encode())
        for index in (0, self.count - 1):
            digest.update(picture(self.variant, "test", index).tobytes())
        return digest.hexdigest()

    @cached_property
    def domains(self) -> tuple[str, ...] | None:
        """The shift of each image of the mixture; a variant is one domain, and so declares none."""
        if self.variant != MIXTURE:
            return None
        return tuple(shift_of(self.variant, "test", i) for i in range(self.count))

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, i: int) -> Sample:
        if not 0 <= i < self.count:
            raise IndexError(i)
        from tta_bench.interfaces import Sample  # late: it brings torch along, which `ttabench data` does without

        return Sample(f"{i:04d}", partial(picture, self.variant, "test", i), labels_of(layout_of("test", i)))


def layout_of(split: str, index: int) -> Layout:
    """A scene. The split is part of the seed, so "train", "validation" and "test" share no scene."""
    return lay_out(f"{VERSION}/{split}/{index}")


def labels_of(layout: Layout) -> np.ndarray[Any, np.dtype[np.int8]]:
    present = {thing.name for thing in layout.objects}
    return np.array([name in present for name in CLASS_NAMES], np.int8)  # [C]


def shift_of(variant: str, split: str, index: int) -> str:
    """The shift of one image: the variant's own, or for the mixture one of the five, fixed by the index."""
    if variant != MIXTURE:
        return variant
    return Random(f"{VERSION}/{split}/{index}/mixture").choice((CLEAN, *SHIFTS))


def picture(variant: str, split: str, index: int) -> Image.Image:
    """A scene's pixels under the variant's shift; its strength and grain are fixed by the index."""
    image = render(layout_of(split, index))
    shift = shift_of(variant, split, index)
    if shift == CLEAN:
        return image
    seed = Random(f"{VERSION}/{split}/{index}/{shift}").getrandbits(64)
    return apply_shift(shift, image, np.random.default_rng(seed))


@hookimpl
def ttabench_datasets() -> list[type]:
    return [Scenes]
