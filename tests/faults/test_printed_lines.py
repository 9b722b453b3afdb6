"""`--executor print`: a line runs its cell and no other, whatever the folder that it is run from says."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from tests.conftest import Invoke
from tta_bench import records
from tta_bench.records import RunRecord
from tta_bench.runs.bench import Bench
from tta_bench.runs.executors.shell import command
from tta_bench.runs.executors.work import Workplace
from tta_bench.runs.spec import RunSpec

SUITE = """methods: [clip, tda]
packs: [PACK]
recipes: {views: plain3}
seeds: [3]
"""
OTHER = """home = "elsewhere"
data_root = "elsewhere"
[run]
limit = 2
empty-classes = "zero"
set = ["tda.shots=7"]
order = "sequential"
executor = "print"
dataset = "scenes"
random-weights = true
"""


def run_lines(invoke: Invoke, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    """As a shell does."""
    for line in text.splitlines():
        words = shlex.split(line)
        with monkeypatch.context() as own:
            while "=" in words[0]:
                own.setenv(*words.pop(0).split("=", 1))
            done = invoke(*words[1:])
            assert done.code == 0, done.err


def test_a_file_in_a_setting_is_found_from_any_folder(
    toy_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "words.safetensors").touch()
    workplace = Workplace.of(toy_bench)
    for settings, begins in (
        ({"captions": "words.safetensors"}, f"cd {tmp_path} && TTABENCH"),
        ({"shots": 4}, "TTABENCH"),
    ):
        assert command(RunSpec("mltta", "toy", "toyclip", settings=settings), workplace).startswith(begins)


def recorded(home: Path) -> list[RunRecord]:
    return records.load_all(home / "runs")[0]


def test_a_printed_line_runs_its_cell_whatever_a_config_file_says(
    invoke: Invoke, home: Path, toy_pack: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "suite.yaml").write_text(SUITE.replace("PACK", str(toy_pack)))
    printed = invoke("suite", str(tmp_path / "suite.yaml"), "--executor", "print")
    assert printed.code == 0, printed.err
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "ttabench.toml").write_text(OTHER)
    monkeypatch.chdir(tmp_path / "there")
    run_lines(invoke, monkeypatch, printed.out)
    made = recorded(home)
    assert {run.method: dict(run.changes) for run in made} == {"clip": {}, "tda": {"views": "plain3"}}
    assert {(run.seed, run.n, run.order, run.protocol.parts["empty_classes"]) for run in made} == {
        (3, 24, "shuffled", "skip")
    }
    monkeypatch.chdir(tmp_path)
    assert "2 done" in invoke("suite", "status", str(tmp_path / "suite.yaml")).out


def test_a_printed_line_has_the_options_that_a_config_file_would_have_changed(
    invoke: Invoke, tmp_path: Path, toy_pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ttabench.toml").write_text('data_root = "elsewhere"\n[run]\nempty-classes = "zero"\n')
    monkeypatch.chdir(tmp_path)
    line = invoke("run", "-m", "clip", "--pack", str(toy_pack), "--empty-classes", "skip", "--executor", "print").out
    words = shlex.split(line)
    assert words[words.index("--empty-classes") + 1] == "skip"
    assert words[words.index("--data-root") + 1] == str(tmp_path / "elsewhere")


def test_a_printed_line_says_whose_protocol_it_is(
    invoke: Invoke, home: Path, toy_pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = ("run", "-m", "clip", "--pack", str(toy_pack), "--protocol-preset", "purf")
    run_lines(invoke, monkeypatch, invoke(*asked, "--executor", "print").out)
    assert "done before" in invoke(*asked).out


def test_a_config_file_can_be_named_or_be_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, invoke: Invoke) -> None:
    (tmp_path / "ttabench.toml").write_text("[run]\nlimitt = 2\n")
    (tmp_path / "own.toml").write_text("[run]\nlimmit = 2\n")
    monkeypatch.chdir(tmp_path)
    said = []
    for name in ("", "own.toml", "gone.toml", "/dev/null"):
        monkeypatch.setenv("TTABENCH_CONFIG", name)
        said.append(invoke("runs", "ls").err)
    for words, line in zip(("'limitt'", "'limmit'", "gone.toml: can't be read"), said, strict=False):
        assert words in line
    assert said[-1] == ""
