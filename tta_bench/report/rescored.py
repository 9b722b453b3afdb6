"""Runs that were scored anew -> long form, and a table of new values beside what they change."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import pandas as pd
from rich.console import RenderableType
from rich.text import Text

from tta_bench.report.formats import markdown
from tta_bench.report.plain_table import console_table, markdown_table
from tta_bench.system.text import visible

if TYPE_CHECKING:
    from tta_bench.runs.rescoring import Rescored

COLUMNS = (
    *("run", "method", "dataset", "backbone", "prompt", "seed", "order", "n", "labels", "empty_classes", "ties"),
    *("settings", "metric", "value", "recorded", "difference"),
)
LEGEND = "In brackets: the difference to what the run recorded, which stays as it is."


def to_frame(found: Sequence[Rescored], metrics: Sequence[str]) -> pd.DataFrame:
    """One row per run and metric."""
    rows = []
    for again in found:
        run = again.record
        for metric in metrics:
            value, recorded = again.metrics[metric], run.metrics.get(metric)
            before = math.nan if recorded is None else recorded
            which = (run.run_id, run.method, run.dataset, run.backbone, run.prompt, run.seed, run.order)
            how = (again.n, again.labels, again.empty, again.ties, again.settings)
            rows.append((*which, *how, metric, value, before, value - before))
    return pd.DataFrame(rows, columns=list(COLUMNS))


def to_console(found: Sequence[Rescored], metrics: Sequence[str], width: int) -> list[RenderableType]:
    table = console_table(("run", *metrics), _rows(found, metrics), width)
    return [Text(visible(_sentence(found))), table, Text(LEGEND)]


def to_markdown(found: Sequence[Rescored], metrics: Sequence[str]) -> str:
    table = markdown_table(("run", *metrics), _rows(found, metrics))
    return f"{markdown(_sentence(found))}\n\n{table}\n\n{markdown(LEGEND)}\n"


def _sentence(found: Sequence[Rescored]) -> str:
    """What the numbers were computed with; where that differs, by the number that stands behind a run's name."""
    rules = _kinds(found)
    return "; ".join(rules if len(rules) == 1 else [f"[{number}] {rule}" for number, rule in enumerate(rules, 1)])


def _kinds(found: Sequence[Rescored]) -> list[str]:
    return list(dict.fromkeys(map(_rules, found)))


def _rules(again: Rescored) -> str:
    empty = "left out" if again.empty == "skip" else "counted as 0"
    ties = "one threshold" if again.ties == "threshold" else "ranked by dataset order"
    settings = f", {again.settings}" if again.settings else ""
    partial = f" for {again.n:,} of {again.record.n:,} images" if again.n < again.record.n else ""
    return f"labels of {again.labels}{partial}, classes without positives {empty}, equal scores {ties}{settings}"


def _rows(found: Sequence[Rescored], metrics: Sequence[str]) -> list[tuple[str, ...]]:
    rows, kinds = [], _kinds(found)
    for again in found:
        mark = f" [{kinds.index(_rules(again)) + 1}]" if len(kinds) > 1 else ""
        mark += " (untrained)" if again.record.random_weights else ""
        numbers = []
        for metric in metrics:
            value, recorded = again.metrics[metric], again.record.metrics.get(metric)
            change = "new" if recorded is None else f"{value - recorded:+.2f}"
            numbers.append("–" if math.isnan(value) else f"{value:.2f} ({change})")
        rows.append((f"{again.record.run_id}{mark}", *numbers))
    return rows
