"""`nuswide` (test): NUS-WIDE's Flickr photos with its 81 concepts; images without a concept are left out.

`default` and `mltta` name the classes as NUS-WIDE's files do (`birds`, `swimmers`); `singular` is for prompts such as
"a photo of a bird". Photos vanish from Flickr, so hardly two copies are alike: what is missing on disk is left out and
reported. They may lie in the folders of the list (Flickr/WORD/FILE) or all in one (images/FILE).
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from tta_bench import hookimpl
from tta_bench.datasets._layout import NUSWIDE, Layout, listed_file, locate, read_lines
from tta_bench.datasets._photos import (
    Labels,
    OfficialPhotos,
    check_variant,
    count_warnings,
    full_size,
    labelled,
)
from tta_bench.errors import BadData
from tta_bench.system.files import read_utf8
from tta_bench.system.text import counted

_CONCEPTS = """
    airport animal beach bear birds boats book bridge buildings cars castle cat cityscape clouds computer coral cow
    dancing dog earthquake elk fire fish flags flowers food fox frost garden glacier grass harbor horses house lake leaf
    map military moon mountain nighttime ocean person plane plants police protest railroad rainbow reflection road rocks
    running sand sign sky snow soccer sports statue street sun sunset surf swimmers tattoo temple tiger tower town toy
    train tree valley vehicle water waterfall wedding whales window zebra
"""
CONCEPTS = tuple(_CONCEPTS.split())
_PLURALS = "birds boats buildings cars clouds flags flowers horses plants rocks swimmers whales"
SINGULAR = {plural: plural.removesuffix("s") for plural in _PLURALS.split()}
VARIANTS = ("default", "mltta", "singular")
LABELLED = 83_898  # of the 107,859 listed; second-hand, so another number is worth a line and no more


class NUSWideTest(OfficialPhotos):
    """Those of the test list that are on disk and have a concept."""

    name: ClassVar[str] = "nuswide"
    title: ClassVar[str] = "NUS-WIDE"
    layout: ClassVar[Layout] = NUSWIDE
    variants: ClassVar[tuple[str, ...]] = VARIANTS
    of_copies: ClassVar[str] = ": Flickr gives one picture for every photo that is gone; delete them to leave them out"

    @classmethod
    def open(cls, root: Path, variant: str = "default") -> Self:
        check_variant(cls.name, variant, VARIANTS)
        folder, parts = cls.layout.find(root)
        names = [listed_file(line) for line in read_lines(parts["list"])]
        labels = np.stack([_read_concept(parts["labels"], concept, len(names)) for concept in CONCEPTS], axis=1)
        wanted = labelled(labels).tolist()
        located = zip(wanted, locate(parts["images"], [names[i] for i in wanted]), strict=True)
        files = {i: file for i, file in located if file is not None and file.exists()}  # a link may lead nowhere
        missing = [names[i] for i in wanted if i not in files]
        if not files:
            raise BadData(f"nuswide: none of the images listed in {parts['list']} is under {parts['images']}")
        warnings = _count_warnings(cls.layout, len(names), len(wanted))
        if missing:
            warnings.append(
                f"nuswide: {len(missing):,} of {len(wanted):,} images with labels are not on disk and left out, "
                f"the first is {missing[0]}; compare only with runs on the same images"
            )
        # Those without a photo, too: a link's target may appear, which changes no folder above it.
        folders = sorted({(parts["images"] / names[i]).parent for i in wanted})
        class_names = [SINGULAR.get(name, name) for name in CONCEPTS] if variant == "singular" else CONCEPTS
        return cls(
            class_names,
            [names[i].rpartition(".")[0] for i in files],
            list(files.values()),
            labels[list(files)],
            [parts["list"], parts["labels"], *cls.layout.preferred(root, folder), *folders, parts["images"]],
            warnings,
            full_size(cls.layout, len(names), len(wanted), LABELLED),
        )


def _count_warnings(layout: Layout, listed: int, with_labels: int) -> list[str]:
    warnings = count_warnings(layout, listed, with_labels)
    if not warnings and with_labels != LABELLED:
        warnings.append(f"nuswide has {counted(with_labels, 'image')} with labels here; others count {LABELLED:,}")
    return warnings


def _read_concept(folder: Path, concept: str, images: int) -> Labels:
    """A line of 0 or 1 for each image of the test list, [N]."""
    file = folder / f"Labels_{concept}_Test.txt"
    marks = read_utf8(file).split()
    if len(marks) != images:
        raise BadData(f"{file}: {counted(len(marks), 'line')} for the {counted(images, 'image')} of the test list")
    if not set(marks) <= {"0", "1"}:
        wrong = next(i for i, mark in enumerate(marks) if mark not in ("0", "1"))
        raise BadData(f"{file}: entry {wrong + 1} is '{marks[wrong]}'; expected 0 or 1")
    return np.frombuffer("".join(marks).encode(), np.int8) - np.int8(ord("0"))


@hookimpl
def ttabench_datasets() -> list[type]:
    return [NUSWideTest]
