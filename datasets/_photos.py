"""What datasets of image files have in common: samples that decode on demand, a fingerprint, and reported oddities."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tta_bench.datasets._archives import Archive
from tta_bench.datasets._download import examine, get
from tta_bench.datasets._layout import Layout
from tta_bench.datasets._set_once import SetOnce
from tta_bench.downloads import DataStatus
from tta_bench.errors import BadData, UnknownName
from tta_bench.pixels.decode import decode
from tta_bench.system import contents
from tta_bench.system.progress import Reporter
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    from PIL.Image import Image

    from tta_bench.interfaces import Sample

Labels = np.ndarray[Any, np.dtype[np.int8]]


class Photos(SetOnce):
    """Image files with labels. Every file is looked at when the dataset is opened, and read if it is not known yet:
    other pixels are other features, also in a file that is as long as it was. None is decoded before use.

    What comes with torch is imported where a sample is made: `ttabench data status` asks these classes too.

    Args:
        class_names: C names.
        ids: N ids.
        files: The image of each id.
        labels: [N, C].
        label_sources: The files and folders that ids and labels were read from, and those that were looked for in vain.
        warnings: What is odd about this copy.
        full_size: Images of a complete copy, if known.
    """

    name: ClassVar[str]
    of_copies: ClassVar[str] = ""  # what is known of photos that are there several times

    def __init__(
        self,
        class_names: Sequence[str],
        ids: Sequence[str],
        files: Sequence[Path],
        labels: Labels,
        label_sources: Sequence[Path],
        warnings: Sequence[str] = (),
        full_size: int | None = None,
    ) -> None:
        if not ids:
            raise BadData(f"{self.name}: under this variant no image is left")
        for kind, names in (("image", ids), ("class", class_names)):
            twice, count = Counter(names).most_common(1)[0]
            if count > 1:  # which of them a score or a label is meant for, nobody could tell
                raise BadData(visible(f"{self.name}: the {kind} {twice} is there twice, by {label_sources[0]}"))
        self.class_names = tuple(class_names)
        self.sources = tuple(dict.fromkeys((*label_sources, *sorted({file.parent for file in files}))))
        self.ids, self.files, self.labels = list(ids), list(files), labels
        self.labels.flags.writeable = False  # a sample's labels are a row of it
        self._looks = _looks(self.name, self.files)
        found = contents.digests(self.files)
        self.fingerprint = _fingerprint(self.ids, found)
        self.warnings, self.full_size = (*warnings, *self._copies(found)), full_size

    def _copies(self, digests: Sequence[str]) -> Iterator[str]:
        """One photo under two ids counts twice, and may have other labels each time."""
        (most, times), different = Counter(digests).most_common(1)[0], len(set(digests))
        if times > 1:
            first = visible(str(self.ids[digests.index(most)]))
            again = f"of {len(digests):,} images {len(digests) - different:,} are copies of others, byte for byte"
            yield f"{self.name}: {again}; {first} is there {times:,} times{self.of_copies}"

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, i: int) -> Sample:
        if not 0 <= i < len(self.ids):
            raise IndexError(i)
        from tta_bench.interfaces import Sample

        size, changed = self._looks[i].tolist()
        return Sample(self.ids[i], partial(_decode_as_found, self.files[i], size, changed), self.labels[i])


class OfficialPhotos(Photos):
    """Photos of a published split: usual places on disk, and archives to fetch it from if there are any."""

    layout: ClassVar[Layout]
    archives: ClassVar[tuple[Archive, ...]] = ()
    official_size: ClassVar[int | None] = None  # of the whole split, where that is known for sure

    @classmethod
    def status(cls, root: Path) -> list[DataStatus]:
        return [examine(cls.layout, root)]

    @classmethod
    def download(cls, root: Path, reporter: Reporter) -> None:
        get(cls.layout, cls.archives, root, reporter)


def _looks(name: str, files: Sequence[Path]) -> np.ndarray[Any, np.dtype[np.int64]]:
    """[N, 2]: bytes of each file, and when it was last changed, in ns."""
    looks, missing = [], []
    for file in files:
        try:
            status = file.stat()
            looks.append((status.st_size, status.st_ctime_ns))
        except OSError:
            missing.append(file)
    if missing:
        raise BadData(f"{name}: {len(missing):,} of {len(files):,} images are missing, the first is {missing[0]}")
    return np.array(looks, dtype=np.int64)


def _decode_as_found(file: Path, size: int, changed: int) -> Image:
    """The picture that the fingerprint knows: features of another one would be stored under its name."""
    with suppress(OSError):  # said by `decode`
        status = file.stat()
        if (status.st_size, status.st_ctime_ns) != (size, changed):
            raise BadData(f"{file} has changed since the dataset was opened; run it again")
    return decode(file)


def _fingerprint(ids: Sequence[str], digests: Sequence[str]) -> str:
    whole = hashlib.sha256()
    for image_id, content in zip(ids, digests, strict=True):
        whole.update(f"{image_id}\t{content}\n".encode())
    return whole.hexdigest()


def labelled(labels: Labels) -> np.ndarray[Any, np.dtype[np.intp]]:
    """Places of the images that have at least one positive label."""
    return np.flatnonzero((labels == 1).any(axis=1))


def full_size(layout: Layout, listed: int, kept: int, official: int) -> int:
    """Images that a variant keeps of the whole official list.

    Of a list that is not the whole, only an upper bound can be told: `official`.
    """
    return kept if listed == layout.listed else official


def count_warnings(layout: Layout, listed: int, with_labels: int) -> list[str]:
    """What differs from the official numbers of images: a subset may run, but not unnoticed."""
    if listed != layout.listed:
        return [f"{layout.name} lists {counted(listed, 'image')} here; the official split has {layout.listed:,}"]
    if layout.labelled is not None and with_labels != layout.labelled:
        here = counted(with_labels, "image")
        return [f"{layout.name} has {here} with labels here; the official split has {layout.labelled:,}"]
    return []


def check_variant(dataset: str, variant: str, known: Iterable[str], hint: str = "") -> None:
    known = list(known)
    if variant not in known:
        raise UnknownName(f"variant of {dataset}", variant, known, f"There are: {', '.join(known)}. {hint}")
