"""VOC: layouts, what difficult means, class names, and bad data by name."""

from __future__ import annotations

import pickle
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.dataset_fixtures import VOC_IMAGES, make_voc, photo, voc_annotation
from tta_bench.datasets.voc import CLASSES, VOC2007Test, VOC2012Val
from tta_bench.errors import BadData, DataMissing, UnknownName, UsageError
from tta_bench.interfaces import Dataset


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_voc(tmp_path / "VOCdevkit" / "VOC2007")
    return tmp_path


def with_label(dataset: Dataset, label: int) -> dict[str, list[str]]:
    """Image -> names of the classes with that label."""
    samples = [dataset[i] for i in range(len(dataset))]
    return {s.id: [dataset.class_names[c] for c in np.flatnonzero(s.labels == label)] for s in samples}


POSITIVES = {
    "000001": ["dog", "person"],
    "000002": ["chair"],
    "000003": [],
    "000004": ["person"],
}
DIFFICULT = {"000001": [], "000002": ["dining table"], "000003": ["tv monitor"], "000004": ["boat"]}
NONE: dict[str, list[str]] = {image: [] for image in VOC_IMAGES}


@pytest.mark.parametrize("protocol", ["default", "ignore", "ignore+words", "all+ignore"])
def test_difficult_classes_are_ignored(root: Path, protocol: str) -> None:
    dataset = VOC2007Test.open(root, protocol)
    assert with_label(dataset, 1) == POSITIVES
    assert with_label(dataset, -1) == DIFFICULT
    assert len(dataset.class_names) == 20


def test_difficult_classes_are_negative(root: Path) -> None:
    dataset = VOC2007Test.open(root, "negative")
    assert with_label(dataset, 1) == POSITIVES
    assert with_label(dataset, -1) == NONE


def test_difficult_classes_are_positive(root: Path) -> None:
    dataset = VOC2007Test.open(root, "positive")
    assert with_label(dataset, 1) == {image: sorted(POSITIVES[image] + DIFFICULT[image]) for image in VOC_IMAGES}
    assert with_label(dataset, -1) == NONE


def test_mltta_drops_what_has_only_difficult_objects_and_keeps_raw_names(root: Path) -> None:
    dataset = VOC2007Test.open(root, "mltta")
    assert with_label(dataset, 1) == {"000001": ["dog", "person"], "000002": ["chair"], "000004": ["person"]}
    assert set(np.unique(dataset.labels)) == {0, 1}
    assert dataset.class_names == CLASSES
    assert "diningtable" in dataset.class_names
    same = VOC2007Test.open(root, "labelled+negative+raw")
    assert np.array_equal(same.labels, dataset.labels)
    assert same.class_names == dataset.class_names


def test_a_difficult_class_counted_as_positive_is_a_label(root: Path) -> None:
    assert len(VOC2007Test.open(root, "positive+labelled")) == 4
    assert len(VOC2007Test.open(root, "ignore+labelled")) == 3


def test_protocols_of_the_same_images_share_their_fingerprint(root: Path) -> None:
    prints = {p: VOC2007Test.open(root, p).fingerprint for p in ("ignore", "negative", "positive+raw", "mltta")}
    assert prints["ignore"] == prints["negative"] == prints["positive+raw"]
    assert prints["mltta"] != prints["ignore"]  # one image fewer
    photo(root / "VOCdevkit/VOC2007/JPEGImages/000002.jpg", "grayscale")
    assert VOC2007Test.open(root).fingerprint != prints["ignore"]


def test_unknown_protocols(root: Path) -> None:
    with pytest.raises(UnknownName, match=r"variant of voc2007 'negativ'\. Did you mean negative"):
        VOC2007Test.open(root, "negativ")
    with pytest.raises(UnknownName, match="Did you mean mltta"):
        VOC2007Test.open(root, "ml-tta")
    with pytest.raises(UsageError, match="ignore and negative exclude each other"):
        VOC2007Test.open(root, "ignore+negative")
    with pytest.raises(UsageError, match="mltta stands for"):
        VOC2007Test.open(root, "mltta+words")
    with pytest.raises(UnknownName, match="variant of voc2007 ''"):
        VOC2007Test.open(root, "raw+")


# --------------------------------------------------------------------------------------------------------- sources


@pytest.mark.parametrize(("annotations", "class_files"), [(True, False), (False, True)])
def test_either_source_of_labels_will_do(root: Path, tmp_path: Path, annotations: bool, class_files: bool) -> None:
    make_voc(tmp_path / "one" / "VOC2007", annotations=annotations, class_files=class_files)
    one = VOC2007Test.open(tmp_path / "one")
    assert np.array_equal(one.labels, VOC2007Test.open(root).labels)
    assert not any("differently" in warning for warning in one.warnings)


def test_sources_that_disagree_are_reported_and_the_class_files_win(root: Path) -> None:
    before = VOC2007Test.open(root)
    assert len(before.warnings) == 1  # the number of images
    (root / "VOCdevkit/VOC2007/Annotations/000002.xml").write_text(voc_annotation([("sofa", False)]))
    after = VOC2007Test.open(root)
    assert "1 image labelled differently" in after.warnings[1]
    assert "000002" in after.warnings[1]
    assert np.array_equal(before.labels, after.labels)


def odd_object(content: str, tag: str = "object") -> str:
    return f"<annotation><{tag}>{content}</{tag}></annotation>"


def test_annotations_that_stand_in_for_a_lost_class_file_or_hold_no_object_are_worth_a_line(root: Path) -> None:
    (root / "VOCdevkit/VOC2007/ImageSets/Main/dog_test.txt").unlink()
    (root / "VOCdevkit/VOC2007/Annotations/000002.xml").write_text("<annotation/>")
    _, lost, empty = VOC2007Test.open(root).warnings  # the first is the number of images
    assert "dog_test.txt is missing, so the 19 other class files are not used" in lost
    assert "1 image without any object, the first is 000002" in empty


@pytest.mark.parametrize("class_files", [True, False])
def test_annotations_that_name_another_image_are_worth_a_line(tmp_path: Path, class_files: bool) -> None:
    """Somebody may have renamed them, and with them the labels."""
    place = make_voc(tmp_path / "VOC2007", class_files=class_files)
    names = {"000001": r"C:\set\000001.JPG", "000002": "000003.jpg", "000003": "000002", "000004": " "}
    for image_id, named in names.items():
        file = place / f"Annotations/{image_id}.xml"
        file.write_text(file.read_text().replace("<size>", f"<filename>{named}</filename><size>"))
    _, line = VOC2007Test.open(tmp_path).warnings  # the first is the number of images
    assert "Annotations: 2 annotations with the <filename> of another image" in line
    assert line.endswith("the first is 000002.xml with '000003.jpg': the labels may be that image's")


def test_no_labels_at_all(tmp_path: Path) -> None:
    make_voc(tmp_path / "VOC2007", annotations=False, class_files=False)
    with pytest.raises(BadData, match=r"neither .*aeroplane_test.txt nor .*Annotations"):
        VOC2007Test.open(tmp_path)


def test_carriage_returns(root: Path, tmp_path: Path) -> None:
    make_voc(tmp_path / "crlf" / "VOC2007", annotations=False, line_end="\r\n")
    assert np.array_equal(VOC2007Test.open(tmp_path / "crlf").labels, VOC2007Test.open(root).labels)


@pytest.mark.parametrize(
    ("file", "content", "complaint"),
    [
        ("Annotations/000002.xml", "<annotation><object>", "000002.xml: not readable as XML"),
        ("Annotations/000002.xml", voc_annotation([("unicorn", False)]), "000002.xml: unknown class 'unicorn'"),
        ("Annotations/000002.xml", "<html>404</html>", "000002.xml: not an annotation of VOC: it begins with <html>"),
        ("Annotations/000002.xml", '<annotation xmlns="a:b"/>', "000002.xml: not an annotation of VOC"),
        ("Annotations/000002.xml", odd_object("<name>dog</name>", "Object"), "<Object> where <object> is expected"),
        ("Annotations/000002.xml", odd_object("<name>dog</name>", "obj"), "<obj> names a class where an <object>"),
        ("Annotations/000002.xml", odd_object("<object><name>dog</name></object>", "item"), "<object> names a class"),
        ("Annotations/000002.xml", odd_object("<name>dog</name><Difficult>1</Difficult>"), "<Difficult> where"),
        ("Annotations/000002.xml", odd_object("<name>dog</name><difficult>True</difficult>"), "difficult is 'True'"),
        ("Annotations/000002.xml", odd_object("<name>dog</name><difficult/>"), "difficult is ''; expected 0 or 1"),
        ("Annotations/000002.xml", odd_object("<name>dog</name><name>cat</name>"), "an object has 2 names and 0"),
        ("ImageSets/Main/dog_test.txt", "000001 yes\n", "dog_test.txt: entry 1 is '000001 yes'"),
        ("ImageSets/Main/dog_test.txt", "000001 1\n", "dog_test.txt: image 000002 of the split is not in it"),
        ("ImageSets/Main/test.txt", "\n", "test.txt: the file is empty"),
    ],
)
def test_bad_files_are_named(root: Path, file: str, content: str, complaint: str) -> None:
    (root / "VOCdevkit/VOC2007" / file).write_text(content)
    with pytest.raises(BadData, match=complaint):
        VOC2007Test.open(root)


# --------------------------------------------------------------------------------------------------------- layouts


@pytest.mark.parametrize(
    "folder",
    [
        "VOCdevkit/VOC2012",
        "VOC2012",
        "VOC2012/VOCdevkit/VOC2012",
        "voc2012/VOCdevkit/VOC2012",
        "VOC2012/PascalVOC2012/VOC2012_train_val",
        "VOC2012_train_val/VOC2012_train_val",
        "VOC2012/VOC2012",
        "VOCdevkit/VOCdevkit/VOC2012",
        "VOCdevkit/VOC2012/VOC2012",
    ],
)
def test_the_folders_people_have(tmp_path: Path, folder: str) -> None:
    place = make_voc(tmp_path / folder, "val")
    for root in (tmp_path, place, *(above for above in [place.parent] if above.name == place.name)):
        dataset = VOC2012Val.open(root)
        assert [dataset[i].id for i in range(len(dataset))] == list(VOC_IMAGES)
        assert dataset[0].image.size == (40, 24)


def test_another_year_is_not_taken_for_it(tmp_path: Path) -> None:
    place = make_voc(tmp_path / "VOCdevkit" / "VOC2007", "val")
    for root in (tmp_path, place):
        with pytest.raises(DataMissing):
            VOC2012Val.open(root)


def test_missing_data_says_where_it_looked_and_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(DataMissing) as caught:
        VOC2007Test.open(tmp_path)
    message = str(caught.value)
    for part in (str(tmp_path), "VOCdevkit/VOC2007", "ImageSets/Main/test.txt", "ttabench data get voc2007"):
        assert part in message
    assert "\n" not in message


def test_a_folder_without_images(root: Path) -> None:
    (root / "VOCdevkit/VOC2007/JPEGImages").rename(root / "elsewhere")
    with pytest.raises(DataMissing, match=r"VOC2007 has no images: looked for JPEGImages there"):
        VOC2007Test.open(root)


# ---------------------------------------------------------------------------------------------------------- images


def test_the_number_of_images_is_reported_but_does_not_stop_a_subset(root: Path) -> None:
    dataset = VOC2007Test.open(root)
    assert dataset.warnings == ("voc2007 lists 4 images here; the official split has 4,952",)
    assert (len(dataset), dataset.full_size) == (4, 4952)


def test_the_full_size_is_that_of_the_variant(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(VOC2007Test, "layout", replace(VOC2007Test.layout, listed=4))
    assert VOC2007Test.open(root).full_size == 4
    assert VOC2007Test.open(root, "mltta").full_size == 3


@pytest.mark.parametrize("variant", VOC2007Test.variants)
def test_every_variant_that_is_listed_opens(root: Path, variant: str) -> None:
    assert VOC2007Test.variants[0] == "default"
    assert len(VOC2007Test.open(root, variant)) in (3, 4)


def test_where_images_and_labels_are_from(root: Path) -> None:
    folder = root / "VOCdevkit/VOC2007"
    sources = VOC2007Test.open(root).sources
    assert {folder / "ImageSets/Main/test.txt", folder / "ImageSets/Main/dog_test.txt"} < set(sources)
    assert sources[-2:] == (folder / "Annotations", folder / "JPEGImages")


@pytest.mark.parametrize(("annotations", "class_files"), [(True, False), (False, True)])
def test_labels_that_may_appear_later_are_among_the_sources(
    tmp_path: Path, annotations: bool, class_files: bool
) -> None:
    """Class files win over annotations, and annotations are compared with them: either would change a run."""
    place = make_voc(tmp_path / "VOC2007", annotations=annotations, class_files=class_files)
    sources = VOC2007Test.open(tmp_path).sources
    files = [place / "ImageSets/Main" / f"{name}_test.txt" for name in CLASSES]
    assert {*files, place / "Annotations"} < set(sources)
    first = tmp_path / "VOCdevkit/VOC2007"
    assert {first / "ImageSets/Main/test.txt", first / "JPEGImages"} < set(sources)
    assert sources[-1] == place / "JPEGImages"


def test_missing_images_are_found_when_opening(root: Path) -> None:
    for image in ("000002", "000004"):
        (root / f"VOCdevkit/VOC2007/JPEGImages/{image}.jpg").unlink()
    with pytest.raises(BadData, match=r"2 of 4 images are missing, the first is .*000002\.jpg"):
        VOC2007Test.open(root)


@pytest.mark.parametrize(
    ("kind", "size"), [("grayscale", (40, 24)), ("cmyk", (40, 24)), ("rotated", (24, 40)), ("line", (40, 1))]
)
def test_odd_photos(root: Path, kind: str, size: tuple[int, int]) -> None:
    photo(root / "VOCdevkit/VOC2007/JPEGImages/000002.jpg", kind)
    image = VOC2007Test.open(root)[1].image
    assert image.mode == "RGB"
    assert image.size == size
    red, green, blue = np.asarray(image)[0, 0].astype(int)
    if kind == "grayscale":
        assert red == green == blue
    else:
        assert red > 150 > green + blue  # the first pixel is in the red half, however the file stores it
    if kind == "rotated":
        assert np.asarray(image)[-1, 0, 2] > 150  # and below it is the blue one


def test_a_truncated_photo_is_named_when_it_is_decoded(root: Path) -> None:
    file = photo(root / "VOCdevkit/VOC2007/JPEGImages/000002.jpg", "truncated")
    sample = VOC2007Test.open(root)[1]
    with pytest.raises(BadData, match=str(file)):
        sample.load()


def test_indexing(root: Path) -> None:
    dataset = VOC2007Test.open(root)
    with pytest.raises(IndexError):
        dataset[len(dataset)]
    with pytest.raises(ValueError, match="read-only"):
        dataset[0].labels[0] = 1
    copy = pickle.loads(pickle.dumps(dataset))  # as worker processes get it
    assert copy[1].image.size == dataset[1].image.size


def test_objects_that_do_not_say_whether_they_are_difficult_are_counted(root: Path) -> None:
    for file in (root / "VOCdevkit/VOC2007/ImageSets/Main").glob("*_test.txt"):
        file.unlink()
    assert not [warning for warning in VOC2007Test.open(root).warnings if "<difficult>" in warning]
    annotation = root / "VOCdevkit/VOC2007/Annotations/000001.xml"
    annotation.write_text(annotation.read_text().replace("<difficult>0</difficult>", ""))
    assert "2 objects without <difficult>, taken as not difficult" in VOC2007Test.open(root).warnings[-1]
