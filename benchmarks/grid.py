"""What a grid costs beside its methods' own steps: 8 methods x 5 seeds over a feature pack, in one process.

    python benchmarks/grid.py [PACK]

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
        command = [sys.executable, __file__, "--one", what, str(pack), home]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
        wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(wall, processor, *json.loads(done.stdout))


def measure(pack: Path, rounds: int = ROUNDS) -> dict[str, float]:
    """Medians over rounds in which the two processes take turns."""
    pairs = [(in_process("start", pack), in_process("grid", pack)) for _ in range(rounds)]
    median = statistics.median
    return {
        "start": median(s.processor for s, _ in pairs),
        "steps": median(g.steps_processor for _, g in pairs),
        "grid": median(g.processor for _, g in pairs),
        "ratio": median(g.processor / (g.steps_processor + s.processor) for s, g in pairs),
        "ratio, wall time": median(g.wall / (g.steps_wall + s.wall) for s, g in pairs),
    }


def main(pack: Path | None) -> None:
    with tempfile.TemporaryDirectory(prefix="ttabench-grid-") as folder:
        chosen = pack or make_pack(Path(folder) / "pack.safetensors", METHODS)
        found = measure(chosen)
    print(f"{len(METHODS)} methods x {len(SEEDS)} seeds over {'a synthetic pack' if pack is None else pack.name}")
    for name, value in found.items():
        print(f"{name:<24}{value:>8.2f}{'' if 'ratio' in name else ' s'}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps({"grid": grid, "start": start}[sys.argv[2]](Path(sys.argv[3]), Path(sys.argv[4]))))
    else:
        main(Path(sys.argv[1]) if sys.argv[1:] else None)
