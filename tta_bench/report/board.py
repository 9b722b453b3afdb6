"""Records -> tables. A column is one protocol, a row one configuration, a cell the mean over replicates.

Two protocols are never merged: if two runs differ in images, labels, class names, prompts, backbone or metric, they
stand in two columns, and the columns' names say what differs or carry the protocol's digest.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from tta_bench.records import RunRecord

SCORES = {"mAP": "mAP", "mAP_centered": "centred", "mAP_softmax": "softmax"}
SPEED = "img/s"
CELL_WIDTH = 16  # on the console, of a mean with its deviation
LEGEND = (
    "mAP ranks raw scores; centred and softmax rank the same scores after a per-image shift or softmax. "
    "Bold is the best of a column; ± is the standard deviation over runs with other seeds or orders."
)


def long_form(runs: Sequence[RunRecord]) -> pd.DataFrame:
    """One row per run, everything in columns."""
    rows = []
    for run in runs:
        rows.append(
            {
                "method": run.method,
                "dataset": run.dataset,
                "backbone": run.backbone,
                "prompt": run.prompt,
                "seed": run.seed,
                "order": run.order,
                "n": run.n,
                **{name: run.metrics.get(name) for name in SCORES},
                **{name: value for name, value in run.metrics.items() if name not in SCORES},
                "images_per_s": run.speed.get("images_per_s"),
                "tag": run.tag,
                "changes": " ".join(f"{k}={v}" for k, v in run.changes.items()),
                "protocol": run.protocol.digest[:12],
                "config": run.config.digest[:12],
                "run": run.run_id,
            }
        )
    frame = pd.DataFrame(rows)
    return frame.sort_values(["dataset", "backbone", "prompt", "method", "order", "seed"], ignore_index=True)


@dataclass(frozen=True)
class Cell:
    mean: float
    deviation: float | None  # None: a single run
    runs: int


@dataclass(frozen=True)
class Board:
    """One backbone and prompt: methods × datasets."""

    title: str
    datasets: list[str]  # one per protocol
    averaged: bool
    rows: list[str]
    cells: dict[tuple[str, str], Cell]  # (row, column)
    notes: list[str]

    @property
    def columns(self) -> list[str]:
        columns = [f"{dataset} {label}" for dataset in self.datasets for label in (*SCORES.values(), SPEED)]
        return columns + ([f"average {label}" for label in SCORES.values()] if self.averaged else [])

    def best(self, column: str) -> float | None:
        values = [round(cell.mean, 2) for (_, c), cell in self.cells.items() if c == column]
        return max(values, default=None)

    def text(self, row: str, column: str, bold: Callable[[str], str], plus_minus: str = " ± ") -> str:
        cell = self.cells.get((row, column))
        if cell is None:
            return "–"
        if column.endswith(SPEED):
            return f"{cell.mean:,.0f}"
        mean = f"{cell.mean:.2f}"
        shown = bold(mean) if round(cell.mean, 2) == self.best(column) and len(self.rows) > 1 else mean
        return shown if cell.deviation is None else f"{shown}{plus_minus}{cell.deviation:.2f}"


def boards(runs: Sequence[RunRecord]) -> list[Board]:
    frame = long_form(runs)
    frame["row"] = _row_names(frame)
    frame["column"] = _column_names(frame)
    made = []
    for (backbone, prompt), part in frame.groupby(["backbone", "prompt"], sort=True):
        made.append(_board(f"{backbone}, prompt '{prompt}'", part))
    return made


def _board(title: str, frame: pd.DataFrame) -> Board:
    cells: dict[tuple[str, str], Cell] = {}
    datasets = sorted(frame["column"].unique())
    rows = sorted(frame["row"].unique())
    for (row, dataset), part in frame.groupby(["row", "column"]):
        row, dataset = str(row), str(dataset)
        for metric, label in SCORES.items():
            cell = _cell(part[metric])
            if cell is not None:
                cells[row, f"{dataset} {label}"] = cell
        speed = part["images_per_s"].median()
        cells[row, f"{dataset} {SPEED}"] = Cell(float(speed), None, len(part))
    # A dataset that stands there under two protocols would count twice.
    averaged = len(datasets) > 1 and len(datasets) == frame["dataset"].nunique()
    if averaged:
        for label in SCORES.values():
            for row in rows:
                parts = [cells.get((row, f"{dataset} {label}")) for dataset in datasets]
                present = [cell.mean for cell in parts if cell is not None]
                if len(present) == len(datasets):  # an average over other datasets than the next row's would mislead
                    cells[row, f"average {label}"] = Cell(sum(present) / len(present), None, len(present))
    return Board(title, datasets, averaged, rows, cells, _notes(frame))


def _cell(values: pd.Series[Any]) -> Cell | None:
    values = values.dropna()
    if values.empty:
        return None
    deviation = float(values.std(ddof=1)) if len(values) > 1 else None
    return Cell(float(values.mean()), deviation, len(values))


def _notes(frame: pd.DataFrame) -> list[str]:
    notes = []
    counts = sorted(frame.groupby(["row", "column"]).size().unique())
    runs = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    notes.append(f"{runs} run{'' if counts == [1] else 's'} per cell.")
    for dataset, part in frame.groupby("dataset"):
        if part["protocol"].nunique() > 1:
            count = part["protocol"].nunique()
            notes.append(
                f"{dataset}: {count} protocols, kept apart and not averaged (`ttabench show RUN` has the parts)."
            )
    tags = sorted(set(frame["tag"]) - {"default"})
    if tags:
        notes.append(f"Hyper-parameters are the defaults except where the row says otherwise ({', '.join(tags)}).")
    return notes


def _row_names(frame: pd.DataFrame) -> pd.Series[Any]:
    """The method, what was changed, and the config's digest where that does not tell two rows apart."""
    names = frame["method"] + frame.apply(lambda r: f" [{r['tag']}: {r['changes']}]" if r["changes"] else "", axis=1)
    return _tell_apart(names, frame["config"])


def _column_names(frame: pd.DataFrame) -> pd.Series[Any]:
    """The dataset, the number of images where it differs, and the protocol's digest where that does not suffice."""
    key = frame["dataset"] + frame["backbone"] + frame["prompt"]
    several = frame.groupby(key)["protocol"].transform("nunique") > 1
    names = frame["dataset"].where(~several, frame["dataset"] + " (n=" + frame["n"].astype(str) + ")")
    ambiguous = frame.groupby(key + names)["protocol"].transform("nunique") > 1
    return names.where(~ambiguous, names + " #" + frame["protocol"].str[:6])


def _tell_apart(names: pd.Series[Any], digests: pd.Series[Any]) -> pd.Series[Any]:
    ambiguous = digests.groupby(names).transform("nunique") > 1
    return names.where(~ambiguous, names + " #" + digests.str[:6])


# ---------------------------------------------------------------------------------------------------- renderings


def to_csv(runs: Sequence[RunRecord]) -> str:
    return str(long_form(runs).to_csv(index=False, lineterminator="\n"))


def to_json(runs: Sequence[RunRecord]) -> str:
    rows = json.loads(long_form(runs).to_json(orient="records"))
    return json.dumps(rows, indent=1, ensure_ascii=False)


def to_markdown(runs: Sequence[RunRecord]) -> str:
    parts = []
    for board in boards(runs):
        lines = [f"### {board.title}", "", "| method | " + " | ".join(board.columns) + " |"]
        lines.append("|---|" + "---:|" * len(board.columns))
        for row in board.rows:
            cells = (board.text(row, column, lambda t: f"**{t}**") for column in board.columns)
            lines.append(f"| {_markdown(row)} | " + " | ".join(cells) + " |")
        parts.append("\n".join([*lines, "", " ".join([*board.notes, LEGEND])]))
    return "\n\n".join(parts) + "\n"


def to_latex(runs: Sequence[RunRecord]) -> str:
    """A booktabs table per board; needs \\usepackage{booktabs}."""
    parts = []
    for board in boards(runs):
        lines = [f"% {board.title}", rf"\begin{{tabular}}{{l{'r' * len(board.columns)}}}", r"\toprule"]
        lines += [" & ".join(["method", *map(_latex, board.columns)]) + r" \\", r"\midrule"]
        for row in board.rows:
            cells = (board.text(row, column, lambda t: rf"\textbf{{{t}}}", r" $\pm$ ") for column in board.columns)
            lines.append(" & ".join([_latex(row), *(cell.replace("–", "--") for cell in cells)]) + r" \\")
        lines += [r"\bottomrule", r"\end{tabular}", "% " + " ".join([*board.notes, LEGEND]).replace("±", "+-")]
        parts.append("\n".join(lines))
    return "\n\n".join(parts) + "\n"


def to_console(runs: Sequence[RunRecord], width: int) -> list[Any]:
    """Rich renderables that fit the width: all columns of one dataset, or for several a table per kind of score."""
    from rich.markup import escape

    shown: list[Any] = []
    for board in boards(runs):
        if len(board.datasets) == 1:
            shown.append(_console_table(board, board.title, board.columns))
        else:
            room = max(1, (width - max(map(len, board.rows)) - 4) // CELL_WIDTH)
            names = board.datasets + (["average"] if board.averaged else [])
            for label in (*SCORES.values(), SPEED):
                columns = [f"{name} {label}" for name in names if (name, label) != ("average", SPEED)]
                for first in range(0, len(columns), room):
                    shown.append(_console_table(board, f"{board.title}: {label}", columns[first : first + room]))
        shown.append(escape(" ".join([*board.notes, LEGEND]) + "\n"))
    return shown


def _console_table(board: Board, title: str, columns: Sequence[str]) -> Any:
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left")
    table.add_column("method", no_wrap=True)
    for column in columns:
        table.add_column(escape(column), justify="right", overflow="fold", min_width=CELL_WIDTH - 4)
    for row in board.rows:
        table.add_row(escape(row), *(board.text(row, column, lambda t: f"[bold green]{t}[/]") for column in columns))
    return table


def _latex(text: str) -> str:
    special = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
    return "".join(special.get(c, rf"\{c}" if c in "&%$#_{}" else c) for c in text)


def _markdown(text: str) -> str:
    return text.replace("|", r"\|").replace("<", "&lt;")
