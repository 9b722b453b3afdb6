"""What is built is what is needed: wheel and sdist hold everything, and work in an environment of their own."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fresh_venv import FreshVenv

ROOT = Path(__file__).parents[2]
TRACKED = ("tta_bench", "methods", "datasets", "backbones")
BUILD = "import setuptools.build_meta as backend, sys; getattr(backend, sys.argv[1])(sys.argv[2])"
LIMIT = ("--limit", "24")
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy, since building leaves files behind; symlinks stay symlinks."""
    copy = tmp_path_factory.mktemp("source") / "ttabench"
    copy.mkdir()
    for name in TRACKED:
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module", params=["wheel", "sdist"])
def built(request: pytest.FixtureRequest, source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp(request.param)
    subprocess.run([sys.executable, "-c", BUILD, f"build_{request.param}", str(folder)], cwd=source, check=True)
    (file,) = folder.iterdir()
    return file


def package_files() -> set[str]:
    """Everything below the package in the checkout, by its name in the package."""
    files = (file for folder in TRACKED for file in (ROOT / folder).rglob("*") if file.is_file())
    kept = {file.relative_to(ROOT).as_posix() for file in files if "__pycache__" not in file.parts}
    return {name if name.startswith("tta_bench/") else f"tta_bench/{name}" for name in kept}


def test_it_works_in_an_environment_of_its_own(built: Path, tmp_path: Path) -> None:
    environment = FreshVenv.make(tmp_path / "venv")
    environment.pip_install("--no-compile", str(built))
    installed = environment.site_packages
    here = {file.relative_to(installed).as_posix() for file in (installed / "tta_bench").rglob("*") if file.is_file()}
    assert here == package_files()
    (metadata,) = installed.glob("*.dist-info")
    assert (metadata / "licenses" / "LICENSE").is_file()

    work = tmp_path / "work"
    work.mkdir()

    def ttabench(*arguments: str) -> str:
        return environment.call("ttabench", *arguments, cwd=work, TTABENCH_HOME=str(tmp_path / "home"), COLUMNS="100")

    imported = environment.call("python", "-c", "import tta_bench; print(tta_bench.__file__)", cwd=work)
    assert imported.startswith(str(installed))
    assert "purf" in ttabench("list", "methods")
    assert "Three commands to try next:" in ttabench("demo", *LIMIT)
    assert ttabench("leaderboard", "--format", "html").startswith("<!doctype html>")
    assert "purf:table" in ttabench("published", "list")
    assert "ttabench check mine.py" in ttabench("new", "method", "mine", "--file")
    assert "FAILED" not in ttabench("check", "mine.py")
