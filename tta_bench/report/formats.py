"""Boards and long form -> text in a format: markdown, csv and json.

Names come from records, and records come from anywhere: everything is escaped for its format, and control characters
are written out, so that a name can neither start a line nor steer a terminal.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from typing import Any

import pandas as pd

from tta_bench.errors import UnknownName
from tta_bench.report.board import Board, Wanted, boards
from tta_bench.report.frame import HEADINGS
from tta_bench.report.latex import LatexStyle, to_latex
from tta_bench.report.notes import legend
from tta_bench.report.standings import NONE, Key, Standings
from tta_bench.system.names import kind_of
from tta_bench.system.text import visible

NO_RUNS = "No runs."
FORMATS = ("console", "md", "csv", "latex", "json")
# Behind all others in csv and json, where there are statistics. `mark` is what tables show by bold and underlined.
STATISTICS = {
    "ranked_by": "object",
    "rank": "Int64",
    "rank_last": "Int64",
    "mark": "object",
    "low": "float64",
    "high": "float64",
    "baseline": "object",
    **dict.fromkeys(("delta", "delta_low", "delta_high", "delta_p"), "float64"),
    "delta_runs": "Int64",  # of the same seed and order, that the difference rests on
}


def render(
    frame: pd.DataFrame,
    format_: str,
    width: int = 100,
    wanted: Wanted | None = None,
    standings: Mapping[Key, Standings] | None = None,
    style: LatexStyle | None = None,
) -> str:
    """The long form as text. `width` counts for the console's tables only; those have no colours here."""
    if format_ not in FORMATS:
        raise UnknownName("format", format_, FORMATS, f"Choose one of {', '.join(FORMATS)}.")
    if format_ == "console":
        from tta_bench.report.console import to_text  # rich takes its time, and the other formats do without

        return to_text(frame, width, wanted, standings)
    if format_ == "latex":
        return to_latex(frame, wanted, standings, style)
    if format_ == "md":
        return to_markdown(frame, wanted, standings)
    data = with_statistics(frame, boards(frame, wanted, standings)) if standings else frame
    return to_csv(data) if format_ == "csv" else to_json(data)


# ------------------------------------------------------------------------------------------------------- csv and json


def to_csv(frame: pd.DataFrame) -> str:
    text = {name: frame[name].map(_cell) for name in frame.columns if not _is_number(frame[name])}
    shown = frame.assign(**text).rename(columns=_cell)
    return str(shown.to_csv(index=False, lineterminator="\n"))


def with_statistics(frame: pd.DataFrame, made: Sequence[Board]) -> pd.DataFrame:
    """What the tables say of a run's cell in the main metric, in further columns; alike for all runs of a cell."""
    said: dict[tuple[str, str, str], dict[str, object]] = {}
    for board in made:
        heading = HEADINGS.get(board.main, board.main)
        for row in board.rows:
            for column in board.columns:
                found = board.standings.get((column, heading), NONE)
                if row.config in found.intervals:
                    best = board.is_best(row, column, heading)
                    mark = "best" if best else "close" if board.is_close(row, column, heading) else ""
                    delta = found.deltas.get(row.config)
                    gain = (board.baseline, *astuple(delta)) if delta else ("",)
                    values = (board.main, *found.ranks[row.config], mark, *found.intervals[row.config], *gain)
                    said[row.config, column.protocol, column.stream] = dict(zip(STATISTICS, values, strict=False))
    keys = zip(frame["config"], frame["protocol"], frame["order"].map(kind_of), strict=True)
    rows = [said.get(key, {}) for key in keys]
    more: dict[str, pd.Series[Any]] = {}
    for name, kind in STATISTICS.items():
        listed = [row.get(name, "" if kind == "object" else None) for row in rows]
        more[name] = pd.Series(listed, index=frame.index, dtype=kind)
    return frame.assign(**more)


def _cell(text: object) -> str:
    """Text that no spreadsheet takes for a formula."""
    shown = visible(text)
    return f"'{shown}" if shown.startswith(("=", "+", "-", "@")) else shown


def _is_number(values: pd.Series[Any]) -> bool:
    return pd.api.types.is_numeric_dtype(values)


def to_json(frame: pd.DataFrame) -> str:
    plain = frame.astype(object).where(frame.notna(), None)  # pandas' own to_json rounds, and fails on odd names
    return json_text(plain.to_dict("records")) + "\n"


def json_text(content: Any) -> str:
    r"""Indented JSON. What JSON allows unescaped but a terminal would obey becomes \u…, which reads back the same."""
    text = json.dumps(content, indent=1, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


# ----------------------------------------------------------------------------------------------------------- markdown


def to_markdown(
    frame: pd.DataFrame, wanted: Wanted | None = None, standings: Mapping[Key, Standings] | None = None
) -> str:
    if not len(frame):
        return f"{NO_RUNS}\n"
    return "\n\n".join(map(_markdown_table, boards(frame, wanted, standings))) + "\n"


def _markdown_table(board: Board) -> str:
    settings = ["setting"] if len(board.settings) > 1 else []
    heads = [markdown(f"{column.name} {kind}") for column, kind in board.fields]
    lines = [f"### {markdown(board.title)}", ""]
    lines += [markdown(board.sentence), ""] if board.sentence else []
    lines.append("| " + " | ".join(["method", *settings, *heads]) + " |")
    lines.append("|---" * (1 + len(settings)) + "|" + "---:|" * len(heads))
    for row in board.rows:
        names = [markdown(row.name), *(markdown(row.setting or "–") for _ in settings)]
        cells = (
            board.text(row, column, kind, lambda t: f"**{t}**", lambda t: f"<ins>{t}</ins>")
            for column, kind in board.fields
        )
        lines.append(f"| {' | '.join([*names, *cells])} |")
    return "\n".join([*lines, "", markdown(" ".join([*board.notes, legend(board)]))])


def markdown(text: str) -> str:
    """As text in a cell or a heading of GitHub's markdown: no columns, tags, links, code or emphasis of its own."""
    text = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace("\\", "&#92;")
    text = re.sub(r"([|*`])", r"\\\1", text).replace("](", r"]\(")
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # within a word an underscore is only itself


# --------------------------------------------------------------------------------------------------------------- HTML


def html_text(text: str) -> str:
    return html.escape(visible(text))
