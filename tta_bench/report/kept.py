"""What follows from runs' scores, kept as JSON under their digests: `$TTABENCH_HOME/statistics/DIGEST.json`.

Nothing there is worth keeping: what is missing or damaged is made again.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tta_bench.errors import BadData, StoreError
from tta_bench.records import SCORES, RunRecord
from tta_bench.system import paths
from tta_bench.system.files import digest, file_digest, write_atomically
from tta_bench.system.seal import opened, sealed


@functools.cache
def code() -> str:
    """Digest of what makes statistics of scores."""
    package = Path(__file__).parents[1]
    files = sorted(file for room in ("metrics", "report") for file in (package / room).rglob("*.py"))
    return digest([file_digest(file) for file in files])


def file_of(runs: Sequence[RunRecord], **what: Any) -> Path | None:
    """None: a record of version 0.1 does not say what its scores are."""
    if not all(SCORES in run.files for run in runs):
        return None
    scores = sorted([run.run_id, run.files[SCORES], run.created] for run in runs)
    return paths.home() / "statistics" / f"{digest({'scores': scores, 'code': code(), **what})}.json"


def is_there(file: Path | None) -> bool:
    try:
        return file is not None and file.exists()
    except OSError:  # somebody else's
        return False


def read(file: Path | None) -> Any:
    """None: not there, or damaged."""
    try:
        return None if file is None else json.loads(opened(file.read_bytes(), file.name))
    except (OSError, ValueError, RecursionError, BadData):
        return None


def write(file: Path | None, content: Any) -> None:
    if file is not None:
        with suppress(StoreError):  # a folder that can't be written to costs time and nothing else
            write_atomically(file, sealed(json.dumps(content).encode(), file.name))
