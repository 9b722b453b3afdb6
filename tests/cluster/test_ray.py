"""`--executor ray` on a real cluster of two workers, started by the command and by `ray start`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import dying_workers
from tests.conftest import start_process

RAY = Path(sys.executable).with_name("ray")


def test_killed_workers_are_replaced_and_the_bits_the_same(tmp_path: Path, alone: dict[str, bytes]) -> None:
    said = dying_workers.with_two_deaths(tmp_path, "--executor", "ray", "--jobs", "2")
    assert said.count("its worker died (") == 2
    assert dying_workers.scores(tmp_path) == alone
    assert dying_workers.encoded_once(tmp_path)


@pytest.fixture
def address() -> Iterator[str]:
    """Of a cluster that was there before the command."""
    port = 20000 + os.getpid() % 20000
    head = ["start", "--head", "--num-cpus", "2", "--port", str(port), "--include-dashboard", "false"]
    started = subprocess.run([RAY, *head, "--disable-usage-stats"], capture_output=True, text=True)
    if started.returncode:
        pytest.fail(f"no Ray can be started here: {started.stderr.strip()[-500:]}")
    yield f"127.0.0.1:{port}"
    subprocess.run([RAY, "stop"], capture_output=True, check=True)


def test_a_cluster_by_its_address(tmp_path: Path, address: str, alone: dict[str, bytes]) -> None:
    process = start_process(*dying_workers.RUN, "--executor", "ray", "--address", address, home=tmp_path)
    _, err = process.communicate(timeout=dying_workers.PATIENCE)
    assert process.returncode == 0, err
    assert dying_workers.scores(tmp_path) == alone


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    nowhere = ("--executor", "ray", "--address", "127.0.0.1:1")
    process = start_process(*dying_workers.RUN, *nowhere, home=tmp_path)
    _, err = process.communicate(timeout=dying_workers.PATIENCE)
    assert process.returncode == 2
    assert err.strip().splitlines()[-1].startswith("ttabench: --executor ray --address 127.0.0.1:1: ")
    assert "Traceback" not in err
