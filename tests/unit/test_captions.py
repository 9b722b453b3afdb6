"""Caption corpora for ML-TTA, and generated images for DiffTPT."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn.functional import normalize

from tta_bench.backbones.tiny import WEIGHTS, Tiny
from tta_bench.errors import BadData, UsageError
from tta_bench.generated import Generated
from tta_bench.interfaces import Preprocess, Task
from tta_bench.methods.difftpt import DiffTPT
from tta_bench.methods.mltta import MLTTA
from tta_bench.prompts import captions
from tta_bench.prompts.captions import class_of_words, named_classes, read_coco, read_text, template_corpus
from tta_bench.prompts.synonyms import plural
from tta_bench.system.files import digest

COCO = ("person", "dog", "hot dog", "couch", "traffic light", "wine glass", "knife")


class Words:
    """A backbone whose text features are sums of random word vectors."""

    name = "words"
    fingerprint = "words-1"

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        return torch.stack([normalize(sum((self._word(w) for w in t.split()), torch.zeros(16)), dim=0) for t in texts])

    def _word(self, word: str) -> Tensor:
        seed = self.seed + sum(ord(c) << (3 * i) for i, c in enumerate(word[:12]))
        return torch.randn(16, generator=torch.Generator().manual_seed(seed))


def make_task(names: Sequence[str] = COCO, backbone: Words | None = None) -> Task:
    backbone = backbone or Words()
    text = backbone.encode_texts(names)
    return Task(names, text, text[:, None], 10.0, encode_texts=backbone.encode_texts)


# -------------------------------------------------------------------------------------------------------- labels


@pytest.mark.parametrize(
    ("caption", "expected"),
    [
        ("A man and a woman walk their dogs.", ["person", "person", "dog"]),  # repetitions stay
        ("A hot dog on a plate", ["hot dog"]),  # and is no dog
        ("Two hot dogs, one dog", ["hot dog", "dog"]),
        ("Children on a sofa with wineglasses", ["person", "couch", "wine glass"]),
        ("traffic lights; TRAFFIC LIGHT!", ["traffic light", "traffic light"]),
        ("knives", ["knife"]),
        ("an empty street", []),
        ("", []),
    ],
)
def test_classes_that_a_caption_names(caption: str, expected: list[str]) -> None:
    assert list(named_classes(caption, class_of_words(COCO))) == expected


def test_words_for_classes() -> None:
    words = class_of_words(["chair", "dining_table", "sofa", "couch"])
    assert words["dining table"] == words["diningtable"] == words["dining tables"] == "dining_table"
    assert words["sofa"] == "couch"  # the later class has a shared word
    assert [plural(w) for w in ("dog", "bus", "knife", "toy", "pony", "wine glass")] == [
        *("dogs", "buses", "knives", "toys", "ponies", "wine glasses")
    ]


def test_text_files(tmp_path: Path) -> None:
    file = tmp_path / "captions.txt"
    file.write_text("A man rides.\tman,woman\n\nnothing\tunicorn\nA dog.\t dog , puppy,sofa\n", encoding="utf-8")
    corpus = read_text(file, COCO)
    assert corpus.texts == ("A man rides.", "A dog.")
    assert corpus.labels == (("person", "person"), ("dog", "dog", "couch"))
    assert corpus.left_out == (
        "1 caption of 3: no class of the dataset in them",
        "1 label that no class has, the first is unicorn",
    )
    file.write_text("no tab here\n")
    with pytest.raises(BadData, match="line 1: no tab"):
        read_text(file, COCO)
    file.write_text("x\tunicorn\n")
    with pytest.raises(BadData, match="no caption names a class"):
        read_text(file, COCO)
    file.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadData, match="not UTF-8"):
        read_text(file, COCO)
    with pytest.raises(BadData, match="No such file"):
        read_text(tmp_path / "nowhere.txt", COCO)


def test_coco_captions(tmp_path: Path) -> None:
    file = tmp_path / "captions_val2014.json"
    annotations = [
        {"image_id": 1, "id": i, "caption": c} for i, c in enumerate(["Two dogs\n sit.", "A sky.", "A couch"])
    ]
    file.write_text(json.dumps({"images": [], "annotations": annotations}))
    corpus = read_coco(file, COCO)
    assert (corpus.texts, corpus.labels) == (("Two dogs sit.", "A couch"), (("dog",), ("couch",)))
    assert corpus.left_out == ("1 caption of 3: no class of the dataset in them",)
    for content in ("{}", '{"annotations": [{"id": 1}]}', "[", "[1]"):
        file.write_text(content)
        with pytest.raises(BadData, match="not a COCO captions file"):
            read_coco(file, COCO)


def test_coco_captions_of_classes_that_are_spelt_with_more_than_letters(tmp_path: Path) -> None:
    """They were never found, and without a word the captions counted fewer labels."""
    names = ["t-shirt", "café", "tv/monitor", "rock 'n' roll", "犬"]
    said = ["A T-shirt", "two cafe\u0301s, one café", "A TV/monitor.", "Rock 'n' roll!", "犬 がいる"]
    file = tmp_path / "captions.json"
    file.write_text(json.dumps({"annotations": [{"caption": caption} for caption in said]}))
    wanted = (("t-shirt",), ("café", "café"), ("tv/monitor",), ("rock 'n' roll",), ("犬",))
    assert read_coco(file, names).labels == wanted


# ----------------------------------------------------------------------------------------------------- templates


def test_template_corpus() -> None:
    corpus = template_corpus(COCO)
    assert corpus == template_corpus(COCO[::-1])  # the order of the classes does not matter
    assert len(set(corpus.texts)) == len(corpus.texts)
    sizes = [len(labels) for labels in corpus.labels]
    assert {1, 2, 3, 4} == set(sizes)
    assert all(len(set(labels)) == len(labels) for labels in corpus.labels)
    assert all(label in text for text, labels in zip(corpus.texts, corpus.labels, strict=True) for label in labels)
    partners = {other for labels in corpus.labels if "dog" in labels for other in labels}
    assert partners == set(COCO)
    assert {len(labels) for labels in template_corpus(["one"]).labels} == {1}
    assert {len(labels) for labels in template_corpus(["one", "two"]).labels} == {1, 2}


def test_the_template_corpus_stays_what_it_is() -> None:
    """Another corpus under the same version would mix two in one table: raise TEMPLATE_VERSION with it."""
    corpus = template_corpus(COCO)
    assert digest([list(corpus.texts), [list(x) for x in corpus.labels]])[:16] == "506adc0da9fd2e54"
    assert captions.TEMPLATE_VERSION == "1"


# --------------------------------------------------------------------------------------------------------- files


def test_build_and_load(tmp_path: Path) -> None:
    file, backbone = tmp_path / "corpus.safetensors", Words()
    made: Any = backbone
    built, own_digest = captions.build("template", COCO, made, file)
    again = captions.build("template", COCO, made, tmp_path / "again.safetensors")
    assert again == (built, own_digest)
    assert built.left_out == ()
    task = make_task()
    embeddings, sizes = captions.load(file, task)
    expected, lengths = template_corpus(COCO).encode(backbone.encode_texts)
    assert torch.equal(embeddings, expected)
    assert torch.equal(sizes, lengths)
    assert len(embeddings) == len(built.texts)
    assert MLTTA(captions=str(file)).digests() == {"captions": own_digest}
    assert MLTTA().digests() == {"captions": "template 1"}
    assert MLTTA(captions=(embeddings, sizes)).digests() != MLTTA(captions=(embeddings, sizes + 1)).digests()
    text = tmp_path / "own.txt"
    text.write_text("A man.\tman\n")
    assert captions.build(str(text), COCO, made, file)[0].texts == ("A man.",)


def rewritten(file: Path, about: dict[str, Any]) -> None:
    save_file(load_file(file), file, {"about": json.dumps(about)})


def about_of(file: Path) -> dict[str, Any]:
    with safe_open(file, framework="pt") as content:
        about: dict[str, Any] = json.loads(content.metadata()["about"])
    return about


@pytest.mark.filterwarnings("ignore:TF32 acceleration")
def test_a_corpus_of_other_weights_is_refused(tmp_path: Path) -> None:
    """Weights of one architecture that differ a little; precisions of the same weights differ by less."""
    file, names = tmp_path / "corpus.safetensors", ("sun", "tree", "house", "car")
    weights = {name: t.float() if t.is_floating_point() else t for name, t in load_file(WEIGHTS).items()}
    drawn = torch.Generator().manual_seed(0)
    for name in [name for name, t in weights.items() if t.dim() > 1]:
        weights[name] += 0.1 * weights[name].std() * torch.randn(weights[name].shape, generator=drawn)
    save_file(weights, tmp_path / "tuned.safetensors")
    tiny, tuned = Tiny.load("cpu"), Tiny.load("cpu", tmp_path / "tuned.safetensors")
    captions.build("template", names, tuned, file)
    text = tiny.encode_texts(names)
    assert torch.nn.functional.cosine_similarity(text, tuned.encode_texts(names)).min() > 0.99
    with pytest.raises(BadData, match="made with another backbone or other weights \\(tiny\\)"):
        captions.load(file, Task(names, text, text[:, None], 10.0, encode_texts=tiny.encode_texts))
    captions.build("template", names, tiny, file)
    with torch.backends.mkldnn.flags(enabled=False):  # its bf16 kernels use AMX, which some sandboxes stop
        for precision in ("fp32", "bf16", "fp16"):
            encode = Tiny.load("cpu", precision=precision).encode_texts
            captions.load(file, Task(names, text, text[:, None], 10.0, encode_texts=encode))


def test_captions_all_over_a_corpus_are_compared(tmp_path: Path) -> None:
    file = tmp_path / "corpus.safetensors"
    made: Any = Words()
    corpus, _ = captions.build("template", COCO, made, file)
    about = about_of(file)
    places = [int(at) for at in about["captions"]]
    assert len(places) == 8
    assert max(places) > 0.8 * len(corpus.texts)
    assert [about["captions"][str(at)] for at in places] == [corpus.texts[at] for at in places]
    rewritten(file, about | {"captions": about["captions"] | {str(places[-1]): "another caption"}})
    with pytest.raises(BadData, match="other weights"):
        captions.load(file, make_task())
    for odd in ({}, {"-1": "x"}, {"100000": "x"}, {"0": 5}, {"first": "x"}, ["x"], None):
        rewritten(file, about | {"captions": odd})
        with pytest.raises(BadData, match="not a caption corpus"):
            captions.load(file, make_task())
    del about["captions"]
    rewritten(file, about | {"first_caption": corpus.texts[0]})  # as older files have it
    assert len(captions.load(file, make_task())[0]) == len(corpus.texts)
    with pytest.raises(BadData, match="other weights"):
        captions.load(file, make_task(backbone=Words(seed=1)))


def test_a_corpus_for_something_else_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "corpus.safetensors"
    made: Any = Words()
    captions.build("template", COCO, made, file)
    with pytest.raises(BadData, match="other classes"):
        captions.load(file, make_task(COCO[::-1]))
    with pytest.raises(BadData, match="another backbone or other weights \\(words\\)"):
        captions.load(file, make_task(backbone=Words(seed=1)))
    narrow = make_task()
    narrow.text = narrow.text[:, :8]
    with pytest.raises(BadData, match="another backbone"):
        captions.load(file, narrow)
    file.write_bytes(b"nonsense")
    with pytest.raises(BadData, match="not a caption corpus"):
        captions.load(file, make_task())
    with pytest.raises(UsageError, match="captions build"):
        captions.load(tmp_path / "nowhere", make_task())
    with pytest.raises(UsageError, match="captions build"):
        MLTTA(captions="nowhere").digests()
    silent = make_task()
    silent.encode_texts = None
    with pytest.raises(UsageError, match="needs captions"):
        captions.corpus_for(silent, "template")


# -------------------------------------------------------------------------------------------------- generated images


def draw(file: Path, level: int) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((12, 16, 3), level, dtype=np.uint8)).save(file)


def levels(recipe: Generated, image_id: str) -> list[int]:
    pixels = recipe.render(Image.new("RGB", (8, 8)), image_id, 0, Preprocess(8))
    assert pixels.shape[1:] == (3, 8, 8)
    return [round(float(view.float().mean())) for view in pixels]


def test_both_layouts_and_their_order(tmp_path: Path) -> None:
    for k in range(12):
        draw(tmp_path / "own" / "a.b" / f"{k}.png", 10 + k)
        draw(tmp_path / "flat" / "sub" / f"img_1_{k}.png", 50 + k)
        draw(tmp_path / "flat" / "sub" / f"img_11_{k}.png", 200)
    assert levels(Generated(11, str(tmp_path / "own")), "a.b") == list(range(10, 21))
    assert levels(Generated(3, str(tmp_path / "flat")), "sub/img_1.jpg") == [50, 51, 52]
    assert Generated(3, str(tmp_path / "flat")).name == "generated3"


def test_two_layouts_of_one_image_are_refused(tmp_path: Path) -> None:
    """Those of the older run were shown, and nothing said so."""
    draw(tmp_path / "sub" / "a" / "0.png", 10)
    draw(tmp_path / "sub" / "a_000.png", 200)
    draw(tmp_path / "sub" / "b" / "0.png", 30)
    recipe = Generated(1, str(tmp_path))
    assert levels(recipe, "sub/b.jpg") == [30]
    with pytest.raises(BadData, match="sub/a_<k> too: they are of two runs; take one of them away"):
        levels(recipe, "sub/a.jpg")


def test_the_recipe_stands_for_what_is_in_the_folder(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        draw(tmp_path / folder / "x_0.png", 9)
    one, two = (Generated(1, str(tmp_path / folder)) for folder in ("one", "two"))
    assert repr(one) == repr(two)
    assert str(tmp_path) not in repr(one)
    draw(tmp_path / "two" / "y_0.png", 9)
    assert repr(Generated(1, str(tmp_path / "two"))) != repr(one)
    method = DiffTPT(generated=str(tmp_path / "one"), generated_count=1)
    assert method.recipes["generated"] == one
    assert method.digests() == {"generated": one.content}
    assert DiffTPT().recipes["generated"].count == 63


def test_pictures_behind_links_count(tmp_path: Path) -> None:
    draw(tmp_path / "disk" / "x" / "0.png", 9)
    draw(tmp_path / "plain" / "x" / "0.png", 9)
    folder = tmp_path / "gen"
    folder.mkdir()
    (folder / "x").symlink_to(tmp_path / "disk" / "x")
    before = Generated(1, str(folder))
    assert repr(before) == repr(Generated(1, str(tmp_path / "plain")))  # where it lies makes no difference
    Image.effect_noise((90, 90), 90).save(tmp_path / "disk" / "x" / "0.png")
    assert repr(Generated(1, str(folder))) != repr(before)


def test_links_that_lead_back_have_an_end(tmp_path: Path) -> None:
    draw(tmp_path / "x" / "0.png", 9)
    before = Generated(1, str(tmp_path))
    (tmp_path / "x" / "up").symlink_to(tmp_path)
    looped = Generated(1, str(tmp_path))
    assert looped.content != before.content
    level = tmp_path / "levels"
    for depth in range(40):  # 2 to the power of forty ways to its end
        below = tmp_path / "levels" / f"{depth}"
        below.mkdir(parents=True)
        for side in ("left", "right"):
            (level / side).symlink_to(below)
        level = below
    assert Generated(1, str(tmp_path)).content == Generated(1, str(tmp_path)).content != looped.content
    (tmp_path / "x" / "1.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(BadData, match=r"1\.png: can't be read: No such file or directory"):
        Generated(1, str(tmp_path))


def test_only_numbers_name_generated_images(tmp_path: Path) -> None:
    for k in range(3):
        draw(tmp_path / "x" / f"{k}.png", k)
        draw(tmp_path / f"y_{k}.png", k)
    (tmp_path / "x" / "notes.txt").touch()
    draw(tmp_path / "y_grid.png", 200)  # beside others' pictures it is nobody's
    recipe = Generated(2, str(tmp_path))
    assert levels(recipe, "x.jpg") == levels(recipe, "y.jpg") == [0, 1]
    draw(tmp_path / "x" / "grid.png", 200)
    with pytest.raises(BadData, match=r"x/grid\.png: its name is not a number, so it is no generated image"):
        recipe.files("x.jpg")
    (tmp_path / "x" / "grid.png").rename(tmp_path / "x" / "01.jpg")
    with pytest.raises(BadData, match=r"x/1\.png: has the number of 01\.jpg; take one of them away"):
        recipe.files("x.jpg")


@pytest.mark.parametrize("name", ["x/0.bmp", "x/0.GIF", "x/0.jfif", "x_0.tif"])
def test_a_generated_image_of_another_format_is_not_passed_over(name: str, tmp_path: Path) -> None:
    """The images behind it would be taken in its place."""
    for k in (1, 2):
        draw((tmp_path / name).with_name(Path(name).stem.replace("0", f"{k}.png")), k)
    recipe = Generated(2, str(tmp_path))
    (tmp_path / name).with_suffix(".txt").touch()
    assert levels(recipe, "x") == [1, 2]
    draw(tmp_path / name, 0)
    with pytest.raises(BadData, match=f"{name}: .*save it as .jpeg, .jpg, .png or .webp"):
        recipe.files("x")


def test_a_whole_id_comes_before_its_stem(tmp_path: Path) -> None:
    draw(tmp_path / "a" / "0.png", 10)
    draw(tmp_path / "a.png" / "0.png", 20)
    draw(tmp_path / "b_0.png", 30)
    draw(tmp_path / "b.jpg_0.png", 40)
    recipe = Generated(1, str(tmp_path))
    assert [levels(recipe, name) for name in ("a.jpg", "a.png", "b.png", "b.jpg")] == [[10], [20], [30], [40]]


def test_bad_folders(tmp_path: Path) -> None:
    draw(tmp_path / "few" / "x_0.png", 9)
    with pytest.raises(BadData, match="1 generated image of 'x', but 63 are wanted"):
        levels(Generated(63, str(tmp_path / "few")), "x")
    with pytest.raises(BadData, match="0 generated images of 'z'"):
        levels(Generated(1, str(tmp_path / "few")), "z")
    with pytest.raises(UsageError, match="no such folder"):
        Generated(1, str(tmp_path / "nowhere"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no images in it"):
        Generated(1, str(tmp_path / "empty"))
    with pytest.raises(UsageError, match="--set generated=DIR"):
        levels(Generated(1), "x")
    with pytest.raises(UsageError, match="at least one"):
        Generated(0)
