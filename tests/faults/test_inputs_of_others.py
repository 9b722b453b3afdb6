"""Packs, photos and files that are not of what they stand beside: a line says so, or they are refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file

from tests.conftest import Invoke
from tests.dataset_fixtures import make_coco, make_voc
from tests.unit import small_models
from tta_bench.backbones._pretrained import digest
from tta_bench.backbones.tiny import Tiny
from tta_bench.datasets.coco import COCO2017Val
from tta_bench.datasets.folder import Folder
from tta_bench.datasets.voc import VOC2007Test
from tta_bench.errors import BadData, PluginError
from tta_bench.features.pack import Pack
from tta_bench.features.packed_views import copies, oddities
from tta_bench.prompts.files import read_coop
from tta_bench.report.latex import LatexStyle
from tta_bench.runs import alarms
from tta_bench.runs.bench import Bench
from tta_bench.system.described import described
from tta_bench.views import RandomCrops

Features = np.ndarray[Any, Any]

# ---- packs


def photos_pack(file: Path, change: Callable[[dict[str, Features]], None] | None = None) -> Path:
    """Twenty images with something in common, as photos have, and views of each that are like it."""
    draw = np.random.default_rng(0)
    image = draw.normal(size=(20, 64)) + 1.0
    tensors = {
        "image": image,
        "views/crops8": image[:, None] + draw.normal(size=(20, 8, 64)),
        "text/photo": draw.normal(size=(3, 1, 64)),
    }
    if change is not None:
        change(tensors)
    unit = {name: (x / np.linalg.norm(x, axis=-1, keepdims=True)).astype(np.float32) for name, x in tensors.items()}
    lists = {"ids": [str(i) for i in range(20)], "class_names": ["dog", "cat", "bus"]}
    told = {"ttabench_pack": "1", "dataset": "toys", "backbone": "some", "logit_scale": "100"}
    labels = draw.integers(0, 2, (20, 3)).astype(np.int8)
    save_file(unit | {"labels": labels}, file, told | {name: json.dumps(names) for name, names in lists.items()})
    return file


def next_ones(tensors: dict[str, Features]) -> None:
    tensors["views/crops8"] = np.roll(tensors["views/crops8"], -1, axis=0)


def first_ones(tensors: dict[str, Features]) -> None:
    tensors["views/crops8"] = np.repeat(tensors["views/crops8"][:1], 20, axis=0)


def images_twice(tensors: dict[str, Features]) -> None:
    tensors["image"][10:] = tensors["image"][:10]


def classes_twice(tensors: dict[str, Features]) -> None:
    tensors["text/photo"][1] = tensors["text/photo"][0]


ODD: dict[str, tuple[Callable[[dict[str, Features]], None], str]] = {
    "views of the next image": (next_ones, "views of crops8 are like other images' more than like their own"),
    "views of the first image": (first_ones, "views of crops8 are like other images' more than like their own"),
    "images twice": (images_twice, "of 20 images 10 have the very features of another one"),
    "classes twice": (classes_twice, "of 3 classes 1 have the very texts' features of another one"),
}


@pytest.mark.parametrize("what", ODD)
def test_a_pack_that_is_mixed_up_says_so(what: str, invoke: Invoke, tmp_path: Path) -> None:
    """8.89 in place of 65.83, and 23.95 in place of 62.54; `pack verify` found nothing."""
    change, words = ODD[what]
    file = photos_pack(tmp_path / "p.safetensors", change)
    for command in (
        ("pack", "verify", str(file)),
        ("run", "-m", "tda", "--recipe", "views=crops8", "--pack", str(file)),
    ):
        assert words in " ".join(invoke(*command).err.split())


def test_a_sound_pack_says_nothing(tmp_path: Path) -> None:
    pack = Pack(photos_pack(tmp_path / "p.safetensors"))
    assert [*oddities(pack, pack.recipes), *copies(pack, pack.prompts)] == []


@dataclass(frozen=True)
class Darkened(RandomCrops):
    """Whoever inherits a recipe of ours has its name too, and was given the pack's genuine views."""


def test_a_recipe_that_inherits_ours_is_not_in_a_pack(tmp_path: Path) -> None:
    pack = Pack(photos_pack(tmp_path / "p.safetensors"))
    assert pack.source_of(RandomCrops(8)) == "crops8"
    assert pack.source_of(Darkened(8)) is None


# ---- photographs


def test_resized_copies_of_photos_are_told(tmp_path: Path) -> None:
    make_voc(tmp_path / "VOCdevkit" / "VOC2007")
    assert not [said for said in VOC2007Test.open(tmp_path).warnings if "resized" in said]
    for file in (tmp_path / "VOCdevkit" / "VOC2007" / "JPEGImages").iterdir():
        with Image.open(file) as image:
            image.resize((16, 16)).save(file)
    (said,) = [said for said in VOC2007Test.open(tmp_path).warnings if "resized" in said]
    assert "has 16 x 16 pixels, and its annotation says 40 x 24: a resized copy" in said


def coco(folder: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    file = make_coco(folder / "coco") / "annotations" / "instances_val2017.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))
    return folder


@pytest.mark.parametrize(("told", "warned"), [((40, 24), False), ((24, 40), False), ((640, 480), True)])
def test_sizes_that_coco_tells_are_looked_at(told: tuple[int, int], warned: bool, tmp_path: Path) -> None:
    def sized(content: dict[str, Any]) -> None:
        for image in content["images"]:
            image["width"], image["height"] = told

    opened = COCO2017Val.open(coco(tmp_path, sized))
    assert any("a resized copy" in said for said in opened.warnings) is warned


def test_what_a_detector_found_is_no_label(tmp_path: Path) -> None:
    def scored(content: dict[str, Any]) -> None:
        for annotation in content["annotations"]:
            annotation["score"] = 0.9

    with pytest.raises(BadData, match="what a detector found, and no labels"):
        COCO2017Val.open(coco(tmp_path, scored))


def test_images_beside_the_folders_of_classes_are_counted(tmp_path: Path) -> None:
    for place in ("dog/a.png", "cat/b.png", "c.png", "d.png"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        Image.new("RGB", (8, 8)).save(tmp_path / place)
    said = "folder: 2 images beside the classes' folders left out, the first is c.png"
    assert said in Folder.open(tmp_path).warnings


def test_a_class_that_is_never_absent_is_told() -> None:
    """One column with -1 where the others have 0 had an AP of 100, and the mAP was 79.01 in place of 52.93."""
    labels = np.array([[1, 0, -1], [0, 1, 1], [1, 0, 1]], np.int8)
    (said,) = alarms.nothing_absent(labels)
    assert said.startswith("in a class images are labelled 1 or -1 (ignore) and never 0 (absent)")
    assert alarms.nothing_absent(np.array([[1, 0], [0, 1], [-1, 1]], np.int8)) == []


# ---- prompts and weights


@pytest.mark.parametrize("value", [0.0, 1e4])
def test_a_context_that_has_learned_nothing_is_told(
    value: float, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    torch.save({"state_dict": {"ctx": torch.full((4, 8), value)}}, tmp_path / "coop.pth")
    read_coop(tmp_path / "coop.pth")
    assert f"every number of its context is {value:g}: it has learned nothing" in caplog.text


def test_a_tokenizer_counts_in_a_fingerprint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mended beside the weights, it found what the other one had given."""
    cls = small_models.FAMILIES["clip-vit"].shrink(monkeypatch)
    model, config = cls.random("cpu").model, cls.config()
    file = tmp_path / "tokenizer.json"
    seen = {digest(model, [], config, "fp32")}
    for content in ("{}", "{ }"):
        file.write_text(content)
        seen.add(digest(model, [file], config, "fp32"))
    assert len(seen) == 3


class Cached(Tiny):
    """Of which `load` never asks for what."""

    known: Any = None

    @classmethod
    def load(cls, device: str, weights: Path | None = None, precision: str = "fp32") -> Any:
        cls.known = cls.known or super().load(device, weights, precision)
        return cls.known


def test_a_backbone_that_is_loaded_once_for_all_weights_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """86.04 in place of 49.55, under the identity of the other weights."""
    bench = Bench(home=home)
    monkeypatch.setattr(type(bench.registry), "backbone", lambda self, name: Cached)
    assert bench.loaded("cached", "fp32", None, False) is bench.loaded("cached", "fp32", None, False)
    with pytest.raises(PluginError, match="gives the very object that it gave for other weights or another precision"):
        bench.loaded("cached", "fp16", None, False)
    again = Bench(home=home)
    assert again.loaded("cached", "fp32", None, False) is Cached.known


# ---- what is told apart


def test_a_column_of_one_number_can_be_described() -> None:
    """`dpe` on a single class ended with an error of torch."""
    one = torch.arange(5.0)[:, None][2:3].T[:, 0]
    strided = torch.arange(6.0).view(2, 3)[:, 1][:1]
    assert strided.stride() != (1,)
    assert described(strided) == described(strided.clone()) == described(torch.tensor([1.0]))
    assert described(one) == described(torch.tensor([2.0]))


class DotDict(dict[str, Any]):
    __getattr__ = dict.__getitem__


def test_a_dictionary_whose_items_are_attributes_can_be_described() -> None:
    assert described(DotDict(k=1)) != described(DotDict(k=2))


def test_two_plugins_of_one_title_are_told_apart_in_print() -> None:
    """A fork that keeps the title was a second row of that name."""
    style = LatexStyle(titles={"methods": {"tda": "TDA", "tdaplus": "TDA", "purf": "PuRF"}})
    assert [style.title("methods", name) for name in ("tda", "tdaplus", "purf")] == [
        "TDA (tda)",
        "TDA (tdaplus)",
        "PuRF",
    ]
