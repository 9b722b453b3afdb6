"""`coco2014` and `coco2017` (val): COCO photos, 80 classes; images without a label are left out.

`default` and `mltta` are the same list. `mltta-five` keeps only the images with exactly five different labels, as the
released ML-TTA loader does. A class is present when it has an annotation that is not a crowd region, however small.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np

from tta_bench import hookimpl
from tta_bench.datasets._archives import Archive
from tta_bench.datasets._layout import COCO2014, COCO2017, Layout
from tta_bench.datasets._photos import Labels, OfficialPhotos, check_variant, count_warnings, full_size, labelled
from tta_bench.datasets._sizes import Size, resized
from tta_bench.errors import BadData
from tta_bench.system.files import parse_json, read_utf8
from tta_bench.system.text import counted, is_text

VARIANTS = ("default", "mltta", "mltta-five")
CLASSES = 80


def _archive(path: str, md5: str, size: int, only: str | None = None) -> Archive:
    """The bucket behind COCO's host over TLS; the host itself has no valid certificate, so it is asked without."""
    host = "images.cocodataset.org"
    return Archive(f"https://s3.amazonaws.com/{host}/{path}", "coco", md5, size, (f"http://{host}/{path}",), only)


class _COCO(OfficialPhotos):
    variants: ClassVar[tuple[str, ...]] = VARIANTS

    @classmethod
    def open(cls, root: Path, variant: str = "default") -> Self:
        check_variant(cls.name, variant, VARIANTS)
        folder, parts = cls.layout.find(root)
        class_names, file_names, labels, unsaid, sizes = read_instances(parts["annotations"])
        kept = labelled(labels)
        warnings = count_warnings(cls.layout, len(file_names), len(kept))
        if len(class_names) != CLASSES:
            warnings.append(f"{cls.name} has {counted(len(class_names), 'class')} here; COCO has {CLASSES}")
        if unsaid:
            crowds = "without iscrowd: if some are crowd regions, they count as objects"
            warnings.append(f"{cls.name}: {counted(unsaid, 'annotation')} {crowds}")
        if variant == "mltta-five":
            kept = np.flatnonzero(labels.sum(axis=1) == 5)
        files = [parts["images"] / file_names[i] for i in kept]
        warnings += resized(cls.name, files, lambda place: sizes[kept[place]])
        full = full_size(cls.layout, len(file_names), len(kept), cls.layout.labelled or cls.layout.listed)
        ids = [file.stem for file in files]
        sources = [parts["annotations"], *cls.layout.preferred(root, folder)]
        return cls(class_names, ids, files, labels[kept], sources, warnings, full)


class COCO2014Val(_COCO):
    """40,504 images, 40,137 of them with labels."""

    name: ClassVar[str] = "coco2014"
    title: ClassVar[str] = "COCO 2014"
    layout: ClassVar[Layout] = COCO2014
    official_size: ClassVar[int | None] = COCO2014.labelled
    archives: ClassVar[tuple[Archive, ...]] = (
        _archive(
            "annotations/annotations_trainval2014.zip",
            "0a379cfc70b0e71301e0f377548639bd",
            252_872_794,
            only="annotations/instances_val2014.json",
        ),
        _archive("zips/val2014.zip", "a3d79f5ed8d289b7a7554ce06a5782b3", 6_645_013_297),
    )


class COCO2017Val(_COCO):
    """5,000 images, 4,952 of them with labels."""

    name: ClassVar[str] = "coco2017"
    title: ClassVar[str] = "COCO 2017"
    layout: ClassVar[Layout] = COCO2017
    official_size: ClassVar[int | None] = COCO2017.labelled
    archives: ClassVar[tuple[Archive, ...]] = (
        _archive(
            "annotations/annotations_trainval2017.zip",
            "f4bbac642086de4f52a3fdda2de5fa2c",
            252_907_541,
            only="annotations/instances_val2017.json",
        ),
        _archive("zips/val2017.zip", "442b8da7639aecaf257c1dceb8ba8c80", 815_585_330),
    )


def read_instances(file: Path) -> tuple[list[str], list[str], Labels, int, list[Size | None]]:
    """Class names by category id, images by image id, which class is in which image, [N, C], how many annotations
    don't say whether they are a crowd, and the images' sizes as far as they are told."""
    try:
        content: dict[str, Any] = parse_json(read_utf8(file), _without_outlines)
        categories = sorted(content["categories"], key=lambda category: category["id"])
        images = sorted(content["images"], key=lambda image: image["id"])
        column = {category["id"]: c for c, category in enumerate(categories)}
        row = {image["id"]: n for n, image in enumerate(images)}
        if len(row) < len(images) or len(column) < len(categories):
            raise ValueError("an id of an image or a category is there twice")
        labels = np.zeros((len(images), len(categories)), np.int8)
        for annotation in content["annotations"]:
            place = row[annotation["image_id"]], column[annotation["category_id"]]
            if annotation["score"] is not None:
                raise ValueError("an annotation has a score, so they are what a detector found, and no labels")
            if annotation["iscrowd"] not in (None, 0, 1):
                raise ValueError(f"iscrowd is {annotation['iscrowd']!r}; expected 0 or 1")
            if not annotation["iscrowd"]:
                labels[place] = 1
        named, files = [category["name"] for category in categories], [image["file_name"] for image in images]
        if not all(isinstance(name, str) and is_text(name) and "\0" not in name for name in (*named, *files)):
            raise ValueError("a name in it is no text")
        class_names = [name.strip() for name in named]  # blanks around it would be in every prompt
        if not all(class_names):
            raise ValueError("a class has no name")
        unsaid = sum(annotation["iscrowd"] is None for annotation in content["annotations"])
        return class_names, files, labels, unsaid, [_size(image) for image in images]
    except (ValueError, TypeError) as error:
        raise BadData(f"{file}: not a COCO annotation file: {error}") from error
    except KeyError as error:
        raise BadData(f"{file}: not a COCO annotation file: {error} is not in it") from error


def _size(image: dict[str, Any]) -> Size | None:
    width, height = image.get("width"), image.get("height")
    return (width, height) if isinstance(width, int) and isinstance(height, int) else None


def _without_outlines(item: dict[str, Any]) -> dict[str, Any]:
    """Objects' outlines are nearly all of an annotation file: dropped while it is parsed, they cost no memory."""
    if "image_id" in item and "category_id" in item:
        return {key: item.get(key) for key in ("image_id", "category_id", "iscrowd", "score")}
    return item


@hookimpl
def ttabench_datasets() -> list[type]:
    return [COCO2014Val, COCO2017Val]
