"""A run's average precision on every resample of its images, kept under what it follows from.

    $TTABENCH_HOME/statistics/DIGEST.npz

The digest is of the scores file (scores, labels and the images' places), the score space, how ties rank, the number of
resamples, and the code. Nothing there is worth keeping: what is missing or damaged is made again.
"""

from __future__ import annotations

import functools
import io
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np

from tta_bench import metrics, records
from tta_bench.errors import BadData, StoreError, UnknownName
from tta_bench.metrics.bootstrap import ImageResamples
from tta_bench.metrics.paired import Resampled
from tta_bench.records import RunRecord
from tta_bench.report.kept import code
from tta_bench.runs.soundness import ties_of
from tta_bench.system import paths
from tta_bench.system.files import digest, file_digest, write_atomically
from tta_bench.system.seal import opened, sealed

SEED = 0  # of the resamples: two people who compare the same runs see the same digits
SPACES: dict[str, Callable[[metrics.Scores], metrics.Scores]] = {
    "mAP": lambda scores: scores,
    "mAP_centered": metrics.centered,
    "mAP_softmax": metrics.softmax,
}


def resampled(run: RunRecord, metric: str = "mAP", resamples: int = 1000) -> Resampled:
    """Runs of one protocol are of the same images, and all get the same resamples of them."""
    if metric not in SPACES:
        raise UnknownName("metric", metric, SPACES, f"Statistics are made for {', '.join(SPACES)}.")
    file = _file(run, metric, resamples)
    kept = _read(file)
    if kept is None:
        scores, labels = records.load_in_dataset_order(run)
        drawn = _drawn(len(scores), resamples)
        kept = Resampled.of(SPACES[metric](scores), labels, drawn, ties_of(run))
        with suppress(StoreError):  # a folder that can't be written to costs time and nothing else
            _write(file, kept)
    return kept


@functools.lru_cache(maxsize=1)  # the runs of a protocol come one after the other
def _drawn(images: int, resamples: int) -> ImageResamples:
    return ImageResamples(images, resamples, SEED)


def _file(run: RunRecord, metric: str, resamples: int) -> Path:
    scores = run.files.get(records.SCORES) or _digest_on_disk(run)
    parts = {"scores": scores, "metric": metric, "ties": ties_of(run), "resamples": resamples, "code": code()}
    return paths.home() / "statistics" / f"{digest(parts)}.npz"


def _digest_on_disk(run: RunRecord) -> str:
    """Records of version 0.1 do not hold it."""
    folder = run.folder or Path()
    try:
        return file_digest(folder / records.SCORES)
    except OSError as error:
        raise BadData(f"{run.run_id}: its scores can't be read: {error.strerror or error}") from error


def _read(file: Path) -> Resampled | None:
    try:
        content = opened(file.read_bytes(), file.name)
        with np.load(io.BytesIO(content), allow_pickle=False) as kept:
            return Resampled(kept["ap"], kept["draws"], kept["positives"])
    except (OSError, ValueError, KeyError, EOFError, BadData, zipfile.BadZipFile):
        return None


def _write(file: Path, kept: Resampled) -> None:
    content = io.BytesIO()
    np.savez(content, ap=kept.ap, draws=kept.draws, positives=kept.positives)
    write_atomically(file, sealed(content.getvalue(), file.name), durable=False)
