"""What a suite would take, from the records at hand: encoder forwards, disk and time. Nothing is loaded or encoded."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tta_bench import records
from tta_bench.errors import TTABenchError
from tta_bench.runs.needs import Need, Needs

if TYPE_CHECKING:
    from tta_bench.records import RunRecord
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.spec import RunSpec

USUAL_WIDTH = 768  # of features, for a backbone that the store has not met; they have 512 to 1152


@dataclass(frozen=True)
class Estimate:
    """Sums over the cells that are still to run."""

    forwards: int  # views through an image encoder
    bytes: int  # that the store grows by
    encoding_seconds: float  # of backbones with a record that encoded
    adapting_seconds: float  # of methods with a record
    notes: Sequence[str]  # what is not in the sums, and what is a guess


def estimate(bench: Bench, todo: Sequence[RunSpec]) -> Estimate:
    """Features that a record shows to have been there are taken to be there still. Time is that of one process."""
    found, _ = records.load_all(bench.runs) if bench.runs.is_dir() else ([], [])
    sizes = _Sizes(bench, found)
    needs, there = Needs(bench), _encoded(found)
    wanted: dict[Need, int] = {}
    adapting, unknown = 0.0, set[str]()
    for spec in todo:
        images = sizes.of(spec)
        if images is None:
            unknown.add(f"the size of {spec.dataset} is not known: its cells are not counted")
            continue
        for need in needs.of(spec):
            if images > there.get((need.dataset, need.backbone, need.recipe, need.seed), 0):
                wanted[need] = max(wanted.get(need, 0), images)
        pace = _seconds_per_image(found, spec)
        if pace is None:
            unknown.add(f"no record of {spec.method_name} tells how long it adapts")
        adapting += images * (pace or 0.0)
    forwards, size, encoding = 0, 0, 0.0
    widths, speeds = _widths(bench, found), _forwards_per_second(found)
    for need, images in wanted.items():
        views = images * need.views
        forwards += views
        if need.backbone not in widths:
            unknown.add(f"{need.backbone} is not in the store: {USUAL_WIDTH} numbers a view are assumed")
        size += views * widths.get(need.backbone, USUAL_WIDTH) * np.dtype(bench.encoding.dtype).itemsize
        if need.backbone not in speeds:
            unknown.add(f"no record tells how fast {need.backbone} encodes")
        encoding += views / speeds[need.backbone] if need.backbone in speeds else 0.0
    return Estimate(forwards, size, encoding, adapting, sorted(unknown))


class _Sizes:
    """How many images a run has."""

    def __init__(self, bench: Bench, found: Iterable[RunRecord]) -> None:
        self._bench = bench
        self._known: dict[str, int | None] = {r.dataset: r.dataset_size for r in found if r.dataset_size}

    def of(self, spec: RunSpec) -> int | None:
        name = str(spec.pack or spec.dataset)
        if name not in self._known:
            self._known[name] = self._opened(spec)
        size = self._known[name]
        return size if size is None or spec.limit is None else min(size, spec.limit)

    def _opened(self, spec: RunSpec) -> int | None:
        try:
            return len(self._bench.pack(spec.pack) if spec.pack else self._bench.opened(str(spec.dataset)))
        except TTABenchError:  # not on this machine
            return None


def _encoded(found: Iterable[RunRecord]) -> dict[tuple[str, str, str, int | None], int]:
    """Dataset, backbone, recipe and seed -> images that were encoded for some run."""
    images: dict[tuple[str, str, str, int | None], int] = {}
    for record in found:
        for recipe in ("Original()", *record.config.parts.get("recipes", {}).values()):
            for seed in (record.seed, None):  # drawn views are asked for by seed, others without
                key = (record.dataset, record.backbone, recipe, seed)
                images[key] = max(images.get(key, 0), record.n)
    return images


def _seconds_per_image(found: Iterable[RunRecord], spec: RunSpec) -> float | None:
    """Of the method, with this backbone if it has run with it."""
    own = [r for r in found if r.method == spec.method_name and r.n and r.speed.get("seconds")]
    alike = [r for r in own if r.backbone == spec.backbone] or own
    return statistics.median(r.speed["seconds"] / r.n for r in alike) if alike else None


def _forwards_per_second(found: Iterable[RunRecord]) -> dict[str, float]:
    """By backbone, over all runs that encoded."""
    forwards, seconds = dict[str, int](), dict[str, float]()
    for record in found:
        took = record.speed.get("encoding_seconds") or 0.0  # missing in records of before
        if took:
            forwards[record.backbone] = forwards.get(record.backbone, 0) + record.counts["encoder_forwards"]
            seconds[record.backbone] = seconds.get(record.backbone, 0.0) + took
    return {backbone: count / seconds[backbone] for backbone, count in forwards.items()}


def _widths(bench: Bench, found: Iterable[RunRecord]) -> Mapping[str, int]:
    """Backbone -> numbers per view, from what the store says about its entries."""
    names = {str(r.protocol.parts.get("backbone_digest")): r.backbone for r in found}
    widths: dict[str, int] = {}
    for file in (bench.home / "store").glob("*/*/meta.json"):
        try:
            meta = json.loads(file.read_bytes())
            widths[names[meta["key"]["backbone"]]] = int(meta["shape"][2])
        except (OSError, ValueError, KeyError, TypeError, IndexError):
            continue
    return widths
