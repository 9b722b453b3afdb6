"""ImageNet's own layout: a folder for each class with its images right in it, so every image has exactly one label.

    n01440764/ILSVRC2012_val_00000293.JPEG
    n01443537/…
    classnames.txt          n01440764 tench

classnames.txt, as CoOp and TPT have it, says what each folder is called in a prompt and in which order the classes
come; it may name more than are here (ImageNet-A has 200 of the 1,000). Without one a class is called like its folder.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tta_bench.datasets._photos import Labels
from tta_bench.errors import BadData
from tta_bench.system.files import read_utf8
from tta_bench.system.text import counted

NAMES = "classnames.txt"
IMAGES = (".jpg", ".jpeg", ".png", ".bmp", ".webp", ".gif", ".tif", ".tiff", ".ppm")
WORDNET = re.compile(r"n\d{8}")  # no prompt should say "a photo of a n01440764"


class ClassFolders(NamedTuple):
    """What the layout says: C classes, and N images with the place of their class."""

    class_names: Sequence[str]
    images: Sequence[str]  # paths from the folder
    classes: Sequence[int]  # [N]

    @property
    def labels(self) -> Labels:
        labels = np.zeros((len(self.images), len(self.class_names)), np.int8)  # [N, C]
        labels[np.arange(len(self.images)), list(self.classes)] = 1
        return labels


def read(folder: Path) -> ClassFolders | None:
    """None if the folder has no subfolder with images. Sorted, so that no disk's own order matters."""
    try:
        found = {path.name: _images(path) for path in sorted(folder.iterdir()) if _counts(path) and path.is_dir()}
    except OSError as error:
        raise BadData(f"{error.filename or folder}: can't be read: {error.strerror or error}") from error
    if not any(found.values()):
        return None
    names = _names(folder / NAMES, found)
    images = [(f"{name}/{image}", place) for place, name in enumerate(names) for image in found[name]]
    return ClassFolders(list(names.values()), [image for image, _ in images], [place for _, place in images])


def _counts(path: Path) -> bool:
    return not path.name.startswith(".")


def _images(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if _counts(path) and path.suffix.lower() in IMAGES)


def _names(file: Path, folders: dict[str, list[str]]) -> dict[str, str]:
    """Folder -> class name, in the order of the classes."""
    if not file.is_file():
        coded = next((name for name in folders if WORDNET.fullmatch(name)), None)
        if coded is not None:
            raise BadData(f"{file.parent}: '{coded}' is no word for a prompt; put a {NAMES} there: `{coded} NAME` …")
        return {name: name.replace("_", " ") for name in folders}
    names: dict[str, str] = {}
    for number, line in enumerate(read_utf8(file).splitlines(), 1):
        name, _, words = line.strip().partition(" ")
        if name and not words.strip():
            raise BadData(f"{file}, line {number}: a folder and its class's name are wanted, as in `n01440764 tench`")
        if name in names:
            raise BadData(f"{file}, line {number}: {name} is there twice")
        if name:
            names[name] = words.strip()
    unnamed = [name for name in folders if name not in names]
    if unnamed:
        raise BadData(f"{file}: {counted(len(unnamed), 'folder')} without a name, the first is {unnamed[0]}")
    return {name: words for name, words in names.items() if name in folders}
