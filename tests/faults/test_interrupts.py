"""Ctrl-C at any moment, once or twice: one line, exit code 130, no traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.conftest import Invoke
from tests.faults.toy_runs import PATIENCE, QUICK, WITH_WORKERS

COMMAND = """
from tta_bench.cli.main import Interrupts, main

def listen(self, listen=Interrupts.listen):
    listen(self)
    print("here", flush=True)

Interrupts.listen = listen
main()
"""


def interrupted(home: Path, *delays: float) -> tuple[int, str]:
    """Counted from the moment when our code listens: what comes before is Python starting and importing it."""
    environment = {**os.environ, "TTABENCH_HOME": str(home), "TOY_DELAY": "0.02"}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *QUICK],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    for delay in delays:
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=PATIENCE)[1]
    return process.returncode, err


def check_interrupted(code: int, err: str) -> None:
    assert code == 130, (code, err)
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if line.startswith("ttabench: ")] in (
        ["ttabench: interrupted"],
        ["ttabench: interrupted: the same command goes on from where it was"],
    )


@pytest.mark.parametrize("delays", [(0.0,), (0.03,), (0.1,), (0.4,), (0.9,), (0.05, 0.01), (1.5, 0.0), (1.5, 0.01)])
def test_interrupted_early_or_twice(tmp_path: Path, delays: tuple[float, ...]) -> None:
    check_interrupted(*interrupted(tmp_path, *delays))


def test_interrupted_before_a_command_looks_after_it(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """typer ends with 130 and says nothing."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tta_bench.cli.run.registry", interrupt)
    result = invoke(*QUICK)
    assert result.code == 130
    assert result.err.strip() == "ttabench: interrupted"


AS_IT_BEGINS_TO_LISTEN = """
import os, signal
from tta_bench.cli.main import Interrupts, main

def listen(self, listen=Interrupts.listen):
    listen(self)
    os.kill(os.getpid(), signal.SIGINT)

Interrupts.listen = listen
main()
"""

TWICE_WHILE_IT_SPEAKS = """
import os, signal
from tta_bench.cli.main import Interrupts

def write(file, words, write=os.write):
    os.write = write
    written = write(file, words)
    os.kill(os.getpid(), signal.SIGINT)
    return written

interrupts = Interrupts()
interrupts.listen()
interrupts.over = True  # as while modules are imported: there is nothing to unwind
os.write = write
os.kill(os.getpid(), signal.SIGINT)
"""


@pytest.mark.parametrize("script", [AS_IT_BEGINS_TO_LISTEN, TWICE_WHILE_IT_SPEAKS])
def test_interrupted_at_moments_of_microseconds(script: str) -> None:
    """Two Ctrl-C at once: the second came between the words and the end, and said them again."""
    process = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    check_interrupted(process.returncode, process.stderr)


@pytest.mark.slow
def test_interrupted_in_a_terminal_with_workers(tmp_path: Path) -> None:
    """Ctrl-C reaches the whole group of processes. Nobody waits for a worker that is in the middle of a block."""
    environment = {**os.environ, "TTABENCH_HOME": str(tmp_path), "TOY_DELAY": "1"}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *WITH_WORKERS],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + PATIENCE
    while sum(file.read_bytes().count(b"\n") for file in (tmp_path / "store").glob("*/*/journal.txt")) < 1:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    began = time.monotonic()
    err = process.communicate(timeout=PATIENCE)[1]
    assert time.monotonic() - began < 10
    check_interrupted(process.returncode, err)


@pytest.mark.slow
def test_interrupted_at_random_moments(tmp_path: Path) -> None:
    random = Random(0)
    for _ in range(20):
        check_interrupted(*interrupted(tmp_path, random.uniform(0.02, 1.0)))
    for _ in range(20):
        check_interrupted(*interrupted(tmp_path, random.uniform(0.02, 2.0), random.uniform(0.0, 0.05)))
