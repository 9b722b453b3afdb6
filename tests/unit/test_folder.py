"""`folder`: somebody's own images and a labels.csv, as spreadsheets write it."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from tests.dataset_fixtures import make_folder, photo
from tta_bench.datasets.folder import Folder
from tta_bench.errors import BadData, DataMissing, UsageError


def test_by_name_by_path_and_as_the_root_itself(tmp_path: Path) -> None:
    place = make_folder(tmp_path / "mine")
    for dataset in (Folder.open(tmp_path, "mine"), Folder.open(Path("/nowhere"), str(place)), Folder.open(place)):
        assert dataset.class_names == ("dog", "potted plant")
        assert [dataset[i].id for i in range(len(dataset))] == ["a.jpg", "more/b.jpg"]
        assert dataset.labels.tolist() == [[1, 0], [0, -1]]
        assert dataset[1].image.mode == "RGB"


@pytest.mark.parametrize(
    ("variant", "complaint"),
    [
        ("../d/mine", r"folder:\.\./d/mine: .*Write folder:NAME .* --data folder=DIR"),
        ("more/../mine", "--data folder=DIR"),
        ("/srv/../mine", "--data folder=DIR"),
        ("mine/", "folder:mine/: write folder:mine, "),
        ("./mine", "write folder:mine, "),
        ("deep//mine", "write folder:deep/mine, "),
        (".", r"folder:\.: write folder, "),
    ],
)
def test_one_folder_is_not_named_in_two_ways(tmp_path: Path, variant: str, complaint: str) -> None:
    """Tables have the name as it is written: each spelling would be a dataset of its own."""
    make_folder(tmp_path / "mine")
    with pytest.raises(UsageError, match=complaint):
        Folder.open(tmp_path, variant)


def test_what_spreadsheets_write(tmp_path: Path) -> None:
    place = make_folder(tmp_path)
    plain = Folder.open(place)
    text = '\ufeffimage,dog,"potted plant"\r\n a.jpg , 1,0\r\n\r\nmore\\b.jpg,0,-1\r\n,,\r\n'
    (place / "labels.csv").write_bytes(text.encode())
    dataset = Folder.open(place)
    assert dataset.class_names == plain.class_names
    assert dataset.ids == plain.ids
    assert dataset.labels.tolist() == plain.labels.tolist()
    assert dataset.fingerprint == plain.fingerprint


def test_the_fingerprint_is_of_the_images_and_not_of_the_labels(tmp_path: Path) -> None:
    place = make_folder(tmp_path)
    before = Folder.open(place).fingerprint
    (place / "labels.csv").write_text("image,cat\na.jpg,0\nmore/b.jpg,1\n")
    assert Folder.open(place).fingerprint == before
    photo(place / "a.jpg", "cmyk")
    assert Folder.open(place).fingerprint != before


def test_other_pixels_in_files_of_the_same_names_and_sizes(tmp_path: Path) -> None:
    """Uncompressed pictures: they must not share the features that are stored under the fingerprint."""
    for name, colour in (("one", (250, 0, 0)), ("two", (0, 0, 250))):
        (tmp_path / name).mkdir()
        Image.new("RGB", (8, 6), colour).save(tmp_path / name / "a.bmp")
        (tmp_path / name / "labels.csv").write_text("image,dog\na.bmp,1\n")
    one, two = (tmp_path / name / "a.bmp" for name in ("one", "two"))
    assert one.stat().st_size == two.stat().st_size
    before = Folder.open(tmp_path, "one").fingerprint
    assert Folder.open(tmp_path, "two").fingerprint != before
    one.write_bytes(two.read_bytes())  # replaced in place
    assert Folder.open(tmp_path, "one").fingerprint == Folder.open(tmp_path, "two").fingerprint != before


def test_an_image_that_can_not_be_read_is_named(tmp_path: Path) -> None:
    place = make_folder(tmp_path)
    (place / "labels.csv").write_text("image,dog\na.jpg,1\nmore,0\n")  # a folder
    with pytest.raises(BadData, match=r"more: can't be read: not a regular file"):
        Folder.open(place)


def test_no_labels_file(tmp_path: Path) -> None:
    with pytest.raises(DataMissing, match=r"no labels.csv in .*mine\. Write --dataset folder:NAME"):
        Folder.open(tmp_path, "mine")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("", "the first line must be image,CLASS"),
        ("image;dog\na.jpg;1\n", "with commas"),
        ("image,dog,\na.jpg,1,0\n", "the first line must be"),
        ("image\na.jpg\n", "the first line must be"),
        ("image,dog,dog\na.jpg,1,0\n", "class 'dog' is there twice"),
        ("image,dog\n", "lists no image"),
        ("image,dog\na.jpg,1\nmore/b.jpg,yes\n", "line 3: 'yes' is not 1, 0 or -1"),
        ("image,dog\na.jpg,1\nmore/b.jpg\n", "line 3: 0 labels for 1 class"),
        ("image,dog\na.jpg,\n", "line 2: '' is not 1, 0 or -1"),
        ("image,dog\na.jpg,1\n\na.jpg,1\n", "line 4: a.jpg is there twice"),
        ("image,dog\na.jpg,1\n./a.jpg,0\n", "line 3: a.jpg is there twice"),
        ("image,dog\na.jpg,1\nmore/../a.jpg,0\n", "line 3: more/../a.jpg is not a path from the folder"),
        ("image,dog\n/tmp/a.jpg,1\n", "line 2: /tmp/a.jpg is not a path from the folder"),
        ("image,dog\nC:\\a.jpg,1\n", "is not a path from the folder"),
    ],
)
def test_bad_labels_name_the_file_and_the_line(tmp_path: Path, content: str, complaint: str) -> None:
    place = make_folder(tmp_path)
    (place / "labels.csv").write_text(content)
    with pytest.raises(BadData, match=rf"labels\.csv.*{complaint}"):
        Folder.open(place)


def test_text_that_is_not_utf8(tmp_path: Path) -> None:
    place = make_folder(tmp_path)
    (place / "labels.csv").write_bytes("image,hündchen\na.jpg,1\n".encode("latin-1"))
    with pytest.raises(BadData, match=r"labels\.csv, line 1: not UTF-8 \(byte 7 is 0xfc\); save the file as UTF-8"):
        Folder.open(place)
    later = "\ufeffimage,dog\r\na.jpg,1\r\nmore/".encode() + b"\xfc.jpg,0\r\n"
    (place / "labels.csv").write_bytes(later)
    with pytest.raises(BadData, match=rf"line 3: not UTF-8 \(byte {later.index(0xFC)} is 0xfc\)"):
        Folder.open(place)


def test_what_a_run_may_know_without_opening_it_again(tmp_path: Path) -> None:
    place = make_folder(tmp_path)
    assert Folder.open(place).sources == (place / "labels.csv", place, place / "more")
    assert Folder.open(place).full_size is None


def test_a_missing_image(tmp_path: Path) -> None:
    place = make_folder(tmp_path)
    (place / "a.jpg").unlink()
    with pytest.raises(BadData, match=r"folder: 1 of 2 images are missing, the first is .*a\.jpg"):
        Folder.open(place)


@pytest.mark.parametrize("kind", ["cmyk", "rotated", "line"])
def test_odd_photos_decode(tmp_path: Path, kind: str) -> None:
    place = make_folder(tmp_path)
    photo(place / "a.jpg", kind)
    assert Folder.open(place)[0].image.mode == "RGB"


def test_a_truncated_photo_is_named(tmp_path: Path) -> None:
    place = make_folder(tmp_path)
    file = photo(place / "a.jpg", "truncated")
    with pytest.raises(BadData, match=str(file)):
        Folder.open(place)[0].load()


# ----------------------------------------------------------------------------------------- a folder for each class


def make_classes(folder: Path, *classes: str) -> Path:
    for number, name in enumerate(classes):
        for image in range(number + 1):
            photo(folder / name / f"{image}.JPEG", comment=f"{name} {image}")
    return folder


def test_a_folder_for_each_class(tmp_path: Path) -> None:
    place = make_classes(tmp_path, "tabby_cat", "dog")
    (place / "dog" / "notes.txt").write_text("no image")
    photo(place / ".cache" / "a.jpg")
    dataset = Folder.open(place)
    assert dataset.class_names == ("dog", "tabby cat")
    assert dataset.ids == ["dog/0.JPEG", "dog/1.JPEG", "tabby_cat/0.JPEG"]
    assert dataset.labels.tolist() == [[1, 0], [1, 0], [0, 1]]
    assert "each of its 2 folders is taken as a class" in dataset.warnings[0]
    assert dataset.warnings[1] == "folder: passed over as no images that are read: dog/notes.txt"
    assert place in dataset.sources  # a new class is noticed


def test_what_is_in_a_class_folder_and_does_not_count_is_said(tmp_path: Path) -> None:
    place = make_classes(tmp_path, "cat", "dog")
    photo(place / "dog" / "0.JPEG").rename(place / "dog" / "browser.jfif")
    photo(place / "dog" / "deeper" / "a.jpg")
    (place / "dog" / "a.fits").touch()  # a picture of a format that is not read
    photo(place / "__MACOSX" / "._0.JPEG")
    (place / "empty").mkdir()
    dataset = Folder.open(place)
    assert dataset.ids == ["cat/0.JPEG", "dog/1.JPEG", "dog/browser.jfif"]
    assert dataset.class_names == ("cat", "dog", "empty")
    assert "no image in 1 folder, the first is empty: a class all the same" in dataset.warnings[1]
    assert dataset.warnings[2].endswith(": dog/a.fits and 1 more")


def test_class_names_and_their_order_are_those_of_the_list(tmp_path: Path) -> None:
    place = make_classes(tmp_path / "classes", "n01440764", "n01443537")
    (place / "classnames.txt").write_text("n01443537 goldfish\nn01484850 great white shark\nn01440764 tench\n")
    dataset = Folder.open(place)
    assert dataset.class_names == ("goldfish", "tench")  # as ImageNet-A has some of the 1,000
    assert dataset.labels.tolist() == [[1, 0], [1, 0], [0, 1]]
    assert dataset.warnings == ()
    assert [(s.dataset, s.images) for s in Folder.status(place)] == [("folder", 3)]
    assert [(s.dataset, s.images) for s in Folder.status(tmp_path)] == [("folder:classes", 3)]


def test_a_class_folder_with_spaces_can_be_named(tmp_path: Path) -> None:
    place = make_classes(tmp_path / "classes", "hot", "hot dog", "ice cream cone")
    (place / "classnames.txt").write_text("hot  dog sausage in bread\nhot  warm\nice cream cone\tgelato\n")
    dataset = Folder.open(place)
    assert dataset.class_names == ("sausage in bread", "warm", "gelato")
    assert dataset.labels.sum(axis=0).tolist() == [2, 1, 3]
    (place / "classnames.txt").write_text("hot dog\nice cream cone gelato\n")  # so the folder `hot` is called dog
    with pytest.raises(BadData, match="1 folder without a name, the first is hot dog"):
        Folder.open(place)


def test_a_labels_file_goes_before_class_folders(tmp_path: Path) -> None:
    place = make_classes(make_folder(tmp_path), "zebra")
    assert Folder.open(place).class_names == ("dog", "potted plant")


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, r"'n01440764' is no word for a prompt; put a classnames\.txt there"),
        ("n01440764 tench\n", "classnames.txt: 1 folder without a name, the first is n01443537"),
        ("n01440764\n", "line 1: a folder and its class's name are wanted"),
        ("n01440764 tench\nn01440764 fish\n", "line 2: n01440764 is there twice"),
        ("n01440764 tench\nn01443537 tench\n", "n01440764 and n01443537 are both .tench."),
    ],
)
def test_bad_class_names(tmp_path: Path, content: str | None, complaint: str) -> None:
    place = make_classes(tmp_path, "n01440764", "n01443537")
    if content is not None:
        (place / "classnames.txt").write_text(content)
    with pytest.raises(BadData, match=complaint):
        Folder.open(place)


def test_copies_of_a_photo_are_said(tmp_path: Path) -> None:
    """In two classes' folders it would be an image of each."""
    place = make_classes(tmp_path / "classes", "cat", "dog")
    files = sorted(place.glob("*/*.JPEG"))
    files[-1].write_bytes(files[0].read_bytes())
    warning = Folder.open(place).warnings[-1]
    assert warning == "folder: of 3 images 1 are copies of others, byte for byte; cat/0.JPEG is there 2 times"
