"""The toy runs that are killed, interrupted and tampered with, and what is looked at afterwards."""

from __future__ import annotations

import random
import shutil
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tests.conftest import TOY, start_process
from tta_bench import records
from tta_bench.runs.bench import Bench
from tta_bench.runs.spec import RunSpec
from tta_bench.system.progress import Silent

RUN = ("run", "--method", "twobranches", "--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip")
QUICK = (*RUN, "--workers", "0", "--checkpoint-seconds", "0")
TOY_RUN = RunSpec("twobranches", "toy", "toyclip")
PATIENCE = 60.0
WITH_WORKERS = (*RUN, "--workers", "2", "--batch-size", "8")  # many blocks


# --------------------------------------------------------------------------------------- as a process


def finish(home: Path, *more: str) -> str:
    process = start_process(*QUICK, *more, home=home)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "mAP" in out
    return err


def the_record(home: Path) -> records.RunRecord:
    """The only one, and whole."""
    (record,), problems = records.load_all(home / "runs")
    assert problems == []
    assert record.folder is not None
    assert records.damage(record.folder) == ""
    return record


def kill_when(condition: Callable[[], bool], home: Path, *more: str) -> None:
    process = start_process(*QUICK, *more, home=home, TOY_DELAY="0.05")
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, f"finished before it could be killed: {process.communicate()}"
        assert time.monotonic() < deadline, "never got there"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def hidden(home: Path) -> list[Path]:
    """All that a kill may have left, but for locks and an empty folder."""
    files = (path for path in (home / "runs").rglob("*") if path.is_file() and path.suffix != ".lock")
    return [file for file in files if any(part.startswith(".") for part in file.relative_to(home).parts)]


# ----------------------------------------------------------------------------------- in this process


def lines(bench: Bench) -> list[str]:
    assert isinstance(bench.reporter, Silent)
    return bench.reporter.lines


def finished(bench: Bench, spec: RunSpec = TOY_RUN) -> np.ndarray[Any, Any]:
    """The scores of the run, and its record out of the way of the next one."""
    record = bench.run(spec).record
    scores = record.scores()
    assert record.folder is not None
    shutil.rmtree(record.folder)
    return scores


def flips(content: bytes, count: int, seed: int = 0) -> Iterator[bytes]:
    rng = random.Random(seed)
    for _ in range(count):
        flipped = bytearray(content)
        flipped[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
        yield bytes(flipped)
