"""What has been worked out about runs, kept while a page is watched: a run more costs that run and its column."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from tta_bench.records import SCORES, RunRecord

T = TypeVar("T")


class Memory:
    """Values under what they follow from."""

    def __init__(self) -> None:
        self._values: dict[Hashable, Any] = {}

    def get(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._values:
            self._values[key] = make()
        found: T = self._values[key]
        return found


def written(run: RunRecord) -> str:
    """What tells a run from all others, and from itself when it was run again."""
    return f"{run.folder} {run.run_id} {run.files.get(SCORES, run.created)}"
