"""Folders that several people, machines and file systems see: a number is the right run's, and none goes missing."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import filelock
import pytest

import tta_bench
from tests.conftest import Invoke
from tta_bench.errors import UsageError
from tta_bench.records import load_all
from tta_bench.runs import exchange
from tta_bench.runs.bench import Bench
from tta_bench.runs.folder import RunFolder
from tta_bench.runs.spec import RunSpec
from tta_bench.system import locks
from tta_bench.system.files import write_atomically


@pytest.fixture
def two(toy_bench: Bench) -> list[Path]:
    """The folders of two runs that differ in their seed."""
    records = [toy_bench.run(RunSpec("clip", "toy", "toyclip", seed=seed, limit=6)).record for seed in (0, 1)]
    return [record.folder for record in records if record.folder is not None]


# ---- whose run it is


def test_a_folder_of_that_name_somewhere_else_is_not_the_run(
    two: list[Path], invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It came before the folder of results, whatever run was in it."""
    first, second = two
    elsewhere = tmp_path / "elsewhere"
    shutil.copytree(second, elsewhere / first.name)
    monkeypatch.chdir(elsewhere)
    shown = invoke("show", first.name, "--results", str(first.parent), "--json")
    assert '"seed": 0' in shown.out
    refused = invoke("show", f"./{first.name}")
    assert refused.code != 0
    assert f"holds the run {second.name}: a copy, or under another run's name" in refused.err


def test_a_run_in_the_folder_there_is_shown(two: list[Path], invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(two[0])
    assert '"seed": 0' in invoke("show", ".", "--json").out
    assert '"seed": 1' in invoke("show", str(two[1]), "--json").out


def test_a_runs_own_folder_is_no_folder_of_results(two: list[Path], invoke: Invoke) -> None:
    """The next run of the same identity took all of it away."""
    with pytest.raises(UsageError, match="is one run: name the folder that it is in"):
        Bench(results=two[0])
    assert "is one run" in invoke("run", "-m", "clip", "--results", str(two[0])).err


# ---- what others may not enter


def forbidden(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As for somebody who is not root."""
    stat: Callable[..., Any] = Path.stat

    def refusing(self: Path, **more: Any) -> Any:
        if self.is_relative_to(folder) and self != folder:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return stat(self, **more)

    monkeypatch.setattr(Path, "stat", refusing)


def test_a_run_that_may_not_be_entered_is_said(
    two: list[Path], invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    forbidden(monkeypatch, two[1])
    runs, problems = load_all(two[0].parent)
    assert len(runs) == 1
    assert problems == [f"{two[1]} can't be read: Permission denied"]
    assert "can't be read: Permission denied" in invoke("leaderboard", "--fast").err
    assert list(tta_bench.load_results(two[0].parent).problems) == problems
    for command in (("runs", "ls"), ("store", "ls"), ("run", "-m", "clip", "--seed", "1")):
        assert "unexpected" not in invoke(*command).err


def test_results_that_may_not_be_listed_are_one_line(
    two: list[Path], invoke: Invoke, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(self: Path) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(self))

    monkeypatch.setattr(Path, "iterdir", refusing)
    done = invoke("leaderboard", "--results", str(two[0].parent))
    assert done.code != 0
    assert "can't be read: Permission denied" in done.err


# ---- nothing is lost


def test_what_lies_beside_a_run_stays_there(two: list[Path], toy_bench: Bench) -> None:
    (two[0] / "notes.md").write_text("mine")
    (two[0] / "figures").mkdir()
    (two[0] / "figures" / "one.txt").write_text("1")
    toy_bench.run(RunSpec("clip", "toy", "toyclip", seed=0, limit=6), force=True)
    assert (two[0] / "notes.md").read_text() == "mine"
    assert (two[0] / "figures" / "one.txt").read_text() == "1"
    assert len(load_all(two[0].parent)[0]) == 2


def test_a_whole_run_completes_a_compact_one(two: list[Path], tmp_path: Path) -> None:
    """It was there already, it was said, and its outputs were gone with the folder that it came from."""
    whole, target = exchange.checked(two[0]), tmp_path / "target"
    assert exchange.add(whole.compact(), target, shared=False) is exchange.Outcome.COPIED
    assert exchange.add(whole, target, shared=False) is exchange.Outcome.COPIED
    assert (target / two[0].name / "outputs.safetensors").is_file()
    assert exchange.add(whole.compact(), target, shared=False) is exchange.Outcome.ALREADY
    assert (target / two[0].name / "outputs.safetensors").is_file()


def test_a_link_is_written_through(tmp_path: Path) -> None:
    target, link = tmp_path / "target.md", tmp_path / "link.md"
    target.write_text("old")
    link.symlink_to(target)
    write_atomically(link, b"new")
    assert target.read_text() == "new"
    assert link.is_symlink()


# ---- nothing hangs


@pytest.mark.parametrize("name", ["asked.txt", "verified.json", "scores.safetensors"])
def test_a_pipe_in_a_runs_folder_is_not_waited_for(name: str, two: list[Path], invoke: Invoke) -> None:
    (two[0] / name).unlink(missing_ok=True)
    os.mkfifo(two[0] / name)
    assert invoke("leaderboard").code == 0


def test_a_pipe_in_the_place_of_scores_is_no_scores(two: list[Path], invoke: Invoke) -> None:
    """`verify` waited for ever for somebody to write into it."""
    (two[0] / "scores.safetensors").unlink()
    os.mkfifo(two[0] / "scores.safetensors")
    shown = invoke("verify", str(two[0]))
    assert shown.code == 1
    assert "not a regular file" in " ".join((shown.out + shown.err).split())


# ---- nothing goes without a word


@pytest.mark.parametrize("what", ["the record", "its folder", "a link to itself"])
def test_a_record_that_is_a_link_to_nowhere_is_said(what: str, two: list[Path], invoke: Invoke, tmp_path: Path) -> None:
    """As git-annex leaves them, or a disk that is not mounted: a table had a run less, and said nothing."""
    link = two[0] if what == "its folder" else two[0] / "run.json"
    link.rename(tmp_path / "away")
    link.symlink_to(link.name if what == "a link to itself" else "/not/mounted")
    for command in (("leaderboard",), ("runs", "ls")):
        shown = (
            " ".join(invoke(*command).err.split() + invoke(*command, "--json").out.split())
            if command[0] == "runs"
            else " ".join(invoke(*command).err.split())
        )
        assert "leads nowhere: it is a link to" in shown, command
    taken = invoke("runs", "import", str(two[0].parent), "--results", str(tmp_path / "other"))
    assert taken.code == 1
    assert "leads nowhere" in " ".join(taken.err.split())


@pytest.fixture
def without_flock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def missing(*_: object) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", missing)
    locks._knows_flock.cache_clear()
    yield
    locks._knows_flock.cache_clear()


def test_a_lock_file_of_another_file_system_is_held_by_nobody(two: list[Path], without_flock: None) -> None:
    """Where there is no flock a file is the lock, and those that lie there from before made every command wait."""
    assert list(two[0].parent.glob(".*.lock"))
    folder, waited = RunFolder(two[0].parent, two[0].name), []
    with folder.locked(lambda: waited.append(1)):
        assert not waited
        with pytest.raises(filelock.Timeout):
            locks.lock_on(two[0].parent / f".{two[0].name}.lock").acquire(timeout=0)
    assert isinstance(locks.lock_on(two[0].parent / "any"), filelock.SoftFileLock)


def test_without_flock_a_run_runs(without_flock: None, toy_bench: Bench) -> None:
    first = toy_bench.run(RunSpec("clip", "toy", "toyclip", limit=6))
    assert toy_bench.run(RunSpec("clip", "toy", "toyclip", limit=6), force=True).record.run_id == first.record.run_id
