"""A process whose user nobody knows and that has no HOME: a container with --user, a job without an environment."""

from __future__ import annotations

import pwd
from pathlib import Path
from typing import NoReturn

import platformdirs
import pytest

from tests.conftest import Invoke
from tests.e2e.test_errors import complaint
from tests.record_fixtures import record, write
from tta_bench.errors import UsageError
from tta_bench.runs.bench import Bench
from tta_bench.runs.ledger import Ledger
from tta_bench.runs.spec import RunSpec
from tta_bench.system import paths
from tta_bench.system.progress import Silent


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unknown(*_: object) -> NoReturn:
        raise KeyError

    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pwd, "getpwuid", unknown)
    monkeypatch.setattr(pwd, "getpwnam", unknown)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("nobody")
def test_a_user_without_a_home_has_that_of_ttabench(invoke: Invoke, home: Path) -> None:
    write(home / "runs", record("clip"))
    assert "clip" in invoke("leaderboard", "--fast").out
    bench = Bench(home, progress=Silent())
    spec = RunSpec("clip", "scenes", "tiny")
    assert bench.find(spec) is None
    assert str(Ledger(bench).standing(spec).state)


@pytest.mark.usefixtures("nobody")
@pytest.mark.parametrize("literal", [True, False])
def test_a_user_without_any_home_is_told_what_to_set(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, literal: bool
) -> None:
    if literal:  # as older versions of platformdirs answer
        monkeypatch.setattr(platformdirs, "user_cache_dir", lambda _: "~/.cache/ttabench")
    monkeypatch.delenv("TTABENCH_HOME")
    assert "set TTABENCH_HOME" in complaint(invoke("runs", "ls"), 2)
    assert not Path("~").exists()


@pytest.mark.parametrize(
    "options",
    [
        ("--pack", "~nobody-here/x.safetensors"),
        ("--data-root", "~nobody-here"),
        ("--data", "folder=~nobody-here"),
        ("--dataset", "folder:~nobody-here/birds"),
    ],
)
def test_the_folder_of_a_user_whom_nobody_knows_is_refused_in_a_line(invoke: Invoke, options: tuple[str, str]) -> None:
    said = complaint(invoke("run", "--method", "clip", *options), 2)
    assert "~nobody-here" in said
    assert "no such user" in said


def test_a_home_of_a_user_whom_nobody_knows_is_refused_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TTABENCH_HOME", "~nobody-here/ttabench")
    with pytest.raises(UsageError, match="~nobody-here/ttabench: no such user"):
        paths.home()
