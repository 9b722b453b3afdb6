r"""Boards -> LaTeX for a paper: grouped headers, display names, numbers aligned at their points.

Needs \usepackage{booktabs} and nothing else. A table has a width to keep. What does not fit is dropped in this order:
the spread over seeds, intervals, ranks, the intervals of differences, differences; and if the bare numbers are still
too wide, the columns go on in a further tabular of the same table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from tta_bench.errors import UnknownName
from tta_bench.report.board import Board, Column, Row, Wanted, boards
from tta_bench.report.cells import INTERVAL, RANK, UNTRAINED
from tta_bench.report.frame import HEADINGS
from tta_bench.report.notes import SPREAD, legend
from tta_bench.report.standings import Key, Standings
from tta_bench.system.text import visible

DIGIT = 4.7  # points that a character takes in \small of a 10 pt article
ROOM = {"wide": 480.0, "narrow": 236.0}  # points of a page's text, and of a column where there are two
PADDING = {"wide": 6.0, "narrow": 3.0}  # points on either side of a column
Field = tuple[Column, str]
ONE_METRIC = Wanted(metrics=("mAP",))


@dataclass(frozen=True)
class LatexStyle:
    """`titles`: kind of plugin -> name -> its name in print."""

    columns: str = "wide"  # or narrow: one column of a two-column article
    titles: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.columns not in ROOM:
            raise UnknownName("columns", self.columns, ROOM, f"Choose one of {', '.join(ROOM)}.")

    def title(self, kind: str, name: str) -> str:
        return self.titles.get(kind, {}).get(name, name)


@dataclass(frozen=True)
class _Detail:
    """How much is shown beside the bare numbers."""

    spread: bool = True
    intervals: bool = True
    ranks: bool = True
    margins: bool = True  # the intervals of differences
    differences: bool = True


DROPPED = ("spread", "intervals", "ranks", "margins", "differences")
DETAILS = [_Detail(**dict.fromkeys(DROPPED[:count], False)) for count in range(len(DROPPED) + 1)]


def to_latex(
    frame: pd.DataFrame,
    wanted: Wanted | None = None,
    standings: Mapping[Key, Standings] | None = None,
    style: LatexStyle | None = None,
) -> str:
    """A table for each board, with caption and label."""
    if not len(frame):
        return "% No runs.\n"
    made = boards(frame, wanted or ONE_METRIC, standings)
    return "\n\n".join(_table(board, style or LatexStyle()) for board in made) + "\n"


def _table(board: Board, style: LatexStyle) -> str:
    environment = "table*" if style.columns == "wide" else "table"
    parts, detail = _fitted(board, style)
    # The names that commands take, which the table itself replaces by those in print.
    lines = [f"% {_comment(', '.join(column.name for column in board.columns))} with {_comment(board.title)}"]
    lines += [f"% {_comment(board.sentence)}"] if board.sentence else []
    lines += [
        rf"\begin{{{environment}}}[t]",
        r"\centering\small",
        rf"\setlength{{\tabcolsep}}{{{PADDING[style.columns]:g}pt}}",
    ]
    lines += [rf"\caption{{{_caption(board, detail, style)}}}", rf"\label{{{_label(board)}}}", r"\par\smallskip"]
    for i, fields in enumerate(parts):
        lines += [r"\par\medskip"] if i else []
        lines += _tabular(board, fields, detail, style)
    return "\n".join([*lines, rf"\end{{{environment}}}", f"% {_comment(' '.join(board.notes))}"])


def _fitted(board: Board, style: LatexStyle) -> tuple[list[list[Field]], _Detail]:
    """As much detail as fits side by side; else the bare numbers in as many parts as it takes."""
    room = ROOM[style.columns] - _width([_name(row, style) for row in board.rows], style)
    room -= _width(board.settings, style) if len(board.settings) > 1 else 0
    for detail in DETAILS:
        fields = [(column, kind) for column, kind in board.fields if kind not in _left_out(board, detail)]
        if _total(board, fields, detail, style) <= room:
            return [fields], detail
    parts: list[list[Field]] = [[]]
    for one in fields:
        if parts[-1] and _total(board, [*parts[-1], one], detail, style) > room:
            parts.append([])
        parts[-1].append(one)
    return parts, detail


def _left_out(board: Board, detail: _Detail) -> list[str]:
    kinds = {
        INTERVAL: detail.intervals,
        RANK: detail.ranks,
        board.difference: detail.differences,
        SPREAD: detail.spread,
    }
    return [kind for kind, shown in kinds.items() if not shown]


def _total(board: Board, fields: Sequence[Field], detail: _Detail, style: LatexStyle) -> float:
    """Points that columns take side by side: each group as much as its numbers or its name."""
    groups: dict[Column, float] = {}
    for column, kind in fields:
        texts = [kind, *(_plain(board, row, column, kind, detail) for row in board.rows)]
        groups[column] = groups.get(column, 0.0) + _width(texts, style)
    return sum(max(width, _width([_group_name(column, style)], style)) for column, width in groups.items())


def _width(texts: Sequence[str], style: LatexStyle) -> float:
    return max(map(len, texts)) * DIGIT + 2 * PADDING[style.columns]


def _plain(board: Board, row: Row, column: Column, kind: str, detail: _Detail) -> str:
    text = board.text(row, column, kind)
    if kind == board.difference and not detail.margins:
        text = re.sub(r" \[.*?\]", "", text)
    return text if detail.spread else text.partition(" ± ")[0]


# -------------------------------------------------------------------------------------------------------- the parts


def _tabular(board: Board, fields: Sequence[Field], detail: _Detail, style: LatexStyle) -> Iterator[str]:
    settings = len(board.settings) > 1
    first = 2 if settings else 1  # columns before the numbers
    kinds = "".join("r@{}l" if _is_score(board, kind) else "r" for _, kind in fields)
    yield rf"\begin{{tabular}}{{{'l' * first}{kinds}}}"
    yield r"\toprule"
    yield from _group_heads(fields, board, first, style)
    heads = ["Method", *(["Setting"] if settings else [])]
    for _, kind in fields:
        spans = 2 if _is_score(board, kind) else 1
        heads.append(rf"\multicolumn{{{spans}}}{{c}}{{{_kind_head(board, kind, style)}}}")
    yield " & ".join(heads) + r" \\"
    yield r"\midrule"
    for row in board.rows:
        names = [latex(_name(row, style)), *([latex(row.setting or "–")] if settings else [])]
        yield " & ".join([*names, *(_number(board, row, column, kind, detail) for column, kind in fields)]) + r" \\"
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _group_heads(fields: Sequence[Field], board: Board, first: int, style: LatexStyle) -> Iterator[str]:
    """A dataset's name over all of its numbers, with a rule below it."""
    heads, rules, place = [""] * first, [], first + 1
    for column in dict.fromkeys(column for column, _ in fields):
        spans = sum(2 if _is_score(board, kind) else 1 for c, kind in fields if c == column)
        heads.append(rf"\multicolumn{{{spans}}}{{c}}{{{latex(_group_name(column, style))}}}")
        rules.append(rf"\cmidrule(lr){{{place}-{place + spans - 1}}}")
        place += spans
    yield " & ".join(heads) + r" \\"
    yield " ".join(rules)


def _group_name(column: Column, style: LatexStyle) -> str:
    return style.title("datasets", column.dataset) + column.name.removeprefix(column.dataset)


def _is_score(board: Board, kind: str) -> bool:
    """Whether it is a number with a point to align at."""
    return kind not in (RANK, INTERVAL, board.difference, "img/s")


def _kind_head(board: Board, kind: str, style: LatexStyle) -> str:
    if kind == board.difference:
        return rf"$\Delta$ {latex(style.title('methods', board.baseline))}"
    return latex(kind)


def _name(row: Row, style: LatexStyle) -> str:
    return style.title("methods", row.method) + row.name.removeprefix(row.method)


def _number(board: Board, row: Row, column: Column, kind: str, detail: _Detail) -> str:
    text = _plain(board, row, column, kind, detail)
    if not _is_score(board, kind):
        return _signed(latex(text))
    if text == "–":
        return r"\multicolumn{2}{c}{--}"
    number, _, spread = text.partition(" ± ")
    whole, _, digits = number.partition(".")
    styled = r"\textbf" if board.is_best(row, column, kind) else ""
    styled = r"\underline" if board.is_close(row, column, kind) else styled
    parts = [rf"{styled}{{{part}}}" if styled else part for part in (f"{whole}.", latex(digits))]
    return " & ".join(parts) + (rf" {{\scriptsize$\pm$\,{spread}}}" if spread else "")


def _signed(text: str) -> str:
    """Plus and minus as signs, a dash in a range, and what is not significant above the line."""
    text = re.sub(r"(?<=\d)-(?=\d)", "--", text)
    text = re.sub(r"(?<![\d.-])([+-])(?=\d)", r"$\1$", text)
    return re.sub(r" ns$", r"\\textsuperscript{ns}", text)


def _caption(board: Board, detail: _Detail, style: LatexStyle) -> str:
    """What a reader of the paper has to know: metric, backbone, images, protocol, runs, statistics."""
    metrics = ", ".join(HEADINGS.get(metric, metric) for metric in board.metrics)
    backbone = style.title("backbones", board.backbone) + (f" ({UNTRAINED})" if board.untrained else "")
    seen = [
        f"{style.title('datasets', column.dataset)} {column.n:,} images (protocol {column.protocol[:8]})"
        for column in board.columns
        if column.protocol
    ]
    said = [f"{metrics} in percent with {backbone}, prompt `{board.prompt}'; {', '.join(seen)}."]
    said.append(legend(board, without=_left_out(board, detail)))
    said += [note for note in board.notes if "per cell" in note or "average" in note.lower()]
    if board.tested:
        said.append("Intervals and p are from 1,000 resamples of the images.")
    return latex(" ".join(said)).replace("Δ", r"$\Delta$").replace("±", r"$\pm$").replace("†", r"\textdagger{}")


def _label(board: Board) -> str:
    name = f"{board.backbone}-{board.prompt}{'-untrained' if board.untrained else ''}".lower()
    return "tab:" + re.sub(r"[^a-z0-9]+", "-", name).strip("-")


def _comment(text: str) -> str:
    return visible(text).replace("±", "+-")


def latex(text: str) -> str:
    special = {
        "\\": r"\textbackslash{}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "–": "--",
        "†": r"\textdagger{}",
    }
    escaped = "".join(special.get(c, rf"\{c}" if c in "&%$#_{}" else c) for c in visible(text))
    escaped = escaped.replace("<", r"\textless{}").replace(">", r"\textgreater{}").replace("|", r"\textbar{}")
    return f"{{}}{escaped}" if escaped[:1] in ("[", "*") else escaped  # else the row break before it would take it
