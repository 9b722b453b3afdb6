"""`nuswide` (test): NUS-WIDE's Flickr photos with its 81 concepts; images without a concept are left out.

`default` and `mltta` name the classes as NUS-WIDE's files do (`birds`, `swimmers`); `singular` is for prompts such as
"a photo of a bird". Photos vanish from Flickr, so hardly two copies are alike: what is missing on disk is left out and
reported.
"""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar, Self

import numpy as np

from tta_bench import hookimpl
from tta_bench.datasets._layout import NUSWIDE, listed_file, read_lines, read_text
from tta_bench.datasets._photos import Labels, Photos, check_variant, file_size, labelled
from tta_bench.errors import BadData

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


class NUSWideTest(Photos):
    """Those of the test list that are on disk and have a concept."""

    name: ClassVar[str] = "nuswide"

    @classmethod
    def open(cls, root: Path, variant: str = "default") -> Self:
        check_variant(cls.name, variant, VARIANTS)
        _, parts = NUSWIDE.find(root)
        names = [listed_file(line) for line in read_lines(parts["list"])]
        labels = np.stack([_read_concept(parts["labels"], concept, len(names)) for concept in CONCEPTS], axis=1)
        wanted = labelled(labels)
        files = {i: parts["images"] / names[i] for i in wanted.tolist()}
        missing = [i for i, file in files.items() if file_size(file) is None]
        if len(missing) == len(files):
            raise BadData(f"nuswide: none of the images listed in {parts['list']} is under {parts['images']}")
        warnings = []
        if missing:
            warnings.append(
                f"nuswide: {len(missing):,} of {len(files):,} images with labels are not on disk and left out, "
                f"the first is {files[missing[0]]}; compare only with runs on the same images"
            )
        kept = sorted(files.keys() - set(missing))
        class_names = [SINGULAR.get(name, name) for name in CONCEPTS] if variant == "singular" else CONCEPTS
        ids = [names[i].rpartition(".")[0] for i in kept]
        return cls(class_names, ids, [files[i] for i in kept], labels[kept], warnings)


def _read_concept(folder: Path, concept: str, images: int) -> Labels:
    """A line of 0 or 1 for each image of the test list, [N]."""
    file = folder / f"Labels_{concept}_Test.txt"
    marks = read_text(file).split()
    if len(marks) != images:
        raise BadData(f"{file}: {len(marks):,} lines for the {images:,} images of the test list")
    if not set(marks) <= {"0", "1"}:
        wrong = next(i for i, mark in enumerate(marks) if mark not in ("0", "1"))
        raise BadData(f"{file}: entry {wrong + 1} is '{marks[wrong]}'; expected 0 or 1")
    return np.frombuffer("".join(marks).encode(), np.int8) - np.int8(ord("0"))


@hookimpl
def ttabench_datasets() -> list[type]:
    return [NUSWideTest]
