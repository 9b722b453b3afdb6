"""What is hashed is what is executed: helper modules, edits within a second, code that was imported before."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke
from tests.e2e.test_grid import METHOD
from tta_bench import records
from tta_bench.errors import PluginError
from tta_bench.plugins import Registry

TOYS = ("--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip", "--workers", "0", "--limit", "5")
HELPED = METHOD.replace("SCORES", "sign() * (self.task.text @ x.image)")


def helper(sign: str, more: str = "") -> str:
    return f"{more}\ndef sign():\n    return {sign}\n"


def write_package(site: Path, sign: str) -> None:
    """An installed distribution: a package of three modules, of which the entry point names one."""
    info = site / "mine-1.0.dist-info"
    info.mkdir(parents=True, exist_ok=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ttabench]\nmethods.mine = mine_package.method\n")
    package = site / "mine_package"
    package.mkdir(exist_ok=True)
    (package / "__init__.py").write_text("")
    (package / "method.py").write_text(HELPED.replace('"""A method."""', '"""A method."""\nfrom .middle import sign'))
    (package / "middle.py").write_text("from mine_package.core import sign\n")
    (package / "core.py").write_text(helper(sign))


def command(site: Path, home: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": f"{site}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"}
    environment["TTABENCH_HOME"] = str(home)
    line = [sys.executable, "-m", "tta_bench", *arguments]
    return subprocess.run(line, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.slow
def test_an_edited_helper_of_a_package_is_another_config(tmp_path: Path) -> None:
    outputs = []
    for sign in ("+1", "+1", "-1"):  # one size and perhaps one second: cached byte code would be taken for good
        write_package(tmp_path / "site", sign)
        done = command(tmp_path / "site", tmp_path / "home", "run", "-m", "mine", *TOYS)
        assert done.returncode == 0, done.stderr
        outputs.append(done.stdout)
    assert ["done before" in out for out in outputs] == [False, True, False]
    runs, _ = records.load_all(tmp_path / "home" / "runs")
    assert len({run.metrics["mAP"] for run in runs}) == 2


def test_an_edited_helper_beside_a_loose_file_is_another_config(
    invoke: Invoke, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(HELPED.replace('"""A method."""', '"""A method."""\nfrom beside_mine import sign'))
    monkeypatch.syspath_prepend(str(tmp_path))
    for sign in ("+1", "-1"):
        (tmp_path / "beside_mine.py").write_text(helper(sign))
        monkeypatch.delitem(sys.modules, "beside_mine", raising=False)
        assert invoke("run", "-m", "mine", "--plugin", str(plugin), *TOYS).code == 0
    runs, _ = records.load_all(home / "runs")
    assert len({run.config.parts["source"] for run in runs}) == 2
    assert len({run.metrics["mAP"] for run in runs}) == 2


def test_a_helper_that_python_does_not_look_for_beside_a_loose_file_is_named(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(f"import lies_beside\n{METHOD}")
    with pytest.raises(PluginError, match=r"No module named 'lies_beside' \(mine.py, line 1\)"):
        Registry([plugin])
    (tmp_path / "lies_beside.py").write_text("")
    with pytest.raises(PluginError, match=r"'lies_beside', which lies beside it: write sys\.path") as refused:
        Registry([plugin])
    line = str(refused.value).partition("write ")[2].partition(" above")[0]
    plugin.write_text(f"import sys\nfrom pathlib import Path\n{line}\nimport lies_beside\n{METHOD}")
    assert Registry([plugin]).method("mine").name == "mine"


def test_an_edit_of_the_same_size_in_the_same_second_is_seen(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    for sign in ("+", "-"):
        plugin.write_text(METHOD.replace("SCORES", f"{sign}(self.task.text @ x.image)"))
        os.utime(plugin, (1_700_000_000, 1_700_000_000))
        assert invoke("run", "-m", "mine", "--plugin", str(plugin), *TOYS).code == 0
    runs, _ = records.load_all(home / "runs")
    assert len({run.metrics["mAP"] for run in runs}) == 2


def test_a_module_that_was_imported_before_counts_as_it_is_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_package(tmp_path, "+1")
    monkeypatch.syspath_prepend(str(tmp_path))
    import importlib

    importlib.import_module("mine_package.method")
    before = Registry().origin("methods", "mine")
    (tmp_path / "mine_package" / "method.py").write_text("raise RuntimeError('edited')")
    assert Registry().origin("methods", "mine") == before
    for name in [name for name in sys.modules if name.startswith("mine_package")]:
        monkeypatch.delitem(sys.modules, name)


def test_a_single_files_identity_is_that_of_its_bytes(tmp_path: Path) -> None:
    """As before: records of loose plugins made by version 0.1 still fit."""
    from tta_bench.system.files import file_digest

    plugin = tmp_path / "mine.py"
    plugin.write_text(METHOD.replace("SCORES", "self.task.text @ x.image"))
    assert Registry([plugin]).origin("methods", "mine").source == file_digest(plugin)
