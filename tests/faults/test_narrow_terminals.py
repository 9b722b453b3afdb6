"""Terminals that are too narrow for a table: a number that has lost its last digits is another number."""

from __future__ import annotations

import io
import sys
from pathlib import Path

import pytest
from rich.console import Console, RenderableType

from tests.record_fixtures import on, record, write
from tta_bench.cli.app import command
from tta_bench.records import Identity
from tta_bench.report.console import to_console
from tta_bench.report.frame import long_form
from tta_bench.report.plain_table import console_table
from tta_bench.report.reproduction import Line
from tta_bench.report.reproduction_text import NARROW, print_lines
from tta_bench.runs import suites

WIDTHS = [10, 12, 16, 24, 32, 40, 60, 80, 100, 160]
HEADS = ("method", "Δ", "95 %", "p")
ROWS = [("tda shots=12 alpha=2.5", "+7.32", "-5.67 to +20.32", "0.243"), ("clip", "-17.32", "-0.13 to -0.12", "<0.001")]


def printed(parts: list[RenderableType], width: int) -> str:
    console = Console(file=io.StringIO(), width=width, color_system=None)
    for part in parts:
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def assert_whole(shown: str, width: int, texts: list[str]) -> None:
    """Each text is there with all its characters, wherever it was folded, and no line is wider than the terminal."""
    assert max(map(len, shown.splitlines())) <= width
    together = "".join(shown.split())
    assert [text for text in texts if "".join(text.split()) not in together] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_a_comparison_or_a_score_loses_no_digit(width: int) -> None:
    shown = printed([console_table(HEADS, ROWS, width)], width)
    assert_whole(shown, width, [cell for row in ROWS for cell in row[1:]])
    assert "tda" in shown
    assert "clip" in shown


@pytest.mark.parametrize("width", WIDTHS)
def test_a_reproduced_number_loses_no_digit(width: int) -> None:
    suite = suites.load("purf:table6")[0]
    lines = [
        Line(suite, "tiny", "photo", "toy", "a row", "agrees", value=65.33, half=11.25, published=67.35),
        Line(suite, "tiny", "photo", "toy", "clip", "other protocol: backbone", value=5.0, instead="other backbone"),
    ]
    console = Console(file=io.StringIO(), width=width, highlight=False, color_system=None)
    print_lines(suite, lines, console)
    assert isinstance(console.file, io.StringIO)
    shown = console.file.getvalue()
    table = shown[shown.index("measured") : shown.index("± is")]
    assert_whole(table, width, ["65.33 ± 11.25", "67.35", "5.00", "other backbone"])
    assert ("Δ" in table) == (width >= NARROW)


@pytest.mark.parametrize("width", WIDTHS)
def test_a_leaderboard_loses_no_digit(width: int) -> None:
    runs = [
        on("toy", value, name, seed=seed, replicate=Identity({"seed": seed}))
        for name, value in (("clip", 40.0), ("tda", 61.27))
        for seed in (0, 1)
    ]
    shown = printed(to_console(long_form(runs), width), width)
    assert_whole(shown, width, ["61.27 ± 0.00", "40.00 ± 0.00", "63.27 ± 0.00"])


@pytest.mark.parametrize("columns", ["0", "00", "²"])
def test_a_terminal_of_no_width_counts_as_one_that_says_none(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: str
) -> None:
    write(home / "runs", record("clip"), record("tda", 61.27))
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("LINES", columns)
    monkeypatch.setattr(sys, "argv", ["ttabench", "leaderboard", "--fast"])
    with pytest.raises(SystemExit) as ended:
        command()
    assert (ended.value.code or 0) == 0, capsys.readouterr().err
    assert "61.27" in capsys.readouterr().out
