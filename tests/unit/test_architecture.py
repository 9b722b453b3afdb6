"""The house's rules that import-linter can't see: who names plugins, and who prints. (`make lint` runs the rest.)"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import tta_bench

ROOT = Path(tta_bench.__file__).parent
PLUGINS = ("methods", "datasets", "backbones")
CORE = sorted(f for f in ROOT.rglob("*.py") if f.relative_to(ROOT).parts[0] not in PLUGINS)
PLUGIN_FILES = sorted(f for folder in PLUGINS for f in (ROOT / folder).resolve().glob("*.py"))
MACHINERY = ("tta_bench.cli", "tta_bench.api", "tta_bench.runs", "tta_bench.report", "tta_bench.checks")
SPEAKS = {Path("system/progress.py")}  # the reporter, whom the runner tells what to say


def imports(file: Path) -> Iterator[str]:
    """Every module that a file imports, at its top or in a function; what only type checkers read is left out."""
    for node in ast.walk(_without_type_checking(ast.parse(file.read_text(encoding="utf-8")))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def _without_type_checking(tree: ast.Module) -> ast.Module:
    tree.body = [n for n in tree.body if not (isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test))]
    return tree


def test_there_is_something_to_look_at() -> None:
    assert len(CORE) > 40
    assert len(PLUGIN_FILES) > 25


@pytest.mark.parametrize("file", CORE, ids=lambda f: str(f.relative_to(ROOT)))
def test_the_core_names_no_plugin(file: Path) -> None:
    assert [name for name in imports(file) if name.split(".")[1:2] and name.split(".")[1] in PLUGINS] == []


@pytest.mark.parametrize("file", PLUGIN_FILES, ids=lambda f: f"{f.parent.name}/{f.name}")
def test_a_plugin_uses_public_rooms_only(file: Path) -> None:
    assert [name for name in imports(file) if name.startswith(MACHINERY)] == []


@pytest.mark.parametrize("file", [*CORE, *PLUGIN_FILES], ids=lambda f: f"{f.parent.name}/{f.name}")
def test_only_the_command_line_prints(file: Path) -> None:
    if file.is_relative_to(ROOT / "cli") or (file.is_relative_to(ROOT) and file.relative_to(ROOT) in SPEAKS):
        return
    calls = (node for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if isinstance(node, ast.Call))
    assert [node.lineno for node in calls if isinstance(node.func, ast.Name) and node.func.id == "print"] == []


def test_the_version_is_that_of_the_installation() -> None:
    from importlib.metadata import version

    assert tta_bench.__version__ == version("ttabench")
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tta_bench.nonsense
