"""Labels and lists of every dataset, damaged or edited at random: refused in one line, or labels that are possible."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.dataset_fixtures import build, make_coco
from tests.faults.fuzzing import altered, damaged, few_and_many, for_all, outcome
from tta_bench.datasets.coco import COCO2017Val
from tta_bench.datasets.folder import Folder
from tta_bench.datasets.nuswide import NUSWideTest
from tta_bench.datasets.voc import VOC2007Test
from tta_bench.errors import BadData
from tta_bench.system.text import is_text

VOC = "VOCdevkit/VOC2007"
FILES: dict[str, tuple[Any, str]] = {
    "labels.csv": (Folder, "labels.csv"),
    "VOC's list": (VOC2007Test, f"{VOC}/ImageSets/Main/test.txt"),
    "VOC's file of a class": (VOC2007Test, f"{VOC}/ImageSets/Main/dog_test.txt"),
    "VOC's annotation": (VOC2007Test, f"{VOC}/Annotations/000002.xml"),
    "COCO's annotations": (COCO2017Val, "coco/annotations/instances_val2017.json"),
    "NUS-WIDE's list": (NUSWideTest, "nuswide/ImageList/TestImagelist.txt"),
    "NUS-WIDE's file of a concept": (NUSWideTest, "nuswide/TrainTestLabels/Labels_zebra_Test.txt"),
}


def open_and_check(dataset: Any, root: Path) -> None:
    opened = outcome(lambda: dataset.open(root))
    if opened is not None:
        assert opened.labels.shape == (len(opened), len(opened.class_names))
        assert set(np.unique(opened.labels)) <= {-1, 0, 1}
        assert len(set(opened.class_names)) == len(opened.class_names)
        assert len(set(opened.ids)) == len(opened.ids)
        assert all(is_text(text) for text in (*opened.class_names, *opened.ids, *opened.warnings))
        for i in range(len(opened)):
            outcome(partial(_image, opened, i))


def _image(dataset: Any, i: int) -> Any:
    return dataset[i].image


@pytest.mark.parametrize("what", FILES)
@few_and_many
def test_damaged_labels_are_refused_or_possible(what: str, tmp_path: Path, examples: int) -> None:
    dataset, name = FILES[what]
    build(dataset.name, tmp_path)
    file = tmp_path / name
    if name.endswith(".xml"):  # read only where VOC's other files are not
        for other in file.parent.parent.glob("ImageSets/Main/*_test.txt"):
            other.unlink()

    def check(content: bytes) -> None:
        file.write_bytes(content)
        open_and_check(dataset, tmp_path)

    dataset.open(tmp_path)
    for_all(examples, damaged(file.read_bytes()), check)


@few_and_many
def test_edited_annotations_of_coco_are_refused_or_possible(tmp_path: Path, examples: int) -> None:
    file = make_coco(tmp_path / "coco") / "annotations" / "instances_val2017.json"

    def check(content: Any) -> None:
        file.write_text(json.dumps(content))
        open_and_check(COCO2017Val, tmp_path)

    for_all(examples, altered(json.loads(file.read_text())), check)


@few_and_many
def test_edited_cells_of_labels_csv_are_refused_or_possible(tmp_path: Path, examples: int) -> None:
    build("folder", tmp_path)
    rows = [line.split(",") for line in (tmp_path / "labels.csv").read_text().splitlines()]

    def check(content: Any) -> None:
        lines = [",".join(map(str, row)) if isinstance(row, list) else str(row) for row in content]
        (tmp_path / "labels.csv").write_bytes("\n".join(lines).encode(errors="surrogatepass"))
        open_and_check(Folder, tmp_path)

    for_all(examples, altered(rows).filter(lambda content: isinstance(content, list)), check)


def test_ids_and_names_that_are_there_twice_are_refused(tmp_path: Path) -> None:
    """Which of two a label is meant for, nobody could tell."""
    root = make_coco(tmp_path / "coco").parent
    file = root / "coco" / "annotations" / "instances_val2017.json"
    sound = json.loads(file.read_text())
    for part in ("images", "categories"):
        for key, why in (("id", "twice"), ("name" if part == "categories" else "file_name", "there twice")):
            content = json.loads(json.dumps(sound))
            content[part][1][key] = content[part][0][key]
            file.write_text(json.dumps(content))
            with pytest.raises(BadData, match=why):
                COCO2017Val.open(root)
    build("voc2007", tmp_path)
    flags = tmp_path / VOC / "ImageSets" / "Main" / "dog_test.txt"
    flags.write_text(flags.read_text() + "000001 -1\n")
    with pytest.raises(BadData, match="000001 is there twice"):
        VOC2007Test.open(tmp_path)
