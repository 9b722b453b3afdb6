"""Plugins that are installed: all that their distribution holds, and what it rests on, is part of what they are."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tta_bench.system import distributions

METHOD = """
from dataclasses import dataclass
from typing import ClassVar
from tta_bench import hookimpl
from tta_bench.interfaces import Method
import lab

@dataclass
class Mine(Method):
    name: ClassVar[str] = "mine"
    bank: ClassVar[list] = []

    def start(self, task):
        self.task = task

    def step(self, x):
        return GAIN * lab.gain * (self.task.text @ x.image)


@hookimpl
def ttabench_methods():
    return [Mine]
"""
Install = Callable[..., None]


@pytest.fixture
def site(tmp_path: Path) -> Path:
    """A folder of libraries."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    return folder


def put(
    site: Path, name: str, files: dict[str, str], version: str = "1.0", requires: str = "", offers: str = ""
) -> None:
    """What pip leaves of a wheel with these files."""
    info = site / f"{name}-{version}.dist-info"
    for old in site.glob(f"{name}-*.dist-info"):
        shutil.rmtree(old)
    info.mkdir()
    require = "".join(f"Requires-Dist: {line}\n" for line in requires.splitlines())
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{require}")
    if offers:
        (info / "entry_points.txt").write_text(f"[ttabench]\nmethods.mine = {offers}\n")
    lines = [f"{info.name}/METADATA,,", f"{name}/__pycache__/x.pyc,,"]
    for file, text in files.items():
        (site / file).parent.mkdir(exist_ok=True)
        (site / file).write_text(text)
        hashed = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{file},sha256={hashed},{len(text)}")
    (info / "RECORD").write_text("\n".join(lines) + "\n")


@pytest.fixture
def install(site: Path) -> Install:
    return functools.partial(put, site)


@pytest.fixture
def seen(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], str]]:
    """`content` as a new process would find it."""
    monkeypatch.syspath_prepend(str(site))

    def fresh(package: str) -> str:
        forget()
        return distributions.content(package)

    yield fresh
    monkeypatch.undo()
    forget()


def forget() -> None:
    for name in ("content", "needed", "offering", "plugins_own", "beside", "_installed", "_bringing", "_listed"):
        getattr(distributions, name).cache_clear()


PLUGIN = {"mine/__init__.py": "", "mine/gains.json": "1"}


def test_every_file_of_a_distribution_counts(install: Install, seen: Callable[[str], str]) -> None:
    install("mine", PLUGIN)
    before = seen("mine")
    assert len(before) == 64
    install("mine", PLUGIN, version="2.0")
    assert seen("mine") == before  # the same code under another version
    install("mine", PLUGIN | {"mine/gains.json": "2"})
    assert seen("mine") != before


def test_what_was_edited_by_hand_counts(
    install: Install, seen: Callable[[str], str], site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for offers, large in (("", 1e6), ("mine", 0)):
        monkeypatch.setattr(distributions, "LARGE", large)
        install("mine", PLUGIN, offers=offers)
        before = seen("mine")
        (site / "mine" / "gains.json").write_text("3")
        assert seen("mine") != before


def test_what_a_distribution_requires_counts(install: Install, seen: Callable[[str], str]) -> None:
    helper = {"lab/__init__.py": "gain = 1"}
    install("lab", helper)
    install("mine", PLUGIN, requires="Lab>=1 ; python_version > '3'")
    before = seen("mine")
    install("lab", {"lab/__init__.py": "gain = 2"})
    assert seen("mine") != before
    install("mine", PLUGIN, requires="lab ; extra == 'plots'")
    with_extra = seen("mine")
    install("lab", helper)
    assert seen("mine") == with_extra


def test_what_ttabench_needs_itself_counts_by_its_name(seen: Callable[[str], str]) -> None:
    assert [seen(package) for package in ("torch", "numpy", "tta_bench", "os", "nobody_has_this")] == [""] * 5
    assert distributions.is_common("torch")
    assert distributions.is_common("os")
    assert not distributions.is_common("sklearn")


def test_a_checkout_counts_where_its_files_lie(install: Install, seen: Callable[[str], str], site: Path) -> None:
    install("mine", {"__editable__.mine-1.0.pth": "/somewhere/mine"})
    (next(site.glob("*.dist-info")) / "top_level.txt").write_text("mine\n")
    assert seen("mine") == ""


@pytest.mark.parametrize("file", ["dropped.py", "dropped/__init__.py", "dropped/gains.json", "dropped/part.py"])
def test_what_was_put_among_the_libraries_without_metadata_counts(
    seen: Callable[[str], str], site: Path, file: str
) -> None:
    place = site / file
    place.parent.mkdir(exist_ok=True)
    place.write_text("gain = 1")
    before = seen("dropped")
    assert len(before) == 64
    (site / "__pycache__").mkdir()
    assert seen("dropped") == before
    place.write_text("gain = 2")
    assert seen("dropped") != before


# ------------------------------------------------------------------------------------------------ as a user meets it

SESSION = """
import json, sys
sys.path.insert(0, sys.argv[1])
from tta_bench.system import loading, whose
for module in (whose, loading):
    module.LIBRARIES = (*whose.LIBRARIES, sys.argv[1])
whose.BELOW_LIBRARIES = (*whose.BELOW_LIBRARIES, sys.argv[1])
from tta_bench.plugins import Registry
from tta_bench.system.code import origin_of
by_name = Registry().origin("methods", "mine").source
import mine
before = origin_of(mine.Mine()).source
mine.Mine.bank.append(1)
print(json.dumps([by_name, before, origin_of(mine.Mine()).source]))
"""


def sources(site: Path) -> list[str]:
    """Digests in a session of its own: of the plugin by its name, of an instance, of one whose class has changed."""
    done = subprocess.run([sys.executable, "-c", SESSION, str(site)], capture_output=True, text=True, check=True)
    found: list[str] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("what", ["data", "a library of its own", "code"])
def test_an_upgrade_is_another_method_by_name_and_as_an_instance(install: Install, site: Path, what: str) -> None:
    install("lab", {"lab/__init__.py": "gain = 1"})
    install("mine", {"mine/__init__.py": METHOD.replace("GAIN", "1"), "mine/gains.json": "1"}, offers="mine")
    before = sources(site)
    assert sources(site) == before
    assert before[1] != before[2]  # what is kept on an installed class is seen
    if what == "a library of its own":
        install("lab", {"lab/__init__.py": "gain = 2"})
    else:
        code, data = ("2", "1") if what == "code" else ("1", "2")
        install("mine", {"mine/__init__.py": METHOD.replace("GAIN", code), "mine/gains.json": data}, offers="mine")
    assert all(one != other for one, other in zip(sources(site), before, strict=True))
