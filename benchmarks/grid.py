"""What a grid costs beside its methods' own steps: 8 methods x 5 seeds over a feature pack, in one process.

    python -m benchmarks.grid [PACK]

The measure is a process that runs the whole grid, divided by the sum of the steps' own time plus one start: a process
that does all but run (imports torch and the plugins, opens the pack, prepares each method's run). Without a PACK a
synthetic one is made. Processor time is what counts, because other programs don't stretch it; wall time stands beside.
"""

from __future__ import annotations

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.replay import make_pack

METHODS = ("clip", "regions", "tda", "boostadapter", "dmn", "dpe", "reta", "purf")
SEEDS = range(5)
ROUNDS = 3


class Cost(NamedTuple):
    """Seconds of a process, and the steps that its records tell of."""

    wall: float
    processor: float
    steps_wall: float
    steps_processor: float


def grid(pack: Path, home: Path) -> tuple[float, float]:
    """Runs all cells here, and returns the wall and processor time of their steps."""
    from tta_bench.runs import replay
    from tta_bench.runs.bench import Bench, RunSpec
    from tta_bench.system.progress import Silent

    bench = Bench(home, home, progress=Silent())
    step, processor = replay._step, 0.0

    def timed(*args: Any) -> Any:
        nonlocal processor
        began = time.process_time()
        scores = step(*args)
        processor += time.process_time() - began
        return scores

    replay._step = timed  # type: ignore[assignment]  # the same, with a watch
    specs = [RunSpec(method, "pack", "pack", seed, pack=pack) for method in METHODS for seed in SEEDS]
    return sum(bench.run(spec).record.speed["seconds"] for spec in specs), processor


def start(pack: Path, home: Path) -> tuple[float, float]:
    """What a process does before its first step."""
    from tta_bench.runs.bench import Bench, RunSpec
    from tta_bench.system.progress import Silent

    bench = Bench(home, home, progress=Silent())
    for method in METHODS:
        bench.prepare(RunSpec(method, "pack", "pack", pack=pack))
    return 0.0, 0.0


def in_process(what: str, pack: Path) -> Cost:
    with tempfile.TemporaryDirectory(prefix="ttabench-grid-") as home:
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        command = [sys.executable, "-m", "benchmarks.grid", "--one", what, str(pack.absolute()), home]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        root = Path(__file__).resolve().parent.parent
        done = subprocess.run(command, cwd=root, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, processor, *json.loads(done.stdout))


def ratios(pack: Path | None = None) -> dict[str, float]:
    """The grid as a multiple of its steps and one start, medians over rounds in which the two processes take turns."""
    with tempfile.TemporaryDirectory(prefix="ttabench-grid-") as folder:
        chosen = pack or make_pack(Path(folder) / "pack.safetensors", METHODS)
        pairs = [(in_process("start", chosen), in_process("grid", chosen)) for _ in range(ROUNDS)]
    median = statistics.median
    print(f"{len(METHODS)} methods x {len(SEEDS)} seeds over {'a synthetic pack' if pack is None else pack.name}")
    print(f"{'':<16}{'start':>8}{'steps':>8}{'grid':>8}{'ratio':>8}")
    found: dict[str, float] = {}
    for clock in ("processor", "wall"):
        starts = [getattr(s, clock) for s, _ in pairs]
        steps = [getattr(g, f"steps_{clock}") for _, g in pairs]
        grids = [getattr(g, clock) for _, g in pairs]
        found[f"{clock} time"] = ratio = median(g / (s + t) for g, s, t in zip(grids, starts, steps, strict=True))
        print(f"{clock + ' time':<16}{median(starts):>8.2f}{median(steps):>8.2f}{median(grids):>8.2f}{ratio:>8.2f}")
    return found


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps({"grid": grid, "start": start}[sys.argv[2]](Path(sys.argv[3]), Path(sys.argv[4]))))
    else:
        ratios(*map(Path, sys.argv[1:]))
