"""Loose files with helpers of one name beside them: each is run with its own, or not at all."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke
from tests.e2e.test_grid import METHOD
from tta_bench import records
from tta_bench.errors import PluginError
from tta_bench.plugins import Registry
from tta_bench.system import loading

DATASET = """
import sys, pathlib
sys.path.PUT str(pathlib.Path(__file__).parent / "FOLDER"))
EAGER
from tta_bench import hookimpl

class Mine:
    name = "NAME"

    def helper(self):
        LAZY
        return common.SIZE

@hookimpl
def ttabench_datasets():
    return [Mine]
"""


@pytest.fixture(autouse=True)
def own_modules(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Each test in a process of its own, as far as it can see."""
    before, kept = set(sys.modules), dict(loading._kept)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield
    for name in set(sys.modules) - before:
        del sys.modules[name]
    loading._kept.clear()
    loading._kept.update(kept)


def dataset(file: Path, size: int, eager: bool = True, put: str = "insert(0,", folder: str = ".") -> Path:
    """A dataset that asks the module `common` in its folder for a number."""
    file.parent.mkdir(exist_ok=True)
    (file.parent / folder).mkdir(exist_ok=True)
    (file.parent / folder / "common.py").write_text(f"SIZE = {size}\n")
    words = {"PUT": put, "FOLDER": folder, "NAME": file.stem}
    words |= {"EAGER": "import common", "LAZY": ""} if eager else {"EAGER": "", "LAZY": "import common"}
    text = DATASET
    for word, meant in words.items():
        text = text.replace(word, meant)
    file.write_text(text)
    return file


def helper_of(registry: Registry, name: str) -> int:
    found: int = registry.dataset(name)().helper()  # type: ignore[attr-defined]
    return found


@pytest.mark.parametrize("put", ["insert(0,", "append("])
@pytest.mark.parametrize("folder", [".", "lib"])
@pytest.mark.parametrize("second", [True, False])
@pytest.mark.parametrize("first", [True, False])
def test_another_ones_helper_is_refused(first: bool, second: bool, folder: str, put: str, tmp_path: Path) -> None:
    """Whichever imports it when: the first goes on with its own."""
    da = dataset(tmp_path / "a" / "da.py", 4, first, put, folder)
    db = dataset(tmp_path / "b" / "db.py", 16, second, put, folder)
    registry = Registry([da, db])
    with pytest.raises(PluginError, match="rename one") as refused:
        registry.dataset("db")
    for file in (da.parent, db.parent):
        assert str(file / folder / "common.py") in str(refused.value)
    assert "helper common" in str(refused.value)
    assert helper_of(registry, "da") == 4
    assert helper_of(Registry([da]), "da") == 4  # and when it is loaded again


def test_what_a_helper_imports_counts(tmp_path: Path) -> None:
    da, db = (dataset(tmp_path / name[-1] / f"{name}.py", 4) for name in ("da", "db"))
    db.write_text(db.read_text().replace("import common", "import between as common"))
    (db.parent / "between.py").write_text("from common import SIZE\n")
    with pytest.raises(PluginError, match="helper common"):
        Registry([da, db]).dataset("db")


def test_one_helper_for_both_is_no_matter(tmp_path: Path) -> None:
    da = dataset(tmp_path / "da.py", 4)
    db = dataset(tmp_path / "db.py", 4, eager=False)
    registry = Registry([da, db])
    assert helper_of(registry, "da") == helper_of(registry, "db") == 4


def test_methods_have_their_own_helpers(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    """They live in processes of their own."""
    given = []
    for name, sign in (("ma", 1), ("mb", -1)):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "common.py").write_text(f"SIGN = {sign}\n")
        path = "import sys, pathlib\nsys.path.insert(0, str(pathlib.Path(__file__).parent))\nfrom common import SIGN\n"
        text = METHOD.replace("SCORES", "SIGN * self.task.text @ x.image").replace('"mine"', f'"{name}"')
        (folder / f"{name}.py").write_text(path + text)
        given += ["--plugin", str(folder / f"{name}.py")]
    result = invoke("run", "-m", "ma,mb", *given, "--plugin", str(TOY), "-d", "toy", "-b", "toyclip", "--workers", "0")
    assert result.code == 0, result.err
    first, second = sorted(records.load_all(home / "runs")[0], key=lambda run: run.method)
    assert (first.scores() == -second.scores()).all()
    assert set(Registry([Path(file) for file in given[1::2]]).names("methods")) >= {"ma", "mb"}
