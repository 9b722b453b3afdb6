"""COCO: crowds, label-less images, the exactly-five filter, layouts, and bad data by name."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.dataset_fixtures import COCO_CATEGORIES, make_coco, photo
from tta_bench.datasets import coco
from tta_bench.datasets.coco import COCO2014Val, COCO2017Val
from tta_bench.errors import BadData, DataMissing, UnknownName

FIVE = ["person", "car", "dog", "bottle", "toothbrush"]
SIX = ["person", "car", "dog", "bottle", "cup", "toothbrush"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_coco(tmp_path / "coco", "2017")
    make_coco(tmp_path / "coco", "2014")
    return tmp_path


def labels(dataset: COCO2014Val | COCO2017Val) -> dict[str, list[str]]:
    return {
        dataset[i].id: [dataset.class_names[c] for c in np.flatnonzero(dataset[i].labels)] for i in range(len(dataset))
    }


@pytest.mark.parametrize("protocol", ["default", "mltta"])
def test_labels(root: Path, protocol: str) -> None:
    dataset = COCO2017Val.open(root, protocol)
    assert dataset.class_names == tuple(COCO_CATEGORIES.values())  # by category id
    assert labels(dataset) == {
        "000000000139": ["person", "dog"],
        "000000000632": ["car"],  # its crowd of persons does not count
        "000000000776": FIVE,
        "000000000785": SIX,
    }


def test_exactly_five_labels(root: Path) -> None:
    assert labels(COCO2017Val.open(root, "mltta-five")) == {"000000000776": FIVE}


def test_2014_has_its_own_file_names(root: Path) -> None:
    dataset = COCO2014Val.open(root)
    assert list(labels(dataset)) == [f"COCO_val2014_{i:012d}" for i in (139, 632, 776, 785)]
    assert dataset[0].image.size == (40, 24)


def test_protocols_of_the_same_images_share_their_fingerprint(root: Path) -> None:
    default, same, five = (COCO2017Val.open(root, p).fingerprint for p in coco.VARIANTS)
    assert default == same != five
    assert COCO2014Val.open(root).fingerprint != default


def test_where_images_and_labels_are_from_and_how_many_there_should_be(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = COCO2017Val.open(root)
    assert dataset.sources == (root / "coco/annotations/instances_val2017.json", root / "coco/val2017")
    make_coco(root / "other/COCO", images_below="images")
    absent = {root / "other/coco" / part for part in ("annotations/instances_val2017.json", "images/val2017")}
    assert {*absent, root / "other/COCO/val2017"} < set(COCO2017Val.open(root / "other").sources)
    assert (dataset.full_size, COCO2014Val.open(root).full_size) == (4952, 40137)
    monkeypatch.setattr(COCO2017Val, "layout", replace(COCO2017Val.layout, listed=6))
    assert [COCO2017Val.open(root, variant).full_size for variant in COCO2017Val.variants] == [4, 4, 1]


def test_unknown_protocol(root: Path) -> None:
    with pytest.raises(UnknownName, match=r"variant of coco2017 'mltta5'\. Did you mean mltta"):
        COCO2017Val.open(root, "mltta5")


def test_no_image_left(root: Path) -> None:
    file = root / "coco/annotations/instances_val2017.json"
    content = json.loads(file.read_text())
    content["annotations"] = content["annotations"][:1]
    file.write_text(json.dumps(content))
    with pytest.raises(BadData, match="coco2017: under this variant no image is left"):
        COCO2017Val.open(root, "mltta-five")


# --------------------------------------------------------------------------------------------------------- layouts


@pytest.mark.parametrize(("folder", "images"), [("coco", ""), ("COCO", "images"), ("coco2017", ""), (".", "images")])
def test_the_folders_people_have(tmp_path: Path, folder: str, images: str) -> None:
    make_coco(tmp_path / folder, images_below=images)
    assert len(COCO2017Val.open(tmp_path)) == 4


def test_missing_data_says_where_it_looked_and_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(
        DataMissing, match=r"annotations/instances_val2014.json and val2014 in coco, .*data get coco2014"
    ):
        COCO2014Val.open(tmp_path)


def test_annotations_without_images(root: Path) -> None:
    (root / "coco/val2017").rename(root / "elsewhere")
    with pytest.raises(DataMissing, match="has no images: looked for val2017 and images/val2017 there"):
        COCO2017Val.open(root)


def test_a_complete_folder_is_preferred(root: Path, tmp_path: Path) -> None:
    (root / "coco/val2017").rename(root / "elsewhere")
    make_coco(tmp_path / "COCO")
    assert COCO2017Val.open(root).files[0].parent == tmp_path / "COCO" / "val2017"


# ------------------------------------------------------------------------------------------------------------ odd


def test_counts_are_reported(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    warnings = COCO2017Val.open(root).warnings
    assert warnings == (
        "coco2017 lists 6 images here; the official split has 5,000",
        "coco2017 has 6 classes here; COCO has 80",
    )
    from dataclasses import replace

    monkeypatch.setattr(COCO2017Val, "layout", replace(COCO2017Val.layout, listed=6, labelled=5))
    assert COCO2017Val.open(root).warnings[0] == "coco2017 has 4 images with labels here; the official split has 5"
    monkeypatch.setattr(COCO2017Val, "layout", replace(COCO2017Val.layout, listed=6, labelled=4))
    monkeypatch.setattr(coco, "CLASSES", 6)
    assert COCO2017Val.open(root).warnings == ()


def test_only_images_in_use_must_be_there(root: Path) -> None:
    (root / "coco/val2017/000000000724.jpg").unlink()  # has no label
    assert len(COCO2017Val.open(root)) == 4
    (root / "coco/val2017/000000000632.jpg").unlink()
    with pytest.raises(BadData, match=r"1 of 4 images are missing, the first is .*000000000632\.jpg"):
        COCO2017Val.open(root)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("{", "not a COCO annotation file"),
        ("[]", "not a COCO annotation file"),
        ('{"images": [], "annotations": []}', "'categories' is not in it"),
        (
            '{"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": 1, "name": "a"}], '
            '"annotations": [{"image_id": 1, "category_id": 7}]}',
            "7 is not in it",
        ),
        (
            '{"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": 1, "name": "a"}], '
            '"annotations": [{"id": 1, "image_id": 1, "iscrowd": 0}]}',
            "'category_id' is not in it",
        ),
        (
            '{"images": [{"id": 1, "file_name": "a.jpg"}], "categories": [{"id": 1, "name": "a"}], '
            '"annotations": [{"image_id": 1, "category_id": 1, "iscrowd": "0"}]}',
            "iscrowd is '0'; expected 0 or 1",
        ),
        ('{"images": [], "categories": [{"id": 1, "name": " "}], "annotations": []}', "a class has no name"),
        ('{"images": [], "categories": [], "annotations": [], "annotations": []}', "'annotations' is in it twice"),
    ],
)
def test_bad_annotations_are_named(root: Path, content: str, complaint: str) -> None:
    (root / "coco/annotations/instances_val2017.json").write_text(content)
    with pytest.raises(BadData, match=rf"instances_val2017.json: .*{complaint}"):
        COCO2017Val.open(root)


@pytest.mark.parametrize("kind", ["grayscale", "cmyk", "rotated", "line"])
def test_odd_photos_decode(root: Path, kind: str) -> None:
    photo(root / "coco/val2017/000000000139.jpg", kind)
    assert COCO2017Val.open(root)[0].image.mode == "RGB"


def test_a_truncated_photo_is_named(root: Path) -> None:
    file = photo(root / "coco/val2017/000000000139.jpg", "truncated")
    with pytest.raises(BadData, match=str(file)):
        COCO2017Val.open(root)[0].load()


def test_annotations_that_do_not_say_whether_they_are_crowds_are_counted(root: Path) -> None:
    file = root / "coco/annotations/instances_val2017.json"
    content = json.loads(file.read_text())
    del content["annotations"][0]["iscrowd"]
    file.write_text(json.dumps(content))
    warning = COCO2017Val.open(root).warnings[-1]
    assert warning.startswith(
        "coco2017: 1 annotation without iscrowd: if some are crowd regions, they count as objects"
    )


def test_blanks_around_a_name_are_in_no_prompt(root: Path) -> None:
    file = root / "coco/annotations/instances_val2017.json"
    content = json.loads(file.read_text())
    before = COCO2017Val.open(root).class_names
    content["categories"][0]["name"] += " "
    file.write_text(json.dumps(content))
    assert COCO2017Val.open(root).class_names == before
