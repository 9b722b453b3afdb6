"""Runs -> the leaderboard with its statistics: what `ttabench leaderboard` and `Results.leaderboard` have in common."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pandas as pd

from tta_bench.errors import UnknownName
from tta_bench.plugins import KINDS, Registry, only_from_environment
from tta_bench.records import RunRecord
from tta_bench.report.board import Wanted
from tta_bench.report.formats import render
from tta_bench.report.frame import long_form
from tta_bench.report.latex import LatexStyle
from tta_bench.report.standings import Key, Standings, standings
from tta_bench.system.progress import Reporter, Silent

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tta_bench.report.page.opening import Opening


@dataclass(frozen=True)
class Leaderboard:
    """Runs on their way to a reader."""

    runs: Sequence[RunRecord]
    wanted: Wanted
    fast: bool = False  # no statistics
    columns: str = "wide"  # LaTeX: wide, or narrow for one of two columns
    reporter: Reporter | None = None  # hears how far statistics are
    opening: Opening | None = None  # of a page
    family: Sequence[RunRecord] | None = None  # what statistics are made over; the runs by default

    def __post_init__(self) -> None:
        methods, baseline = {run.method for run in self._tested}, self.wanted.baseline
        if baseline != Wanted.baseline and baseline not in methods:  # that by default need not have been run
            raise UnknownName("baseline", baseline, methods, "No run of it is among these.")

    def parts(self, width: int) -> list[RenderableType]:
        """For a terminal, with its colours."""
        from tta_bench.report.console import to_console

        return to_console(self._frame, width, self.wanted, self._standings)

    def text(self, format_: str, width: int) -> str:
        if format_ == "html":  # where readers choose metric, order and baseline themselves
            from tta_bench.report.page import page

            return page(self.runs, opening=self.opening, reporter=self.reporter, family=self.family)
        style = LatexStyle(self.columns, _titles()) if format_ == "latex" else None
        return render(self._frame, format_, width, self.wanted, self._standings, style)

    @property
    def _frame(self) -> pd.DataFrame:
        return long_form(self.runs)

    @property
    def _standings(self) -> Mapping[Key, Standings]:
        if self.fast:
            return {}
        metrics = dict.fromkeys((self.wanted.sort, *self.wanted.metrics))
        return standings(self._tested, metrics, self.wanted.baseline, self.reporter or Silent())

    @property
    def _tested(self) -> Sequence[RunRecord]:
        """Looking at fewer rows must not make any of them more certain."""
        return self.runs if self.family is None else self.family


def opening_of(runs: Sequence[RunRecord], wanted: Wanted, fast: bool) -> Opening:
    """How a page opens; `wanted` has no metric and no baseline that nobody asked for."""
    from tta_bench.report.page.opening import Opening

    return Opening.asked(runs, wanted, fast)


def metrics_of(format_: str, asked: Sequence[str]) -> tuple[str, ...]:
    """Those that were asked for; in a paper's table one, if nobody asks."""
    return tuple(asked) or (("mAP",) if format_ == "latex" else Wanted().metrics)


def _titles() -> dict[str, dict[str, str]]:
    """The names in print of all plugins that are installed here, read without importing them."""
    plugins = Registry(only=only_from_environment()).plugins
    return {kind: {p.name: p.title for p in plugins(kind) if p.title} for kind in KINDS}
