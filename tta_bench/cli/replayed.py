"""Figures of a method in mid-stream, `cache` and `regions`: features are replayed, and no record is needed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tta_bench.cli.options import data_paths, names, registry
from tta_bench.errors import UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from tta_bench.runs.bench import Bench
    from tta_bench.runs.spec import RunSpec

KINDS = ("cache", "regions")
CACHED = "dpe,reta,purf"
STEP, SHOTS = 2000, 7  # the paper's figure of caches
LOOKED_AT = 100  # the image whose regions are drawn: thresholds and text have settled by then


@dataclass(frozen=True)
class Replayed:
    """What is asked for; None where nothing is said."""

    step: int | None = None
    shots: int | None = None
    image: str | None = None
    photo: Path | None = None
    seed: int | None = None
    pack: Path | None = None
    random_weights: bool = False
    data_root: Path | None = None
    data: Sequence[str] = ()

    def given(self) -> list[str]:
        """The options that somebody wrote."""
        return [f"--{name.replace('_', '-')}" for name, value in vars(self).items() if value not in (None, False, ())]

    def figure(
        self, kind: str, method: Sequence[str], dataset: Sequence[str], backbone: Sequence[str], plugins: list[Path]
    ) -> Figure:
        from tta_bench.runs.bench import Bench
        from tta_bench.runs.spec import RunOptions
        from tta_bench.system.progress import Terminal

        methods = names(method or (CACHED if kind == "cache" else "purf"), "--method")
        if self.pack is not None and (dataset or backbone):
            raise UsageError("--pack stands for a dataset and a backbone: leave --dataset and --backbone out")
        where = _one(dataset, "--dataset", "scenes"), _one(backbone, "--backbone", "tiny")
        shared = RunOptions(pack=self.pack, random_weights=self.random_weights)
        specs = [shared.cell(name, *where, self.seed or 0) for name in methods]
        root, own = self.data_root, data_paths(self.data)
        bench = Bench(None, root, data=own, registry=registry(plugins, None), progress=Terminal())
        if kind == "cache":
            if self.image or self.photo:
                raise UsageError("--image and --photo are for `plot regions`")
            return cache(bench, specs, self.step or STEP, self.shots or SHOTS)
        if self.shots or len(specs) > 1:
            raise UsageError(
                "`plot regions` is of one method, with the capacity that it has; --shots is for `plot cache`"
            )
        if self.image and self.step:
            raise UsageError("--image or --step: only one of them can count")
        return regions(bench, specs[0], self.step, self.image, self.photo)


def cache(bench: Bench, specs: Sequence[RunSpec], step: int, shots: int) -> Figure:
    """Of several methods with caches of one capacity."""
    from tta_bench.report import snapshot_figures
    from tta_bench.runs.snapshots import cache_after

    asked = [replace(spec, limit=step, settings={**spec.settings, "shots": shots}) for spec in specs]
    return snapshot_figures.cache([cache_after(bench, spec) for spec in asked])


def regions(
    bench: Bench, spec: RunSpec, step: int | None = None, image: str | None = None, photo: Path | None = None
) -> Figure:
    """Of the image of that name, or of the one at that place in the stream."""
    from tta_bench.report import snapshot_figures
    from tta_bench.runs.snapshots import regions_of

    limited = spec if image else replace(spec, limit=step or LOOKED_AT)
    return snapshot_figures.regions(regions_of(bench, limited, image, photo))


def _one(values: Sequence[str], option: str, otherwise: str) -> str:
    found = names(values, option) if values else [otherwise]
    if len(found) > 1:
        raise UsageError(f"{option}: one at a time, {' or '.join(found)}")
    return found[0]
