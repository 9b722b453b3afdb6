"""`--executor ray`: cells as tasks of a Ray cluster (extra `ray`). The home must be on a disk that all nodes see."""

from __future__ import annotations

import logging
import socket
from collections.abc import Sequence
from typing import Any

from tta_bench.errors import UsageError
from tta_bench.runs.executors.work import Ended, Task, Workplace, perform_alone

REACH_SECONDS = 10.0


class RayExecutor:
    """Tasks of a cluster; Ray keeps its worker processes, and these what they have loaded.

    Args:
        workplace: what each task works with.
        address: of the cluster; None starts one on this machine.
        gpus: for each task.
        jobs: at most so many at a time; None: as many as the cluster has room for.
    """

    waiting_costs = True

    def __init__(self, workplace: Workplace, address: str | None, gpus: int, jobs: int | None) -> None:
        try:
            import ray
        except ImportError:
            raise UsageError("--executor ray needs Ray: pip install 'ttabench[ray]'") from None
        if address is not None:
            _reach(address)
        self.slots = jobs
        self._ray: Any = ray
        own: dict[str, Any] = {} if address else {"num_cpus": jobs, "include_dashboard": False}
        try:
            # Without "local" Ray would join whatever cluster it last heard of on this machine.
            ray.init(address=address or "local", logging_level=logging.ERROR, **own)
        except (ConnectionError, ValueError, RuntimeError) as error:
            asked = f" --address {address}" if address else ""
            raise UsageError(f"--executor ray{asked}: {' '.join(str(error).split())}") from error
        self._workplace = ray.put(workplace)
        # Its worker's death is our scheduler's business, as with every other engine.
        self._perform = ray.remote(num_cpus=1, num_gpus=gpus, max_retries=0)(perform_alone)
        self._running: dict[Any, Task] = {}

    def submit(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._running[self._perform.remote(self._workplace, task)] = task

    def wait(self) -> list[Ended]:
        ready, _ = self._ray.wait(list(self._running))
        return [self._ended(reference, self._running.pop(reference)) for reference in ready]

    def close(self) -> None:
        for reference in self._running:
            self._ray.cancel(reference, force=True)
        self._ray.shutdown()

    def _ended(self, reference: Any, task: Task) -> Ended:
        try:
            return Ended(task, self._ray.get(reference))
        except self._ray.exceptions.RayError as error:
            return Ended(task, None, " ".join(str(error).split())[:200])


def _reach(address: str) -> None:
    """Refuses a HOST:PORT where nobody listens: Ray itself would go on trying for minutes."""
    host, _, port = address.rpartition(":")
    if "/" in host or not port.isdecimal():  # ray://…, or auto
        return
    try:
        socket.create_connection((host, int(port)), timeout=REACH_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UsageError(f"--executor ray --address {address}: nobody listens there ({error})") from error
