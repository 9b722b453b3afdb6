"""Runs that wait for another process, and results that can be read and not written."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import filelock
import pytest

from tests.conftest import Invoke
from tests.faults.toy_runs import PATIENCE, TOY_RUN, the_record
from tta_bench.runs.bench import Bench
from tta_bench.runs.folder import RunFolder
from tta_bench.system.progress import Silent

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def test_waiting_for_another_process_is_said(toy_bench: Bench) -> None:
    run_id = toy_bench.prepare(TOY_RUN).run_id
    toy_bench.runs.mkdir(parents=True)
    reporter, held = toy_bench.reporter, threading.Event()
    assert isinstance(reporter, Silent)

    def hold() -> None:
        with filelock.FileLock(toy_bench.runs / f".{run_id}.lock"):
            held.set()
            while not any("waiting" in line for line in reporter.lines):
                time.sleep(0.01)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert held.wait(PATIENCE)
    toy_bench.run(TOY_RUN)
    thread.join(PATIENCE)
    assert [line for line in reporter.lines if "waiting" in line] == [
        f"another process is running {run_id}: waiting for it"
    ]


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A bind mount: root may write to folders without the permission to."""
    if os.system(f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}"):
        pytest.skip("no mounting here")
    try:
        yield
    finally:
        os.system(f"umount {folder}")


@root_only
def test_a_finished_run_in_read_only_results_is_shown_and_skipped(toy_run: Invoke, invoke: Invoke, home: Path) -> None:
    assert toy_run("twobranches").code == 0
    for lock in (home / "runs").glob(".*.lock"):
        lock.unlink()
    with read_only(home / "runs"):
        again = toy_run("twobranches")
        assert again.code == 0, again.err
        assert "done before, nothing to do" in again.out
        assert invoke("show", the_record(home).run_id).code == 0
        forced = toy_run("twobranches", "--force")
        assert forced.code == 1
        assert "Read-only file system" in forced.err.splitlines()[-1]
        assert "Traceback" not in forced.err


def test_a_finished_run_takes_no_lock(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where nothing can be mounted."""
    toy_bench.run(TOY_RUN)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    assert toy_bench.run(TOY_RUN).already


def test_a_run_folder_knows_when_it_is_whole(tmp_path: Path) -> None:
    assert RunFolder(tmp_path, "x").state() == (None, "")
