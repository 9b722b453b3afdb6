"""`--executor ray` on a real cluster of two workers, started by the command and by `ray start`."""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import dying_workers
from tests.conftest import start_process

RAY = Path(sys.executable).with_name("ray")
# Whoever reaches a cluster can run code on it. Ours has its own token, so that the user's is neither read nor made.
TOKEN = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}


def test_killed_workers_are_replaced_and_the_bits_the_same(tmp_path: Path, alone: dict[str, bytes]) -> None:
    said = dying_workers.with_two_deaths(tmp_path, "--executor", "ray", "--jobs", "2", **TOKEN)
    assert said.count("its worker died (") == 2
    assert dying_workers.scores(tmp_path) == alone
    assert dying_workers.encoded_once(tmp_path)


def test_one_of_two_that_encode_one_entry_is_killed(tmp_path: Path) -> None:
    alone = dying_workers.in_one_process(tmp_path / "one", dying_workers.SHARING, cells=2)
    who = ("--executor", "ray", "--jobs", "2")
    said = dying_workers.with_a_death_in_shared_encoding(tmp_path / "two", *who, **TOKEN)
    assert said.count("its worker died (") == 1
    assert dying_workers.scores(tmp_path / "two") == alone
    assert dying_workers.encoded_once(tmp_path / "two")


@pytest.fixture
def address(tmp_path: Path) -> Iterator[str]:
    """Of a cluster that was there before the command. It stays our child: `ray stop` would end everybody's."""
    port = 20000 + os.getpid() % 20000
    head = ["start", "--head", "--num-cpus", "2", "--port", str(port), "--include-dashboard", "false"]
    log = tmp_path / "ray.log"
    with log.open("w") as said:
        command = [str(RAY), *head, "--disable-usage-stats", "--block"]
        cluster = subprocess.Popen(command, stdout=said, stderr=said, env={**os.environ, **TOKEN})
    deadline = time.monotonic() + 120
    while "Ray runtime started" not in log.read_text():
        if cluster.poll() is not None or time.monotonic() > deadline:
            pytest.fail(f"no Ray can be started here: {log.read_text()[-500:]}")
        time.sleep(0.2)
    yield f"127.0.0.1:{port}"
    cluster.terminate()
    cluster.wait(timeout=60)


def test_a_cluster_by_its_address(tmp_path: Path, address: str, alone: dict[str, bytes]) -> None:
    there = ("--executor", "ray", "--address", address)
    process = start_process(*dying_workers.RUN, *there, home=tmp_path, **TOKEN)
    _, err = process.communicate(timeout=dying_workers.PATIENCE)
    assert process.returncode == 0, err
    assert dying_workers.scores(tmp_path) == alone


def test_a_cluster_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    nowhere = ("--executor", "ray", "--address", "127.0.0.1:1")
    process = start_process(*dying_workers.RUN, *nowhere, home=tmp_path, **TOKEN)
    _, err = process.communicate(timeout=dying_workers.PATIENCE)
    assert process.returncode == 2
    assert err.startswith("ttabench: --executor ray --address 127.0.0.1:1: nobody listens there (")
    assert len(err.splitlines()) == 1
