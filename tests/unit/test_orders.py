"""Stream orders, checked by hand: what comes after what, and which names are one order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tta_bench.datasets.scenes import Scenes, shift_of
from tta_bench.errors import BadData, UsageError
from tta_bench.features.orders import stream_order
from tta_bench.features.stream import Stream
from tta_bench.interfaces import Sample
from tta_bench.runs.spec import RunSpec
from tta_bench.system.names import CHOICES, kind_of, order_name

IDS = [f"image-{i}" for i in range(50)]
# Positives per class: a 3, b 2, c 1 (the -1 is ignored). Rarest first: c, b, a.
LABELS = np.array(
    [
        [1, 0, 0],  # 0: a
        [1, 1, -1],  # 1: a, b -> b
        [0, 0, 0],  # 2: none
        [0, 1, 0],  # 3: b
        [1, 0, 1],  # 4: a, c -> c
        [-1, -1, -1],  # 5: none
    ],
    np.int8,
)
GROUPS = [{4}, {1, 3}, {0}, {2, 5}]


def by_label(order: str, seed: int = 0, labels: Any = LABELS) -> list[int]:
    return stream_order(IDS[: len(labels)], order, seed, labels)


def test_shuffled_and_sequential() -> None:
    assert stream_order(IDS, "sequential", 3) == list(range(50))
    shuffled = stream_order(IDS, "shuffled", 0)
    assert sorted(shuffled) == list(range(50))
    assert shuffled != list(range(50))
    assert shuffled != stream_order(IDS, "shuffled", 1)
    assert stream_order(IDS, "shuffled:1", 0) == stream_order(IDS, "shuffled", 1)


def test_the_order_is_the_same_for_ever() -> None:
    """Changing it would change every number of every method with a memory."""
    assert stream_order(IDS, "shuffled", 0)[:6] == [5, 23, 15, 30, 35, 18]


@pytest.mark.parametrize(
    "order",
    ["random", "shuffled:x", "shuffled:", "shuffled:-1", "shuffled:٣", "sequential:1", "bursts", "bursts:1", ""],
)
def test_unknown_orders_are_refused_with_all_that_there_are(order: str) -> None:
    with pytest.raises(UsageError) as refused:
        RunSpec("clip", order=order)
    assert CHOICES in str(refused.value)


def test_one_stream_has_one_name() -> None:
    assert order_name("shuffled:3", 3) == order_name("shuffled:03", 3) == "shuffled"
    assert order_name("shuffled:03", 0) == "shuffled:3"
    assert order_name("bursts:020", 0) == "bursts:20"
    assert RunSpec("clip", order="shuffled:007").order == "shuffled:7"


def test_only_shuffles_are_of_one_kind() -> None:
    orders = ["shuffled", "shuffled:4", "sequential", "rarest", "bursts:2", "bursts:3", "domains"]
    assert [kind_of(order) for order in orders] == ["shuffled", *orders[:1], *orders[2:]]


def test_rarest_goes_from_the_rarest_label_to_images_without_any() -> None:
    order = by_label("rarest")
    assert [set(order[:1]), set(order[1:3]), set(order[3:4]), set(order[4:])] == GROUPS


def test_of_equally_frequent_classes_the_first_is_the_rarer() -> None:
    labels = np.array([[0, 1], [1, 0]], np.int8)
    assert by_label("rarest", labels=labels) == [1, 0]
    labels = np.array([[1, 1], [1, 0], [0, 1]], np.int8)  # the first image counts to the first class
    assert set(by_label("rarest", labels=labels)[:2]) == {0, 1}


def test_within_a_label_the_seed_decides_as_in_a_shuffle() -> None:
    labels = np.ones((50, 1), np.int8)
    for seed in range(3):
        assert by_label("rarest", seed, labels) == stream_order(IDS, "shuffled", seed)


def test_bursts_are_runs_of_one_label_in_random_order() -> None:
    """Classes with 8 and 12 images in runs of 5: 5 + 3 and 5 + 5 + 2."""
    labels = np.zeros((20, 2), np.int8)
    labels[:8, 0], labels[8:, 1] = 1, 1
    order = by_label("bursts:5", 0, labels)
    assert sorted(order) == list(range(20))
    whole = by_label("rarest", 0, labels)
    runs = [whole[0:5], whole[5:8], whole[8:13], whole[13:18], whole[18:20]]
    found, rest = [], order
    while rest:
        run = next(run for run in runs if rest[: len(run)] == run)
        found.append(run)
        rest = rest[len(run) :]
    assert sorted(found) == sorted(runs)
    assert found != runs
    assert len({tuple(by_label("bursts:5", seed, labels)) for seed in range(4)}) == 4


def test_domains_come_one_after_the_other_as_the_dataset_names_them() -> None:
    domains = ["night", "fog", "night", "day", "fog", "night"]
    order = stream_order(IDS[:6], "domains", 0, LABELS, domains)
    assert [domains[i] for i in order] == ["night"] * 3 + ["fog"] * 2 + ["day"]
    shuffled = stream_order(IDS[:6], "shuffled", 0)
    assert order[:3] == [i for i in shuffled if domains[i] == "night"]


def test_domains_that_are_not_declared_or_do_not_fit_are_refused() -> None:
    with pytest.raises(UsageError, match="does not say which domain"):
        stream_order(IDS, "domains", 0)
    with pytest.raises(BadData, match="2 domains for 50 images"):
        stream_order(IDS, "domains", 0, None, ["fog", "day"])


class SixImages:
    name = "six"
    class_names = ("a", "b", "c")
    fingerprint = "six"
    domains = ("x", "y", "x", "y", "x", "y")

    def __len__(self) -> int:
        return 6

    def __getitem__(self, i: int) -> Sample:
        return Sample(IDS[i], lambda: None, LABELS[i])  # type: ignore[arg-type,return-value]


def test_a_limit_takes_the_first_of_the_ordered_stream() -> None:
    whole = Stream.of(SixImages(), "rarest", 0, None)  # type: ignore[arg-type]
    stream = Stream.of(SixImages(), "rarest", 0, 3)  # type: ignore[arg-type]
    assert stream.indices == whole.indices[:3]
    assert (stream.labels == LABELS[stream.indices]).all()
    assert stream.domains == [SixImages.domains[i] for i in stream.indices]


def test_scenes_declares_the_shifts_of_its_mixture() -> None:
    scenes = Scenes.open(Path("nowhere"))
    assert scenes.domains is not None
    assert len(scenes.domains) == len(scenes)
    assert scenes.domains[7] == shift_of("default", "test", 7)
    assert len(set(scenes.domains)) == 5
    assert Scenes.open(Path("nowhere"), "fog").domains is None
