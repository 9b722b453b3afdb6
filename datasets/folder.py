"""`folder`: your own images and a labels.csv. `--dataset folder:NAME` is <data-root>/NAME; absolute paths work as well.

labels.csv, in UTF-8: a header `image,CLASS,CLASS,…` and a line for each image, with its path from the folder and then 1
(present), 0 (absent) or -1 (don't count) for each class:

    image,dog,potted plant
    a.jpg,1,0
    more/b.png,0,-1

Without a labels.csv, a folder for each class as ImageNet has them is read too (`_class_folders.py`).
"""

from __future__ import annotations

import csv
import io
import re
from collections import Counter
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import ClassVar, Self

import numpy as np

from tta_bench import hookimpl
from tta_bench.datasets import _class_folders
from tta_bench.datasets._photos import Photos
from tta_bench.downloads import DataStatus
from tta_bench.errors import BadData, DataMissing, UsageError
from tta_bench.system.files import expanded, read_utf8
from tta_bench.system.progress import Reporter
from tta_bench.system.text import counted, is_text

LABELS = "labels.csv"
VALUES = {"1": 1, "0": 0, "-1": -1}


class Folder(Photos):
    """Every image that labels.csv lists, in its order, those without a positive label too; or those of all classes'
    folders."""

    name: ClassVar[str] = "folder"

    @classmethod
    def open(cls, root: Path, variant: str = "default") -> Self:
        """`variant` names the folder; without one it is the data root itself."""
        _check_spelling(variant)
        folder = root if variant == "default" else root / expanded(variant)
        if (folder / LABELS).is_file():
            class_names, images, rows = _read(folder / LABELS)
            return cls(class_names, images, _files(folder, images), np.array(rows, np.int8), [folder / LABELS])
        if (folder / LABELS).exists():
            raise BadData(f"{folder / LABELS}: not a regular file")
        layout = _class_folders.read(folder) if folder.is_dir() else None
        if folder.is_dir() and (other := _other_spelling(folder)) is not None:
            raise BadData(f"folder: {other} is there, and no {LABELS}: rename it")
        if layout is None:
            raise DataMissing(
                f"folder: no {LABELS} in {folder}. Write --dataset folder:NAME for <data-root>/NAME or "
                f"folder:/an/absolute/path; {LABELS} begins with image,CLASS,CLASS,… and has 1, 0 or -1 for each "
                "image. A folder of images for each class will do as well"
            )
        names = folder / _class_folders.NAMES
        guessed = f"folder: there is no {LABELS}, so each of its {len(layout.class_names)} folders is taken as a class"
        return cls(
            layout.class_names,
            layout.images,
            _files(folder, layout.images),
            layout.labels,
            [names, folder],
            warnings=[*([] if names.is_file() else [guessed]), *layout.warnings],
        )

    @classmethod
    def status(cls, root: Path) -> list[DataStatus]:
        """One entry for each folder below `root` that has a labels.csv or a classnames.txt, and for `root` itself."""
        marks = [(place, mark) for place in ("", "*/") for mark in (LABELS, _class_folders.NAMES)]
        files = [file for place, mark in marks for file in sorted(root.glob(f"{place}{mark}")) if file.is_file()]
        folders = {file.parent: file for file in reversed(files)}  # a labels.csv goes before a classnames.txt
        return [
            DataStatus(
                cls.name if folder == root else f"{cls.name}:{folder.name}", True, str(folder), _count(file), None, ""
            )
            for folder, file in sorted(folders.items())
        ]

    @classmethod
    def download(cls, root: Path, reporter: Reporter) -> None:
        raise UsageError(
            f"{cls.name} is for your own images: put them below {root} with a {LABELS}, or a folder for each class"
        )


def _check_spelling(variant: str) -> None:
    """The name stands in tables as it is written, so that one folder under two names would be two datasets there."""
    path = Path(variant)
    if not is_text(variant):
        raise UsageError(f"folder:{variant}: the name is not UTF-8, and it stands in records; rename the folder")
    if ".." in path.parts:
        raise UsageError(
            f"folder:{variant}: write no .. in it, or tables would have one folder as two datasets. "
            "Write folder:NAME for a folder below the data root, or give it one with --data folder=DIR"
        )
    plain = "folder" if not path.parts else f"folder:{path}"
    if plain != f"folder:{variant}":
        raise UsageError(f"folder:{variant}: write {plain}, or tables would have one folder as two datasets")


def _files(folder: Path, images: Sequence[str]) -> list[Path]:
    return [folder / image for image in images]


def _other_spelling(folder: Path) -> Path | None:
    """What was meant to be the labels: a system that hides suffixes makes a labels.csv.txt."""
    return next((file for file in sorted(folder.iterdir()) if file.name.lower() in (LABELS, f"{LABELS}.txt")), None)


def _count(file: Path) -> int:
    """Images that a labels.csv lists, or that lie in the folders beside a classnames.txt."""
    if file.name != LABELS:
        layout = _class_folders.read(file.parent)
        return len(layout.images) if layout else 0
    rows = csv.reader(io.StringIO(read_utf8(file), newline=""))
    return max(0, sum(any(map(str.strip, cells)) for cells in rows) - 1)


def _read(file: Path) -> tuple[list[str], list[str], list[list[int]]]:
    """Class names, images and label rows of a labels.csv."""
    text = read_utf8(file)
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise BadData(f"{file}, line {line}: a NUL character; save the file as UTF-8")
    reader = csv.reader(io.StringIO(text, newline=""))
    try:
        header = [cell.strip() for cell in next(reader, [])]
        class_names = header[1:]
        if header[:1] != ["image"] or not all(class_names) or not class_names:
            raise BadData(f"{file}: the first line must be image,CLASS,CLASS,… with commas")
        if len(set(class_names)) < len(class_names):
            twice = Counter(class_names).most_common(1)[0][0]
            raise BadData(f"{file}: class '{twice}' is there twice")
        rows: dict[str, list[int]] = {}
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            where = f"{file}, line {reader.line_num}"
            image, values = _path_below(cells[0].strip(), where), [cell.strip() for cell in cells[1:]]
            if len(values) != len(class_names):
                raise BadData(f"{where}: {counted(len(values), 'label')} for {counted(len(class_names), 'class')}")
            wrong = next((value for value in values if value not in VALUES), None)
            if wrong is not None:
                raise BadData(f"{where}: '{wrong}' is not 1, 0 or -1")
            if image in rows:
                raise BadData(f"{where}: {image} is there twice")
            rows[image] = [VALUES[value] for value in values]
    except csv.Error as error:
        raise BadData(f"{file}, line {reader.line_num}: can't be read: {error}") from error
    if not rows:
        raise BadData(f"{file}: lists no image")
    return class_names, list(rows), list(rows.values())


def _path_below(text: str, where: str) -> str:
    """An image's path from the folder, in one spelling: it is the image's id."""
    path = PurePosixPath(text.replace("\\", "/"))
    if path.is_absolute() or ".." in path.parts or re.match("[A-Za-z]:", text):
        raise BadData(f"{where}: {text} is not a path from the folder of {LABELS} downwards")
    return str(path)


@hookimpl
def ttabench_datasets() -> list[type]:
    return [Folder]
