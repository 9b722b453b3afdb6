"""Which cell goes to a worker when: two that lack the same features would only wait for each other's file lock."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from tta_bench.runs.executors.work import Answer, Executor, Task

ATTEMPTS = 3  # a cell that kills its third worker is to blame itself
Needs = Callable[[Task], Collection[object]]


def drive(
    executor: Executor, tasks: Sequence[Task], needs: Needs, say: Callable[[str], None]
) -> Iterator[tuple[Task, Answer]]:
    """Has all tasks run and yields them as they end; one whose worker dies is run again.

    `needs` are the features that a task may have to encode. While one encodes them, others that need them too are held
    back: always where waiting costs an accelerator, otherwise as long as there is something else to do.
    """
    waiting, running = list(tasks), dict[int, Task]()
    wanted = {task.number: frozenset(needs(task)) for task in tasks}
    there: set[object] = set()
    deaths: Counter[int] = Counter()
    try:
        while waiting or running:
            chosen = _choose(executor, waiting, running, wanted, there)
            if chosen:
                waiting = [task for task in waiting if task not in chosen]
                running |= {task.number: task for task in chosen}
                executor.submit(chosen)
            for task, answer, cause in executor.wait():
                del running[task.number]
                if answer is not None:
                    if answer.folder is not None:
                        there |= wanted[task.number]
                    yield task, answer
                    continue
                deaths[task.number] += 1
                if deaths[task.number] == ATTEMPTS:
                    yield task, Answer(failure=f"its worker died {ATTEMPTS} times, last by {cause}", exit_code=1)
                else:
                    say(f"{task.spec}: its worker died ({cause}): again")
                    waiting.insert(0, task)
    finally:
        executor.close()


def _choose(
    executor: Executor,
    waiting: Sequence[Task],
    running: dict[int, Task],
    wanted: dict[int, frozenset[object]],
    there: set[object],
) -> list[Task]:
    free = len(waiting) if executor.slots is None else executor.slots - len(running)
    claimed = {need for number in running for need in wanted[number]} - there
    chosen: list[Task] = []
    for task in waiting:
        if len(chosen) < free and not claimed & wanted[task.number]:
            chosen.append(task)
            claimed |= wanted[task.number] - there
    if not executor.waiting_costs:
        chosen += [task for task in waiting if task not in chosen][: free - len(chosen)]
    return chosen
