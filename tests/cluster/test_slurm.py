"""`--executor slurm` on a real Slurm: job arrays, tasks that are killed or preempted, and what sbatch refuses."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

from tests import dying_workers
from tests.conftest import start_process

SLURM = ("--executor", "slurm", "--slurm", "partition=tests")


def test_killed_tasks_are_run_again_to_the_same_bits(tmp_path: Path, slurm: str, alone: dict[str, bytes]) -> None:
    said = dying_workers.with_two_deaths(tmp_path, *SLURM, SLURM_CONF=slurm)
    assert said.count("its worker died (Slurm job ") == 2
    assert dying_workers.scores(tmp_path) == alone
    assert dying_workers.encoded_once(tmp_path)


def test_a_requeued_task_goes_on_and_nobody_takes_it_for_dead(
    tmp_path: Path, slurm: str, alone: dict[str, bytes]
) -> None:
    process = start_process(*dying_workers.RUN, *SLURM, home=tmp_path, SLURM_CONF=slurm, TOY_DELAY="0.05")
    deadline = time.monotonic() + dying_workers.PATIENCE
    while not any((tmp_path / "runs").glob("*/checkpoint.pt")):
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, "never adapted"
        time.sleep(0.05)
    environment = {**os.environ, "SLURM_CONF": slurm}
    asked = ["squeue", "--noheader", "--states", "R", "--array", "--format", "%i"]
    running = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True).stdout.split()
    assert running
    subprocess.run(["scontrol", "requeue", running[0]], env=environment, check=True)  # what preemption does
    _, err = process.communicate(timeout=2 * dying_workers.PATIENCE)  # Slurm lets a requeued job wait two minutes
    assert process.returncode == 0, err
    assert "its worker died" not in err
    assert dying_workers.scores(tmp_path) == alone
    assert dying_workers.encoded_once(tmp_path)


def test_what_sbatch_refuses_ends_in_one_line_of_ours(tmp_path: Path, slurm: str) -> None:
    wrong = ("--executor", "slurm", "--slurm", "partition=nowhere")
    process = start_process(*dying_workers.RUN, *wrong, home=tmp_path, SLURM_CONF=slurm)
    _, err = process.communicate(timeout=dying_workers.PATIENCE)
    assert process.returncode == 2
    last = err.strip().splitlines()[-1]  # sbatch has spoken before
    assert last.startswith("ttabench: --executor slurm: ")
    assert "invalid partition specified: nowhere" in last
    assert "Traceback" not in err
