"""Lines of a reproduction -> a terminal of any width, markdown, csv or json."""

from __future__ import annotations

import csv
import io
import textwrap
from collections.abc import Iterator, Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from tta_bench.report.plain_table import NAME, blocks, widest
from tta_bench.report.reproduction import Line
from tta_bench.runs.suites import Suite
from tta_bench.system.text import visible

DELTA = "Δ"
INTERVAL = "± is the 95 % interval of the mean: what other images of the same kind would have given."
NARROW = 72  # below, the differences are left out: the reader has both numbers
COLORS = {"agrees": "green", "differs": "red"}
# Scripts read the csv by these names, and some by their place: new ones go to the end.
FIELDS = (
    *("table", "row", "column", "measured", "low", "high", "published", "difference", "verdict"),
    *("paper", "backbone", "prompt", "dataset", "metric", "runs", "reason", "note"),
)
Group = tuple[str, ...]


def facts(lines: Sequence[Line]) -> list[dict[str, object]]:
    """One mapping per line, by FIELDS."""
    found = []
    for line in lines:
        value, half = line.value, line.half
        ends = (None, None) if value is None or half is None else (max(value - half, 0.0), min(value + half, 100.0))
        place = (line.suite.name, line.row, f"{line.dataset} {line.metric}")
        numbers = (value, *ends, line.published, line.difference, line.said)
        what = (line.suite.paper, line.backbone, line.prompt, line.dataset, line.metric, line.runs)
        found.append(dict(zip(FIELDS, (*place, *numbers, *what, " ".join(line.reasons), line.note), strict=True)))
    return found


def to_csv(lines: Sequence[Line]) -> str:
    content = io.StringIO()
    writer = csv.DictWriter(content, FIELDS, lineterminator="\n")
    writer.writeheader()
    writer.writerows({name: _plain(value) for name, value in row.items()} for row in facts(lines))
    return content.getvalue()


def _plain(value: object) -> object:
    """Text that neither steers a terminal nor is a formula to a spreadsheet."""
    if not isinstance(value, str):
        return value
    return f"'{visible(value)}" if value.startswith(("=", "+", "-", "@")) else visible(value)


def to_markdown(suite: Suite, lines: Sequence[Line]) -> str:
    notes = Footnotes()
    parts = [f"## {_title(suite)}", *(["", f"not run: {suite.not_run}"] if suite.not_run else [])]
    for group, own in _grouped(lines):
        parts += ["", f"### {_heading(group)}", "", "| row | measured | published | difference | verdict |"]
        parts.append("|---|---:|---:|---:|---|")
        parts += [f"| {' | '.join(_escaped(text) for text in _texts(line, notes))} |" for line in own]
    parts += ["", *(f"- {_escaped(note)}" for note in (*_legend(lines), *notes.texts(), *suite.notes))]
    return "\n".join(parts).rstrip("\n")


def _legend(lines: Sequence[Line]) -> list[str]:
    return [INTERVAL] if any(line.half is not None for line in lines) else []


def _escaped(text: str) -> str:
    return visible(text).replace("|", "\\|").replace("<", "&lt;")


def print_lines(suite: Suite, lines: Sequence[Line], console: Console) -> None:
    """A table per backbone, prompt, dataset and metric; what is too long for a cell stands below all of them."""
    notes = Footnotes()
    print_wrapped(console, _title(suite), "bold")
    if suite.not_run:
        print_wrapped(console, f"not run: {suite.not_run}")
        console.print()
        return
    for group, own in _grouped(lines):
        _print_group(_heading(group), own, notes, console)
    for note in (*_legend(lines), *notes.texts(), *suite.notes):
        print_wrapped(console, note)
    console.print()


def _print_group(heading: str, lines: Sequence[Line], notes: Footnotes, console: Console) -> None:
    heads = ("row", "measured", "published", DELTA, "verdict")
    kept = [i for i, head in enumerate(heads) if head != DELTA or console.width >= NARROW]
    head, *rows = [[visible(texts[i]) for i in kept] for texts in (heads, *(_texts(line, notes) for line in lines))]
    numbers = list(zip(head, *rows, strict=True))[1:-1]
    if 2 * NAME + sum(map(widest, numbers)) + 2 * len(head) + 1 > console.width:
        print_wrapped(console, heading)
        console.print(blocks(head, rows))
        return
    table = Table(title=Text(visible(heading)), title_justify="left", box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("row", overflow="fold", max_width=30)
    for name in head[1:-1]:
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for line, row in zip(lines, rows, strict=True):
        table.add_row(*map(Text, row[:-1]), Text(row[-1], style=COLORS.get(line.said, "")))
    _print_trimmed(console, table)


def print_wrapped(console: Console, text: str, style: str = "") -> None:
    """Between words only: a path or a command is to be copied. What follows an indented line is indented further."""
    indent = " " * (len(text) - len(text.lstrip()))
    folded = textwrap.fill(
        visible(text.strip()),
        console.width,
        initial_indent=indent,
        subsequent_indent=indent and f"{indent}  ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    console.print(Text(folded, style=style), soft_wrap=True)


def list_item(text: str) -> str:
    """The same in markdown."""
    return f"{'  ' if text.startswith(' ') else ''}- {_escaped(text.strip())}"


def _print_trimmed(console: Console, table: Table) -> None:
    """Without blank lines, and the blanks that rich puts behind every other."""
    with console.capture() as capture:
        console.print(table)
    lines = [line.rstrip() for line in capture.get().splitlines() if line.strip()]
    console.out("\n".join([*lines, ""]), highlight=False)


class Footnotes:
    """Reasons and the paper's slips, numbered as they come; one that many lines share has one number."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def mark(self, texts: Sequence[str]) -> str:
        numbers = sorted({self._numbers.setdefault(text, len(self._numbers) + 1) for text in texts if text})
        return f" [{', '.join(map(str, numbers))}]" if numbers else ""

    def texts(self) -> list[str]:
        return [f"[{number}] {text}" for text, number in self._numbers.items()]


def _texts(line: Line, notes: Footnotes) -> tuple[str, str, str, str, str]:
    measured = "–" if line.value is None else f"{line.value:.2f}" + ("" if line.half is None else f" ± {line.half:.2f}")
    published = line.instead if line.published is None else f"{line.published:.2f}{notes.mark([line.note])}"
    difference = "–" if line.difference is None else f"{line.difference:+.2f}"
    return line.label, measured, published, difference, line.said + notes.mark(line.reasons)


def _title(suite: Suite) -> str:
    return f"{suite}: {suite.caption}"


def _heading(group: Group) -> str:
    dataset, metric, backbone, prompt, images = group
    part = f" ({images})" if images else ""
    return f"{metric}, {dataset}{part}, {backbone}, prompt '{prompt}'"


def _grouped(lines: Sequence[Line]) -> Iterator[tuple[Group, list[Line]]]:
    """By what a heading says; how many images there were is that of the first line that was run."""
    groups: dict[Group, list[Line]] = {}
    for line in lines:
        groups.setdefault((line.dataset, line.metric, line.backbone, line.prompt), []).append(line)
    for group, own in groups.items():
        yield (*group, next((line.images for line in own if line.images), "")), own
