"""Records -> the leaderboard as one page that opens anywhere: no request, no framework, readable without scripts.

The table stands in the HTML. Scripts read the same numbers, and more of them, from a block of JSON and make it live.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import json
from collections.abc import Sequence
from importlib import resources
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from tta_bench.records import RunRecord
from tta_bench.report.board import Board, Column, Row, Wanted
from tta_bench.report.cells import INTERVAL, RANK
from tta_bench.report.frame import HEADINGS, SCORES, SPEED
from tta_bench.report.notes import SPREAD, legend
from tta_bench.report.page.data import PageBoard, content, page_boards
from tta_bench.report.page.memory import Memory
from tta_bench.report.page.opening import Opening
from tta_bench.system.progress import Reporter
from tta_bench.system.text import visible

SCRIPTS = ("numbers", "state", "exports", "parts", "plots", "grid", "details", "views", "app")  # in this order
LARGE = 1e6  # from here on numbers are written with an exponent


def page(
    runs: Sequence[RunRecord],
    mark: str = "",
    memory: Memory | None = None,
    opening: Opening | None = None,
    reporter: Reporter | None = None,
    family: Sequence[RunRecord] | None = None,
) -> str:
    """The complete page. With a mark it asks the server that it came from whether that is still the runs'; a memory
    saves what the last page took to work out; statistics are made over the `family`, of which the runs may be a part.
    """
    memory, opening = memory or Memory(), opening or Opening()
    wanted = Wanted(baseline=opening.baseline or Wanted.baseline, left_out=opening.left_out)
    found = page_boards(runs, memory, wanted, opening.fast, reporter, family)
    style, script = asset("style.css"), _script()
    policy = [
        "default-src 'none'",
        f"script-src '{_fingerprint(script)}'",
        f"style-src '{_fingerprint(style)}'",
        "img-src data:",
        *(["connect-src 'self'"] if mark else []),
        "base-uri 'none'",
        "form-action 'none'",
    ]
    return (
        _environment()
        .get_template("template.html")
        .render(
            boards=found,
            count=len({run.run_id for run in runs}),
            policy="; ".join(policy),
            style=Markup(style),
            script=Markup(script),
            data=Markup(_json({**content(found, memory), "mark": mark, "opening": opening.to_json()})),
        )
    )


def tables(runs: Sequence[RunRecord], family: Sequence[RunRecord] | None = None) -> str:
    """The same tables alone, for a notebook."""
    return _environment().get_template("tables.html").render(boards=page_boards(runs, Memory(), family=family))


def asset(name: str) -> str:
    return (resources.files(__name__) / "assets" / name).read_text(encoding="utf-8")


def _script() -> str:
    """All scripts as one, in a scope of their own."""
    return '(() => {\n"use strict";\n' + "\n".join(asset(f"{name}.js") for name in SCRIPTS) + "\n})();"


def _fingerprint(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def _json(value: Any) -> str:
    """JSON that can stand in a script element whatever it holds: nothing in it can end the element."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)  # ASCII: everything else is escaped
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@functools.cache
def _environment() -> Environment:
    environment = Environment(
        loader=FunctionLoader(asset), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.globals |= {"shown": shown, "interval": interval, "legend": marks, "scores": SCORES}
    environment.globals["speed"] = HEADINGS[SPEED]
    environment.filters["visible"] = visible
    return environment


def shown(board: PageBoard, row: Row, column: Column, kind: str) -> str:
    """A cell's mean as text."""
    cell = board.board.cells.get((row, column, kind))
    if cell is None or cell.mean != cell.mean:
        return "–"
    if abs(cell.mean) >= LARGE:
        return f"{cell.mean:.2e}"
    return f"{cell.mean:,.0f}" if kind == HEADINGS[SPEED] else f"{cell.mean:.2f}"


def marks(board: Board) -> str:
    """What the marks in the table mean; of the statistics it shows the intervals alone, in small."""
    said = legend(board, without=(RANK, INTERVAL, board.difference, SPREAD))
    return f"{said} Small is the 95 % interval of the mean." if board.tested else said


def interval(board: PageBoard, row: Row, column: Column, metric: str) -> str:
    found = board.estimate(row, column, metric)
    return "" if found is None else f"{found[0]:.2f} to {found[1]:.2f}"
