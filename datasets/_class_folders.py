"""ImageNet's own layout: a folder for each class with its images right in it, so every image has exactly one label.

    n01440764/ILSVRC2012_val_00000293.JPEG
    n01443537/…
    classnames.txt          n01440764 tench

classnames.txt, as CoOp and TPT have it, says what each folder is called in a prompt and in which order the classes
come; it may name more than are here (ImageNet-A has 200 of the 1,000). Without one a class is called like its folder.
A folder's own name may have spaces: of all folders that a line begins with, the one of the longest name is meant.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from tta_bench.datasets._photos import Labels
from tta_bench.errors import BadData
from tta_bench.pixels.decode import readable_names
from tta_bench.system.files import read_utf8
from tta_bench.system.text import counted, is_text, visible

NAMES = "classnames.txt"
NO_CLASSES = ("__MACOSX", "@eaDir")  # in archives that a Mac has packed, and on disks of Synology's
WORDNET = re.compile(r"n\d{8}")  # no prompt should say "a photo of a n01440764"


class ClassFolders(NamedTuple):
    """What the layout says: C classes, and N images with the place of their class."""

    class_names: Sequence[str]
    images: Sequence[str]  # paths from the folder
    classes: Sequence[int]  # [N]
    warnings: Sequence[str] = ()

    @property
    def labels(self) -> Labels:
        labels = np.zeros((len(self.images), len(self.class_names)), np.int8)  # [N, C]
        labels[np.arange(len(self.images)), list(self.classes)] = 1
        return labels


def read(folder: Path) -> ClassFolders | None:
    """None if the folder has no subfolder with images. Sorted, so that no disk's own order matters."""
    passed_over: list[Path] = []
    try:
        folders = [path for path in sorted(folder.iterdir()) if _counts(path) and path.is_dir()]
        found = {path.name: _images(path, passed_over) for path in folders}
        images_beside = [path for path in sorted(folder.iterdir()) if _is_image(path)]
    except OSError as error:
        raise BadData(f"{error.filename or folder}: can't be read: {error.strerror or error}") from error
    if not any(found.values()):
        return None
    names = _names(folder / NAMES, found)
    images = [(f"{name}/{image}", place) for place, name in enumerate(names) for image in found[name]]
    files, places = [image for image, _ in images], [place for _, place in images]
    warnings = [*_warnings(found, passed_over), *_without_class(images_beside)]
    return ClassFolders(list(names.values()), files, places, warnings)


def _counts(path: Path) -> bool:
    return not path.name.startswith(".") and path.name not in NO_CLASSES


def _images(folder: Path, passed_over: list[Path]) -> list[str]:
    """Those right in it whose names say so. What else there is is noted, hidden files aside."""
    paths = [path for path in sorted(folder.iterdir()) if _counts(path)]
    for path in (folder, *paths):
        if not is_text(path.name):
            raise BadData(f"{visible(path)}: its name is not in UTF-8: rename it")
    images = [path.name for path in paths if path.suffix.lower() in readable_names()]
    passed_over += [path for path in paths if path.suffix.lower() not in readable_names()]
    return images


def _is_image(path: Path) -> bool:
    return _counts(path) and path.suffix.lower() in readable_names() and path.is_file()


def _without_class(images: Sequence[Path]) -> Iterator[str]:
    if images:
        left_out = counted(len(images), "image")
        yield f"folder: {left_out} beside the classes' folders left out, the first is {images[0].name}"


def _warnings(found: dict[str, list[str]], passed_over: list[Path]) -> Iterator[str]:
    empty = [name for name, images in found.items() if not images]
    if empty:
        yield f"folder: no image in {counted(len(empty), 'folder')}, the first is {empty[0]}: a class all the same"
    if passed_over:
        yield (
            f"folder: passed over as no images that are read: {passed_over[0].parent.name}/{passed_over[0].name}"
            + (f" and {len(passed_over) - 1:,} more" if len(passed_over) > 1 else "")
        )


def _names(file: Path, folders: dict[str, list[str]]) -> dict[str, str]:
    """Folder -> class name, in the order of the classes."""
    if not file.is_file():
        coded = next((name for name in folders if WORDNET.fullmatch(name)), None)
        if coded is not None:
            raise BadData(f"{file.parent}: '{coded}' is no word for a prompt; put a {NAMES} there: `{coded} NAME` …")
        own: dict[str, str] = {}
        for name in folders:
            if (other := own.setdefault(name.replace("_", " "), name)) != name:
                raise BadData(f"{file.parent}: the folders {other} and {name} would be one class: rename or join them")
        return {name: words for words, name in own.items()}
    names: dict[str, str] = {}
    for number, line in enumerate(read_utf8(file).splitlines(), 1):
        name, words = _folder_and_name(line.split(), folders)
        if name and not words:
            raise BadData(f"{file}, line {number}: a folder and its class's name are wanted, as in `n01440764 tench`")
        if name in names:
            raise BadData(f"{file}, line {number}: {name} is there twice")
        if name:
            names[name] = words
    unnamed = [name for name in folders if name not in names]
    if unnamed:
        raise BadData(f"{file}: {counted(len(unnamed), 'folder')} without a name, the first is {unnamed[0]}")
    named: dict[str, str] = {}
    for name in filter(folders.__contains__, names):
        if (other := named.setdefault(names[name], name)) != name:
            raise BadData(f"{file}: {other} and {name} are both '{names[name]}': give one of them another name")
    return {name: words for name, words in names.items() if name in folders}


def _folder_and_name(words: list[str], folders: Container[str]) -> tuple[str, str]:
    beginnings = range(len(words) - 1, 0, -1)
    length = next((length for length in beginnings if " ".join(words[:length]) in folders), 1)
    return " ".join(words[:length]), " ".join(words[length:])
