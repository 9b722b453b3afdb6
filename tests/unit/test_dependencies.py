"""What pyproject.toml asks for, what constraints.txt pins and what the build uses fit together."""

from __future__ import annotations

import importlib.metadata
import re
import runpy
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import tta_bench

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
REQUIREMENTS = [Requirement(text) for some in (PROJECT["dependencies"], *EXTRAS.values()) for text in some]
LINES = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
PINNED = {canonicalize_name(name): version for name, _, version in (line.partition("==") for line in LINES)}
LEFT_OUT = ("nvidia-", "cuda-", "triton", "setuptools")  # they follow from torch, or come with Python


def required(name: str) -> Requirement:
    (found,) = (requirement for requirement in REQUIREMENTS if canonicalize_name(requirement.name) == name)
    return found


@pytest.mark.parametrize("requirement", REQUIREMENTS, ids=str)
def test_every_dependency_is_pinned_to_a_version_that_it_allows(requirement: Requirement) -> None:
    assert PINNED[canonicalize_name(requirement.name)] in requirement.specifier


def test_constraints_are_names_and_exact_versions_in_order() -> None:
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.]+", line) for line in LINES)
    assert sorted(LINES, key=str.lower) == LINES
    assert len(PINNED) == len(LINES)


def test_what_the_pinned_packages_need_is_pinned_too() -> None:
    """As far as they are installed here: an extra need not be."""
    for name in PINNED:
        try:
            needed = [Requirement(text) for text in importlib.metadata.requires(name) or []]
        except importlib.metadata.PackageNotFoundError:
            continue
        for requirement in needed:
            other = canonicalize_name(requirement.name)
            if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
                assert other in PINNED or other.startswith(LEFT_OUT), f"{name} needs {requirement}"


@pytest.mark.parametrize(
    ("version", "fits"), [("2.30.0", False), ("3.0.0", False), ("3.2.0", False), ("3.3.0", True), ("4.0.0", False)]
)
def test_only_versions_of_open_clip_that_work_are_allowed(version: str, fits: bool) -> None:
    assert (version in required("open-clip-torch").specifier) == fits


def test_the_page_of_licences_names_every_package() -> None:
    rows = re.findall(
        r"^\| ([\w.-]+) \| ([^|]+) \| [^|]+ \|$", (ROOT / "docs" / "licences.md").read_text(), re.MULTILINE
    )
    uses = {canonicalize_name(name): use for name, use in rows}
    assert set(uses) == {"package", *PINNED}
    for requirement in map(Requirement, PROJECT["dependencies"]):
        assert uses[canonicalize_name(requirement.name)] == "ttabench"


def test_a_package_that_is_not_installed_keeps_its_licence(monkeypatch: pytest.MonkeyPatch) -> None:
    licences = runpy.run_path(str(ROOT / "docs" / "licences.py"))
    page = licences["page"]({"numpy": "of before", "pytest": "of before"})
    assert "| pytest | `[dev]` | MIT |" in page

    def missing(name: str) -> None:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "metadata", missing)
    page = licences["page"]({"numpy": "of before"})
    assert "| numpy | ttabench | of before |" in page
    assert "| pytest | `[dev]` | not looked up" in page


def test_the_build_follows_both_files() -> None:
    makefile = (ROOT / "Makefile").read_text()
    targets = re.findall(r"^\$\(VENV\)/\.installed\S*: (.*)$", makefile, re.MULTILINE)
    assert targets == ["pyproject.toml constraints.txt"] * 2
    installs = [line for line in makefile.splitlines() if "pip install" in line]
    assert installs
    assert all("-c constraints.txt" in line for line in installs)
    (key,) = (line for line in (ROOT / ".ci" / "run").read_text().splitlines() if line.startswith("key="))
    assert "pyproject.toml constraints.txt" in key


def test_the_version_is_that_of_the_installation() -> None:
    assert tta_bench.__version__ == importlib.metadata.version("ttabench") == PROJECT["version"]
    code = "import sys, tta_bench; print([name for name in sys.modules if name.startswith('importlib.metadata')])"
    assert subprocess.check_output([sys.executable, "-c", code], text=True).strip() == "[]"  # importing stays quick
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = tta_bench.nonsense
