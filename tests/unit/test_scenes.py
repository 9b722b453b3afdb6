"""`scenes`: deterministic, disjoint, labelled as drawn, and shifted as named."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tta_bench.datasets import _scenes_layout
from tta_bench.datasets._scenes_layout import CLASS_NAMES, Layout, Placed, render
from tta_bench.datasets.scenes import VARIANTS, Scenes, labels_of, layout_of, picture, shift_of
from tta_bench.errors import UnknownName, UsageError


def scenes(variant: str = "default") -> Scenes:
    return Scenes.open(Path("nowhere"), variant)


def test_size_and_classes() -> None:
    data = scenes()
    assert len(data) >= 600
    assert len(data.class_names) >= 20
    assert len(set(data.class_names)) == len(data.class_names)


def test_every_class_has_positives_and_the_counts_are_those_of_photos() -> None:
    data = scenes()
    labels = np.stack([data[i].labels for i in range(len(data))])
    objects = np.array([len(layout_of("test", i).objects) for i in range(len(data))])
    assert labels.dtype == np.int8
    assert set(np.unique(labels)) == {0, 1}
    assert labels.sum(0).min() >= 30
    assert objects.min() == 1
    assert objects.max() == 6
    assert objects.mean() == pytest.approx(2.9, abs=0.2)


@pytest.mark.parametrize("variant", VARIANTS)
def test_pixels_depend_on_variant_and_index_alone(variant: str) -> None:
    forwards = [picture(variant, "test", i).tobytes() for i in range(6)]
    backwards = [scenes(variant)[i].image.tobytes() for i in reversed(range(6))]
    assert forwards == backwards[::-1]
    assert len(set(forwards)) == 6


def test_another_process_draws_the_same() -> None:
    code = "from tta_bench.datasets.scenes import Scenes; print(Scenes('default', 20).fingerprint)"
    command = [sys.executable, "-c", code]
    other = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"})
    assert other.stdout.strip() == Scenes("default", 20).fingerprint


def test_the_fingerprint_tells_variants_and_sizes_apart() -> None:
    digests = {scenes(variant).fingerprint for variant in VARIANTS} | {Scenes("clean", 10).fingerprint}
    assert len(digests) == len(VARIANTS) + 1


def test_splits_share_no_scene() -> None:
    seen = [layout_of(split, i).objects for split in ("train", "validation", "test") for i in range(100)]
    assert len(set(seen)) == len(seen)


def test_shifts_keep_the_labels_and_change_the_pixels() -> None:
    clean = np.asarray(scenes("clean")[3].image, np.float32)
    for shift in ("fog", "night", "sketch", "noise"):
        sample = scenes(shift)[3]
        assert np.array_equal(sample.labels, scenes("clean")[3].labels)
        assert np.abs(np.asarray(sample.image, np.float32) - clean).mean() > 10


def test_each_shift_does_what_its_name_says() -> None:
    def pixels(variant: str) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.stack([np.asarray(picture(variant, "test", i), np.float64) for i in range(8)])

    clean = pixels("clean")
    assert pixels("night").mean() < 0.65 * clean.mean()
    assert pixels("fog").std() < 0.7 * clean.std()
    assert np.ptp(pixels("sketch"), axis=-1).max() == 0
    roughness = [np.abs(np.diff(p, axis=1)).mean() for p in (pixels("noise"), clean)]
    assert roughness[0] > 2 * roughness[1]


def test_the_mixture_holds_every_shift_in_equal_parts() -> None:
    shifts = [shift_of("default", "test", i) for i in range(600)]
    counts = [shifts.count(v) for v in VARIANTS if v != "default"]
    assert sum(counts) == 600
    assert min(counts) > 80
    for i in range(5):
        assert picture("default", "test", i).tobytes() == picture(shifts[i], "test", i).tobytes()


def test_objects_are_seen() -> None:
    """Later objects leave at least 70 % of each square free, sizes are within bounds, and centres inside the image."""
    for index in range(300):
        objects = layout_of("test", index).objects
        for i, thing in enumerate(objects):
            assert 0.12 <= thing.size <= 0.60
            assert 0 < thing.x < 1
            assert 0 < thing.y < 1
            free = np.ones((50, 50), bool)
            grid = np.linspace(-0.5, 0.5, 50) * thing.size
            x, y = thing.x + grid[None, :], thing.y + grid[:, None]
            for other in objects[i + 1 :]:
                free &= (abs(x - other.x) > other.size / 2) | (abs(y - other.y) > other.size / 2)
            assert free.mean() >= 0.65  # 0.7, less the grid's rounding


@pytest.mark.parametrize("name", CLASS_NAMES)
def test_each_class_is_drawn_inside_its_square(name: str) -> None:
    def image(*objects: Placed) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
        return np.asarray(render(Layout("test of drawing", "meadow", 0.5, objects)), np.float64)

    changed = np.abs(image(Placed(name, 0.5, 0.5, 0.5)) - image()).max(-1) > 12
    rows, columns = np.nonzero(changed)
    assert 0.06 < changed.mean() < 0.3
    reach = 0.25 * _scenes_layout.SIDE * 1.45  # the half diagonal of a turned and stretched square
    centre = _scenes_layout.SIDE / 2
    assert np.abs(rows - centre).max() <= reach
    assert np.abs(columns - centre).max() <= reach
    assert max(np.ptp(rows), np.ptp(columns)) > 0.4 * _scenes_layout.SIDE


def test_labels_name_what_is_placed() -> None:
    layout = Layout("seed", "sea", 0.5, (Placed("boat", 0.5, 0.5, 0.3), Placed("fish", 0.2, 0.8, 0.2)))
    assert [CLASS_NAMES[i] for i in np.nonzero(labels_of(layout))[0]] == ["boat", "fish"]


def test_boats_are_on_water() -> None:
    layouts = [layout_of("validation", i) for i in range(600)]
    boats = [layout.place for layout in layouts if any(thing.name == "boat" for thing in layout.objects)]
    assert boats.count("sea") > 0.5 * len(boats)
    assert boats.count("sea") < len(boats)


def test_unknown_variant() -> None:
    with pytest.raises(UnknownName, match=r"variant of scenes 'fogg'.*fog"):
        scenes("fogg")
    assert issubclass(UnknownName, UsageError)


def test_index_out_of_range_ends_iteration() -> None:
    with pytest.raises(IndexError):
        scenes()[len(scenes())]
