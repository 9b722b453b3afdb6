"""Plugins: names without imports, failures named and survived, loose files, limits."""

from __future__ import annotations

import json
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke
from tta_bench.errors import PluginError, UnknownName
from tta_bench.plugins import Registry, get_backbone, get_dataset, get_method


@pytest.fixture
def outsiders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An installed distribution whose plugins are partly broken."""
    package = tmp_path / "site"
    package.mkdir()
    (package / "explodes.py").write_text("raise SystemExit('no GPU\\nfound')")
    (package / "typo.py").write_text(
        "from tta_bench import hookimpl\n@hookimpl\ndef ttabench_method():\n    return []\n"
    )
    (package / "empty.py").write_text("")
    (package / "fine.py").write_text('"""A fine method."""\n' + TOY.read_text().partition('"""\n')[2])
    info = package / "outside-1.2.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: outside\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(
        "[ttabench]\nmethods.explodes = explodes\nmethods.typo = typo\nmethods.empty = empty\n"
        "methods.twobranches = fine\nmethods.tda = fine\nmisnamed = fine\n"
    )
    monkeypatch.syspath_prepend(str(package))
    return package


def test_names_are_read_without_importing(outsiders: Path) -> None:
    code = (
        "import sys; from tta_bench.plugins import Registry; r = Registry();"
        "print([p.name for p in r.plugins('methods')], [p.summary for p in r.plugins('methods')]);"
        "print('torch' in sys.modules, 'fine' in sys.modules)"
    )
    environment = {"PYTHONPATH": str(outsiders), "PATH": ""}
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment
    ).stdout
    assert "'explodes'" in out
    assert "A fine method." in out
    assert out.splitlines()[-1] == "False False"


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("explodes", "SystemExit: no GPU found"),
        ("typo", "(typo.py, line 2)"),
        ("empty", "'empty' but offers nothing"),
    ],
)
def test_a_broken_plugin_is_named_and_stops_only_those_who_ask_for_it(
    outsiders: Path, invoke: Invoke, name: str, reason: str
) -> None:
    result = invoke("run", "--method", name)
    assert result.code == 1
    assert reason in result.err
    assert "outside 1.2" in result.err
    assert "Traceback" not in result.err
    assert invoke("list", "methods").code == 0


def test_two_plugins_of_one_name_are_an_error_that_names_both(outsiders: Path) -> None:
    with pytest.raises(PluginError, match=r"fine \(outside 1.2\) and tta_bench.methods.tda \(ttabench"):
        Registry().method("tda")
    assert Registry(without=["outside"]).method("tda").name == "tda"
    assert Registry(only=[]).method("tda").name == "tda"


def test_limits(outsiders: Path) -> None:
    assert "twobranches" in Registry().names("methods")
    assert "twobranches" in Registry(only=["outside"]).names("methods")
    assert "twobranches" in Registry(only=["methods.twobranches"]).names("methods")
    assert "twobranches" not in Registry(only=["others"]).names("methods")
    assert "twobranches" not in Registry(without=["methods.twobranches"]).names("methods")
    assert "tda" not in Registry(without=["tda"]).names("methods")
    assert "no such plugin" in Registry(without=["nonsense"]).warnings[-1]


def test_the_environment_limits_loading(outsiders: Path, invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTABENCH_PLUGINS", "")
    listed = json.loads(invoke("list", "methods", "--json").out)
    assert {plugin["distribution"] for plugin in listed} == {"ttabench"}


def test_a_misnamed_entry_point_is_reported(outsiders: Path, invoke: Invoke) -> None:
    assert "entry point 'misnamed' is ignored" in invoke("list", "methods").err


def test_doctor_says_what_is_broken(outsiders: Path, invoke: Invoke) -> None:
    result = invoke("doctor", "--json")
    assert result.code == 1
    findings = {finding["topic"]: finding for finding in json.loads(result.out)}
    assert findings["methods.explodes"]["ok"] is False
    assert "no GPU found" in findings["methods.explodes"]["value"]
    assert findings["methods.clip"]["ok"] is True
    assert findings["torch"]["ok"] is True
    assert "GB free" in findings["store"]["value"]


def test_doctor_on_a_healthy_installation(invoke: Invoke) -> None:
    result = invoke("doctor")
    assert result.code == 0, result.out
    assert "BAD" not in result.out


def test_list(invoke: Invoke) -> None:
    assert "scenes" in invoke("list", "datasets").out
    assert "tiny" in invoke("list", "backbones").out
    assert "methods.tda" in invoke("list", "plugins").out
    assert "twobranches" in invoke("list", "methods", "--plugin", str(TOY)).out
    assert invoke("list", "method").code == 2


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("def broken(:", "SyntaxError"),
        ("import nonexistent_module", "ModuleNotFoundError: No module named 'nonexistent_module'"),
        ("x = 1", "no hook found"),
    ],
)
def test_a_broken_loose_file(invoke: Invoke, tmp_path: Path, source: str, reason: str) -> None:
    file = tmp_path / "mine.py"
    file.write_text(source)
    result = invoke("run", "--method", "mine", "--plugin", str(file))
    assert result.code == 1
    assert "mine.py" in result.err
    assert reason in result.err
    assert "Traceback" not in result.err


def test_names_from_outside() -> None:
    assert get_method("tda").name == "tda"
    assert get_dataset("scenes").name == "scenes"
    assert get_backbone("tiny").name == "tiny"
    with pytest.raises(UnknownName, match="Did you mean tda"):
        get_method("tdo")


def test_an_entry_point_is_a_module_and_nothing_else() -> None:
    """Every built-in is declared as an outsider would: one line in pyproject.toml."""
    built_in = [p for p in Registry().plugins() if p.distribution == "ttabench"]
    assert built_in
    for plugin in built_in:
        assert EntryPoint(plugin.entry_point, plugin.module, "ttabench").module == plugin.module


def test_a_malformed_entry_points_file_hides_no_plugin(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Invoke
) -> None:
    info = tmp_path / "bad-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: bad\nVersion: 1.0\n")
    (info / "entry_points.txt").write_bytes(b"[ttabench]\nmethods.x\n=y\n[[[\nmethods.z = \xff\xfe\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    result = invoke("list", "methods")
    assert result.code == 0
    assert "purf" in result.out
    assert "bad-1.0.dist-info: its entry_points.txt can't be read" in result.err
