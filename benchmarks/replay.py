"""How long a run on stored features takes, as a multiple of the method's bare steps; and against another checkout.

    python benchmarks/replay.py [METHOD ...]
    python benchmarks/replay.py --against FOLDER [METHOD ...]

The first is what the run adds: reading and checking features, checking scores, sealing, metrics, the record. The second
runs this checkout and the one in FOLDER in turns, each time in a process of its own, and prints how the times of whole
runs compare: the median of the ratios of neighbours, and the quartiles. Streams are synthetic packs, times those of the
processor, which other processes don't stretch.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch.nn.functional import normalize

from tta_bench.features.pack import Pack
from tta_bench.interfaces import Observation, Task
from tta_bench.plugins import get_method
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.system.progress import Silent

IMAGES, CLASSES, DIM, VIEWS, REGIONS = 400, 80, 512, 63, 50
METHODS = ("clip", "tda", "purf")  # the cheapest step, a cache, the most expensive step
TURNS = 12  # pairs of processes
REPEATS = 9  # the best of, in each process


def make_pack(file: Path, methods: Sequence[str] = METHODS) -> Path:
    """Random unit features around random prototypes, with the views and regions that the built-ins ask for."""
    rng = torch.Generator().manual_seed(0)
    text = normalize(torch.randn(CLASSES, 1, DIM, generator=rng), dim=-1)
    centres = text[torch.arange(IMAGES) % CLASSES]  # [N, 1, D]

    def around(count: int) -> torch.Tensor:
        return normalize(centres + 0.05 * torch.randn(IMAGES, count, DIM, generator=rng), dim=-1)

    names = {recipe.name: role for name in methods for role, recipe in get_method(name)().recipes.items()}
    tensors = {"image": around(1)[:, 0].contiguous(), "text/photo": text}
    tensors["labels"] = (torch.rand(IMAGES, CLASSES, generator=rng) < 0.05).to(torch.int8)
    tensors |= {f"views/{name}": around(VIEWS if role == "views" else REGIONS) for name, role in names.items()}
    metadata = {"ttabench_pack": "1", "dataset": "synthetic", "backbone": "random", "logit_scale": "100"}
    metadata["ids"] = json.dumps([f"{i:05}" for i in range(IMAGES)])
    metadata["class_names"] = json.dumps([f"class {c}" for c in range(CLASSES)])
    save_file(tensors, file, metadata)
    return file


def run_seconds(method: str, pack: Path, home: Path) -> float:
    """A whole run, from the request to the record: the best of a few."""
    bench = Bench(home, home, progress=Silent())
    taken = []
    for _ in range(REPEATS):
        began = time.process_time()
        bench.run(RunSpec(method, "pack", "pack", pack=pack), force=True)
        taken.append(time.process_time() - began)
    return min(taken)


def bare_seconds(name: str, file: Path) -> float:
    """The method's steps alone, on features that are in memory: the best of a few."""
    pack = Pack(file)
    bank = pack.text("photo")
    taken = []
    for _ in range(REPEATS):
        method = get_method(name)()
        seen = [
            Observation(i, pack.image(i)[0], {r: pack.views(v.name, i) for r, v in method.recipes.items()})
            for i in range(len(pack))
        ]
        rng = torch.Generator().manual_seed(0)
        method.start(Task(pack.class_names, normalize(bank.mean(1), dim=-1), bank, pack.logit_scale, rng=rng))
        began = time.process_time()
        with torch.no_grad():
            for x in seen:
                method.step(x)
        taken.append(time.process_time() - began)
    return min(taken)


def in_checkout(folder: Path, method: str, pack: Path, home: Path) -> float:
    """`run_seconds` by the code of another checkout, which is this file's own beside that code."""
    environment = os.environ | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__)), "--one", str(pack), str(home), method]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, cwd=folder)
    return float(done.stdout)


def compare(other: Path, methods: list[str], pack: Path, home: Path) -> None:
    here = Path(__file__).resolve().parent.parent
    print(f"{'method':<12}{'ratio':>8}  quartiles       {IMAGES} images, {TURNS} pairs of processes")
    for method in methods:
        ratios = []
        for turn in range(TURNS):
            folders = (here, other) if turn % 2 else (other, here)  # neither is always first
            seconds = {folder: in_checkout(folder, method, pack, home / folder.name) for folder in folders}
            ratios.append(seconds[here] / seconds[other])
        low, middle, high = statistics.quantiles(ratios, n=4)
        print(f"{method:<12}{middle:>8.3f}  {low:.3f} to {high:.3f}", flush=True)


def ratios(methods: Sequence[str] = METHODS) -> dict[str, float]:
    """Method -> a run as a multiple of the method's bare steps."""
    torch.set_num_threads(1)
    found: dict[str, float] = {}
    print(f"{'method':<12}{'µs per image':>14}{'bare steps':>12}{'ratio':>8}")
    with tempfile.TemporaryDirectory(prefix="ttabench-replay-") as folder:
        home = Path(folder)
        pack = make_pack(home / "pack.safetensors")
        for method in methods:
            run, bare = run_seconds(method, pack, home), bare_seconds(method, pack)
            found[method] = run / bare
            print(f"{method:<12}{run / IMAGES * 1e6:>14.0f}{bare / IMAGES * 1e6:>12.0f}{run / bare:>8.2f}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("methods", nargs="*")
    parser.add_argument("--against", type=Path, metavar="FOLDER", help="another checkout")
    parser.add_argument("--one", nargs=2, type=Path, metavar=("PACK", "HOME"), help=argparse.SUPPRESS)
    asked = parser.parse_args()
    methods = asked.methods or list(METHODS)
    torch.set_num_threads(1)
    if asked.one:
        print(run_seconds(methods[0], *asked.one))
        return
    if asked.against:
        with tempfile.TemporaryDirectory(prefix="ttabench-replay-") as folder:
            compare(asked.against.resolve(), methods, make_pack(Path(folder) / "pack.safetensors"), Path(folder))
        return
    ratios(methods)


if __name__ == "__main__":
    main()
