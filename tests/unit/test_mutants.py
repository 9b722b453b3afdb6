"""The mutation check itself: which faults it plants, and that they are what the tests then run."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mutants import report
from tests.mutants.mutations import mutants_of
from tests.mutants.run import sources

ROOT = Path(__file__).parents[2]
SOURCE = '''"""A module."""
LIMIT: float = 0.5  # Größe

class Line:
    def at(self, x: int = 1) -> list[int]:
        """A docstring."""
        if x <= LIMIT and not self.flat:
            raise ValueError(f"{x + 1}")
        return values[x:].sum(axis=0)
'''


def test_every_edit_of_a_small_module() -> None:
    found = mutants_of("line.py", SOURCE.encode())
    assert {mutant.was for mutant in found} <= {
        " ".join(line.partition("  # ")[0].split()) for line in SOURCE.splitlines()
    }
    assert [(mutant.function, mutant.became) for mutant in found] == [
        ("", "LIMIT: float = 1.0"),
        ("", "LIMIT: float = 1.5"),
        ("Line.at", "def at(self, x: int = 0) -> list[int]:"),
        ("Line.at", "def at(self, x: int = 2) -> list[int]:"),
        ("Line.at", "if (x < LIMIT) and not self.flat:"),
        ("Line.at", "if (x > LIMIT) and not self.flat:"),
        ("Line.at", "if (x <= LIMIT or not self.flat):"),
        ("Line.at", "if x <= LIMIT and self.flat:"),
        ("Line.at", "pass"),
        ("Line.at", "return None"),
        ("Line.at", "return values[x:].mean(axis=0)"),
        ("Line.at", "return values[x:].sum()"),
        ("Line.at", "return values[:].sum(axis=0)"),
        ("Line.at", "return values[x:].sum(axis=-1)"),
        ("Line.at", "return values[x:].sum(axis=1)"),
    ]
    for mutant in found:
        changed = mutant.applied(SOURCE.encode()).decode()
        assert changed != SOURCE
        compile(changed, "line.py", "exec")


def test_the_listed_survivors_and_reasons_are_of_this_code() -> None:
    planted: dict[str, set[str]] = {}
    for file in sources():
        for mutant in mutants_of(file, (ROOT / file).read_bytes()):
            planted.setdefault(mutant.place, set()).add(mutant.change)
    explained = [(place, change) for place, changes in report.reasons().items() for change in changes]
    survivors = list(report.listed())
    assert survivors
    for place, change in (*survivors, *explained):
        assert change in planted.get(place, set()), (
            f"{place}: {change} is no mutant of this code: run make test-mutants"
        )


FATE_OF_EACH = """
import json, os, sys, tempfile
from dataclasses import replace
from pathlib import Path
from tests.mutants.mutations import mutants_of
from tests.mutants.session import preload, start

preload()
assert not any(name.startswith("tta_bench") for name in sys.modules)
file = "tta_bench/functional/__init__.py"
planted = {(m.function, m.became): m for m in mutants_of(file, Path(file).read_bytes())}
unmutated = replace(planted["among_highest", "return None"], start=0, end=0, replacement="")
codes = []
with tempfile.TemporaryDirectory() as folder:
    for function, line, test in json.loads(sys.argv[1]):
        pid = start(planted[function, line] if function else unmutated, [(test,)], Path(folder))
        codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
sys.stdout.write(json.dumps(codes))
"""


@pytest.mark.slow
def test_a_fatal_mutant_dies_and_an_equivalent_one_lives() -> None:
    """The last fatal one is in a function that the tested module imports by name, from a module that imports it."""
    by_hand = "tests/unit/test_functional.py::test_kept_count[0.1-64-6]"
    through_purf = "tests/unit/test_purf_equations.py::test_eq_5_global_candidates"
    tried = [
        ("", "", by_hand, 0),
        ("kept_count", "return min(1, math.floor(keep * n_views + 1e-09))", by_hand, 1),
        ("kept_count", "return max(1, math.floor(keep * n_views + 2e-09))", by_hand, 0),
        ("among_highest", "return None", through_purf, 1),
        ("kept_count", "return None", through_purf, 0),  # which never enters it
    ]
    command = [sys.executable, "-c", FATE_OF_EACH, json.dumps([mutant[:3] for mutant in tried])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [code for *_, code in tried]
