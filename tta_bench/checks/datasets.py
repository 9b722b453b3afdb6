"""`ttabench check datasets.NAME`: can numbers on this dataset be trusted?

The kit reads the user's files and changes none. What takes a changed copy to find out, the contract tests find out for
the built-in datasets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageFile

from tta_bench.checks.verdicts import CannotTell, Checks, Examination, blame
from tta_bench.errors import BadData, DataMissing, UsageError
from tta_bench.interfaces import Dataset, DatasetExtras, Sample
from tta_bench.system.text import counted, first_alike

IMAGES = 5  # decoded by a check, from all over the dataset
NO_VARIANT = "no-such-variant"


@dataclass
class Opened:
    """A dataset under examination."""

    cls: type[Dataset]
    root: Path
    variant: str
    dataset: Dataset
    decoded_by_opening: int

    def again(self) -> Dataset:
        return self.cls.open(self.root, self.variant)

    @cached_property
    def samples(self) -> list[Sample]:
        return [self.dataset[i] for i in range(len(self.dataset))]

    @property
    def some(self) -> list[int]:
        """Places of a few images, the first and the last among them."""
        return sorted(set(np.linspace(0, len(self.dataset) - 1, IMAGES).astype(int).tolist()))

    @property
    def pixels(self) -> list[bytes]:
        """Size and content of the first and the last image."""
        return pixels_of(self.dataset)


def pixels_of(dataset: Dataset) -> list[bytes]:
    images = [dataset[i].image for i in (0, len(dataset) - 1)]
    return [repr(image.size).encode() + image.tobytes() for image in images]


@contextmanager
def counting_decoded_images() -> Iterator[list[str]]:
    """Collects a word for each image that is decoded or drawn, however the plugin has imported Pillow.

    Reading a file's header is free: `Image.open` does no more. Decoding passes through `ImageFile.load`, and an image
    that comes from no file through the plain class's constructor.
    """
    decoded: list[str] = []
    load, construct = ImageFile.ImageFile.load, Image.Image.__init__

    def counted_load(self: ImageFile.ImageFile) -> Any:
        decoded.append("decoded")
        return load(self)

    def counted_construct(self: Image.Image) -> None:
        if type(self) is Image.Image:
            decoded.append("made")
        construct(self)

    ImageFile.ImageFile.load = counted_load  # type: ignore[method-assign]
    Image.Image.__init__ = counted_construct  # type: ignore[method-assign]
    try:
        yield decoded
    finally:
        ImageFile.ImageFile.load = load  # type: ignore[method-assign]
        Image.Image.__init__ = construct  # type: ignore[method-assign]


# --------------------------------------------------------------------------------------------------------- checks


def _class_names(opened: Opened) -> str:
    names = opened.dataset.class_names
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        return f"class_names must be a tuple of strings, not {names!r}"
    strange = next((name for name in names if not isinstance(name, str) or not name.strip()), None)
    if strange is not None:
        return f"{strange!r} is no name for a class: its prompt would say nothing"
    alike = first_alike(names)
    return f"two classes have one name: '{alike[0]}' and '{alike[1]}'" if alike else ""


def _ids(opened: Opened) -> str:
    places: dict[str, int] = {}
    root = str(opened.root.resolve())
    for i, sample in enumerate(opened.samples):
        if not isinstance(sample, Sample):
            return f"dataset[{i}] is a {type(sample).__name__}, not a Sample"
        if not isinstance(sample.id, str) or not sample.id:
            return f"the id of image {i} is {sample.id!r}, not a text"
        if sample.id in places:
            return f"images {places[sample.id]} and {i} have the same id '{sample.id}': views are drawn by id"
        if len(root) > 1 and root in sample.id:
            return f"the id '{sample.id}' names a folder of this machine: elsewhere other views would be drawn"
        places[sample.id] = i
    return ""


def _labels(opened: Opened) -> str:
    shape = (len(opened.dataset.class_names),)
    for i, sample in enumerate(opened.samples):
        labels = sample.labels
        if not isinstance(labels, np.ndarray) or labels.dtype != np.int8:
            kind = labels.dtype if isinstance(labels, np.ndarray) else type(labels).__name__
            return f"the labels of image {i} are {kind}, not a numpy array of int8"
        if labels.shape != shape:
            return f"the labels of image {i} have shape {list(labels.shape)}, not {list(shape)}: one for each class"
        strange = labels[(labels != 1) & (labels != 0) & (labels != -1)]
        if strange.size:
            return f"image {i} has the label {strange[0]}: it must be 1, 0 or -1 (ignore)"
    return ""


def _labels_say_something(opened: Opened) -> str:
    labels = np.stack([sample.labels for sample in opened.samples])
    if (labels == -1).any() and not (labels == 0).any():
        return "the labels are 1 or -1 (ignore) and never 0 (absent): nothing can be ranked wrongly"
    ignored = np.flatnonzero((labels == -1).all(axis=1))
    if ignored.size:
        return f"{counted(len(ignored), 'image')} with nothing but ignore, first image {ignored[0]}: it counts nowhere"
    return "" if (labels == 1).any() else "no image has a positive label: every AP is undefined"


def _end(opened: Opened) -> str:
    end = len(opened.dataset)
    try:
        opened.dataset[end]
    except IndexError:
        return ""
    return f"dataset[{end}] is past the end and raises no IndexError: a loop over the dataset would not stop there"


def _lazy(opened: Opened) -> str:
    if opened.decoded_by_opening:
        return f"opening it decodes {counted(opened.decoded_by_opening, 'image')}: that is for load() to do"
    with counting_decoded_images() as decoded:
        for i in range(len(opened.dataset)):
            sample = opened.dataset[i]
            if decoded or isinstance(sample.load, Image.Image) or not callable(sample.load):
                return f"dataset[{i}] decodes the image: that is for load() to do"
    return ""


def _images(opened: Opened) -> str:
    for i in opened.some:
        sample = opened.dataset[i]
        first, second = sample.image, sample.image
        if not isinstance(first, Image.Image):
            return f"image {i} loads as {type(first).__name__}, not as a Pillow image"
        if first.mode != "RGB" or 0 in first.size:
            return f"image {i} loads as {first.mode} of {first.width} x {first.height} pixels, not as RGB"
        if first is second:
            return f"image {i}: load() hands out one object twice, so who changes it changes it for all"
        if first.size != second.size or first.tobytes() != second.tobytes():
            return f"image {i} is another one when it is loaded again"
    return ""


def _same_again(opened: Opened) -> str:
    again = opened.again()
    if len(again) != len(opened.dataset) or tuple(again.class_names) != tuple(opened.dataset.class_names):
        return "a second open() gives other classes or another number of images"
    for i, sample in enumerate(opened.samples):
        for other, where in ((opened.dataset[i], "indexed again"), (again[i], "opened again")):
            if other.id != sample.id:
                return f"{where}, image {i} is '{other.id}' and not '{sample.id}'"
            if not np.array_equal(other.labels, sample.labels):
                return f"{where}, image {i} ('{sample.id}') has other labels"
    return ""


def _fingerprint_stable(opened: Opened) -> str:
    first = opened.dataset.fingerprint
    if not isinstance(first, str) or not first:
        return f"the fingerprint must be a text, not {first!r}"
    same = first == opened.again().fingerprint == opened.dataset.fingerprint
    return "" if same else "a second open() has another fingerprint: stored features would never be found again"


def _fingerprint_sensitive(opened: Opened) -> str:
    """A variant with other images must have another fingerprint; one with other labels only need not."""
    compared = False
    for variant in DatasetExtras.of(opened.dataset).variants:
        try:
            other = opened.cls.open(opened.root, variant)
        except (DataMissing, BadData):
            continue  # it needs more files than are here
        same_ids = [other[i].id for i in range(len(other))] == [sample.id for sample in opened.samples]
        if same_ids and pixels_of(other) == opened.pixels:
            continue
        compared = True
        if other.fingerprint == opened.dataset.fingerprint:
            return f"variant '{variant}' has other images but the same fingerprint: it would get these features"
    if not compared:
        raise CannotTell("no declared variant has other images to compare with, and your files stay as they are")
    return ""


def _unknown_variant(opened: Opened) -> str:
    try:
        opened.cls.open(opened.root, NO_VARIANT)
    except UsageError:  # DataMissing is one
        return ""
    return f"open(root, '{NO_VARIANT}') raises no UsageError: a slip of the pen would be measured"


def _extras(opened: Opened) -> str:
    extras, size = DatasetExtras.of(opened.dataset), len(opened.dataset)
    if extras.domains is not None and len(extras.domains) != size:
        return f"{counted(len(extras.domains), 'domain')} for {counted(size, 'image')}"
    if extras.full_size is not None and extras.full_size < size:
        return f"full_size is {extras.full_size:,}, but there are {counted(size, 'image')}"
    for name, texts in (("warnings", extras.warnings), ("variants", extras.variants)):
        if isinstance(texts, str) or not all(isinstance(text, str) for text in texts):
            return f"{name} must be a sequence of texts, not {texts!r}"
    sources = [Path(source) for source in extras.sources or ()]
    if sources and not any(source.exists() for source in sources):  # some may be places that were tried in vain
        return f"none of its sources exists, the first is {sources[0]}"
    return ""


CHECKS: Checks[Opened] = {
    "class names are unique": _class_names,
    "ids are unique texts": _ids,
    "labels are 1, 0 or -1": _labels,
    "labels say something": _labels_say_something,
    "the end raises IndexError": _end,
    "nothing is decoded early": _lazy,
    "images are RGB, twice the same": _images,
    "same again when opened again": _same_again,
    "fingerprint is stable": _fingerprint_stable,
    "fingerprint is sensitive": _fingerprint_sensitive,
    "unknown variants are refused": _unknown_variant,
    "optional members fit": _extras,
}


def examine(cls: type[Dataset], root: Path, variant: str = "default") -> Examination:
    """All verdicts.

    Raises:
        UsageError: the data is not here, or there is no such variant: that is no fault of the plugin.
    """
    name = cls.name if variant == "default" else f"{cls.name}:{variant}"
    examination = Examination(f"datasets.{name}")
    try:
        with counting_decoded_images() as decoded:
            dataset = cls.open(root, variant)
            count, classes = len(dataset), len(dataset.class_names)
            opened = Opened(cls, root, variant, dataset, len(decoded))
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        examination.fail("it opens", blame(error, cls))
        return examination
    examination.remark = f"{counted(count, 'image')}, {counted(classes, 'class')}"
    if not count:
        examination.fail("it has images", "there is nothing to measure")
        return examination
    examination.judge(CHECKS, opened, cls)
    if examination.passed:
        examination.notes += _notes(opened)
    return examination


def _notes(opened: Opened) -> list[str]:
    labels = np.stack([sample.labels for sample in opened.samples])
    empty = int((~(labels == 1).any(axis=0)).sum())
    notes = [f"warning: {warning}" for warning in DatasetExtras.of(opened.dataset).warnings]
    if empty:
        notes.append(f"{empty} of {counted(labels.shape[1], 'class')} without a positive image: left out of mAP")
    return notes
