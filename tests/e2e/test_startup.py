"""`--help` and `list` stay light: neither imports torch or pandas."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("torch", "pandas", "numpy", "PIL", "open_clip")


def seconds(code: str) -> float:
    """Of the processor, whoever else uses it; best of three."""

    def spent() -> float:
        children = os.times()
        return children.children_user + children.children_system

    best = float("inf")
    for _ in range(3):
        began = spent()
        subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
        best = min(best, spent() - began)
    return best


@pytest.mark.parametrize(
    "arguments", [["--help"], ["run", "--help"], ["list", "methods"], ["--version"], ["new", "--help"]]
)
def test_nothing_heavy_is_imported(arguments: list[str]) -> None:
    code = (
        f"import sys; sys.argv = ['ttabench', *{arguments!r}]\n"
        "from tta_bench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        f"print('loaded:', [name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded: []"


def test_help_is_a_small_multiple_of_importing_the_command_line_library() -> None:
    """Compared in one run, because absolute times mean nothing on a shared machine."""
    library = seconds("import typer.main, rich.console")
    ours = seconds("import sys; sys.argv = ['ttabench', '--help']; from tta_bench.cli.main import main; main()")
    assert ours < 4 * library + 0.1
