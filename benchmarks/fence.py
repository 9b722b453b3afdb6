"""What it costs that a plugin's method runs in a process of its own: built-ins against their own copies as plugins.

    python benchmarks/fence.py [METHOD ...]

Both run in turns on a synthetic pack (63 views and 50 regions of 512 numbers); the seconds of the steps are wall-clock
times, because two processes take turns, and the median of the pairs counts.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
from pathlib import Path

import tta_bench
from benchmarks.replay import IMAGES, METHODS, make_pack
from tta_bench.plugins import Registry
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.runs.fence import Fence
from tta_bench.system.progress import Silent

TURNS = 7
SOURCES = Path(tta_bench.__file__).parent / "methods"


def main() -> None:
    methods = sys.argv[1:] or list(METHODS)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        pack = make_pack(folder / "pack.safetensors")
        print(f"{'method':<12}{'in process':>12}{'own process':>13}{'added':>10}{'ratio':>8}   per image")
        for name in methods:
            copy = folder / f"{name}.py"
            source = (SOURCES / f"{name}.py").read_text()
            copy.write_text(source.replace(f'name: ClassVar[str] = "{name}"', f'name: ClassVar[str] = "{name}-copy"'))
            fence = Fence()
            bench = Bench(folder, folder, registry=Registry([copy], ask=fence.offers), fence=fence, progress=Silent())

            def microseconds(method: str, bench: Bench = bench) -> float:
                record = bench.run(RunSpec(method, "pack", "pack", pack=pack), force=True).record
                return float(record.speed["seconds"]) / IMAGES * 1e6

            pairs = [(microseconds(name), microseconds(f"{name}-copy")) for _ in range(TURNS)]
            here, there = (statistics.median(side) for side in zip(*pairs, strict=True))
            ratio = statistics.median(b / a for a, b in pairs)
            print(f"{name:<12}{here:>9.0f} µs{there:>10.0f} µs{there - here:>7.0f} µs{ratio:>8.2f}", flush=True)


if __name__ == "__main__":
    main()
