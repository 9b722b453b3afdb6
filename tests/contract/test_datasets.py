"""Every registered dataset passes its kit on a small copy, and the kit notices what it is there to notice."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import pytest
from PIL import Image

from tests.conftest import TOY, Invoke, some_slow
from tests.dataset_fixtures import BUILDERS, build, make_coco, make_nuswide, make_voc, photo
from tta_bench.checks import datasets as kit
from tta_bench.datasets._photos import OfficialPhotos
from tta_bench.errors import BadData, DataMissing, UnknownName, UsageError
from tta_bench.interfaces import Dataset, DatasetExtras, Downloadable, Sample
from tta_bench.plugins import Registry
from tta_bench.system.stamps import stamp

REGISTRY = Registry()


@pytest.mark.parametrize("name", REGISTRY.names("datasets"))
def test_every_dataset_conforms(name: str, tmp_path: Path) -> None:
    build(name, tmp_path)
    examination = kit.examine(REGISTRY.dataset(name), tmp_path)
    assert [v for v in examination.verdicts if not v.passed] == []
    assert {v.check for v in examination.verdicts if v.skipped} <= {"fingerprint is sensitive"}


@pytest.mark.parametrize("name", BUILDERS)
def test_the_fingerprint_knows_the_images_and_not_the_folder(name: str, tmp_path: Path) -> None:
    for copy in ("one", "two"):
        build(name, tmp_path / copy)
    opened = [REGISTRY.dataset(name).open(tmp_path / copy) for copy in ("one", "two")]
    assert opened[0].fingerprint == opened[1].fingerprint
    used = [file for file in sorted(tmp_path.joinpath("two").rglob("*.jpg")) if opened[1][0].id.endswith(file.stem)]
    file = used[0] if used else tmp_path / "two" / opened[1][0].id
    photo(file, "grayscale")
    assert REGISTRY.dataset(name).open(tmp_path / "two").fingerprint != opened[0].fingerprint


def test_the_fingerprint_knows_how_many_images_there_are(tmp_path: Path) -> None:
    build("folder", tmp_path)
    folder = REGISTRY.dataset("folder")
    whole = folder.open(tmp_path).fingerprint
    tmp_path.joinpath("labels.csv").write_text("image,dog,potted plant\na.jpg,1,0\n")
    assert folder.open(tmp_path).fingerprint != whole


@pytest.mark.parametrize("name", REGISTRY.names("datasets"))
def test_what_a_dataset_says_of_itself(name: str, tmp_path: Path) -> None:
    build(name, tmp_path)
    cls = REGISTRY.dataset(name)
    dataset = cls.open(tmp_path)
    extras = DatasetExtras.of(dataset)
    assert extras.sources is not None
    assert all(source.exists() for source in extras.sources)  # of a copy in the first place that is tried
    assert extras.full_size is None or extras.full_size >= len(dataset)
    assert extras.variants[:1] in ((), ("default",))
    if issubclass(cls, Downloadable):  # what it says before it is opened
        (status,) = cls.status(tmp_path)
        assert status.found
        assert status.images >= len(dataset)
    else:
        assert extras.sources == ()  # it needs no files


# ------------------------------------------------------------------------------------------------- what a run watches

PLACED: dict[str, Callable[[Path], Path]] = {
    "voc2007": lambda place: make_voc(place, "test"),
    "voc2012": lambda place: make_voc(place, "val"),
    "coco2014": lambda place: make_coco(place, "2014"),
    "coco2017": lambda place: make_coco(place, "2017"),
    "nuswide": make_nuswide,
}


def stamps(dataset: object) -> dict[Path, Any]:
    sources = DatasetExtras.of(dataset).sources
    assert sources is not None
    return {source: stamp(source) for source in sources}


def stamps_again(before: dict[Path, Any]) -> dict[Path, Any]:
    return {source: stamp(source) for source in before}


def official(name: str) -> Any:
    """The class of a dataset that has a layout and can be opened, which no one type says."""
    cls = REGISTRY.dataset(name)
    assert issubclass(cls, OfficialPhotos)
    return cls


def test_every_dataset_that_looks_in_several_places_is_watched() -> None:
    searching = {name for name in REGISTRY.names("datasets") if hasattr(REGISTRY.dataset(name), "layout")}
    assert searching == set(PLACED)


@pytest.mark.parametrize("name", some_slow(["voc2007"], [name for name in PLACED if name != "voc2007"]))
def test_a_place_that_is_tried_earlier_is_noticed_when_it_appears(name: str, tmp_path: Path) -> None:
    """A finished run is not taken for the answer once `open` would read other files."""
    cls = official(name)
    places = [place.relative_to(tmp_path) for place in cls.layout.places(tmp_path / "2007-2012")]
    for i, earlier in enumerate(places[:-1]):
        for role in cls.layout.parts:
            root = tmp_path / f"{i}-{role}"  # a folder for each, under the one name that all have as a root
            make = PLACED[name]
            last = make(root / places[-1])
            place = root / earlier
            empty = stamps(cls.open(root / "2007-2012"))
            make(place)
            assert stamps_again(empty) != empty
            part = next(place / spot for spot in cls.layout.parts[role] if (place / spot).exists())
            part.rename(root / "aside")
            dataset = cls.open(root / "2007-2012")
            assert dataset.files[0].is_relative_to(last)
            before = stamps(dataset)
            assert stamps_again(before) == before
            (root / "aside").rename(part)
            assert stamps_again(before) != before
            assert not cls.open(root / "2007-2012").files[0].samefile(dataset.files[0])


@pytest.mark.parametrize("name", PLACED)
def test_a_spot_that_is_tried_earlier_is_noticed_when_it_appears(name: str, tmp_path: Path) -> None:
    cls = official(name)
    place = PLACED[name](cls.layout.places(tmp_path)[0])
    for spots in cls.layout.parts.values():
        (place / spots[-1]).parent.mkdir(parents=True, exist_ok=True)
        (place / spots[0]).rename(place / spots[-1])
        before = stamps(cls.open(tmp_path))
        for spot in spots[:-1]:
            (place / spot).mkdir(parents=True)
            assert stamps_again(before) != before
            shutil.rmtree(place / Path(spot).parts[0])


@pytest.mark.parametrize("name", PLACED)
def test_another_copy_in_a_later_place_costs_nothing(name: str, tmp_path: Path) -> None:
    """Listing its images would take a call per file, each time that a finished run is asked for."""
    cls = official(name)
    places = cls.layout.places(tmp_path)
    PLACED[name](places[0])
    alone = cls.open(tmp_path).sources
    PLACED[name](places[3])
    assert cls.open(tmp_path).sources == alone


def test_scenes_have_a_fingerprint_for_each_variant(tmp_path: Path) -> None:
    scenes = REGISTRY.dataset("scenes")
    verdict = {v.check: v for v in kit.examine(scenes, tmp_path).verdicts}["fingerprint is sensitive"]
    assert verdict.passed
    assert not verdict.skipped


# ------------------------------------------------------------------------------------------------- planted faults


class Good:
    """Six tinted images, two variants; the faults below are planted into it."""

    name: ClassVar[str] = "good"
    variants: ClassVar[tuple[str, ...]] = ("default", "bright")
    class_names: tuple[str, ...] = ("dog", "cat")

    def __init__(self, root: Path, variant: str) -> None:
        self.root, self.variant = root, variant
        self.fingerprint = f"good-{variant}"

    @classmethod
    def open(cls, root: Path, variant: str = "default") -> Self:
        if variant not in cls.variants:
            raise UnknownName("variant of good", variant, cls.variants)
        return cls(root, variant)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Sample:
        if not 0 <= i < len(self):
            raise IndexError(i)
        return Sample(self.id(i), lambda: self.draw(i), self.labels(i))

    def id(self, i: int) -> Any:
        return f"image-{i}"

    def labels(self, i: int) -> Any:
        return np.array([i % 2, 1 - i % 2], np.int8)

    def draw(self, i: int) -> Any:
        return Image.new("RGB", (8, 6), (30 * i, 0, 200 if self.variant == "bright" else 90))


class NamesAClassTwice(Good):
    class_names = ("dog", "dog")


class NamesAClassInCapitals(Good):
    class_names = ("dog", "Dog")


class HasAnEmptyName(Good):
    class_names = ("dog", " ")


class HasNoImages(Good):
    def __len__(self) -> int:
        return 0


class RepeatsAnId(Good):
    def id(self, i: int) -> Any:
        return f"image-{i % 5}"


class CountsInsteadOfNaming(Good):
    def id(self, i: int) -> Any:
        return i


class NamesTheMachine(Good):
    def id(self, i: int) -> Any:
        return str(self.root / f"{i}.jpg")


class LabelsInFloats(Good):
    def labels(self, i: int) -> Any:
        return np.array([0.0, 1.0])


class LabelsTooFew(Good):
    def labels(self, i: int) -> Any:
        return np.ones(1, np.int8)


class LabelsWithATwo(Good):
    def labels(self, i: int) -> Any:
        return np.array([2, 0], np.int8)


class IgnoresAnImage(Good):
    def labels(self, i: int) -> Any:
        return np.array([-1, -1] if i == 3 else [1, 0], np.int8)


class HasNoPositive(Good):
    def labels(self, i: int) -> Any:
        return np.zeros(2, np.int8)


class IgnoresWhatIsAbsent(Good):
    def labels(self, i: int) -> Any:
        return np.array([1, -1], np.int8)


class NeverEnds(Good):
    def __getitem__(self, i: int) -> Sample:
        return Sample(self.id(i), lambda: self.draw(i), self.labels(i))


class DecodesWhenOpened(Good):
    def __init__(self, root: Path, variant: str) -> None:
        super().__init__(root, variant)
        self.images = [photo_of(root) for _ in range(6)]


class DecodesWhenIndexed(Good):
    def __getitem__(self, i: int) -> Sample:
        image = photo_of(self.root)
        return Sample(super().__getitem__(i).id, lambda: image.copy(), self.labels(i))


def photo_of(root: Path) -> Image.Image:
    with Image.open(photo(root / "photo.jpg")) as image:
        return image.convert("RGB")


class LoadsGrey(Good):
    def draw(self, i: int) -> Any:
        return Image.new("L", (8, 6))


class LoadsAnArray(Good):
    def draw(self, i: int) -> Any:
        return np.zeros((6, 8, 3), np.uint8)


class HandsOutOneObject(Good):
    def __init__(self, root: Path, variant: str) -> None:
        super().__init__(root, variant)
        self.kept: dict[int, Any] = {}

    def draw(self, i: int) -> Any:
        return self.kept.setdefault(i, super().draw(i))


class Flickers(Good):
    turns: ClassVar[Any] = itertools.count()

    def draw(self, i: int) -> Any:
        return Image.new("RGB", (8, 6), (next(self.turns) % 256, 0, 0))


class OpensInAnotherOrder(Good):
    opened: ClassVar[Any] = itertools.count()

    def __init__(self, root: Path, variant: str) -> None:
        super().__init__(root, variant)
        self.turn = next(self.opened)

    def id(self, i: int) -> Any:
        return f"image-{(i + self.turn) % 6}"


class HasAFingerprintPerOpening(Good):
    opened: ClassVar[Any] = itertools.count()

    def __init__(self, root: Path, variant: str) -> None:
        super().__init__(root, variant)
        self.fingerprint = f"good-{next(self.opened)}"


class HasOneFingerprintForAll(Good):
    def __init__(self, root: Path, variant: str) -> None:
        super().__init__(root, variant)
        self.fingerprint = "good"


class TakesAnyVariant(Good):
    @classmethod
    def open(cls, root: Path, variant: str = "default") -> Self:
        return cls(root, variant)


class HasTooFewDomains(Good):
    domains = ("indoor",)


class IsMoreThanComplete(Good):
    full_size = 3


class HasLostASource(Good):
    sources = (Path("/no/such/file"),)


@pytest.mark.parametrize(
    ("dataset", "check"),
    [
        (NamesAClassTwice, "class names are unique"),
        (NamesAClassInCapitals, "class names are unique"),
        (HasAnEmptyName, "class names are unique"),
        (RepeatsAnId, "ids are unique texts"),
        (CountsInsteadOfNaming, "ids are unique texts"),
        (NamesTheMachine, "ids are unique texts"),
        (LabelsInFloats, "labels are 1, 0 or -1"),
        (LabelsTooFew, "labels are 1, 0 or -1"),
        (LabelsWithATwo, "labels are 1, 0 or -1"),
        (IgnoresAnImage, "labels say something"),
        (HasNoPositive, "labels say something"),
        (IgnoresWhatIsAbsent, "labels say something"),
        (NeverEnds, "the end raises IndexError"),
        (DecodesWhenOpened, "nothing is decoded early"),
        (DecodesWhenIndexed, "nothing is decoded early"),
        (LoadsGrey, "images are RGB, twice the same"),
        (LoadsAnArray, "images are RGB, twice the same"),
        (HandsOutOneObject, "images are RGB, twice the same"),
        (Flickers, "images are RGB, twice the same"),
        (OpensInAnotherOrder, "same again when opened again"),
        (HasAFingerprintPerOpening, "fingerprint is stable"),
        (HasOneFingerprintForAll, "fingerprint is sensitive"),
        (TakesAnyVariant, "unknown variants are refused"),
        (HasTooFewDomains, "optional members fit"),
        (IsMoreThanComplete, "optional members fit"),
        (HasLostASource, "optional members fit"),
    ],
)
def test_the_kit_notices(dataset: type[Dataset], check: str, tmp_path: Path) -> None:
    verdicts = {v.check: v for v in kit.examine(dataset, tmp_path).verdicts}
    assert not verdicts[check].passed
    assert verdicts[check].reason


def test_the_kit_has_nothing_against_a_good_one(tmp_path: Path) -> None:
    examination = kit.examine(Good, tmp_path)
    assert [v for v in examination.verdicts if not v.passed or v.skipped] == []
    assert examination.remark == "6 images, 2 classes"


def test_the_kit_has_nothing_against_a_source_that_may_appear_later(tmp_path: Path) -> None:
    class Watches(Good):
        sources = (tmp_path / "preferred", tmp_path)

    assert [v for v in kit.examine(Watches, tmp_path).verdicts if not v.passed] == []


def test_an_empty_dataset_gets_one_verdict(tmp_path: Path) -> None:
    (verdict,) = kit.examine(HasNoImages, tmp_path).verdicts
    assert (verdict.check, verdict.passed) == ("it has images", False)


def test_every_check_has_a_planted_fault() -> None:
    planted = next(m for m in test_the_kit_notices.pytestmark if m.name == "parametrize")  # type: ignore[attr-defined]
    assert {check for _, check in planted.args[1]} == set(kit.CHECKS)


def raising(error: Callable[[], BaseException]) -> type[Good]:
    class Raises(Good):
        @classmethod
        def open(cls, root: Path, variant: str = "default") -> Self:
            raise error()

    return Raises


@pytest.mark.parametrize("error", [lambda: BadData("labels.csv is empty"), lambda: SystemExit(3), ZeroDivisionError])
def test_what_opening_raises_is_a_verdict_with_file_and_line(
    error: Callable[[], BaseException], tmp_path: Path
) -> None:
    (verdict,) = kit.examine(raising(error), tmp_path).verdicts
    assert not verdict.passed
    assert "test_datasets.py, line " in verdict.reason


@pytest.mark.parametrize("error", [DataMissing("not here"), UsageError("no such variant"), KeyboardInterrupt()])
def test_missing_data_is_nobodys_fault(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        kit.examine(raising(lambda: error), tmp_path)


def test_check_on_the_command_line(invoke: Invoke, tmp_path: Path) -> None:
    build("voc2007", tmp_path)
    good = invoke("check", "datasets.voc2007:mltta", "--data-root", str(tmp_path))
    assert good.code == 0, good.err
    assert "datasets.voc2007:mltta (3 images, 20 classes)" in good.out
    assert "note: warning: voc2007 lists 4 images here" in good.out
    assert "note: 17 of 20 classes without a positive image" in good.out
    missing = invoke("check", "voc2007", "--data-root", str(tmp_path / "elsewhere"))
    assert missing.code == 2
    assert "ttabench data get voc2007" in missing.err
    assert invoke("check", "datasets.toy", "--plugin", str(TOY)).code == 0
