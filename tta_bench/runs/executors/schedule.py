"""Which cell goes to a worker when: those that lack the same features encode them together, but not all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from tta_bench.runs.executors.work import Answer, Executor, Task

ATTEMPTS = 3  # a cell that kills its third worker is to blame itself
TOGETHER = 8  # cells that encode the same features, of which there are up to 32 ranges: nobody waits for long
Needs = Callable[[Task], Collection[object]]


def drive(
    executor: Executor, tasks: Sequence[Task], needs: Needs, say: Callable[[str], None]
) -> Iterator[tuple[Task, Answer]]:
    """Has all tasks run and yields them as they end; one whose worker dies is run again.

    `needs` are the features that a task may have to encode. Tasks that need none of those that are being encoded go
    first. Others help to encode them, each a range of images at a time; where waiting costs an accelerator, only a few.
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
    encoded_by = Counter(need for number in running for need in wanted[number] - there)
    chosen: list[Task] = []
    for at_most in (1, TOGETHER if executor.waiting_costs else len(wanted)):
        for task in waiting:
            lacking = wanted[task.number] - there
            if len(chosen) < free and task not in chosen and all(encoded_by[need] < at_most for need in lacking):
                chosen.append(task)
                encoded_by.update(lacking)
    return chosen
