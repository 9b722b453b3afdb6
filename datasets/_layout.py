"""Where people keep VOC, COCO and NUS-WIDE: folders to try, what must be in them, how many images to expect.

Nothing heavy is imported here, so that `ttabench data status` answers at once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from tta_bench.errors import BadData, DataMissing
from tta_bench.system.files import read_utf8


@dataclass(frozen=True)
class Layout:
    """A dataset's usual places below a data root.

    Attributes:
        name: The dataset.
        folders: Places to try, in this order.
        parts: What must be inside one of them: role -> where it may be.
        listed: Images in the official list.
        labelled: How many of those have a label; None where it does not matter.
        remedy: How to get the data.
        own_name: What the root's own name must contain for the root to be the dataset's folder itself.
        gaps: Said of a copy that lacks photos, where that is usual; empty where all are needed.
        hint: In place of the remedy where there is no room for it.
    """

    name: str
    folders: tuple[str, ...]
    parts: Mapping[str, tuple[str, ...]]
    listed: int
    labelled: int | None
    remedy: str
    own_name: str = ""
    gaps: str = ""
    hint: str = ""

    def search(self, root: Path) -> tuple[Path, dict[str, Path]] | None:
        """The first folder that has anything of the dataset, complete ones before others, and the parts it has."""
        finds = [(place, self._parts_in(place)) for place in self.places(root)]
        return max((f for f in finds if f[1]), key=lambda find: len(find[1]), default=None)

    def places(self, root: Path) -> list[Path]:
        """Every folder that is tried, in this order."""
        places = [root / spelling for folder in self.folders for spelling in _with_doubles(folder)]
        if self.own_name in root.resolve().name:
            places += [root, root / root.resolve().name]
        return places

    def preferred(self, root: Path, folder: Path) -> list[Path]:
        """What is not there, but would be taken before what `find` found in `folder`, or help to have it taken.

        A folder that is tried later never is, and one that is tried earlier lacks a part. So nothing that exists needs
        to be watched for this, which could be a large folder.
        """
        places = self.places(root)
        absent: list[Path] = []
        for place in places[: places.index(folder) + 1]:
            for spots in self.parts.values():
                absent += takewhile(lambda path: not path.exists(), (place / spot for spot in spots))
        return list(dict.fromkeys(absent))

    def _parts_in(self, place: Path) -> dict[str, Path]:
        found: dict[str, Path] = {}
        for role, spots in self.parts.items():
            path = next((place / spot for spot in spots if (place / spot).exists()), None)
            if path is not None:
                found[role] = path
        return found

    def find(self, root: Path) -> tuple[Path, dict[str, Path]]:
        """The dataset's folder and all its parts; `DataMissing` says where it was looked for and how to get it."""
        found = self.search(root)
        if found is None:
            marks = " and ".join(spots[0] for spots in self.parts.values())
            raise DataMissing(
                f"{self.name} is not in {root}: looked for {marks} in {', '.join(self.folders)}. "
                f"{self.remedy} If you have it elsewhere: --data-root DIR or TTABENCH_DATA."
            )
        folder, parts = found
        for role, spots in self.parts.items():
            if role not in parts:
                raise DataMissing(
                    f"{self.name} in {folder} has no {role}: looked for {' and '.join(spots)} there. {self.remedy}"
                )
        return folder, parts

    def count(self, parts: Mapping[str, Path]) -> int:
        """Images of the official list that are on disk, without decoding one or reading a large annotation file."""
        if "images" not in parts:
            return 0
        if "list" not in parts:  # COCO: the folder of a split holds nothing else
            return sum(name.endswith(".jpg") for name in _names(parts["images"]))
        wanted = [listed_file(line) for line in read_lines(parts["list"])]
        return sum(file is not None for file in locate(parts["images"], wanted))


def _with_doubles(folder: str) -> Iterator[str]:
    """The folder itself, and with one of its parts inside another of the same name, as unpacking tools leave it."""
    yield folder
    parts = folder.split("/")
    for i in range(len(parts)):
        yield "/".join((*parts[: i + 1], *parts[i:]))


def locate(images: Path, names: Sequence[str]) -> list[Path | None]:
    """Where each listed image is: under its listed folder or, in a flat copy, by its base name alone; None: nowhere.

    Folders are listed once, which is quicker than asking for each file.

    Raises:
        BadData: one file would stand for two images.
    """
    listings: dict[str, set[str]] = {}
    found: list[Path | None] = []
    for name in names:
        folder, _, base = name.rpartition("/")
        spots = [spot for spot in dict.fromkeys((folder, "")) if base in _listing(images, spot, listings)]
        found.append(images / spots[0] / base if spots else None)
    image_of: dict[Path, str] = {}
    for name, file in zip(names, found, strict=True):
        if file is not None and image_of.setdefault(file, name) != name:
            raise BadData(f"{file} can't be both {image_of[file]} and {name}: put them into the folders of the list")
    return found


def _listing(images: Path, folder: str, known: dict[str, set[str]]) -> set[str]:
    if folder not in known:
        known[folder] = _names(images / folder)
    return known[folder]


def _names(folder: Path) -> set[str]:
    if not folder.is_dir():
        return set()
    with os.scandir(folder) as entries:  # beside every photo macOS leaves a ._photo on disks of others
        return {entry.name for entry in entries if not entry.name.startswith("._") and entry.is_file()}


def listed_file(line: str) -> str:
    """The image that a line of a split list names: VOC's lines hold ids, NUS-WIDE's paths with backslashes."""
    name = line.replace("\\", "/").lstrip("/")
    return name if name.lower().endswith(".jpg") else f"{name}.jpg"


def read_lines(file: Path) -> list[str]:
    """The lines that are not empty, without the blanks around them; any line end, with or without a byte order mark."""
    lines = [line.strip() for line in read_utf8(file).splitlines() if line.strip()]
    if not lines:
        raise BadData(f"{file}: the file is empty")
    return lines


# ---------------------------------------------------------------------------------------------------- the datasets


def _voc(name: str, year: str, split: str, listed: int, *more_folders: str) -> Layout:
    own = f"VOC{year}"
    return Layout(
        name,
        (f"VOCdevkit/{own}", own, f"{own}/VOCdevkit/{own}", f"{name}/VOCdevkit/{own}", *more_folders),
        {"list": (f"ImageSets/Main/{split}.txt",), "images": ("JPEGImages",)},
        listed,
        None,
        f"`ttabench data get {name}` downloads it.",
        year,
    )


def _coco(year: str, listed: int, labelled: int) -> Layout:
    split = f"val{year}"
    file = f"annotations/instances_{split}.json"
    return Layout(
        f"coco{year}",
        ("coco", "COCO", f"coco{year}", f"COCO{year}", "mscoco", "MSCOCO"),
        {"annotations": (file, f"annotations_trainval{year}/{file}"), "images": (split, f"images/{split}")},
        listed,
        labelled,
        f"`ttabench data get coco{year}` downloads it.",
    )


VOC2007 = _voc("voc2007", "2007", "test", 4952)
VOC2012 = _voc("voc2012", "2012", "val", 5823, "VOC2012/PascalVOC2012/VOC2012_train_val", "VOC2012_train_val")
COCO2014 = _coco("2014", 40504, 40137)
COCO2017 = _coco("2017", 5000, 4952)
NUSWIDE = Layout(
    "nuswide",
    ("nuswide", "NUS-WIDE", "NUSWIDE", "nus-wide", "nus_wide", "NUS_WIDE"),
    {
        "list": ("ImageList/TestImagelist.txt", "Imagelist/TestImagelist.txt"),
        "labels": ("TrainTestLabels", "Groundtruth/TrainTestLabels", "GroundTruth/TrainTestLabels"),
        "images": ("Flickr", "images/Flickr", "images", "image"),
    },
    107859,
    None,  # 83,898 by others' count, which nuswide.py compares with
    "NUS-WIDE has no single official archive: the lists and labels (ImageList, Groundtruth) are on the page of the Lab "
    "for Media Search, lms.comp.nus.edu.sg/wp-content/uploads/2019/research/nuswide/NUS-WIDE.html, and in the Hugging "
    "Face dataset Lxyhaha/NUS-WIDE; the photos belong into Flickr/WORD/ or, all in one folder as in Kaggle's "
    "xinleili/nuswide, into images/.",
    gaps="Runs leave out the photos that are missing.",
    hint="`ttabench data get nuswide` tells where to get it.",
)
