"""What encoding costs beside its two halves, rendering the views alone and encoding them alone: `scenes` with `tiny`.

    python benchmarks/encoding.py [IMAGES]

With no worker the two halves follow each other, so that encoding takes at least their sum; with workers it can take as
little as the larger one, where there are cores for both. On two cores that others use as well the sum is the measure.
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch

from tta_bench.features.encoder import Encoder
from tta_bench.features.encoding import EncodedViews
from tta_bench.features.options import EncodingOptions
from tta_bench.features.rendering import Rendering
from tta_bench.features.store import FeatureStore
from tta_bench.plugins import get_backbone, get_dataset
from tta_bench.system.progress import Silent
from tta_bench.views import AugMix

ROUNDS, WORKERS, SEED = 3, 2, 0


def seconds(work: Callable[[], object]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def ratios(images: int = 96) -> dict[str, float]:
    """Encoding as a multiple of its halves, medians of the rounds; prints the rest."""
    torch.set_num_threads(1)
    dataset, backbone = get_dataset("scenes").open(Path()), get_backbone("tiny").load("cpu")
    recipe, options = AugMix(), EncodingOptions(workers=0)
    blocks = [range(i, i + 1) for i in range(images)]
    rendering = Rendering(dataset, blocks, recipe, SEED, backbone.preprocess)
    encoder = Encoder(backbone, options.batch_size, Silent())
    rendered = list(rendering.from_here(range(images)))

    def encode(workers: int) -> None:
        with tempfile.TemporaryDirectory() as folder:
            chosen = dataclasses.replace(options, workers=workers)
            views = EncodedViews(FeatureStore(Path(folder)), dataset, backbone, recipe, SEED, chosen)
            views.ensure(range(images), Silent())

    parts: dict[str, Callable[[], object]] = {
        "views alone": lambda: [None for _ in rendering.from_here(range(images))],
        "encoder alone": lambda: [encoder(pixels) for pixels in rendered],
        "no worker": lambda: encode(0),
        f"{WORKERS} workers": lambda: encode(WORKERS),
    }
    rounds = [{name: seconds(work) for name, work in parts.items()} for _ in range(ROUNDS)]  # in turns
    print(f"{images} images of {recipe.name}, {os.cpu_count()} cores, medians of {ROUNDS} rounds")
    print(f"{'':<16}{'seconds':>9}{'of the sum':>12}{'of the larger':>15}")
    found: dict[str, float] = {}
    for name in parts:
        halves = [(r["views alone"], r["encoder alone"]) for r in rounds]
        of_sum = statistics.median(r[name] / sum(h) for r, h in zip(rounds, halves, strict=True))
        of_larger = statistics.median(r[name] / max(h) for r, h in zip(rounds, halves, strict=True))
        print(f"{name:<16}{statistics.median(r[name] for r in rounds):>9.2f}{of_sum:>12.2f}{of_larger:>15.2f}")
        if not name.endswith("alone"):
            found |= {f"{name}, of the sum": of_sum, f"{name}, of the larger": of_larger}
    return found


if __name__ == "__main__":
    ratios(*map(int, sys.argv[1:]))
