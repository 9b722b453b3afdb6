"""`--jobs N`: so many processes on this machine, each with cores of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from multiprocessing.connection import wait as readable

from tta_bench.runs.executors.work import Answer, Ended, Task, Workplace


@dataclass
class Worker:
    """A process and our end of the line to it."""

    place: int  # 0, 1 … which share of the cores it has
    process: subprocess.Popen[bytes]
    line: Connection
    task: Task | None = None

    def end(self) -> str:
        """Ends it, and says what it died of."""
        self.line.close()
        self.process.terminate()
        code = self.process.wait()
        return f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


class LocalExecutor:
    """`jobs` worker processes. A worker keeps what it has loaded for its next cell.

    Args:
        workplace: what each of them works with; the processes that render views are shared out among them.
        jobs: how many.
        say: told what the workers say, each line with its cell before it.
    """

    waiting_costs = False

    def __init__(self, workplace: Workplace, jobs: int, say: Callable[[str], None]) -> None:
        encoding = workplace.encoding
        shared = -(-encoding.workers // jobs)
        self.slots: int = jobs
        self._workplace = replace(workplace, encoding=replace(encoding, workers=shared))
        self._say = say
        self._workers: list[Worker] = []

    def submit(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            worker = next((w for w in self._workers if w.task is None), None) or self._start()
            worker.task = task
            worker.line.send(task)

    def wait(self) -> list[Ended]:
        ended: list[Ended] = []
        while not ended:
            busy = {w.line: w for w in self._workers if w.task is not None}
            for line in readable(list(busy)):
                found = self._hear(busy[line])  # type: ignore[index]  # it is one of those that were waited for
                ended += [] if found is None else [found]
        return ended

    def close(self) -> None:
        for worker in self._workers:
            worker.end()
        self._workers.clear()

    def _hear(self, worker: Worker) -> Ended | None:
        task = worker.task
        assert task is not None  # only busy ones are listened to
        try:
            said: Answer | str = worker.line.recv()
        except (EOFError, ConnectionError):
            self._workers.remove(worker)
            return Ended(task, None, worker.end())
        if isinstance(said, str):
            self._say(f"{task.spec}: {said}")
            return None
        worker.task = None
        return Ended(task, said)

    def _start(self) -> Worker:
        place = min(set(range(self.slots)) - {w.place for w in self._workers})
        cores = share_of_cores(place, self.slots)
        threads = {"OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS") or str(max(1, len(cores)))}
        ours, theirs = socket.socketpair()
        with theirs:
            process = subprocess.Popen(
                [sys.executable, "-m", "tta_bench.runs.executors.worker", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, **threads, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        if cores:
            os.sched_setaffinity(process.pid, cores)  # before it has threads, which inherit it
        worker = Worker(place, process, Connection(ours.detach()))
        self._workers.append(worker)
        worker.line.send(self._workplace)
        return worker


def share_of_cores(place: int, jobs: int) -> set[int]:
    """The cores of one of `jobs` workers, none of them another's; none at all where there are not enough to share out,
    or the system can't bind processes to cores."""
    if not hasattr(os, "sched_getaffinity"):
        return set()
    cores = sorted(os.sched_getaffinity(0))
    each = len(cores) // jobs
    return set(cores[place * each : (place + 1) * each])
