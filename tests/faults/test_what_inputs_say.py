"""Inputs that tell of themselves that they are not what they are taken for: a line says so, or they are refused."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.numpy import save_file

from tests.conftest import TOY, Invoke
from tests.faults.test_fuzzed_prompts import maple_weights
from tests.faults.test_names import make_pack, one_line
from tta_bench.errors import BadData
from tta_bench.features.pack import Pack
from tta_bench.features.packed_views import oddities
from tta_bench.pixels.decode import decode
from tta_bench.prompts.files import read_coop, read_cupl, read_maple
from tta_bench.prompts.texts_named import texts_of_another
from tta_bench.records import load_all

BARE = ("-b", "toyclip", "--workers", "0", "--plugin", str(TOY))

# ---- prompts


PLACES = ["{}", "{name}", "%s", "<class>", "{class name}", "{{ class }}", "[CLASS]", "[class name]", "$class", "____"]


@pytest.mark.parametrize("place", PLACES)
def test_a_sentence_with_a_place_for_a_name_is_refused(place: str, tmp_path: Path) -> None:
    """It was read letter by letter: 42.81 in place of 47.33."""
    file = tmp_path / "cupl.json"
    file.write_text(json.dumps({"dog": ["a dog"], "cat": ["a cat", f"a photo of a {place}, which purrs"]}))
    with pytest.raises(
        BadData, match=r"class 'cat' has the sentence .*, with a place for a name: write the name there"
    ):
        read_cupl(file, ["dog", "cat"])


def test_sentences_under_another_class_are_refused(tmp_path: Path) -> None:
    """16.24 in place of 49.56, after the keys had slipped by one."""
    file = tmp_path / "cupl.json"
    said = {"dog": ["A cat purrs.", "Cats, two."], "cat": ["A red bus."], "bus": ["The dog barks."]}
    file.write_text(json.dumps(said))
    with pytest.raises(BadData, match="every sentence of class 'cat' names 'bus' instead"):
        read_cupl(file, ["cat", "dog", "bus"])


def test_a_sentence_of_every_class_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = tmp_path / "cupl.json"
    file.write_text(json.dumps({"dog": ["a dog", "a photo of a CLASS"], "cat": ["a photo of a CLASS", "a cat"]}))
    read_cupl(file, ["dog", "cat"])
    assert "every class has the sentence 'a photo of a CLASS'" in caplog.text


def test_prose_may_have_brackets_and_prices(tmp_path: Path) -> None:
    file = tmp_path / "cupl.json"
    said = {"dog": ["a dog [sic] of $5, 50% off (new)"], "cat": ["a cat: 100% fur, <3"]}
    file.write_text(json.dumps(said))
    assert read_cupl(file, ["dog", "cat"]) == [tuple(said["dog"]), tuple(said["cat"])]


@pytest.mark.parametrize(
    ("kind", "more"), [("coop", "meta_net.linear1.weight"), ("maple", "prompt_learner.meta_net.linear1.weight")]
)
def test_a_checkpoint_of_a_method_that_builds_on_it_is_refused(kind: str, more: str, tmp_path: Path) -> None:
    """CoCoOp's was read as CoOp's: its net, which makes a context for every image, was left out."""
    weights = {"ctx": torch.randn(2, 4), "token_prefix": torch.randn(3, 1, 4), "token_suffix": torch.randn(3, 5, 4)}
    if kind == "maple":
        weights = {f"prompt_learner.{name}": tensor for name, tensor in weights.items()} | maple_weights()
    file, read = tmp_path / "model.pth.tar-10", read_coop if kind == "coop" else read_maple
    torch.save({"state_dict": weights}, file)
    read(file)
    torch.save({"state_dict": weights | {more: torch.randn(3, 4)}}, file)
    with pytest.raises(BadData, match="has learned 'meta_net"):
        read(file)


@pytest.mark.parametrize("hidden", ["\u200b", "\u00ad", "\u202e", "\u200d"])
@pytest.mark.parametrize("name", ["do{}g", "{}dog", "dog{}"])
def test_a_character_in_a_class_name_that_nobody_sees_is_refused(
    name: str, hidden: str, invoke: Invoke, tmp_path: Path
) -> None:
    Image.new("RGB", (40, 40)).save(tmp_path / "a.png")
    (tmp_path / "labels.csv").write_text(f"image,{name.format(hidden)},cat\na.png,1,0\n", "utf-8")
    done = invoke("run", "-m", "clip", "-d", "folder", "--data-root", str(tmp_path), *BARE)
    assert done.code == 2
    assert "has a character that nobody sees" in one_line(done.err)


def test_scripts_that_join_letters_are_let_be() -> None:
    from tta_bench.system.text import hides_something

    assert not any(map(hides_something, ("می\u200cخواهم", "क्\u200dष", "café", "dog 🐕")))


# ---- packs

TEXTS = [["a photo of a dog."], ["a photo of a hot dog."], ["a photo of a cat."]]


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (("dog", "hot_dog", "cat"), None),
        (("cat", "dog", "Hot dog"), ("Hot dog", "cat")),
        (("cat", "hot dog", "dog"), ("cat", "dog")),
        (("hound", "sausage", "tom"), None),  # other words for them
        (("dog", "sausage", "tom"), None),
        (("cat", "sausage", "tom"), ("tom", "cat")),
    ],
)
def test_texts_in_another_order_than_the_classes(names: tuple[str, ...], wanted: tuple[str, str] | None) -> None:
    assert texts_of_another(names, TEXTS) == wanted


def test_a_pack_whose_texts_are_in_another_order_is_refused(tmp_path: Path, invoke: Invoke) -> None:
    """An alphabetical list beside classes in COCO's order: mAP 5.52 in place of 54.38."""
    told = {"class_names": ["dog", "cat"], "prompt_texts": {"photo": [["a cat"], ["a dog"]]}}
    done = invoke("run", "-m", "clip", "--pack", str(make_pack(tmp_path / "p.safetensors", **told)))
    assert "of 'dog' in text/photo name 'cat': they are in another order" in one_line(done.err)


Views = np.ndarray[tuple[int, ...], np.dtype[np.float32]]


def whole_first(views: Views, image: Views) -> None:
    views[:, 0] = image


def repeated(views: Views, image: Views) -> None:
    views[:, 5:] = views[:, 4:5]


ODD: dict[str, tuple[Callable[[Views, Views], None], str]] = {
    "the original first": (whole_first, "view 0 of augmix8 is the whole image"),
    "a few, repeated": (repeated, "views 4 and 5 of augmix8 are the same"),
}


def viewed_pack(file: Path, change: Callable[[Views, Views], None] | None = None, recipe: str = "augmix8") -> Path:
    draw = np.random.default_rng(0)
    image, views = (draw.normal(size=size).astype(np.float32) for size in ((4, 16), (4, 8, 16)))
    text = draw.normal(size=(2, 1, 16)).astype(np.float32)
    if change is not None:
        change(views, image)
    unit = {"image": image, f"views/{recipe}": views, "text/photo": text}
    tensors = {name: array / np.linalg.norm(array, axis=-1, keepdims=True) for name, array in unit.items()}
    told = {"ids": json.dumps(list("abcd")), "class_names": json.dumps(["dog", "cat"])}
    plain = {"ttabench_pack": "1", "dataset": "toys", "backbone": "some", "logit_scale": "100"}
    save_file(tensors | {"labels": np.eye(4, 2, dtype=np.int8)}, file, plain | told)
    return file


@pytest.mark.parametrize("what", ODD)
def test_views_that_are_not_drawn_are_said(what: str, tmp_path: Path, invoke: Invoke, home: Path) -> None:
    change, words = ODD[what]
    file = viewed_pack(tmp_path / "odd.safetensors", change)
    done = invoke("run", "-m", "tda", "--recipe", "views=augmix8", "--pack", str(file))
    assert done.code == 0, done.err
    assert words in " ".join(done.err.split())
    (run,) = load_all(home / "runs")[0]
    assert any(words in note for note in run.notes)
    assert words in " ".join(invoke("pack", "verify", str(file)).err.split())


def test_views_that_are_drawn_and_those_of_plugins_are_let_be(tmp_path: Path) -> None:
    assert not list(oddities(Pack(viewed_pack(tmp_path / "sound.safetensors")), ["augmix8"]))
    own = Pack(viewed_pack(tmp_path / "own.safetensors", whole_first, "corners8"))
    assert not list(oddities(own, ["corners8"]))


# ---- folders


@pytest.mark.parametrize("part", ["file", "folder"])
def test_a_name_that_is_not_utf8_is_one_line(part: str, invoke: Invoke, tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"d\xff" if part == "folder" else b"dog")
    folder.mkdir()
    Image.new("RGB", (40, 40)).save(folder / os.fsdecode(b"\xff.png" if part == "file" else b"a.png"))
    done = invoke("run", "-m", "clip", "-d", "folder", "--data-root", str(tmp_path), *BARE)
    assert done.code == 2
    assert "its name is not in UTF-8: rename it" in one_line(done.err)


@pytest.mark.parametrize("name", ["Labels.csv", "labels.CSV", "labels.csv.txt"])
def test_labels_under_another_spelling_are_not_passed_over(name: str, invoke: Invoke, tmp_path: Path) -> None:
    """Images in folders would each have the one label of their folder."""
    (tmp_path / "dog").mkdir()
    Image.new("RGB", (40, 40)).save(tmp_path / "dog" / "a.png")
    (tmp_path / name).write_text("image,dog,cat\ndog/a.png,1,1\n")
    done = invoke("run", "-m", "clip", "-d", "folder", "--data-root", str(tmp_path), *BARE)
    assert f"{name} is there, and no labels.csv: rename it" in one_line(done.err)


def test_thumbnails_of_a_disk_are_no_class(invoke: Invoke, tmp_path: Path, home: Path) -> None:
    for folder in ("dog", "cat", "@eaDir"):
        (tmp_path / folder).mkdir()
        Image.new("RGB", (40, 40), (len(folder) * 20, 0, 0)).save(tmp_path / folder / f"{len(folder)}.png")
    assert invoke("run", "-m", "clip", "-d", "folder", "--data-root", str(tmp_path), *BARE).code == 0
    (run,) = load_all(home / "runs")[0]
    assert list(run.per_class_ap) == ["cat", "dog"]


# ---- what refusals name


def test_two_folders_of_one_class_are_named(invoke: Invoke, tmp_path: Path) -> None:
    """The line named a classnames.txt that was not there."""
    for folder in ("hot_dog", "hot dog"):
        (tmp_path / "food" / folder).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "food" / folder / "1.png")
    done = invoke("run", "-m", "clip", "-d", "folder:food", "--data-root", str(tmp_path), *BARE)
    assert done.code != 0
    assert "the folders hot dog and hot_dog would be one class" in done.err
    (tmp_path / "food/classnames.txt").write_text("hot dog missile\nhot_dog missile\n")
    done = invoke("run", "-m", "clip", "-d", "folder:food", "--data-root", str(tmp_path), *BARE)
    assert "classnames.txt: hot dog and hot_dog are both 'missile': give one of them another name" in done.err


def test_a_folder_in_place_of_labels_is_no_other_spelling(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "food/labels.csv").mkdir(parents=True)
    done = invoke("run", "-m", "clip", "-d", "folder:food", "--data-root", str(tmp_path), *BARE)
    assert "labels.csv: not a regular file" in done.err


def test_a_configuration_may_begin_with_a_byte_order_mark(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Editors of Windows write one, and all other files may have it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ttabench.toml").write_bytes(b'\xef\xbb\xbfdata_root = "photos"\r\n')
    assert "the data root photos does not exist" in invoke("data", "status").err


@pytest.mark.filterwarnings("error")
def test_broken_exif_is_no_warning_of_pillows(tmp_path: Path) -> None:
    """It named a file of the library and no photo."""
    file = tmp_path / "a.jpg"
    Image.new("RGB", (8, 8)).save(file, exif=b"Exif\0\0II*\0\xff\xff\xff\x7f")
    decode(file)
