"""`ttabench demo`: the table, what it shows and what to try next; known at once the second time."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from tests.conftest import Invoke
from tta_bench.cli import demo

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
def test_the_demo_and_what_it_proposes(invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = invoke("demo", "--limit", "24")
    assert first.code == 0, first.err
    assert re.search(r"^\w+ \(\w+\) leads in mAP with ", first.out, re.MULTILINE)  # the sentence
    assert all(re.search(rf"^│ {method} ", first.out, re.MULTILINE) for method in demo.METHODS)
    second = invoke("demo", "--limit", "24")
    assert second.out.count("done before, nothing to do") == len(demo.METHODS)
    proposed = [line.partition("#")[0] for line in first.out.splitlines()[-len(demo.NEXT) :]]
    assert len(proposed) == 3
    for command in proposed:
        result = invoke(*shlex.split(command)[1:])
        assert result.code == 0, result.err
    assert (tmp_path / "table.html").stat().st_size > 10_000
    assert (tmp_path / "mine.py").is_file()


def test_an_interrupt_is_one_line(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tta_bench.runs.bench.Bench.run", interrupted)
    result = invoke("demo", "--limit", "4")
    assert (result.code, result.err) == (130, "ttabench: interrupted: the same command goes on from where it was\n")


def test_make_demo_is_the_same_command() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.search(r"^demo: .*\n\t\$\(BIN\)/ttabench demo \$\(if \$\(LIMIT\),--limit \$\(LIMIT\)\)$", makefile, re.M)


def test_what_it_proposes_fits_a_narrow_terminal() -> None:
    assert len("    # ") + max(map(len, demo.NEXT)) + max(map(len, demo.NEXT.values())) <= 80
