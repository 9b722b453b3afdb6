"""What a dataset says of its images: class names, ids and labels, looked at before anything is made of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from tta_bench.errors import BadData
from tta_bench.system.text import counted, first_alike, visible

if TYPE_CHECKING:
    from tta_bench.interfaces import Dataset

Labels: TypeAlias = np.ndarray[Any, np.dtype[np.int8]]


def check_class_names(dataset: Dataset) -> None:
    """Before prompts are made of them, and labels read in their order."""
    names = dataset.class_names
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) for name in names):
        raise BadData(f"dataset {dataset.name}: class_names must be a list or tuple of texts")
    if not all(map(str.strip, names)):
        raise BadData(f"dataset {dataset.name}: class {[bool(n.strip()) for n in names].index(False) + 1} has no name")
    if list(names) != list(dataset.class_names):
        raise BadData(f"dataset {dataset.name}: class_names are others each time: prompts and labels would not fit")
    alike = first_alike(names)
    if alike is not None:
        raise BadData(
            f"dataset {dataset.name} has two classes of one name, '{visible(alike[0])}' and '{visible(alike[1])}' "
            "(capitals, spaces, underscores, invisible characters and ways to write an accent make no difference): "
            "rename one, or merge them"
        )


def ids_and_labels(dataset: Dataset) -> tuple[list[str], Labels]:
    """Of all images, labels as [N, C]; no image is decoded. Labels are checked all at once: image by image that would
    take as long as a cheap method's steps."""
    check_class_names(dataset)
    names = dataset.class_names
    ids: list[str] = []
    labels = np.empty((len(dataset), len(names)), dtype=np.int8)  # filled with copies: a dataset may use one buffer
    for i in range(len(dataset)):
        sample = dataset[i]
        if not isinstance(sample.id, str):
            what = f"dataset {dataset.name}, image {visible(sample.id)}"
            raise BadData(f"{what}: its id must be a text, and is of type {type(sample.id).__name__}")
        if np.ma.is_masked(sample.labels):
            raise BadData(
                f"dataset {dataset.name}, image {sample.id}: its labels are a masked array, and what it hides would "
                "count: write -1 where a class is not annotated"
            )
        row = np.asarray(sample.labels)
        whole = row.dtype == np.int8 or np.array_equal(row, row.astype(np.int8))
        if row.shape != (len(names),) or not whole:
            raise BadData(
                f"dataset {dataset.name}, image {sample.id}: its labels must be 1, 0 or -1 for each "
                f"of the {counted(len(names), 'class')}, not an array of shape {row.shape} of {row.dtype}"
            )
        labels[i] = row
        ids.append(sample.id)
    known = (labels == 1) | (labels == 0) | (labels == -1)
    if not known.all():
        odd = ids[int(known.all(axis=1).argmin())]
        raise BadData(f"dataset {dataset.name}, image {odd}: labels must be 1, 0 or -1")
    return ids, labels
