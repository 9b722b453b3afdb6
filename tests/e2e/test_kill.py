"""kill -9 anywhere, then the same command again: the scores are bit-identical to those of an undisturbed run."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.conftest import TOY, start_process

TOY_WORLD = ("--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip")
RUN = ("run", "--method", "twobranches", *TOY_WORLD, "--workers", "1", "--checkpoint-seconds", "0")
PATIENCE = 60.0  # seconds until a process that should have come somewhere is given up


def finish(home: Path) -> tuple[bytes, bytes, str]:
    process = start_process(*RUN, home=home)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "mAP" in out
    (folder,) = [file.parent for file in (home / "runs").glob("*/run.json")]
    return (folder / "scores.safetensors").read_bytes(), (folder / "diagnostics.safetensors").read_bytes(), err


def kill_when(condition: Callable[[], bool], home: Path) -> None:
    process = start_process(*RUN, home=home, TOY_DELAY="0.05")
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, f"finished before it could be killed: {process.communicate()}"
        assert time.monotonic() < deadline, "never got there"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()


def encoded_blocks(home: Path) -> int:
    return sum(file.read_bytes().count(b"\n") for file in (home / "store").glob("*/*/journal.txt"))


def adapted_images(home: Path) -> int:
    for file in (home / "runs").glob("*/checkpoint.pt"):
        position: int = torch.load(file, weights_only=True)["position"]
        return position
    return 0


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, bytes, str]:
    return finish(tmp_path_factory.mktemp("undisturbed"))


def check(home: Path, undisturbed: tuple[bytes, bytes, str]) -> str:
    scores, diagnostics, err = finish(home)
    assert scores == undisturbed[0]
    assert diagnostics == undisturbed[1]
    return err


def test_killed_while_encoding_and_again_while_adapting(tmp_path: Path, undisturbed: tuple[bytes, bytes, str]) -> None:
    kill_when(lambda: encoded_blocks(tmp_path) >= 3, tmp_path)
    kill_when(lambda: adapted_images(tmp_path) >= 10, tmp_path)
    assert "resuming at image" in check(tmp_path, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("blocks", [1, 2, 3, 4, 6])
def test_killed_while_encoding(tmp_path: Path, undisturbed: tuple[bytes, bytes, str], blocks: int) -> None:
    kill_when(lambda: encoded_blocks(tmp_path) >= blocks, tmp_path)
    check(tmp_path, undisturbed)


@pytest.mark.slow
@pytest.mark.parametrize("images", [1, 5, 10, 16, 20])
def test_killed_while_adapting(tmp_path: Path, undisturbed: tuple[bytes, bytes, str], images: int) -> None:
    kill_when(lambda: adapted_images(tmp_path) >= images, tmp_path)
    assert "resuming at image" in check(tmp_path, undisturbed)


@pytest.mark.slow
def test_a_damaged_checkpoint_means_starting_afresh(tmp_path: Path, undisturbed: tuple[bytes, bytes, str]) -> None:
    kill_when(lambda: adapted_images(tmp_path) >= 3, tmp_path)
    (file,) = (tmp_path / "runs").glob("*/checkpoint.pt")
    file.write_bytes(file.read_bytes()[:-200])
    assert "checkpoint unusable" in check(tmp_path, undisturbed)


@pytest.mark.slow
def test_interrupting_says_how_to_go_on(tmp_path: Path, undisturbed: tuple[bytes, bytes, str]) -> None:
    process = start_process(*RUN, home=tmp_path, TOY_DELAY="0.3")  # long enough for a busy machine to stall this test
    while encoded_blocks(tmp_path) < 2:
        assert process.poll() is None, f"finished before it could be interrupted: {process.communicate()}"
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 130, err
    assert err.strip().splitlines()[-1] == "ttabench: interrupted: the same command goes on from where it was"
    assert "Traceback" not in err
    check(tmp_path, undisturbed)


@pytest.mark.slow
def test_two_processes_at_once_encode_once(tmp_path: Path, undisturbed: tuple[bytes, bytes, str]) -> None:
    first, second = (start_process(*RUN, home=tmp_path, TOY_DELAY="0.02") for _ in range(2))
    errors = [process.communicate(timeout=PATIENCE)[1] for process in (first, second)]
    assert first.returncode == second.returncode == 0, errors
    forwards = [int(line.split()[0]) for err in errors for line in err.splitlines() if "encoder forwards" in line]
    assert sum(forwards) == 24 * 9
    check(tmp_path, undisturbed)
