r"""Boards -> LaTeX for a paper: grouped headers, display names, numbers aligned at their points.

Needs \usepackage{booktabs} and nothing else. Rows stand together by setting, within which they may be compared. A table
has a width to keep: long names are broken, and what does not fit is dropped in this order: the spread over seeds,
intervals, ranks, the intervals of differences, differences; and if the bare numbers are still too wide, the columns go
on in a further tabular of the same table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from tta_bench.errors import UnknownName
from tta_bench.report.board import AVERAGE, SETTINGS, Board, Column, Row, Wanted, boards
from tta_bench.report.cells import INTERVAL, RANK, UNTRAINED
from tta_bench.report.comparison import BASELINES
from tta_bench.report.frame import HEADINGS, SPEED
from tta_bench.report.latex_text import latex, shown
from tta_bench.report.notes import SPREAD, legend
from tta_bench.report.standings import Key, Standings
from tta_bench.system.text import visible

SIZE = {"wide": r"\small", "narrow": r"\footnotesize"}
DIGIT = {"wide": 4.8, "narrow": 4.5}  # points that a character takes in it, in a 10 pt article; bold a little more
ROOM = {"wide": 468.0, "narrow": 229.0}  # points of a page's text, and of a column where there are two
PADDING = {"wide": 5.0, "narrow": 2.5}  # points on either side of a column
NAMES = 0.3  # share of the room that methods' names may take: settings may be part of them
BREAKS = re.compile(r"[ =_,]")  # a name may be broken behind these
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
        """With the name itself if another plugin has the same in print, as a fork may."""
        known = self.titles.get(kind, {})
        title = known.get(name, name)
        same = [other for other, its in known.items() if its.casefold() == title.casefold() and other != name]
        return f"{title} ({name})" if same else title


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
        rf"\centering{SIZE[style.columns]}",
        rf"\setlength{{\tabcolsep}}{{{PADDING[style.columns]:g}pt}}",
    ]
    lines += [rf"\caption{{{_caption(board, detail, style)}}}", rf"\label{{{_label(board)}}}", r"\par\smallskip"]
    for i, fields in enumerate(parts):
        lines += [r"\par\medskip"] if i else []
        lines += _tabular(board, fields, detail, style)
    return "\n".join([*lines, rf"\end{{{environment}}}"])


def _fitted(board: Board, style: LatexStyle) -> tuple[list[list[Field]], _Detail]:
    """As much detail as fits side by side; else the bare numbers in as many parts as it takes."""
    room = ROOM[style.columns] - _name_width(board, style)
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
    """Points that columns take side by side: each group as much as its numbers, or the longest word of its name."""
    groups: dict[Column, float] = {}
    for column, kind in fields:
        texts = [
            kind if _several_kinds(fields) else "",
            *(_plain(board, row, column, kind, detail) for row in board.rows),
        ]
        groups[column] = groups.get(column, 0.0) + _width(texts, style)
    return sum(max(width, _width(_words(column, style), style)) for column, width in groups.items())


def _several_kinds(fields: Sequence[Field]) -> bool:
    return len({kind for _, kind in fields}) > 1


def _width(texts: Sequence[str], style: LatexStyle) -> float:
    return max(len(shown(text)) for text in texts) * DIGIT[style.columns] + 2 * PADDING[style.columns]


def _name_width(board: Board, style: LatexStyle) -> float:
    """Of the column of methods; names that would leave no room for numbers are broken."""
    names = [_name(row, style) for row in board.rows]
    parts = [f"{part}=" for name in names for part in BREAKS.split(name)]
    return min(_width(names, style), max(_width(parts, style), ROOM[style.columns] * NAMES))


def _plain(board: Board, row: Row, column: Column, kind: str, detail: _Detail) -> str:
    text = board.text(row, column, kind)
    if kind == board.difference and not detail.margins:
        text = re.sub(r" \[.*?\]", "", text)
    return text if detail.spread else text.partition(" ± ")[0]


# -------------------------------------------------------------------------------------------------------- the parts


def _tabular(board: Board, fields: Sequence[Field], detail: _Detail, style: LatexStyle) -> Iterator[str]:
    kinds = "".join("r@{}l" if _is_score(board, kind) else "r" for _, kind in fields)
    broken = _width([_name(row, style) for row in board.rows], style) > _name_width(board, style)
    names = f"p{{{_name_width(board, style) - 2 * PADDING[style.columns]:.0f}pt}}" if broken else "l"
    yield rf"\begin{{tabular}}{{{names}{kinds}}}"
    yield r"\toprule"
    yield from _heads(fields, board, style)
    for setting in sorted(board.settings, key=_place):
        yield r"\midrule"
        if len(board.settings) > 1:
            everything = 1 + sum(_spans(board, kind) for _, kind in fields)
            yield rf"\multicolumn{{{everything}}}{{l}}{{\emph{{{latex(setting or 'setting not recorded')}}}}} \\"
        for row in (row for row in board.rows if row.setting == setting or len(board.settings) == 1):
            numbers = [_number(board, row, column, kind, detail) for column, kind in fields]
            yield " & ".join([_row_name(row, broken, style), *numbers]) + r" \\"
    yield r"\bottomrule"
    yield r"\end{tabular}"


def _place(setting: str) -> int:
    return SETTINGS.index(setting) if setting in SETTINGS else len(SETTINGS)


def _row_name(row: Row, broken: bool, style: LatexStyle) -> str:
    if not broken:
        return latex(_name(row, style))
    parts = re.split(f"(?<={BREAKS.pattern})", _name(row, style))
    return r"\raggedright\hangindent1em " + r"\allowbreak{}".join(map(latex, parts))


def _heads(fields: Sequence[Field], board: Board, style: LatexStyle) -> Iterator[str]:
    """A dataset's name over all of its numbers, word below word if it is wider than these; if there are several kinds
    of number, a rule below it, and theirs."""
    several = _several_kinds(fields)
    heads, rules, place = ["" if several else "Method"], [], 2
    for column in dict.fromkeys(column for column, _ in fields):
        own = [kind for c, kind in fields if c == column]
        spans = sum(_spans(board, kind) for kind in own)
        words = [latex(word) for word in _words(column, style)]
        stacked = len(own) == 1 and len(words) > 1
        name = r"\shortstack{" + r"\\".join(words) + "}" if stacked else latex(_group_name(column, style))
        heads.append(rf"\multicolumn{{{spans}}}{{c}}{{{name}}}")
        rules.append(rf"\cmidrule(lr){{{place}-{place + spans - 1}}}")
        place += spans
    yield " & ".join(heads) + r" \\"
    if several:
        yield " ".join(rules)
        titles = [(_spans(board, kind), _kind_head(board, kind, style)) for _, kind in fields]
        yield " & ".join(["Method", *(rf"\multicolumn{{{spans}}}{{c}}{{{title}}}" for spans, title in titles)]) + r" \\"


def _spans(board: Board, kind: str) -> int:
    return 2 if _is_score(board, kind) else 1


def _words(column: Column, style: LatexStyle) -> list[str]:
    """NUS-WIDE is two."""
    return re.split(r" |(?<=-)(?=\w)", _group_name(column, style))


def _group_name(column: Column, style: LatexStyle) -> str:
    if not column.protocol:
        return column.name.replace(AVERAGE, "Avg.", 1)
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
    percents = ", ".join(HEADINGS.get(metric, metric) for metric in board.metrics if metric != SPEED)
    speed = HEADINGS[SPEED] if SPEED in board.metrics else ""
    metrics = " and ".join(part for part in (f"{percents} in percent" if percents else "", speed) if part)
    backbone = style.title("backbones", board.backbone) + (f" ({UNTRAINED})" if board.untrained else "")
    seen = [
        f"{style.title('datasets', column.dataset)} {column.n:,} ({column.protocol[:8]})"
        for column in board.columns
        if column.protocol
    ]
    said = [f"{metrics} with {backbone}, prompt `{board.prompt}'. Images (protocol): {', '.join(seen)}."]
    marks = legend(board, without=_left_out(board, detail))
    for method in (*BASELINES, board.baseline):
        marks = re.sub(rf"\b{re.escape(method)}\b", lambda found: style.title("methods", found[0]), marks)
    said.append(marks)
    said += board.notes
    if board.tested:
        said.append("Intervals and p are from 1,000 resamples of the images.")
    return latex(" ".join(said))


def _label(board: Board) -> str:
    name = f"{board.backbone}-{board.prompt}{'-untrained' if board.untrained else ''}".lower()
    return "tab:" + re.sub(r"[^a-z0-9]+", "-", name).strip("-")


def _comment(text: str) -> str:
    return visible(text).replace("±", "+-")
