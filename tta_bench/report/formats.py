"""Boards and long form -> text in a format: markdown, csv, json, LaTeX, and a plain HTML table for notebooks.

Names come from records, and records come from anywhere: everything is escaped for its format, and control characters
are written out, so that a name can neither start a line nor steer a terminal.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Callable
from typing import Any

import pandas as pd

from tta_bench.errors import UnknownName
from tta_bench.report.board import LEGEND, Board, boards
from tta_bench.system.text import visible

NO_RUNS = "No runs."


def render(frame: pd.DataFrame, format_: str, width: int = 100) -> str:
    """The long form as text. `width` counts for the console's tables only; those have no colours here."""
    if format_ not in FORMATS:
        raise UnknownName("format", format_, FORMATS, f"Choose one of {', '.join(FORMATS)}.")
    if format_ == "console":
        from tta_bench.report.console import to_text  # rich takes its time, and the other formats do without

        return to_text(frame, width)
    return RENDERINGS[format_](frame)


# ------------------------------------------------------------------------------------------------------- csv and json


def to_csv(frame: pd.DataFrame) -> str:
    text = {name: frame[name].map(_cell) for name in frame.columns if not _is_number(frame[name])}
    shown = frame.assign(**text).rename(columns=_cell)
    return str(shown.to_csv(index=False, lineterminator="\n"))


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


def to_markdown(frame: pd.DataFrame) -> str:
    return "\n\n".join(map(_markdown_table, boards(frame))) + "\n" if len(frame) else f"{NO_RUNS}\n"


def _markdown_table(board: Board) -> str:
    heads = [markdown(f"{column.name} {kind}") for column, kind in board.fields]
    lines = [f"### {markdown(board.title)}", "", "| method | " + " | ".join(heads) + " |"]
    lines.append("|---|" + "---:|" * len(heads))
    for row in board.rows:
        cells = (board.text(row, column, kind, lambda t: f"**{t}**") for column, kind in board.fields)
        lines.append(f"| {markdown(row.name)} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", markdown(" ".join([*board.notes, LEGEND]))])


def markdown(text: str) -> str:
    """As text in a cell or a heading of GitHub's markdown: no columns, tags, links, code or emphasis of its own."""
    text = visible(text).replace("&", "&amp;").replace("<", "&lt;").replace("\\", "&#92;")
    text = re.sub(r"([|*`])", r"\\\1", text).replace("](", r"]\(")
    return re.sub(r"(?<![^\W_])_|_(?![^\W_])", r"\\_", text)  # within a word an underscore is only itself


# -------------------------------------------------------------------------------------------------------------- LaTeX


def to_latex(frame: pd.DataFrame) -> str:
    """A booktabs table per board; needs \\usepackage{booktabs}."""
    return "\n\n".join(map(_latex_table, boards(frame))) + "\n" if len(frame) else f"% {NO_RUNS}\n"


def _latex_table(board: Board) -> str:
    fields = board.fields
    # The title is printed, and not only a comment: it names the backbone, and says so when that is untrained.
    title = rf"\multicolumn{{{len(fields) + 1}}}{{l}}{{{latex(board.title)}}} \\"
    heads = ["method", *(latex(f"{column.name} {kind}") for column, kind in fields)]
    lines = [rf"\begin{{tabular}}{{l{'r' * len(fields)}}}", r"\toprule", title, r"\midrule"]
    lines += [" & ".join(heads) + r" \\", r"\midrule"]
    for row in board.rows:
        cells = (board.text(row, column, kind, lambda t: rf"\textbf{{{t}}}", r" $\pm$ ") for column, kind in fields)
        lines.append(" & ".join([latex(row.name), *(cell.replace("–", "--") for cell in cells)]) + r" \\")
    comment = visible(" ".join([*board.notes, LEGEND])).replace("±", "+-")
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}", f"% {comment}"])


def latex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    escaped = "".join(special.get(c, rf"\{c}" if c in "&%$#_{}" else c) for c in visible(text))
    return f"{{}}{escaped}" if escaped[:1] in ("[", "*") else escaped  # else the row break before it would take it


# --------------------------------------------------------------------------------------------------------------- HTML


def to_html(frame: pd.DataFrame) -> str:
    """A bare table per board, for notebooks."""
    return "\n".join(map(_html_table, boards(frame))) if len(frame) else f"<p>{NO_RUNS}</p>"


def _html_table(board: Board) -> str:
    heads = ["method", *(f"{column.name} {kind}" for column, kind in board.fields)]
    lines = [f"<table>\n<caption>{html_text(board.title)}</caption>"]
    lines.append("<thead><tr>" + "".join(f'<th scope="col">{html_text(head)}</th>' for head in heads) + "</tr></thead>")
    lines.append("<tbody>")
    for row in board.rows:
        cells = (board.text(row, column, kind, lambda t: f"<b>{t}</b>") for column, kind in board.fields)
        numbers = "".join(f"<td>{cell}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{html_text(row.name)}</th>{numbers}</tr>')
    return "\n".join([*lines, "</tbody>\n</table>", f"<p>{html_text(' '.join([*board.notes, LEGEND]))}</p>"])


def html_text(text: str) -> str:
    return html.escape(visible(text))


RENDERINGS: dict[str, Callable[[pd.DataFrame], str]] = {
    "md": to_markdown,
    "csv": to_csv,
    "latex": to_latex,
    "json": to_json,
}
FORMATS = ("console", *RENDERINGS)
