"""One worker of `--jobs N`: a process that runs the cells it is sent until nobody sends any more.

If the command that started it is killed, it ends its present cell, whose record is as good as any other.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

from tta_bench.runs.executors.work import Task, Workplace, perform
from tta_bench.system.progress import Advance, Terminal


class Forwarding(Terminal):
    """Lets the command speak: two processes that write to one terminal would write into each other's lines."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._tell = tell

    def line(self, text: str) -> None:
        self._tell(text)

    @contextmanager
    def task(self, title: str, total: int, unit: str, done: int = 0) -> Iterator[Advance]:
        yield self._log(title, total, unit, done)


def main(descriptor: int) -> None:
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches the command, too, and that speaks
    os.dup2(2, 1)  # what a library prints is no result
    command = Connection(descriptor)
    workplace: Workplace = command.recv()
    bench = workplace.open(Forwarding(command.send))
    while True:
        try:
            task: Task = command.recv()
            command.send(perform(bench, task))
        except (EOFError, ConnectionError):  # the command has ended
            return


if __name__ == "__main__":
    main(int(sys.argv[1]))
