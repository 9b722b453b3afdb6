"""How much memory a run over stored features takes, and how that grows with the images: peak RSS of whole processes.

    python benchmarks/memory.py [METHOD ...]

A synthetic dataset is encoded into a store first, by a process of its own; then each method runs over it in a process
of its own, which tells its peak (Linux only). Images are one pixel, so that encoding 50,000 of them takes seconds.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import normalize

from tta_bench.features.options import EncodingOptions
from tta_bench.interfaces import Preprocess, Sample
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.system.progress import Silent

FEW, MANY = 5_000, 50_000
CLASSES, DIM, VIEWS = 20, 64, 8
METHODS = ("clip", "tda")


class Pixels:
    """So many images of one pixel, each of a colour of its own."""

    name: ClassVar[str] = "pixels"
    class_names: tuple[str, ...] = tuple(f"class {c}" for c in range(CLASSES))

    def __init__(self, images: int) -> None:
        self.images, self.fingerprint = images, f"pixels/{images}"

    @classmethod
    def open(cls, root: Path, variant: str = "default") -> Self:
        return cls(int(variant))

    def __len__(self) -> int:
        return self.images

    def __getitem__(self, i: int) -> Sample:
        if not 0 <= i < self.images:
            raise IndexError(i)
        labels = np.zeros(CLASSES, np.int8)
        labels[[i % CLASSES, i * 7 % CLASSES]] = 1
        return Sample(f"{i:06}", lambda: Image.new("RGB", (1, 1), (i % 256, i // 256 % 256, i * 31 % 256)), labels)


@dataclass(frozen=True)
class Shades:
    """The pixel, darker from view to view."""

    seeded: ClassVar[bool] = False
    count: int = VIEWS
    name: str = "shades"

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        pixel = torch.from_numpy(np.array(image)).permute(2, 0, 1)  # [3, 1, 1]
        return torch.stack([pixel // (view + 1) for view in range(self.count)])  # [V, 3, 1, 1]


class Projection:
    """A fixed random map of a pixel."""

    name: ClassVar[str] = "projection"
    embed_dim, image_size = DIM, 1
    logit_scale, logit_bias = 100.0, 0.0
    preprocess = Preprocess(1)
    fingerprint = "projection"

    def __init__(self) -> None:
        rng = torch.Generator().manual_seed(0)
        self.weights = torch.randn(3, DIM, generator=rng)

    @classmethod
    def load(cls, device: str, weights: Path | None = None, precision: str = "fp32") -> Self:
        return cls()

    def encode_images(self, pixels: Tensor) -> Tensor:
        return normalize((pixels.flatten(1) + 0.1) @ self.weights, dim=-1)

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        rng = torch.Generator().manual_seed(1)
        return normalize(torch.randn(len(texts), DIM, generator=rng), dim=-1)


def run(method: str, images: int, home: Path) -> int:
    """Runs the method over so many images and returns this process's peak, in bytes."""
    bench = Bench(home, home, encoding=EncodingOptions(workers=0), progress=Silent())
    recipes: dict[str, Any] = {"views": Shades()} if method != "clip" else {}
    bench.run(RunSpec(method, Pixels(images), Projection(), recipes=recipes), force=True)
    # Not `ru_maxrss`: that is at least what the process that started this one had.
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) * 1024


def in_process(method: str, images: int, home: Path) -> int:
    command = [sys.executable, __file__, "--one", method, str(images), str(home)]
    return int(subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout)


def ratios(methods: Sequence[str] = METHODS) -> dict[str, float]:
    """Method -> its peak over many images as a multiple of that over few, from features that are there."""
    found: dict[str, float] = {}
    print(f"{'method':<10}{f'{FEW:,} images':>16}{f'{MANY:,} images':>16}{'ratio':>8}{'bytes an image':>16}")
    with tempfile.TemporaryDirectory(prefix="ttabench-memory-") as folder:
        for method in methods:
            few, many = (
                [in_process(method, images, Path(folder)) for _ in range(2)][-1]  # the first has encoded
                for images in (FEW, MANY)
            )
            found[method], growth = many / few, (many - few) / (MANY - FEW)
            print(f"{method:<10}{few / 1e6:>13.1f} MB{many / 1e6:>13.1f} MB{found[method]:>8.3f}{growth:>16.0f}")
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(run(sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])))
    else:
        ratios(sys.argv[1:] or METHODS)
