"""Feature packs: reading, refusing broken ones, standing in for images and weights, exporting bit for bit."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
import torch
from safetensors.numpy import load_file, save_file

from tta_bench import records
from tta_bench.errors import BadData, StoreError, UsageError
from tta_bench.features import pack_export, pack_rows
from tta_bench.features.encoding import EncodedViews
from tta_bench.features.options import EncodingOptions
from tta_bench.features.pack import Pack, info, verify
from tta_bench.features.pack_source import PackBackbone, PackDataset, PackedPrompts, PackedViews, check_method
from tta_bench.interfaces import PromptTunable, ViewRecipe
from tta_bench.plugins import Registry
from tta_bench.prompts.sets import PromptSet
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.views import AugMix, Holistic, Original, Plain, RandomCrops

N, C, D = 6, 3, 8


def unit(*shape: int) -> np.ndarray[Any, Any]:
    features = np.random.default_rng(len(shape)).standard_normal(shape)
    unit_features: np.ndarray[Any, Any] = features / np.linalg.norm(features, axis=-1, keepdims=True)
    return unit_features.astype(np.float16)


def contents() -> tuple[dict[str, Any], dict[str, str]]:
    tensors = {
        "labels": np.array([[1, 0, -1]] * N, dtype=np.int8),
        "image": unit(N, D),
        "views/augmix5": unit(N, 5, D),
        "views/crops4": unit(N, 4, D),
        "boxes/crops4": np.tile(np.array([0.1, 0.2, 0.6, 0.7], np.float32), (N, 4, 1)),
        "text/photo": unit(C, 1, D),
    }
    metadata = {
        "ttabench_pack": "1",
        "ids": json.dumps([f"image-{i}" for i in range(N)]),
        "class_names": json.dumps(["cat", "dog", "tree"]),
        "dataset": "toys",
        "backbone": "vit-b16",
        "logit_scale": "100.0",
        "provenance": json.dumps({"weights": "int8"}),
    }
    return tensors, metadata


def write(file: Path, tensors: dict[str, Any] | None = None, metadata: dict[str, str | None] | None = None) -> Path:
    """A sound pack but for the changes; None takes a part away."""
    all_tensors, all_metadata = contents()
    all_tensors |= tensors or {}
    merged = {**all_metadata, **(metadata or {})}
    save_file(
        {name: array for name, array in all_tensors.items() if array is not None},
        file,
        {key: value for key, value in merged.items() if value is not None},
    )
    return file


@pytest.fixture
def pack(tmp_path: Path) -> Pack:
    return Pack(write(tmp_path / "toys.safetensors"))


# ------------------------------------------------------------------------------------------------------------ reading


def test_a_pack_gives_what_a_run_needs(pack: Pack) -> None:
    tensors, _ = contents()
    assert (len(pack), pack.class_names, pack.dataset, pack.backbone) == (N, ("cat", "dog", "tree"), "toys", "vit-b16")
    assert (pack.logit_scale, pack.logit_bias, pack.embed_dim) == (100.0, 0.0, D)
    assert (pack.recipes, pack.prompts) == (("augmix5", "crops4"), ("photo",))
    assert np.array_equal(pack.labels, tensors["labels"])
    views = pack.views("augmix5", 2)
    assert views.dtype == torch.float32
    torch.testing.assert_close(views.norm(dim=-1), torch.ones(5))  # float16 alone would be off by 1e-4
    torch.testing.assert_close(views, torch.from_numpy(tensors["views/augmix5"][2]).float(), atol=1e-3, rtol=0)
    assert pack.image(2).shape == (1, D)
    assert pack.text("photo").shape == (C, 1, D)


def test_info_tells_where_the_features_are_from(pack: Pack) -> None:
    shown = info(pack.file)
    assert shown["provenance"] == {"weights": "int8"}
    assert (shown["images"], shown["classes"], shown["positives"], shown["ignored"]) == (N, C, N, N)
    assert shown["views"] == {"augmix5": 5, "crops4": 4}
    assert json.dumps(shown)


def test_the_fingerprint_is_of_the_whole_file(pack: Pack, tmp_path: Path) -> None:
    copy = tmp_path / "copy.safetensors"
    copy.write_bytes(pack.file.read_bytes())
    assert Pack(copy).fingerprint == pack.fingerprint
    other = write(tmp_path / "other.safetensors", {"views/augmix5": -contents()[0]["views/augmix5"]})
    assert Pack(other).fingerprint != pack.fingerprint


# ------------------------------------------------------------------------------------------------------- broken packs


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"ttabench_pack": None}, "some other safetensors file"),
        ({"ttabench_pack": "2"}, "format 2"),
        ({"ids": None, "backbone": None}, "lacks ids, backbone"),
        ({"ids": "[1, 2"}, "`ids` is not a JSON list"),
        ({"ids": "[" * 100_000}, "`ids` is not a JSON list"),
        ({"class_names": '{"cat": 1}'}, "`class_names` is not a JSON list"),
        ({"class_names": '["cat", "cat", "tree"]'}, "class_names has 'cat' twice"),
        ({"class_names": '["cat", "dog"]'}, r"labels has the shape \[6, 3\] and should have \[6, 2\]"),
        ({"logit_scale": "warm"}, "`logit_scale` can't be warm"),
        ({"logit_scale": "nan"}, "`logit_scale` can't be nan"),
        ({"logit_scale": "0"}, "`logit_scale` can't be 0"),
        ({"logit_scale": "1e6"}, "`logit_scale` can't be 1e6"),
        ({"logit_bias": "x"}, "`logit_bias` can't be x"),
        ({"provenance": "[]"}, "`provenance` is not a JSON object"),
        ({"prompt_texts": '{"photo": ["a cat"]}'}, "`prompt_texts` is not a JSON object of lists"),
        ({"prompt_texts": '{"photo": [["a cat", "the cat"]]}'}, "not of the same number"),
    ],
)
def test_bad_metadata_is_named(changes: dict[str, str | None], complaint: str, tmp_path: Path) -> None:
    file = write(tmp_path / "bad.safetensors", metadata=changes)
    with pytest.raises(BadData, match=rf"bad\.safetensors .*{complaint}") as caught:
        Pack(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"labels": None, "text/photo": None}, r"lacks the tensors labels, text/PROMPT"),
        ({"labels": np.full((N, C), 7, np.int8)}, "labels hold 7"),
        ({"labels": np.zeros((N, C), np.int64)}, "labels are I64"),
        ({"image": unit(N, D + 1)}, r"views/augmix5 has the shape \[6, 5, 8\] and should have \[6, 5, 9\]"),
        ({"image": unit(N, 1, D)}, r"image has the shape \[6, 1, 8\]"),
        ({"views/augmix5": unit(N - 1, 5, D)}, r"should have \[6, 5, 8\]"),
        ({"views/none0": unit(N, 0, D)}, "views/none0 has the shape"),
        ({"text/photo": unit(C + 1, 1, D)}, "text/photo has the shape"),
        ({"boxes/crops4": np.zeros((N, 4, 2), np.float32)}, "boxes/crops4 has the shape"),
        ({"image": np.zeros((N, D), np.int8)}, "image is I8"),
    ],
)
def test_bad_tensors_are_named(changes: dict[str, Any], complaint: str, tmp_path: Path) -> None:
    with pytest.raises(BadData, match=rf"bad\.safetensors .*{complaint}"):
        Pack(write(tmp_path / "bad.safetensors", changes))


def test_files_that_are_no_safetensors(tmp_path: Path) -> None:
    file = write(tmp_path / "cut.safetensors")
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(BadData, match=r"cut\.safetensors is not a whole safetensors file"):
        Pack(file)
    for content in (b"", b"\x80\x04.", b"PK" + bytes(100)):
        file.write_bytes(content)
        with pytest.raises(BadData, match=r"cut\.safetensors"):
            Pack(file)
    with pytest.raises(UsageError, match="no such feature pack"):
        Pack(tmp_path / "nowhere.safetensors")


def test_verify_reads_every_feature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tta_bench.features.pack.CHUNK", 2)
    assert verify(write(tmp_path / "sound.safetensors")) == []
    broken, long = contents()[0]["views/augmix5"].copy(), contents()[0]["image"].copy()
    broken[3, 1, 0] = np.nan
    long[5] *= 1.2
    boxes = contents()[0]["boxes/crops4"].copy()
    boxes[4, 2] = (0.6, 0.2, 0.1, 0.7)
    file = write(tmp_path / "bad.safetensors", {"views/augmix5": broken, "image": long, "boxes/crops4": boxes})
    assert sorted(verify(file)) == [
        "boxes/crops4, row 4: not a box within the image",
        "image, row 5: the length is not 1",
        "views/augmix5, row 3: not a number",
    ]


@pytest.mark.parametrize("wrong", [0.0, 1.2, np.nan])
def test_features_of_another_length_are_refused_when_read(wrong: float, tmp_path: Path) -> None:
    tensors = {name: contents()[0][name].copy() for name in ("image", "views/augmix5", "text/photo")}
    tensors["image"][2] *= wrong
    tensors["views/augmix5"][1, 3] *= wrong
    tensors["text/photo"][0] *= wrong
    pack = Pack(write(tmp_path / "bad.safetensors", tensors))
    assert pack.image(1).shape == (1, D)
    reads: dict[str, Callable[[], torch.Tensor]] = {
        "image, row 2": lambda: pack.image(2),
        "views/augmix5, row 1": lambda: pack.views("augmix5", 1),
        "text/photo": lambda: pack.text("photo"),
    }
    for where, read in reads.items():
        with pytest.raises(BadData, match=rf"bad\.safetensors, {where}: the length is not 1"):
            read()


def test_what_is_kept_in_memory_is_what_is_read_and_nobody_can_change_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = write(tmp_path / "p.safetensors")
    kept = Pack(file)
    monkeypatch.setattr(pack_rows, "KEPT", 0)
    by_row = Pack(file)
    for _ in range(2):
        for found, expected in (
            (kept.image(2), by_row.image(2)),
            (kept.views("augmix5", 2), by_row.views("augmix5", 2)),
        ):
            assert torch.equal(found, expected)
            found.zero_()  # as a careless method might


def test_what_was_lent_and_changed_is_read_again(pack: Pack) -> None:
    expected = pack.views("augmix5", 2)
    lent = pack.views("augmix5", 2, 3, lent=True)
    assert lent.untyped_storage().data_ptr() == pack.views("augmix5", 1, lent=True).untyped_storage().data_ptr()
    lent[0] *= 2
    assert torch.equal(pack.views("augmix5", 2), expected)
    assert torch.equal(pack.views("augmix5", 2, lent=True), expected)


# ------------------------------------------------------------------------------------------------------------ recipes


def test_a_longer_draw_has_the_shorter_ones_views(pack: Pack) -> None:
    pack.require("tda", {"views": AugMix(3), "regions": RandomCrops(4)})
    assert torch.equal(PackedViews(pack, AugMix(3)).read(1), pack.views("augmix5", 1)[:3])
    assert torch.equal(PackedViews(pack, Original()).read(1), pack.image(1))


@pytest.mark.parametrize(
    ("role", "recipe", "stand_in"),
    [
        ("views", AugMix(63), "Could stand in: --recipe views=augmix5"),
        ("views", Plain(5), "Could stand in: --recipe views=augmix5"),
        ("regions", RandomCrops(50), "Could stand in: --recipe regions=crops4"),
        ("regions", RandomCrops(4, (0.3, 0.5)), "Could stand in: --recipe regions=crops4"),
    ],
)
def test_a_missing_recipe_is_named_with_its_stand_ins(pack: Pack, role: str, recipe: ViewRecipe, stand_in: str) -> None:
    with pytest.raises(UsageError, match=f"tda needs the views {recipe.name}") as caught:
        pack.require("tda", {role: recipe})
    assert "it has augmix5, crops4" in str(caught.value)
    assert str(caught.value).endswith(stand_in)
    with pytest.raises(UsageError):
        PackedViews(pack, recipe)


def test_the_same_family_stands_in_first(tmp_path: Path) -> None:
    changes = {"views/holistic9": unit(N, 9, D), "views/crops4": None, "boxes/crops4": None}
    pack = Pack(write(tmp_path / "p.safetensors", changes))
    with pytest.raises(UsageError, match="views=holistic9 or --recipe views=augmix5"):
        pack.require("purf", {"views": Holistic(63)})
    with pytest.raises(UsageError, match="None of them could stand in"):
        pack.require("purf", {"regions": RandomCrops(50)})


# ---------------------------------------------------------------------------------------------------- standing in


def test_images_and_encoders_are_refused_in_words(pack: Pack) -> None:
    dataset, backbone = PackDataset(pack), PackBackbone(pack)
    assert (len(dataset), dataset[3].id) == (N, "image-3")
    with pytest.raises(UsageError, match="features, not images"):
        _ = dataset[3].image
    with pytest.raises(UsageError, match="not an image encoder"):
        backbone.encode_images(torch.zeros(1, 3, 8, 8))
    with pytest.raises(UsageError, match=r"no features of 'a photo of a cat\.'"):
        backbone.encode_texts(["a photo of a cat."])  # this pack doesn't tell what its texts were
    with pytest.raises(UsageError, match=r"prompt 'cupl' is not in .*; it has photo"):
        PackedPrompts.of(pack, "cupl")
    assert not isinstance(backbone, PromptTunable)


def test_methods_that_need_more_than_features_are_refused(pack: Pack, toy_registry: Registry) -> None:
    for name, reason in (("prompttuner", "tunes prompts"), ("secondeyes", "second backbone, toyreward")):
        with pytest.raises(UsageError, match=rf"{name} .*{reason}"):
            check_method(pack, toy_registry.method(name)(), {})
    check_method(pack, toy_registry.method("twobranches")(), {"views": AugMix(5)})
    with pytest.raises(UsageError, match="twobranches needs the views augmix6"):
        check_method(pack, toy_registry.method("twobranches")(), {"views": AugMix(6)})


def test_packed_prompts_and_texts(tmp_path: Path) -> None:
    texts = [["a cat", "the cat"], ["a dog", "the dog"], ["a tree", "the tree"]]
    changes = {"text/photo": unit(C, 2, D)}
    pack = Pack(write(tmp_path / "p.safetensors", changes, {"prompt_texts": json.dumps({"photo": texts})}))
    prompts, backbone = PackedPrompts.of(pack, "photo"), PackBackbone(pack)
    bank, prototypes = prompts.encode(backbone)
    torch.testing.assert_close(prototypes, torch.nn.functional.normalize(bank.mean(1), dim=-1))
    assert prompts.texts[1] == ("a dog", "the dog")
    assert torch.equal(backbone.encode_texts(["the tree", "a cat"]), torch.stack([bank[2, 1], bank[0, 0]]))


@pytest.mark.slow
def test_neither_torchvision_nor_open_clip_is_needed(tmp_path: Path) -> None:
    """A method over a pack in a process in which they can't be imported."""
    write(tmp_path / "toys.safetensors")
    program = """
import sys
for name in ("torchvision", "open_clip", "timm"):
    sys.modules[name] = None
from pathlib import Path
from tta_bench.interfaces import Task
from tta_bench.methods.clip import CLIP
from tta_bench.features.pack_source import PackBackbone, PackDataset, PackedPrompts, PackedViews
from tta_bench.features import pack_rows
from tta_bench.features.pack import Pack
from tta_bench.features.stream import Stream, observations
from tta_bench.views import AugMix, Original
pack = Pack(Path("toys.safetensors"))
bank, text = PackedPrompts.of(pack, "photo").encode(PackBackbone(pack))
method = CLIP()
method.start(Task(pack.class_names, text, bank, pack.logit_scale))
stream = Stream.of(PackDataset(pack), "shuffled", 0, None)
views = {"views": PackedViews(pack, AugMix(5))}
print(sum(len(method.step(x)) for x in observations(stream, PackedViews(pack, Original()), views, [], 0, "cpu")))
"""
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == (f"{N * C}\n", "")


# ------------------------------------------------------------------------------------------------------------- export


TOY_RUN = RunSpec("twobranches", "toy", "toyclip", seed=3)


def export_toys(bench: Bench, file: Path) -> Pack:
    dataset, backbone = bench.dataset("toy"), bench.backbone("toyclip")
    return pack_export.export(
        file,
        dataset=dataset,
        backbone=backbone,
        recipes=[AugMix(5), RandomCrops(3)],
        prompts=[PromptSet.named("photo", dataset.class_names), PromptSet.named("ensemble", dataset.class_names)],
        store=bench.store,
        encoding=EncodingOptions(workers=0),
        reporter=bench.reporter,
        seed=3,
        notes={"precision": "fp32"},
    )


def test_an_exported_pack_is_bit_identical_to_the_store(toy_bench: Bench, tmp_path: Path) -> None:
    pack = export_toys(toy_bench, tmp_path / "out" / "toy.safetensors")
    dataset, backbone = toy_bench.dataset("toy"), toy_bench.backbone("toyclip")
    assert verify(pack.file) == []
    assert pack.ids == tuple(dataset[i].id for i in range(len(dataset)))
    assert np.array_equal(pack.labels, np.stack([dataset[i].labels for i in range(len(dataset))]))
    for recipe in (Original(), AugMix(5), RandomCrops(3)):
        stored = EncodedViews(toy_bench.store, dataset, backbone, recipe, 3, EncodingOptions(workers=0))
        assert stored.ensure(range(len(dataset)), toy_bench.reporter) == 0  # the export left it in the store
        packed = PackedViews(pack, recipe)
        assert all(torch.equal(packed.read(i), stored.read(i)) for i in range(len(dataset)))
    for name in ("photo", "ensemble"):
        live = PromptSet.named(name, dataset.class_names)
        prompts = PackedPrompts.of(pack, name)
        assert prompts.texts == live.texts
        pairs = zip(prompts.encode(PackBackbone(pack)), live.encode(backbone), strict=True)
        assert all(torch.equal(ours, theirs) for ours, theirs in pairs)
    assert (pack.dataset, pack.backbone, pack.logit_scale) == ("toy", "toyclip", backbone.logit_scale)
    assert pack.provenance["precision"] == "fp32"
    assert pack.provenance["backbone_fingerprint"] == backbone.fingerprint
    assert set(load_file(pack.file)) == set(pack.shapes)  # the format's own library reads it


def test_a_run_on_the_pack_gives_the_same_scores(toy_bench: Bench, tmp_path: Path) -> None:
    pack = export_toys(toy_bench, tmp_path / "toy.safetensors")
    live, _ = toy_bench.run(TOY_RUN)
    packed, _ = toy_bench.run(replace(TOY_RUN, pack=pack.file))
    assert {packed.counts[what] for what in ("encoder_forwards", "text_forwards", "backward_passes")} == {0}
    assert (packed.dataset, packed.backbone) == ("toy", "toyclip")
    assert packed.protocol.digest != live.protocol.digest  # a table never mixes the two
    scores, labels, ids = records.load_scores(packed)
    live_scores, live_labels, live_ids = records.load_scores(live)
    assert np.array_equal(scores, live_scores)
    assert np.array_equal(labels, live_labels)
    assert ids == live_ids


def test_random_weights_stay_marked(toy_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not PackBackbone(export_toys(toy_bench, tmp_path / "a.safetensors")).random_weights
    monkeypatch.setattr(toy_bench.backbone("toyclip"), "random_weights", True, raising=False)
    assert PackBackbone(export_toys(toy_bench, tmp_path / "b.safetensors")).random_weights


def test_a_full_disk_leaves_the_old_pack(toy_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "toy.safetensors"
    before = export_toys(toy_bench, file).fingerprint

    def full(_: int) -> NoReturn:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(StoreError, match="no space left"):
        export_toys(toy_bench, file)
    assert Pack(file).fingerprint == before
    assert [f.name for f in tmp_path.glob("*toy.safetensors*")] == ["toy.safetensors"]
