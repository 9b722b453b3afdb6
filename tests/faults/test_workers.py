"""Workers without shared memory, or that die: rendering goes on in this process, with the same bits."""

from __future__ import annotations

import multiprocessing
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest
from torch import Tensor

from tests.faults.toy_runs import PATIENCE, TOY_RUN, WITH_WORKERS
from tta_bench.features import rendering
from tta_bench.features.options import EncodingOptions
from tta_bench.plugins import Registry
from tta_bench.runs.bench import Bench
from tta_bench.system.progress import Silent

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")
IN_PROCESS = "rendering in this process"
SMALL_SHARED_MEMORY = "mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "  # in a mount namespace of its own


@pytest.fixture
def rendered_here(toy_registry: Registry, tmp_path: Path) -> bytes:
    bench = Bench(tmp_path / "here", registry=toy_registry, encoding=EncodingOptions(workers=0), progress=Silent())
    folder = bench.run(TOY_RUN).record.folder
    assert folder is not None
    return (folder / "scores.safetensors").read_bytes()


def with_workers(registry: Registry, home: Path) -> tuple[bytes, list[str]]:
    reporter = Silent()
    bench = Bench(home, registry=registry, encoding=EncodingOptions(batch_size=8, workers=2), progress=reporter)
    folder = bench.run(TOY_RUN).record.folder
    assert folder is not None
    return (folder / "scores.safetensors").read_bytes(), reporter.lines


def test_too_little_shared_memory_is_seen_before_workers_start(
    toy_registry: Registry, tmp_path: Path, rendered_here: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "free_shared_memory", lambda: 1000)
    monkeypatch.setattr(rendering.Rendering, "from_workers", lambda *_: pytest.fail("workers were started"))
    scores, lines = with_workers(toy_registry, tmp_path / "small")
    assert scores == rendered_here
    assert [line for line in lines if IN_PROCESS in line and "MB left" in line]


def test_where_there_is_no_such_folder_workers_are_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rendering, "SHARED_MEMORY", tmp_path / "none")
    assert rendering.free_shared_memory() is None


@pytest.mark.parametrize("how", [signal.SIGKILL, pytest.param(signal.SIGBUS, marks=pytest.mark.slow), signal.SIGSEGV])
def test_a_worker_that_dies(
    toy_registry: Registry, tmp_path: Path, rendered_here: bytes, how: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    parent, pixels = os.getpid(), rendering.Rendering.pixels

    def dying(self: rendering.Rendering, job: int) -> Tensor:
        if os.getpid() != parent and job == 3:
            os.kill(os.getpid(), how)
        return pixels(self, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendering.Rendering, "pixels", dying)
        scores, lines = with_workers(toy_registry, tmp_path / "dying")
    assert scores == rendered_here
    assert any("a worker process died" in line for line in lines)
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize("told", [True, False])
def test_a_worker_that_hangs_up_before_the_system_tells_that_it_died(
    toy_registry: Registry, tmp_path: Path, rendered_here: bytes, monkeypatch: pytest.MonkeyPatch, told: bool
) -> None:
    """What it has rendered is fetched over a connection to it. Untold, as in any thread but the main one."""

    def hung_up(*_: object) -> NoReturn:
        for worker in multiprocessing.active_children() if told else ():
            assert worker.pid is not None
            os.kill(worker.pid, signal.SIGKILL)
        raise EOFError

    monkeypatch.setattr(rendering, "DEATH_SECONDS", PATIENCE if told else 0.0)
    monkeypatch.setattr("multiprocessing.resource_sharer._resource_sharer.get_connection", hung_up)
    scores, lines = with_workers(toy_registry, tmp_path / "hung-up")
    assert scores == rendered_here
    assert any(("a worker process died" if told else "a worker process has hung up") in line for line in lines), lines


def test_why_there_is_no_shared_memory_is_said_in_the_systems_words(
    toy_registry: Registry, tmp_path: Path, rendered_here: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(_: Tensor) -> Tensor:
        raise RuntimeError("unable to resize file </torch_1> to the right size: File too large (27)")

    monkeypatch.setattr(Tensor, "share_memory_", refused)
    scores, lines = with_workers(toy_registry, tmp_path / "limited")
    assert scores == rendered_here
    assert any("File too large (27)): rendering the rest in this process" in line for line in lines), lines


@root_only
@pytest.mark.slow
@pytest.mark.parametrize(("size", "seen"), [("60k", True), ("16k", False), ("60k", False)])
def test_a_small_dev_shm(tmp_path: Path, rendered_here: bytes, size: str, seen: bool) -> None:
    """A real one, in a mount namespace of its own. Unseen: somebody else has taken the room meanwhile; 16 kB don't
    suffice to start workers, 60 kB do."""
    blind = "" if seen else "from tta_bench.features import rendering; rendering.free_shared_memory = lambda: None; "
    command = [sys.executable, "-c", f"{blind}from tta_bench.cli.main import main; main()", *WITH_WORKERS]
    shell = SMALL_SHARED_MEMORY.format(size=size) + shlex.join(command)
    environment = {**os.environ, "TTABENCH_HOME": str(tmp_path / "small")}
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", shell], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no mounting here")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (IN_PROCESS if seen else "rendering the rest in this process") in done.stderr
    (file,) = (tmp_path / "small" / "runs").glob("*/scores.safetensors")
    assert file.read_bytes() == rendered_here


def test_a_process_of_a_pool_renders_by_itself(
    toy_registry: Registry, tmp_path: Path, rendered_here: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Python lets a daemon have no processes of its own."""
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    assert with_workers(toy_registry, tmp_path / "pooled")[0] == rendered_here
