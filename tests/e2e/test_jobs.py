"""`--jobs N`: the same bits as in one process, whatever dies; and what can't go to other processes."""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pytest
from torch import Tensor

import tta_bench
from tests import dying_workers
from tests.conftest import TOY, Invoke
from tta_bench import records
from tta_bench.errors import UsageError
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.runs.executors.local import share_of_cores

TOYS = ("--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip", "--workers", "0")


@pytest.mark.slow
def test_two_jobs_whose_workers_are_killed_give_the_bits_of_one(tmp_path: Path) -> None:
    alone = dying_workers.in_one_process(tmp_path / "one")
    said = dying_workers.with_two_deaths(tmp_path / "two", "--jobs", "2")
    assert said.count("its worker died (signal SIGKILL): again") == 2
    assert dying_workers.scores(tmp_path / "two") == alone
    assert dying_workers.encoded_once(tmp_path / "two")


@pytest.mark.slow
def test_one_of_two_jobs_that_encode_one_entry_is_killed(tmp_path: Path) -> None:
    alone = dying_workers.in_one_process(tmp_path / "one", dying_workers.SHARING, cells=2)
    said = dying_workers.with_a_death_in_shared_encoding(tmp_path / "two", "--jobs", "2")
    assert said.count("its worker died (signal SIGKILL): again") == 1
    assert dying_workers.scores(tmp_path / "two") == alone
    assert dying_workers.encoded_once(tmp_path / "two")


@pytest.mark.slow
def test_a_cell_that_fails_elsewhere_is_named_and_the_others_go_on(invoke: Invoke, home: Path) -> None:
    result = invoke("run", "-m", "secondeyes", "--dataset", "toy,voc2007", "--jobs", "2", *_without_dataset(TOYS))
    assert result.code == 2
    assert [run.dataset for run in records.load_all(home / "runs")[0]] == ["toy"]
    assert "secondeyes on voc2007 with toyclip, seed 0: " in result.err.splitlines()[-1]
    again = invoke("run", "-m", "secondeyes", "--dataset", "toy,voc2007", "--jobs", "2", *_without_dataset(TOYS))
    assert "secondeyes on toy" in again.out
    assert "done before" in again.out


def _without_dataset(words: tuple[str, ...]) -> tuple[str, ...]:
    place = words.index("--dataset")
    return words[:place] + words[place + 2 :]


def test_a_misspelt_setting_is_said_before_a_worker_starts(invoke: Invoke, home: Path) -> None:
    result = invoke("run", "-m", "tda", "--sweep", "shots=3,many", "--jobs", "2")
    assert result.code == 2
    assert result.err.strip() == "ttabench: tda.shots=many: a value of type int is wanted"
    assert not (home / "runs").exists()


@dataclass
class Mine(Method):
    """Made in a notebook."""

    name: ClassVar[str] = "mine"

    def start(self, task: Task) -> None:
        self.text = task.text

    def step(self, x: Observation) -> Tensor:
        return self.text @ x.image


def test_an_instance_stays_in_its_process() -> None:
    with pytest.raises(UsageError, match="mine: an instance can't go to other processes: use jobs=1 or a plugin"):
        tta_bench.grid(Mine(), jobs=2)


@pytest.mark.slow
def test_python_has_jobs_too(home: Path) -> None:
    results = tta_bench.grid(["clip"], "scenes:clean", seeds=range(2), limit=10, jobs=2)
    assert sorted(run.seed for run in results) == [0, 1]
    assert all(run.folder is not None and run.folder.is_relative_to(home) for run in results)


def test_cores_are_shared_out_without_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 3, 5, 7, 8})
    assert [share_of_cores(place, 2) for place in range(2)] == [{2, 3}, {5, 7}]
    assert share_of_cores(0, 6) == set()


# ---------------------------------------------------------------------------------------------------- sweeps and print


def test_a_sweep_runs_the_product_and_shows_a_table(toy_run: Invoke, home: Path) -> None:
    result = toy_run("twobranches,secondeyes", "--sweep", "weight=0.25,0.75", "--seed", "0-1")
    assert result.code == 0, result.err
    runs = records.load_all(home / "runs")[0]
    assert len(runs) == 2 * 2 + 2  # secondeyes has no such hyper-parameter, so one cell per seed
    table = result.out.partition("\n\n")[2].splitlines()
    assert table[0].split() == ["method", "dataset", "backbone", "weight", "mAP", "runs"]
    assert [line.split()[3] for line in table[1:]] == ["0.25", "-", "0.75"]
    assert {line.split()[-1] for line in table[1:]} == {"2"}


@pytest.mark.slow
def test_a_sweep_has_no_mean_over_other_images_or_orders_and_counts_a_run_once(toy_run: Invoke) -> None:
    options = ("--limit", "8", "--seed", "0-1", "--order", "shuffled,sequential", "--sweep", "weight=0.5,5e-1")
    result = toy_run("twobranches", *options)
    assert result.code == 0, result.err
    head, *rows = result.out.rpartition("\n\n")[2].splitlines()
    assert head.split()[-2:] == ["mAP", "runs"]
    assert [row.split("  ")[1] for row in rows] == [
        "toy (8 of 24 images)",
        "toy (8 of 24 images, order sequential)",
    ]
    assert " to " in rows[0]
    assert rows[0].endswith(", other images  2")


def test_one_key_can_not_be_set_and_swept(invoke: Invoke) -> None:
    result = invoke("run", "-m", "tda", "--set", "shots=3", "--sweep", "shots=3,4")
    assert result.code == 2
    assert result.err.strip() == "ttabench: --sweep shots and --set shots: leave one of the two out"


@pytest.mark.slow
def test_printed_lines_run_the_cells(invoke: Invoke, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    grid = ("run", "-m", "twobranches,secondeyes", "--sweep", "weight=0.25,0.75", *TOYS)
    printed = invoke(*grid, "--executor", "print")
    lines = printed.out.splitlines()
    assert len(lines) == 3
    assert not (home / "runs").exists()
    for line in lines:
        config, variable, program, *words = shlex.split(line)
        assert (config, variable, program) == ("TTABENCH_CONFIG=/dev/null", f"TTABENCH_HOME={home}", "ttabench")
        assert invoke(*words).code == 0
    swept = invoke(*grid)
    assert swept.out.count("[") == 3
    assert len(records.load_all(home / "runs")[0]) == 3  # the same runs as those of the lines


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("--executor", "slrum"), "unknown value of --executor 'slrum'. Did you mean slurm?"),
        (("--address", "auto"), "--address belongs to --executor ray"),
        (("--slurm", "partition=gpu"), "--slurm KEY=VALUE belongs to --executor slurm"),
        (("--gpus", "1"), "--gpus belongs to --executor slurm and ray"),
    ],
)
def test_options_of_another_executor_are_refused(invoke: Invoke, words: tuple[str, ...], complaint: str) -> None:
    result = invoke("run", "-m", "clip", *words)
    assert result.code == 2
    assert complaint in result.err
