"""`coco2014` and `coco2017` (val): COCO photos, 80 classes; images without a label are left out.

`default` and `mltta` are the same list. `mltta-five` keeps only the images with exactly five different labels, as the
released ML-TTA loader does. A class is present when it has an annotation that is not a crowd region, however small.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from tta_bench import hookimpl
from tta_bench.datasets._layout import COCO2014, COCO2017, Layout
from tta_bench.datasets._photos import Labels, Photos, check_variant, count_warnings, labelled
from tta_bench.errors import BadData

VARIANTS = ("default", "mltta", "mltta-five")
CLASSES = 80


class _COCO(Photos):
    layout: ClassVar[Layout]

    @classmethod
    def open(cls, root: Path, variant: str = "default") -> Self:
        check_variant(cls.name, variant, VARIANTS)
        _, parts = cls.layout.find(root)
        class_names, file_names, labels = read_instances(parts["annotations"])
        kept = labelled(labels)
        warnings = count_warnings(cls.layout, len(file_names), len(kept))
        if len(class_names) != CLASSES:
            warnings.append(f"{cls.name} has {len(class_names)} classes here; COCO has {CLASSES}")
        if variant == "mltta-five":
            kept = np.flatnonzero(labels.sum(axis=1) == 5)
        files = [parts["images"] / file_names[i] for i in kept]
        return cls(class_names, [file.stem for file in files], files, labels[kept], warnings)


class COCO2014Val(_COCO):
    """40,504 images, 40,137 of them with labels."""

    name: ClassVar[str] = "coco2014"
    layout: ClassVar[Layout] = COCO2014


class COCO2017Val(_COCO):
    """5,000 images, 4,952 of them with labels."""

    name: ClassVar[str] = "coco2017"
    layout: ClassVar[Layout] = COCO2017


def read_instances(file: Path) -> tuple[list[str], list[str], Labels]:
    """Class names by category id, images by image id, and which class is in which image, [N, C]."""
    try:
        content: dict[str, Any] = json.loads(file.read_bytes(), object_hook=_without_outlines)
        categories = sorted(content["categories"], key=lambda category: category["id"])
        images = sorted(content["images"], key=lambda image: image["id"])
        column = {category["id"]: c for c, category in enumerate(categories)}
        row = {image["id"]: n for n, image in enumerate(images)}
        labels = np.zeros((len(images), len(categories)), np.int8)
        for annotation in content["annotations"]:
            if not annotation["iscrowd"]:
                labels[row[annotation["image_id"]], column[annotation["category_id"]]] = 1
        return [category["name"] for category in categories], [image["file_name"] for image in images], labels
    except OSError as error:
        raise BadData(f"{file}: can't be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        raise BadData(f"{file}: not a COCO annotation file: {error}") from error
    except KeyError as error:
        raise BadData(f"{file}: not a COCO annotation file: {error} is not in it") from error


def _without_outlines(item: dict[str, Any]) -> dict[str, Any]:
    """Objects' outlines are nearly all of an annotation file: dropped while it is parsed, they cost no memory."""
    if "image_id" in item and "category_id" in item:
        return {key: item.get(key) for key in ("image_id", "category_id", "iscrowd")}
    return item


@hookimpl
def ttabench_datasets() -> list[type]:
    return [COCO2014Val, COCO2017Val]
