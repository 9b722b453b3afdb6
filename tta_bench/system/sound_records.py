"""Which run.json were checked before, by the digest of their bytes: whether one is sound follows from nothing else.

    $TTABENCH_HOME/statistics/sound-records

A file with one flipped bit has another digest and is checked in full. The list is sealed, and only good for the code
that did the checking; what is lost or damaged is made again.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tta_bench.errors import BadData, StoreError
from tta_bench.system import paths
from tta_bench.system.files import digest, write_atomically
from tta_bench.system.seal import opened, sealed

WORTH = 20  # new records that are worth a new list: so many are checked within 10 ms
MOST = 100_000  # digests in the list, 6.5 MB; then it begins anew


class SoundRecords:
    """What was found sound, now and by earlier commands."""

    def __init__(self, checked_by: Sequence[Path]) -> None:
        """`checked_by`: the source files whose rules a record has to meet."""
        self.file = paths.home() / "statistics" / "sound-records"
        self.writer = digest([digest(file.read_bytes()) for file in checked_by])
        try:
            self._known = set(opened(self.file.read_bytes(), self.writer).decode().split())
        except (OSError, BadData):
            self._known = set()
        self._new: set[str] = set()

    def __contains__(self, content: str) -> bool:
        return content in self._known

    def add(self, content: str) -> None:
        self._new.add(content)

    def keep(self) -> None:
        """For the next command. Of two that do this at once one wins, and the other's records are checked again."""
        if len(self._new) < WORTH:
            return
        kept = self._known | self._new if len(self._known) < MOST else self._new
        with suppress(StoreError):  # a folder that can't be written to costs time and nothing else
            write_atomically(self.file, sealed("\n".join(sorted(kept)).encode(), self.writer), durable=False)
