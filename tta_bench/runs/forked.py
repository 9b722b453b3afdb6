"""A process that was forked after torch had threads: its next product would wait for ever for those left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
import warnings
from contextlib import suppress

import torch

from tta_bench.errors import UsageError

PATIENCE = 5.0  # seconds for what takes a millisecond
SEVERAL = 2**17  # numbers that torch shares out among its threads
# The process that is known to be well: the one that has loaded this, unless another one has started it.
_sound = os.getpid() if multiprocessing.parent_process() is None else 0


def refuse_lost_threads() -> None:
    """Whether torch can go on in a fork depends on what its parent did, and on the OpenMP that it was built with: so a
    fork of this process tries."""
    global _sound
    if os.getpid() == _sound or torch.get_num_threads() == 1:
        return
    if not _can_go_on():
        raise UsageError(
            "this process was forked after torch had run with several threads, and would wait for them for ever: "
            'start processes with "spawn" (multiprocessing.get_context("spawn")), or use grid(jobs=N)'
        )
    _sound = os.getpid()


def _can_go_on() -> bool:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's own about forks
        try:
            pid = os.fork()
        except OSError:  # no process to be had: nothing is known
            return True
    if pid == 0:
        torch.ones(SEVERAL).add_(1)
        os._exit(0)
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if os.waitpid(pid, os.WNOHANG) != (0, 0):
            return True
        time.sleep(0.001)
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return False
