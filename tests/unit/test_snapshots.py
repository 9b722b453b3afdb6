"""A method in mid-stream: what is drawn is what the run of the same images did."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from tests.conftest import Invoke
from tta_bench.errors import UnknownName, UsageError
from tta_bench.interfaces import Preprocess
from tta_bench.pixels.resize import crop_resize, to_pixels
from tta_bench.report import snapshot_figures
from tta_bench.report.snapshot_figures import class_map
from tta_bench.runs.bench import Bench
from tta_bench.runs.snapshots import CacheSnapshot, RegionSnapshot, cache_after, crops_in, regions_of
from tta_bench.runs.spec import RunSpec
from tta_bench.views import RandomCrops

FEW = {"views": "augmix3", "regions": "crops6"}


@pytest.fixture
def spec() -> RunSpec:
    return RunSpec("purf", "toy", "toyclip", recipes=FEW, settings={"shots": 2, "delta": 2.0})


def test_the_cache_holds_what_went_in_and_not_out(toy_bench: Bench, spec: RunSpec) -> None:
    reported = toy_bench.run(spec).record.diagnostics()
    found = cache_after(toy_bench, spec)
    assert len(found.features) == reported["entries_in"].sum() - reported["entries_out"].sum() > 0
    assert np.bincount(found.classes).max() <= found.shots == 2
    assert np.linalg.norm(found.features, axis=1) == pytest.approx(1)
    earlier = cache_after(toy_bench, replace(spec, limit=1))
    assert (earlier.step, len(earlier.features)) == (1, reported["entries_in"][0])
    with pytest.raises(UsageError, match="clip has no cache"):
        cache_after(toy_bench, RunSpec("clip", "toy", "toyclip"))


def test_the_regions_are_those_that_the_run_kept(toy_bench: Bench, spec: RunSpec) -> None:
    run = toy_bench.run(spec).record
    ids, reported = run.ids(), run.diagnostics()
    some = int(np.flatnonzero((reported["kept_share"] > 0) & (reported["kept_share"] < 1))[1])
    found = regions_of(toy_bench, spec, ids[some])
    assert (found.image_id, found.step) == (ids[some], some + 1)
    assert found.kept.mean() == pytest.approx(reported["kept_share"][some])
    assert found.pseudo_labels.sum() == reported["Y"][some]
    assert (found.own.argmax(axis=1) == found.votes).all()
    assert found.frozen.sum(axis=1) == pytest.approx(1)
    assert regions_of(toy_bench, replace(spec, limit=some + 1)).image_id == ids[some]
    with pytest.raises(UnknownName, match="nobody"):
        regions_of(toy_bench, spec, "nobody")
    with pytest.raises(UsageError, match="tda does not choose among regions"):
        regions_of(toy_bench, RunSpec("tda", "toy", "toyclip"))


def test_the_boxes_are_those_that_are_cut() -> None:
    levels = np.random.default_rng(0).integers(0, 256, (90, 130, 3), dtype=np.uint8)
    image, recipe = Image.fromarray(levels), RandomCrops(5, (0.3, 0.9))
    boxes = crops_in(recipe, "an id", 7, image.size)
    cut = to_pixels(crop_resize(image, boxes.astype(np.int64), 32, "bicubic"), 5, 32)
    assert torch.equal(cut, recipe.render(image, "an id", 7, Preprocess(32)))


def test_a_place_has_the_mean_of_the_regions_that_cover_it() -> None:
    boxes = np.array([[0.0, 0.0, 0.5, 1.0], [0.25, 0.0, 0.75, 1.0]])
    found, coverage = class_map(boxes, np.array([1.0, 0.0]), aspect=2.0)
    assert found.shape == (60, 120)
    assert found[30, 10] == 1
    assert found[30, 45] == pytest.approx(0.5, abs=0.05)  # as far from one's middle as from the other's
    assert found[30, 80] == 0 < coverage[30, 80]
    assert (coverage[:, 91:] == 0).all()


def cache_snapshot(entries: int) -> CacheSnapshot:
    features = np.random.default_rng(0).normal(size=(entries, 8))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    return CacheSnapshot("dpe", "toy", "tiny", 9, 3, features, np.arange(entries) % 3, ["cat", "a$b", "<dog>"])


def test_every_entry_is_a_mark_of_its_class() -> None:
    figure = snapshot_figures.cache([cache_snapshot(8), cache_snapshot(9)])
    marks = [sum(len(line.get_xdata()) for line in axes.lines if line.get_marker() != "None") for axes in figure.axes]
    assert marks == [8, 9]
    assert figure.axes[1].get_title() == "dpe: 9 entries, 3 classes"
    with pytest.raises(UsageError, match="dpe holds 4 after 9 images"):
        snapshot_figures.cache([cache_snapshot(4)])


def test_each_class_with_votes_is_a_row() -> None:
    votes = np.array([1, 1, 0, 2, 2, 2])
    probabilities = np.eye(3)[votes]
    seen = RegionSnapshot(
        method="purf",
        dataset="toy",
        backbone="tiny",
        image_id="1",
        step=4,
        photo=Image.new("RGB", (40, 20)),
        boxes=np.tile([0.1, 0.1, 0.6, 0.9], (6, 1)),
        kept=np.array([True, False, False, True, True, True]),
        votes=votes,
        pseudo_labels=np.array([False, True, False]),
        own=probabilities,
        frozen=probabilities,
        class_names=["cat", "a$b", "dog"],
    )
    rows = snapshot_figures.regions(seen).axes[:9:3]
    assert [axes.get_ylabel() for axes in rows] == [
        "a$b\n1 of 2 kept\npseudo-label",
        "dog\n3 of 3 kept",
        "cat\n0 of 1 kept",
    ]
    assert [len(axes.patches) for axes in rows] == [2, 3, 1]


@pytest.mark.parametrize(
    ("asked", "why"),
    [
        (("stream", "--step", "3", "--image", "a"), "--step, --image: for `plot cache` and `plot regions` only"),
        (("cache", "some-run"), "needs no runs"),
        (("cache", "--image", "a"), "for `plot regions`"),
        (("regions", "--shots", "3"), "--shots is for `plot cache`"),
        (("regions", "--image", "a", "--step", "3"), "only one of them can count"),
        (("regions", "--method", "purf,dpe"), "of one method"),
        (("cache", "--dataset", "scenes,toy"), "one at a time"),
        (("cache", "--pack", "x.safetensors", "--dataset", "toy"), "leave --dataset and --backbone out"),
    ],
)
def test_options_that_make_no_sense_are_one_line(
    invoke: Invoke, tmp_path: Path, asked: tuple[str, ...], why: str
) -> None:
    done = invoke("plot", *asked, "-o", str(tmp_path / "a.png"))
    assert done.code == 2
    assert why in done.err
    assert len(done.err.splitlines()) == 1
