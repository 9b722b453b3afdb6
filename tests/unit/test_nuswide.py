"""NUS-WIDE: lists from Windows, concepts, images that vanished."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.dataset_fixtures import make_nuswide, photo
from tta_bench.datasets import nuswide
from tta_bench.datasets._layout import locate
from tta_bench.datasets.nuswide import CONCEPTS, NUSWideTest
from tta_bench.errors import BadData, DataMissing, UnknownName, UsageError
from tta_bench.system.progress import Silent
from tta_bench.system.stamps import stamp


@pytest.fixture
def root(tmp_path: Path) -> Path:
    make_nuswide(tmp_path / "nuswide")
    return tmp_path


@pytest.fixture
def of_official_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if the official list had no more than the four images of the small one."""
    monkeypatch.setattr(NUSWideTest, "layout", replace(NUSWideTest.layout, listed=4))
    monkeypatch.setattr(nuswide, "LABELLED", 3)


def labels(dataset: NUSWideTest) -> dict[str, list[str]]:
    return {
        dataset[i].id: [dataset.class_names[c] for c in np.flatnonzero(dataset[i].labels)] for i in range(len(dataset))
    }


def test_the_81_concepts_are_in_alphabetical_order() -> None:
    assert len(CONCEPTS) == 81
    assert list(CONCEPTS) == sorted(set(CONCEPTS))


@pytest.mark.usefixtures("of_official_size")
@pytest.mark.parametrize("protocol", ["default", "mltta"])
def test_labels(root: Path, protocol: str) -> None:
    dataset = NUSWideTest.open(root, protocol)
    assert labels(dataset) == {
        "actor/0001_2124494179": ["person", "swimmers"],
        "zebra/0002_1567438822": ["grass", "zebra"],
        "actor/0004_0000000002": ["birds"],
    }
    assert dataset.warnings == ()
    assert dataset[0].image.size == (40, 24)


def test_singular_names(root: Path) -> None:
    plural, singular = NUSWideTest.open(root), NUSWideTest.open(root, "singular")
    assert labels(singular)["actor/0004_0000000002"] == ["bird"]
    changed = {a: b for a, b in zip(plural.class_names, singular.class_names, strict=True) if a != b}
    assert changed["swimmers"] == "swimmer"
    assert all(a == f"{b}s" for a, b in changed.items())
    assert len(set(singular.class_names)) == 81
    assert singular.fingerprint == plural.fingerprint


def test_unknown_protocol(root: Path) -> None:
    with pytest.raises(UnknownName, match="Did you mean singular"):
        NUSWideTest.open(root, "singlar")


@pytest.mark.parametrize(("line_end", "slash"), [("\n", "/"), ("\r\n", "\\"), ("\n", "\\")])
def test_lists_from_any_system(root: Path, tmp_path: Path, line_end: str, slash: str) -> None:
    make_nuswide(tmp_path / "other" / "NUS-WIDE", line_end, slash)
    other = NUSWideTest.open(tmp_path / "other")
    assert labels(other) == labels(NUSWideTest.open(root))
    assert other.fingerprint == NUSWideTest.open(root).fingerprint


@pytest.mark.parametrize("folder", [".", "nus_wide"])
def test_labels_where_the_official_archive_puts_them(tmp_path: Path, folder: str) -> None:
    place = make_nuswide(tmp_path / folder)
    (place / "Groundtruth").mkdir()
    (place / "TrainTestLabels").rename(place / "Groundtruth" / "TrainTestLabels")
    assert len(NUSWideTest.open(tmp_path)) == 3


def test_missing_data_says_that_there_is_no_archive(tmp_path: Path) -> None:
    with pytest.raises(
        DataMissing, match=r"ImageList/TestImagelist.txt .*no single official archive.*Lab for Media Search"
    ) as caught:
        NUSWideTest.open(tmp_path)
    for address in ("lms.comp.nus.edu.sg", "Lxyhaha/NUS-WIDE", "xinleili/nuswide"):
        assert address in str(caught.value)
    with pytest.raises(UsageError, match="no single official archive"):
        NUSWideTest.download(tmp_path, Silent())


@pytest.mark.usefixtures("of_official_size")
def test_vanished_images_are_left_out_and_reported(root: Path) -> None:
    (root / "nuswide/Flickr/zebra/0002_1567438822.jpg").unlink()
    (root / "nuswide/Flickr/zebra/0003_0000000001.jpg").unlink()  # has no concept: of no interest
    dataset = NUSWideTest.open(root)
    assert list(labels(dataset)) == ["actor/0001_2124494179", "actor/0004_0000000002"]
    assert labels(dataset)["actor/0004_0000000002"] == ["birds"]
    (warning,) = dataset.warnings
    assert "1 of 3 images with labels are not on disk" in warning
    assert str(Path("zebra/0002_1567438822.jpg")) in warning
    assert (len(dataset), dataset.full_size) == (2, 3)
    (status,) = NUSWideTest.status(root)
    assert (status.found, status.images, status.expected, status.complete) == (True, 2, 4, False)
    assert status.how == "Runs leave out the photos that are missing."


def test_a_link_that_leads_nowhere_is_a_vanished_image(root: Path) -> None:
    file = root / "nuswide/Flickr/zebra/0002_1567438822.jpg"
    file.unlink()
    file.symlink_to(root / "gone.jpg")
    assert list(labels(NUSWideTest.open(root))) == ["actor/0001_2124494179", "actor/0004_0000000002"]


# ---------------------------------------------------------------------------------------------------------- counts


def test_the_number_of_images_is_reported_but_does_not_stop_a_subset(
    root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = NUSWideTest.open(root)
    assert dataset.warnings == ("nuswide lists 4 images here; the official split has 107,859",)
    assert dataset.full_size == 83_898
    monkeypatch.setattr(NUSWideTest, "layout", replace(NUSWideTest.layout, listed=4))
    assert NUSWideTest.open(root).warnings == ("nuswide has 3 images with labels here; others count 83,898",)


@pytest.mark.usefixtures("of_official_size")
def test_the_picture_that_stands_for_vanished_photos_is_reported(root: Path) -> None:
    first, second, _ = NUSWideTest.open(root).files
    second.write_bytes(first.read_bytes())
    dataset = NUSWideTest.open(root)
    (warning,) = dataset.warnings
    assert (
        f"of 3 images 1 are copies of others, byte for byte; {dataset.ids[0]} is there 2 times: Flickr gives" in warning
    )
    content = bytearray(second.read_bytes())
    content[-3] ^= 1
    second.write_bytes(content)  # as long as the first, and another photo
    assert NUSWideTest.open(root).warnings == ()


# ----------------------------------------------------------------------------------------------------- flat copies


@pytest.mark.usefixtures("of_official_size")
@pytest.mark.parametrize("folder", ["images", "image", "Flickr"])
def test_photos_in_one_folder_are_found_by_their_base_names(root: Path, folder: str) -> None:
    nested = NUSWideTest.open(root)
    place = root / "nuswide"
    (place / "Flickr").rename(place / "nested")
    (place / folder).mkdir()
    for file in (place / "nested").rglob("*.jpg"):
        file.rename(place / folder / file.name)
    flat = NUSWideTest.open(root)
    assert labels(flat) == labels(nested)
    assert flat.fingerprint == nested.fingerprint  # the same images under the same ids: their features are shared
    assert flat.files[0] == place / folder / "0001_2124494179.jpg"
    assert flat.sources[-1] == place / folder
    (status,) = NUSWideTest.status(root)
    assert (status.images, status.complete) == (4, True)


def test_one_photo_does_not_stand_for_two_of_one_base_name(tmp_path: Path) -> None:
    (tmp_path / "0001_1.jpg").touch()
    with pytest.raises(BadData, match=r"0001_1\.jpg can't be both a/0001_1\.jpg and b/0001_1\.jpg"):
        locate(tmp_path, ["a/0001_1.jpg", "b/0001_1.jpg"])


def test_photos_that_may_appear_later_change_a_source(root: Path) -> None:
    """A word's folder that was not there, or that had none of the photos, is no photo's folder yet."""
    place = root / "nuswide/Flickr"
    (place / "zebra").rename(root / "zebra")
    for content in ([], sorted((root / "zebra").iterdir())):
        sources = NUSWideTest.open(root).sources
        before = [stamp(source) for source in sources]
        (place / "zebra").mkdir(exist_ok=True)
        for file in content:
            file.rename(place / "zebra" / file.name)
        assert [stamp(source) for source in sources] != before
    assert len(NUSWideTest.open(root)) == 3


def test_photos_whose_links_lead_somewhere_later_change_a_source(root: Path) -> None:
    """As git-annex and a disk that is not mounted have them: no folder of the copy itself changes."""
    folder, elsewhere = root / "nuswide/Flickr/zebra", root / "elsewhere"
    elsewhere.mkdir()
    for file in list(folder.iterdir()):
        file.rename(elsewhere / file.name)
        file.symlink_to(root / "mounted" / file.name)
    dataset = NUSWideTest.open(root)
    before = [stamp(source) for source in dataset.sources]
    elsewhere.rename(root / "mounted")
    assert [stamp(source) for source in dataset.sources] != before
    assert (len(dataset), len(NUSWideTest.open(root))) == (2, 3)


def test_no_image_at_all(root: Path) -> None:
    (root / "nuswide/Flickr").rename(root / "elsewhere")
    (root / "nuswide/Flickr").mkdir()
    with pytest.raises(BadData, match=r"none of the images listed in .*TestImagelist.txt"):
        NUSWideTest.open(root)


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("1\n0\n", "2 lines for the 4 images"), ("1\n0\n2\n0\n", "entry 3 is '2'"), (None, "can't be read: No such file")],
)
def test_bad_labels_are_named(root: Path, content: str | None, complaint: str) -> None:
    file = root / "nuswide/TrainTestLabels/Labels_zebra_Test.txt"
    file.unlink()
    if content is not None:
        file.write_text(content)
    with pytest.raises(BadData, match=f"Labels_zebra_Test.txt: {complaint}"):
        NUSWideTest.open(root)


@pytest.mark.parametrize("kind", ["grayscale", "cmyk", "rotated", "line"])
def test_odd_photos_decode(root: Path, kind: str) -> None:
    photo(root / "nuswide/Flickr/actor/0001_2124494179.jpg", kind)
    assert NUSWideTest.open(root)[0].image.mode == "RGB"


def test_a_truncated_photo_is_named(root: Path) -> None:
    file = photo(root / "nuswide/Flickr/actor/0001_2124494179.jpg", "truncated")
    with pytest.raises(BadData, match=str(file)):
        NUSWideTest.open(root)[0].load()
