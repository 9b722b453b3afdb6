"""How many images per second a method does from the picture on, and in how much memory, on this machine.

A run reads features from the store, so its own speed leaves the encoder out. Here every image is decoded, its views are
rendered and encoded, and the method makes its step. Each method gets a process of its own with an empty store: memory
is a high-water mark, and one that was reached before would hide its own.
"""

from __future__ import annotations

import multiprocessing
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, replace
from pathlib import Path

from tta_bench.errors import TTABenchError
from tta_bench.runs.spec import RunSpec
from tta_bench.system.text import counted

IMAGES = 16  # that are timed; enough for a mean, few enough for a CPU


@dataclass(frozen=True)
class Machine:
    """Where datasets and plugins are, and what to compute on."""

    data_root: Path
    device: str
    data: Mapping[str, Path]
    plugins: tuple[Path, ...] = ()


@dataclass(frozen=True)
class Throughput:
    """What was measured, and on what."""

    images_per_s: float  # decoding, rendering, encoding and the step, one after the other
    memory_gb: float  # of the process, or on an accelerator of its memory
    hardware: str
    images: int


def measure(spec: RunSpec, machine: Machine) -> Throughput:
    """Raises `TTABenchError` if it can't be told."""
    spawning = multiprocessing.get_context("spawn")  # a fork would inherit the memory that is to be measured
    with ProcessPoolExecutor(1, mp_context=spawning) as pool:
        try:
            return pool.submit(_measured, replace(spec, limit=IMAGES, order="sequential"), machine).result()
        except BrokenProcessPool as error:
            raise TTABenchError(f"{spec}: the process that measures it has died (out of memory?)") from error


def _measured(spec: RunSpec, machine: Machine) -> Throughput:
    from tta_bench.features.looked_at import probe
    from tta_bench.features.options import EncodingOptions
    from tta_bench.plugins import Registry
    from tta_bench.runs.bench import Bench
    from tta_bench.system.progress import Silent
    from tta_bench.views import Original

    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(
            Path(folder),
            machine.data_root,
            machine.device,
            data=machine.data,
            registry=Registry(list(machine.plugins)),
            encoding=EncodingOptions(workers=0),  # in this process, where the clock runs
        )
        run = bench.prepare(spec)
        probe(run.source.backbone)  # what only a process's first picture takes is nobody's speed
        encoding = 0.0  # seconds per image
        for recipe in (Original(), *run.recipes.values()):
            began = time.perf_counter()
            _, forwards = run.source.views(recipe, run.stream.indices)
            encoding += (time.perf_counter() - began) * recipe.count / max(forwards, 1)  # whole blocks are encoded
        record = run.execute(Path(folder) / "run", checkpoint_seconds=3600.0, reporter=Silent())
        stepping = record.speed["seconds"] / record.n
        processor = f"{record.hardware['processor']}, {counted(record.hardware['threads'], 'thread')}"
        memory = record.speed["peak_memory_mb"] / 1024
        return Throughput(
            1 / (encoding + stepping), memory, str(record.hardware.get("accelerator", processor)), record.n
        )
