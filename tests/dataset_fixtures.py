"""Small datasets in the exact layouts of VOC, COCO, NUS-WIDE and `folder`, with the oddities of real photos."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from PIL import Image

from tta_bench.datasets.nuswide import CONCEPTS
from tta_bench.datasets.voc import CLASSES

# ---------------------------------------------------------------------------------------------------------- photos


def photo(file: Path, kind: str = "rgb", comment: str = "") -> Path:
    """A 40 x 24 JPEG, left half red: rgb, grayscale, cmyk, rotated (by EXIF), line (1 pixel high) or truncated."""
    file.parent.mkdir(parents=True, exist_ok=True)
    image = Image.new("RGB", (40, 1 if kind == "line" else 24), (0, 0, 250))
    image.paste((250, 0, 0), (0, 0, 20, image.height))
    exif = Image.Exif()
    if kind == "grayscale":
        image = image.convert("L")
    elif kind == "cmyk":
        image = image.convert("CMYK")
    elif kind == "rotated":
        exif[0x0112] = 6  # show it turned by 90 degrees to the right: 24 x 40, the upper half red
    buffer = io.BytesIO()
    own = hashlib.sha256((comment or file.name).encode()).hexdigest()[:8]  # no photo is another's copy
    image.save(buffer, "JPEG", quality=95, exif=exif, comment=own)
    content = buffer.getvalue()
    file.write_bytes(content[: len(content) // 2] if kind == "truncated" else content)
    return file


# ------------------------------------------------------------------------------------------------------------- VOC

VocImages = Mapping[str, Sequence[tuple[str, bool]]]  # image -> its objects, each a class and "is difficult"
VOC_IMAGES: VocImages = {
    "000001": [("dog", False), ("person", False)],
    "000002": [("diningtable", True), ("chair", False), ("chair", True)],
    "000003": [("tvmonitor", True)],  # nothing but a difficult object
    "000004": [("person", True), ("person", False), ("boat", True)],
}


def make_voc(
    folder: Path,
    split: str = "test",
    images: VocImages = VOC_IMAGES,
    *,
    annotations: bool = True,
    class_files: bool = True,
    line_end: str = "\n",
) -> Path:
    """`folder` gets JPEGImages, ImageSets/Main and Annotations."""
    lists = folder / "ImageSets" / "Main"
    lists.mkdir(parents=True)
    (lists / f"{split}.txt").write_bytes("".join(image + line_end for image in images).encode())
    for image, objects in images.items():
        photo(folder / "JPEGImages" / f"{image}.jpg")
        if annotations:
            (folder / "Annotations").mkdir(exist_ok=True)
            (folder / "Annotations" / f"{image}.xml").write_text(voc_annotation(objects))
    if class_files:
        for name in CLASSES:
            lines = [f"{image} {voc_flag(objects, name):2d}{line_end}" for image, objects in images.items()]
            (lists / f"{name}_{split}.txt").write_bytes("".join(lines).encode())
    return folder


def voc_flag(objects: Sequence[tuple[str, bool]], name: str) -> int:
    difficult = [hard for own, hard in objects if own == name]
    return -1 if not difficult else 0 if all(difficult) else 1


def voc_annotation(objects: Sequence[tuple[str, bool]]) -> str:
    items = "".join(
        f"<object><name>{name}</name><difficult>{int(difficult)}</difficult>"
        "<bndbox><xmin>1</xmin><ymin>1</ymin><xmax>9</xmax><ymax>9</ymax></bndbox>"
        "<part><name>head</name></part></object>"
        for name, difficult in objects
    )
    return f"<annotation><size><width>40</width><height>24</height></size>{items}</annotation>"


# ------------------------------------------------------------------------------------------------------------ COCO

COCO_CATEGORIES = {1: "person", 3: "car", 18: "dog", 44: "bottle", 47: "cup", 90: "toothbrush"}  # ids have gaps
COCO_IMAGES: Mapping[int, Sequence[tuple[int, bool]]] = {  # image id -> category and "is a crowd"
    139: [(18, False), (1, False), (1, False)],
    285: [(1, True)],  # a crowd only: no label
    632: [(1, True), (3, False)],
    724: [],
    776: [(1, False), (3, False), (18, False), (44, False), (90, False), (90, False)],  # exactly five labels
    785: [(category, False) for category in COCO_CATEGORIES],  # six
}


def make_coco(folder: Path, year: str = "2017", images_below: str = "") -> Path:
    """`folder` gets annotations/instances_val<year>.json and the images in val<year>."""
    split = f"val{year}"
    names = {i: f"COCO_val2014_{i:012d}.jpg" if year == "2014" else f"{i:012d}.jpg" for i in COCO_IMAGES}
    for name in names.values():
        photo(folder / images_below / split / name)
    annotations = [
        {"image_id": image, "category_id": category, "iscrowd": int(crowd), "bbox": [0, 0, 1, 1]}
        for image, objects in COCO_IMAGES.items()
        for category, crowd in objects
    ]
    content = {  # images and categories out of order, as nothing promises one
        "images": [{"id": image, "file_name": names[image]} for image in reversed(names)],
        "annotations": annotations,
        "categories": [{"id": i, "name": name} for i, name in reversed(COCO_CATEGORIES.items())],
    }
    (folder / "annotations").mkdir(parents=True, exist_ok=True)
    (folder / "annotations" / f"instances_{split}.json").write_text(json.dumps(content))
    return folder


# -------------------------------------------------------------------------------------------------------- NUS-WIDE

NUS_IMAGES: Mapping[str, Sequence[str]] = {
    "actor/0001_2124494179": ["person", "swimmers"],
    "zebra/0002_1567438822": ["zebra", "grass"],
    "zebra/0003_0000000001": [],
    "actor/0004_0000000002": ["birds"],
}


def make_nuswide(folder: Path, line_end: str = "\r\n", slash: str = "\\") -> Path:
    """`folder` gets ImageList, TrainTestLabels and Flickr, the lists with Windows' slashes and line ends."""
    lists = folder / "ImageList"
    labels = folder / "TrainTestLabels"
    lists.mkdir(parents=True)
    labels.mkdir()
    lines = [image.replace("/", slash) + ".jpg" + line_end for image in NUS_IMAGES]
    (lists / "TestImagelist.txt").write_bytes("".join(lines).encode())
    for concept in CONCEPTS:
        marks = [f"{int(concept in present)}{line_end}" for present in NUS_IMAGES.values()]
        (labels / f"Labels_{concept}_Test.txt").write_bytes("".join(marks).encode())
    for image in NUS_IMAGES:
        photo(folder / "Flickr" / f"{image}.jpg")
    return folder


# ---------------------------------------------------------------------------------------------------------- folder


def make_folder(folder: Path) -> Path:
    photo(folder / "a.jpg")
    photo(folder / "more" / "b.jpg", "grayscale")
    (folder / "labels.csv").write_text("image,dog,potted plant\na.jpg,1,0\nmore/b.jpg,0,-1\n")
    return folder


# -------------------------------------------------------------------------------------------------------- all of them

BUILDERS: Mapping[str, Callable[[Path], Path]] = {
    "voc2007": lambda root: make_voc(root / "VOCdevkit" / "VOC2007", "test"),
    "voc2012": lambda root: make_voc(root / "VOCdevkit" / "VOC2012", "val"),
    "coco2014": lambda root: make_coco(root / "coco", "2014"),
    "coco2017": lambda root: make_coco(root / "coco", "2017"),
    "nuswide": lambda root: make_nuswide(root / "nuswide"),
    "folder": make_folder,
}


def build(name: str, root: Path) -> None:
    """Puts a small copy of the dataset under `root`; nothing for a dataset that needs no files."""
    if name in BUILDERS:
        BUILDERS[name](root)
