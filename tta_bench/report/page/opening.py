"""How a page opens, until its reader chooses otherwise or follows a link that says more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tta_bench.errors import UnknownName, UsageError
from tta_bench.records import RunRecord
from tta_bench.report.board import Wanted
from tta_bench.report.frame import SCORES
from tta_bench.system.text import visible


@dataclass(frozen=True)
class Opening:
    """What the page shows first; it holds every metric."""

    metric: str = ""
    sort: str = ""  # a dataset, `average` or `method`
    baseline: str = ""  # a method; every cell is then the difference to it
    fast: bool = False  # without statistics
    left_out: int = 0  # runs by code that was edited since

    @classmethod
    def asked(cls, runs: Sequence[RunRecord], wanted: Wanted, fast: bool) -> Opening:
        """As the leaderboard's options say it; `wanted` has no metric and no baseline that nobody asked for."""
        metrics, sort = wanted.metrics, wanted.sort
        if wanted.mixed:
            raise UsageError("--mixed: a page's columns are of one protocol each, so that it can test differences")
        if len(metrics) > 1:
            raise UsageError(f"--metric {','.join(metrics)}: a page holds every metric and opens with one of them")
        known = dict.fromkeys((*SCORES, *(name for run in runs for name in run.metrics)))
        if sort in known:
            if metrics and metrics != (sort,):
                one = f"a page shows one metric at a time, here {metrics[0]}"
                raise UsageError(f"--sort {sort}: {one}; sort by a dataset")
            metrics, sort = (sort,), ""
        if metrics and metrics[0] not in known:
            hint = f"A page has {', '.join(known)}; speed is in its view Cost."
            raise UnknownName("metric of a page", metrics[0], known, hint)
        columns = {"average", "method", *(run.dataset for run in runs)}
        if sort and sort not in columns:
            raise UnknownName("column to sort by", sort, columns)
        return cls(metrics[0] if metrics else "", sort, wanted.baseline, fast, wanted.left_out)

    def to_json(self) -> dict[str, str]:
        """As a link would say it; numbers come largest first."""
        sort = self.sort if self.sort in ("", "method") else f"-{self.sort}"
        said = {"metric": self.metric, "sort": sort, "baseline": self.baseline}
        return {name: visible(value) for name, value in said.items() if value}
