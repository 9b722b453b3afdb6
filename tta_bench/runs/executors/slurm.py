"""`--executor slurm`: cells as tasks of job arrays, through submitit (extra `slurm`). The home must be on a disk that
all nodes see.

Whether a task still runs is asked of `squeue`, which every Slurm has; submitit asks `sacct`, which answers only where
accounting is set up.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tta_bench.errors import TTABenchError, UsageError
from tta_bench.runs.executors.work import Answer, Ended, Task, Workplace, perform_alone
from tta_bench.system.text import counted

POLL_SECONDS = 2.0
LATE_SECONDS = 15.0  # by which a shared disk may show a result after the task has left the queue
ARRAY_AT_MOST = 1000  # tasks; what Slurm allows unless its MaxArraySize says otherwise
TERMINATED = 128 + signal.SIGTERM
MINUTES = 24 * 60  # unless --slurm time=… says otherwise; a task that runs out of it goes on from its checkpoint


class Cell:
    """What a node runs. Preempted or out of time, it asks for its place in the queue again: the store and the method's
    checkpoint are on disk, so the next attempt goes on where this one was."""

    def __init__(self, workplace: Workplace, task: Task) -> None:
        self.workplace, self.task = workplace, task

    def __call__(self) -> Answer:
        # Slurm ends a task by telling all of its processes. One that lived on would take the end of an outside method's
        # process for that method's fault, and answer with it.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(TERMINATED))
        return perform_alone(self.workplace, self.task)

    def checkpoint(self) -> Any:
        from submitit.helpers import DelayedSubmission

        return DelayedSubmission(self)


class SlurmExecutor:
    """Job arrays, followed until they end. The tasks go on if the command is interrupted; given again, it waits for
    the records of those that still run.

    Args:
        workplace: what each task works with.
        options: of sbatch, e.g. partition and account.
        gpus: for each task.
        jobs: at most so many tasks of an array at a time.
        say: told which arrays were submitted.
    """

    slots: int | None = None
    waiting_costs = True

    def __init__(
        self,
        workplace: Workplace,
        options: Mapping[str, str],
        gpus: int,
        jobs: int | None,
        say: Callable[[str], None],
    ) -> None:
        try:
            import submitit
        except ImportError:
            raise UsageError("--executor slurm needs submitit: pip install 'ttabench[slurm]'") from None
        self._folder = workplace.home / "slurm"
        try:
            self._submitit = submitit.SlurmExecutor(folder=self._folder / "%A", max_num_timeout=100)
        except RuntimeError as error:
            raise UsageError(f"--executor slurm: there is no Slurm here ({error})") from error
        self._submitit.update_parameters(
            job_name="ttabench",
            time=MINUTES,
            array_parallelism=jobs or ARRAY_AT_MOST,
            **({"gpus_per_node": gpus} if gpus else {}),
            additional_parameters={"requeue": True, **options},
        )
        self._workplace, self._say = workplace, say
        self._running: dict[str, tuple[Any, Task]] = {}  # by job id
        self._left: dict[str, float] = {}  # when a job without a result was first missed in the queue

    def submit(self, tasks: Sequence[Task]) -> None:
        for first in range(0, len(tasks), ARRAY_AT_MOST):
            some = tasks[first : first + ARRAY_AT_MOST]
            try:
                with self._submitit.batch():
                    jobs = [self._submitit.submit(Cell(self._workplace, task)) for task in some]
            except (RuntimeError, OSError) as error:  # what sbatch refuses
                raise UsageError(f"--executor slurm: {' '.join(str(error).split())}") from error
            self._running |= {job.job_id: (job, task) for job, task in zip(jobs, some, strict=True)}
            number = jobs[0].job_id.partition("_")[0]
            self._say(f"Slurm job {number}: {counted(len(some), 'cell')}, logs in {self._folder / number}")

    def wait(self) -> list[Ended]:
        while True:
            queued = _queued({job_id.partition("_")[0] for job_id in self._running})
            ended = [end for job_id in list(self._running) if (end := self._ended(job_id, queued)) is not None]
            if ended:
                return ended
            time.sleep(POLL_SECONDS)

    def close(self) -> None:
        """Nothing to end: what still runs after an interruption is wanted, and found by the next command."""

    def _ended(self, job_id: str, queued: set[str]) -> Ended | None:
        job, task = self._running[job_id]
        if not job.paths.result_pickle.exists():
            if job_id in queued:
                self._left.pop(job_id, None)
                return None
            if time.monotonic() - self._left.setdefault(job_id, time.monotonic()) < LATE_SECONDS:
                return None
        del self._running[job_id]
        self._left.pop(job_id, None)
        error = job.exception() if job.paths.result_pickle.exists() else None
        if error is None and job.paths.result_pickle.exists():
            return Ended(task, job.result())
        log = job.paths.stderr
        reason = "without a word" if error is None else " ".join(str(error).split())[-200:]
        return Ended(task, None, f"Slurm job {job_id} ended {reason}, log {log}")


def _queued(arrays: set[str]) -> set[str]:
    """Which tasks of these jobs wait or run, as submitit names them: JOB_TASK, or JOB alone if it is no array."""
    command = ["squeue", "--noheader", "--array", "--format", "%F_%K", "--jobs", ",".join(sorted(arrays))]
    answer = subprocess.run(command, capture_output=True, text=True)
    if answer.returncode and "Invalid job id" not in answer.stderr:  # which it says of jobs long gone
        raise TTABenchError(f"squeue: {' '.join(answer.stderr.split())}")
    return {name.removesuffix("_N/A") for name in answer.stdout.split()}
