"""What could be meant in two ways, or counted twice, is told or refused."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest
from PIL import Image

from tests.conftest import TOY, Invoke
from tests.faults.test_fence import GUEST, TOYS
from tta_bench.datasets.folder import Folder
from tta_bench.datasets.scenes import Scenes
from tta_bench.errors import BadData, UsageError
from tta_bench.prompts import compounds

# ---- data status


def status(invoke: Invoke, root: Path, dataset: str) -> int:
    done = invoke("data", "status", "--data-root", str(root), "--json")
    (row,) = (row for row in json.loads(done.out) if row["dataset"] == dataset)
    return int(row["images"])


def photos(folder: Path, count: int) -> None:
    folder.mkdir(parents=True)
    for k in range(count):
        Image.new("RGB", (8, 8)).save(folder / f"{k:012d}.jpg")


def test_what_a_mac_leaves_beside_photos_is_no_photo(invoke: Invoke, tmp_path: Path) -> None:
    """313 of them were 626 of 5,000."""
    photos(tmp_path / "coco" / "val2017", 3)
    (tmp_path / "coco" / "val2017" / "._000000000000.jpg").write_bytes(b"\0\5\x16\7")
    assert status(invoke, tmp_path, "coco2017") == 3


def test_a_link_to_nowhere_is_no_photo(invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / "VOCdevkit" / "VOC2007"
    photos(folder / "JPEGImages", 1)
    (folder / "JPEGImages" / "000007.jpg").symlink_to(tmp_path / "gone.jpg")
    (folder / "ImageSets" / "Main").mkdir(parents=True)
    (folder / "ImageSets" / "Main" / "test.txt").write_text("000000000000\n000007\n")
    assert status(invoke, tmp_path, "voc2007") == 1


def test_empty_rows_of_a_spreadsheet_are_no_images(tmp_path: Path) -> None:
    photos(tmp_path / "folder", 1)
    (tmp_path / "folder" / "labels.csv").write_text('image,dog,"cat\nor lynx"\n000000000000.jpg,1,0\n,,\n,,\n')
    assert [found.images for found in Folder.status(tmp_path / "folder")] == [1]


# ---- a dataset in hand


@pytest.mark.parametrize("attribute", ["variant", "count"])
def test_a_built_in_dataset_stays_what_it_was_opened_with(attribute: str) -> None:
    """Runs on `fog` and `noise` had the number of `clean`: its fingerprint was kept."""
    scenes = Scenes("clean")
    with pytest.raises(UsageError, match=f"Scenes.{attribute} stays what the dataset was opened with: open another"):
        setattr(scenes, attribute, 3)
    assert scenes[0].labels.sum() > 0


def test_photos_stay_what_they_were_opened_with(tmp_path: Path) -> None:
    photos(tmp_path / "folder", 2)
    (tmp_path / "folder" / "labels.csv").write_text("image,dog\n000000000000.jpg,1\n000000000001.jpg,0\n")
    opened: Any = Folder.open(tmp_path)
    with pytest.raises(UsageError, match=r"Folder.files stays what the dataset was opened with"):
        opened.files = opened.files[::-1]


# ---- texts, weights


@pytest.mark.parametrize("names", [("boeing 737", "boeing 747"), ("c", "c++"), ("type a", "Type-A 2")])
def test_classes_that_compound_texts_can_not_tell_apart_are_refused(names: tuple[str, str], tmp_path: Path) -> None:
    """All texts were the first one's."""
    file = tmp_path / "texts.txt"
    file.write_text("a boeing 747 and a dog\n")
    with pytest.raises(BadData, match="can't be searched for the classes"):
        compounds.read(file, [*names, "dog"])


def test_weights_are_not_the_reward_models(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    from importlib import resources

    tiny = Path(str(resources.files("tta_bench") / "data" / "tiny.safetensors"))
    run = ("run", "-m", "rlcf", "--set", "reward=tiny", "--limit", "2", "--weights", str(tiny), "-b", "tiny")
    done = invoke(*run, "--dataset", "scenes")
    assert "--weights are the student's alone: as reward model tiny has its own" in " ".join(done.err.split())


# ---- settings of a plugin


def guest(folder: Path, fields: str, sign: str) -> str:
    """A plugin whose scores turn round by what `sign` says of its fields."""
    source = GUEST.replace("ON_START", "pass").replace("ON_IMPORT", "pass")
    source = source.replace("ON_STEP", f"return (self.task.text @ x.image) * ({sign})")
    name = 'name: ClassVar[str] = "guest"'
    (folder / "guest.py").write_text(source.replace(name, f"{name}\n{indent(dedent(fields), '    ')}"))
    return f"{TOY},{folder / 'guest.py'}"


def test_presets_that_json_can_not_tell_apart_are_two(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    """The second one was the first one's number, found again."""
    fields = """
    presets = {"one": {"sizes": (1, 2)}, "two": {"sizes": [1, 2]}}
    sizes: object = None
    """
    plugins = guest(tmp_path, fields, "1 if isinstance(self.sizes, tuple) else -1")
    for preset in ("one", "two"):
        assert invoke("run", "-m", "guest", "--preset", preset, "--plugin", plugins, *TOYS).code == 0
    assert len(list((home / "runs").glob("guest-*"))) == 2


def test_a_method_may_go_by_the_name_of_its_file(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    fields = """
    config: str = ""

    def digests(self):
        from pathlib import Path
        from tta_bench.system.files import file_digest
        return {"config": file_digest(Path(self.config))} if self.config else {}
    """
    plugins = guest(tmp_path, fields, "1 if 'coco' in self.config else -1")
    for folder, name in (("a", "coco.yaml"), ("a", "voc.yaml"), ("b", "voc.yaml")):
        config = tmp_path / folder / name
        config.parent.mkdir(exist_ok=True)
        config.write_text("k: 1")
        done = invoke("run", "-m", "guest", "--set", f"config={config}", "--plugin", plugins, *TOYS)
        assert done.code == 0, done.err
    assert len(list((home / "runs").glob("guest-*"))) == 2  # where it lies makes no difference
