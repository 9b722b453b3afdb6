"""Every ratio that the project promises, measured in one run and written down with the machine that it was measured on.

    python -m benchmarks.all [PACK]

Each is a quotient of two times (or of two peaks of memory) of the same run, so that it means something on another
machine, too. PACK is the feature pack of the grid; without one it is synthetic.
"""

from __future__ import annotations

import datetime
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import encoding, grid, memory, replay, steps, views
from tta_bench.system import provenance

RESULTS = Path(__file__).with_name("results.json")


def main(pack: Path | None = None) -> None:
    parts: dict[str, tuple[str, Callable[[], dict[str, float]]]] = {
        "views": ("times as fast as torchvision and Pillow", views.ratios),
        "encoding": ("of rendering and encoding alone", encoding.ratios),
        "memory": (f"peak over {memory.MANY:,} stored images, of that over {memory.FEW:,}", memory.ratios),
        "grid": ("of its steps and one start", lambda: grid.ratios(pack)),
        "replay": ("a run on stored features, of the bare steps", replay.ratios),
        "steps": ("a step, of scoring the views once", steps.ratios),
    }
    ratios: dict[str, dict[str, object]] = {}
    for name, (what, measure) in parts.items():
        print(f"\n{name}: {what}", flush=True)
        ratios[name] = {"what": what, **{key: round(value, 3) for key, value in measure().items()}}
    load = "/".join(f"{value:.1f}" for value in os.getloadavg())
    content = {
        "measured": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "hardware": {**provenance.hardware("cpu"), "load in 1, 5 and 15 minutes": load},
        "versions": provenance.versions(),
        "grid's pack": "synthetic" if pack is None else pack.name,
        "ratios": ratios,
    }
    RESULTS.write_text(json.dumps(content, indent=1) + "\n")
    print(f"\nwritten to {RESULTS.relative_to(RESULTS.parent.parent)}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
