"""The tutorial in docs/plugins.md works as written: as a loose file and as an installed package."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke
from tta_bench import hookspecs

ROOT = Path(__file__).parents[2]
DOCS = (ROOT / "docs" / "plugins.md").read_text(encoding="utf-8")
PACKAGE = ROOT / "tests" / "plugin_package"


def tutorial() -> str:
    found = re.search(r"<!-- tutorial: begin -->\n```python\n(.*?)```\n<!-- tutorial: end -->", DOCS, re.DOTALL)
    assert found
    return found[1]


def test_it_is_short_and_the_packaged_copy_is_the_same() -> None:
    assert len(tutorial().splitlines()) <= 25
    assert (PACKAGE / "src" / "debias.py").read_text() == tutorial()


def test_as_a_loose_file(invoke: Invoke, tmp_path: Path) -> None:
    file = tmp_path / "debias.py"
    file.write_text(tutorial())
    common = ("--dataset", "toy", "--backbone", "toyclip", "--plugin", str(TOY), "--plugin", str(file))
    result = invoke("run", "--method", "debias", "--set", "strength=0.8", *common)
    assert result.code == 0, result.err
    assert "debias on toy with toyclip" in result.out


def install(target: Path) -> dict[str, str]:
    """pip-installs the package into a folder of its own and returns the environment that sees it."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    copy = target / "source"
    subprocess.run(["cp", "-r", str(PACKAGE), str(copy)], check=True)  # setuptools builds inside the source folder
    subprocess.run([*command, "--target", str(target / "site"), str(copy)], check=True, timeout=300)
    return {**os.environ, "PYTHONPATH": str(target / "site")}


@pytest.mark.slow
def test_as_an_installed_package(tmp_path: Path, home: Path) -> None:
    environment = install(tmp_path)

    def call(*arguments: str) -> str:
        command = [sys.executable, "-c", "from tta_bench.cli.main import main; main()", *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "ttabench-debias 0.1" in call("list", "methods")
    common = ("--dataset", "toy", "--backbone", "toyclip", "--plugin", str(TOY))
    assert "debias on toy with toyclip" in call("run", "--method", "debias", *common)


@pytest.mark.parametrize("hook", [name for name in dir(hookspecs) if name.startswith("ttabench_")])
def test_every_hook_is_documented(hook: str) -> None:
    assert f"`{hook}`" in DOCS
