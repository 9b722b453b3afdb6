"""A caller's process has one torch for all of its threads: what was switched on there changes no number."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.overrides import _get_current_function_mode_stack

import tta_bench
from tests.conftest import TOY, some_slow
from tests.toy_plugin import PromptTuner
from tta_bench.runs.bench import Bench
from tta_bench.runs.plain_torch import plain_torch
from tta_bench.system.together import Together


def test_the_first_thread_that_ends_switches_nothing_back_for_the_others() -> None:
    inside, done, seen = threading.Event(), threading.Event(), []

    def long() -> None:
        with plain_torch():
            inside.set()
            done.wait(10)
            seen.append((torch.get_default_dtype(), torch.get_float32_matmul_precision()))

    torch.set_default_dtype(torch.float64)
    torch.set_float32_matmul_precision("medium")
    try:
        with plain_torch():
            other = threading.Thread(target=long)
            other.start()
            inside.wait(10)
        done.set()
        other.join()
        assert seen == [(torch.float32, "highest")]
        assert torch.get_default_dtype() == torch.float64  # given back by the last one
        assert torch.get_float32_matmul_precision() == "medium"
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")


def test_a_lock_that_another_thread_holds_is_free_after_a_fork() -> None:
    """As workers that render are forked, while another thread of a notebook begins or ends its run."""
    together = Together(nullcontext)
    with together._lock:
        child = multiprocessing.get_context("fork").Process(target=enter, args=[together])
        child.start()
        child.join(10)
    alive = child.is_alive()
    child.kill()
    assert not alive
    assert child.exitcode == 0


def enter(together: Together) -> None:
    with together():
        pass


def test_inference_mode_around_a_run_is_switched_off_inside(toy_bench: Bench) -> None:
    expected = tta_bench.run(PromptTuner(), "toy", "toyclip", bench=toy_bench).scores()
    with torch.inference_mode():
        again = tta_bench.run(PromptTuner(), "toy", "toyclip", bench=toy_bench, force=True).scores()
        assert torch.is_inference_mode_enabled()
    np.testing.assert_array_equal(again, expected)


FORKED = """
import os, sys, torch
from tta_bench.runs.bench import Bench, RunSpec
from tta_bench.plugins import Registry
from tta_bench.errors import UsageError
from pathlib import Path
from tta_bench.runs import forked
forked.PATIENCE = 0.5
if sys.argv[3] == "ran":
    torch.ones(2**20).add_(1)
pid = os.fork()
if pid == 0:
    bench = Bench(sys.argv[1], registry=Registry([Path(sys.argv[2])]))
    try:
        bench.run(RunSpec("clip", "toy", "toyclip"))
    except UsageError as error:
        print(error, flush=True)
        os._exit(7)
    os._exit(0)
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


def forked(tmp_path: Path, before: str, threads: str) -> subprocess.CompletedProcess[str]:
    environment = {"OMP_NUM_THREADS": threads, "TTABENCH_HOME": str(tmp_path)}
    command = [sys.executable, "-c", FORKED, str(tmp_path / "home"), str(TOY), before]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)


def test_a_fork_after_torch_has_had_threads_is_refused(tmp_path: Path) -> None:
    """torch's own products would wait there for threads that the fork has left behind."""
    result = forked(tmp_path, "ran", "2")
    assert result.returncode == 7, result.stderr
    assert result.stdout.count("\n") == 1
    assert 'start processes with "spawn"' in result.stdout


@pytest.mark.parametrize("case", some_slow([], ["loaded 2", "ran 1"]))
def test_a_fork_that_torch_survives_runs(tmp_path: Path, case: str) -> None:
    result = forked(tmp_path, *case.split())
    assert result.returncode == 0, result.stdout + result.stderr


modes: Any = _get_current_function_mode_stack
flash: Any = torch.backends.cuda.flash_sdp_enabled


@pytest.fixture
def defaults() -> Iterator[None]:
    yield
    torch.set_default_device(None)
    torch.backends.cuda.enable_flash_sdp(True)
    torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.usefixtures("defaults")
@pytest.mark.parametrize("how", ["the default device", "a device around it", "kernels of attention"])
def test_what_only_chooses_kernels_makes_no_difference(how: str) -> None:
    """Features had other bits, and stayed in the store: every operation went through a mode that changes nothing."""
    if how == "the default device":
        torch.set_default_device("cpu")
    if how == "kernels of attention":
        torch.backends.cuda.enable_flash_sdp(False)
        torch.backends.mha.set_fastpath_enabled(False)
    with torch.device("cpu") if how == "a device around it" else nullcontext():
        before = [str(mode) for mode in modes()]
        with plain_torch():
            assert not modes()
            assert flash()
            assert torch.backends.mha.get_fastpath_enabled()
        assert [str(mode) for mode in modes()] == before
    assert flash() == torch.backends.mha.get_fastpath_enabled()
    assert flash() == (how != "kernels of attention")
