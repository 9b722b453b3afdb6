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
    assert [(mutant.function, mutant.edit) for mutant in found] == [
        ("", "0.5 → 1.0"),
        ("", "0.5 → 1.5"),
        ("Line.at", "1 → 0"),
        ("Line.at", "1 → 2"),
        ("Line.at", "x <= LIMIT → x < LIMIT"),
        ("Line.at", "x <= LIMIT → x > LIMIT"),
        ("Line.at", "x <= LIMIT and not self.flat → x <= LIMIT or not self.flat"),
        ("Line.at", "not self.flat → self.flat"),
        ("Line.at", 'raise ValueError(f"{x + 1}") → pass'),
        ("Line.at", "return values[x:].sum(axis=0) → return None"),
        ("Line.at", "values[x:].sum → values[x:].mean"),
        ("Line.at", "values[x:].sum(axis=0) → values[x:].sum()"),
        ("Line.at", "x: → :"),
        ("Line.at", "0 → -1"),
        ("Line.at", "0 → 1"),
    ]
    for mutant in found:
        changed = mutant.applied(SOURCE.encode()).decode()
        assert changed != SOURCE
        compile(changed, "line.py", "exec")


def test_the_listed_survivors_and_reasons_are_of_this_code() -> None:
    planted: dict[str, set[str]] = {}
    for file in sources():
        for mutant in mutants_of(file, (ROOT / file).read_bytes()):
            planted.setdefault(mutant.place, set()).add(mutant.edit)
    explained = [(place, edit) for place, edits in report.read_reasons().items() for edit in edits]
    survivors = list(report.listed())
    assert len(survivors) > 100
    for place, edit in (*survivors, *explained):
        assert edit in planted.get(place, set()), f"{place}: {edit} is no mutant of this code: run make test-mutants"


FATE_OF_EACH = """
import json, os, sys, tempfile
from dataclasses import replace
from pathlib import Path
from tests.mutants.mutations import mutants_of
from tests.mutants.session import preload, start

preload()
assert not any(name.startswith("tta_bench") for name in sys.modules)
file = "tta_bench/functional/__init__.py"
planted = {(m.function, m.edit): m for m in mutants_of(file, Path(file).read_bytes())}
unmutated = replace(planted["kept_count", "1e-9 → 2e-09"], end=0, start=0, replacement="")
fate = {}
with tempfile.TemporaryDirectory() as folder:
    for function, edit, test in json.loads(sys.argv[1]):
        pid = start(planted.get((function, edit), unmutated), [(test,)], Path(folder))
        fate[edit] = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
sys.stdout.write(json.dumps(fate))
"""


@pytest.mark.slow
def test_a_fatal_mutant_dies_and_an_equivalent_one_lives() -> None:
    """The second fatal one is in a function that the tested module imports by name, from a module that imports it."""
    by_hand = "tests/unit/test_functional.py::test_kept_count[0.1-64-6]"
    through_purf = "tests/unit/test_purf_equations.py::test_eq_5_global_candidates"
    tried = [
        ("", "unmutated", by_hand),
        (
            "kept_count",
            "max(1, math.floor(keep * n_views + 1e-9)) → min(1, math.floor(keep * n_views + 1e-09))",
            by_hand,
        ),
        ("kept_count", "1e-9 → 2e-09", by_hand),
        ("among_highest", "return among → return None", through_purf),
        ("kept_count", "1 → 0", through_purf),  # which enters no `kept_count`
    ]
    command = [sys.executable, "-c", FATE_OF_EACH, json.dumps(tried)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert [json.loads(done.stdout)[edit] for _, edit, _ in tried] == [0, 1, 0, 1, 0]
