"""What a dataset class offers besides for `ttabench data`: what of it is on disk, and fetching the rest.

Apart from interfaces.py, which has these names too, so that `ttabench data status` answers without importing torch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from tta_bench.system.progress import Reporter


@dataclass(frozen=True)
class DataStatus:
    """What is known of one copy of a dataset.

    Attributes:
        dataset: As `--dataset` takes it.
        found: Everything that the loader needs is there, though images may be missing.
        where: The folder that has anything of it; empty when there is none.
        images: Those of the official list that are on disk.
        expected: How many the official list has; None where there is none.
        how: What to do if it is not complete.
    """

    dataset: str
    found: bool
    where: str
    images: int
    expected: int | None
    how: str

    @property
    def complete(self) -> bool:
        return self.found and self.images > 0 and self.expected in (None, self.images)


@runtime_checkable
class Downloadable(Protocol):
    """A dataset class that lives in files below a data root."""

    @classmethod
    def status(cls, root: Path) -> Sequence[DataStatus]:
        """What is below `root`: one entry, or one for each copy where there may be several. Quick: no image is read."""
        ...

    @classmethod
    def download(cls, root: Path, reporter: Reporter) -> None:
        """Fetches what is not below `root` yet; the same call resumes.

        Raises:
            UsageError: it can't be fetched; the message says what to do by hand.
            TTABenchError: anything that the same call may overcome later.
        """
        ...
