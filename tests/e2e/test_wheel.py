"""What is built is what is needed: the wheel, also by way of the sdist, holds the plugins and the embedded data."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TRACKED = ("tta_bench", "methods", "datasets", "backbones")


def pip(*arguments: str) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, timeout=600)


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


@pytest.mark.slow
def test_the_wheel_works_away_from_the_checkout(source: Path, tmp_path: Path) -> None:
    pip("wheel", "--no-deps", "--wheel-dir", str(tmp_path), str(source))
    (wheel,) = tmp_path.glob("ttabench-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "tta_bench/methods/tda.py" in names
    assert "tta_bench/data/tiny.safetensors" in names
    assert {name.split("/")[0] for name in names if not name.startswith("ttabench-")} == {"tta_bench"}
    pip("install", "--no-deps", "--target", str(tmp_path / "site"), str(wheel))
    code = "import sys, tta_bench; assert 'site' in tta_bench.__file__; from tta_bench.cli.main import main; main()"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site"), "TTABENCH_HOME": str(tmp_path / "home")}
    done = subprocess.run(
        [sys.executable, "-c", code, "run", "--method", "clip", "--limit", "4"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert "clip on scenes with tiny" in done.stdout


@pytest.mark.slow
def test_the_sdist_builds_the_same_wheel(source: Path, tmp_path: Path) -> None:
    script = "import setuptools.build_meta as b, sys; print(b.build_sdist(sys.argv[1]))"
    pip("install", "--target", str(tmp_path / "tools"), "setuptools>=77")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "tools")}
    subprocess.run([sys.executable, "-c", script, str(tmp_path)], cwd=source, env=environment, check=True)
    (sdist,) = tmp_path.glob("ttabench-*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path / "unpacked", filter="data")
    (unpacked,) = (tmp_path / "unpacked").iterdir()
    pip("wheel", "--no-deps", "--wheel-dir", str(tmp_path / "wheels"), str(unpacked))
    (wheel,) = (tmp_path / "wheels").glob("ttabench-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    for file in (
        "methods/tda.py",
        "datasets/scenes.py",
        "backbones/tiny.py",
        "data/tiny.json",
        "data/tiny.safetensors",
    ):
        assert f"tta_bench/{file}" in names
