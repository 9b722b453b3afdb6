"""Which cell is sent when, and what happens when a worker dies; on an executor that only pretends."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tta_bench.runs.executors.schedule import ATTEMPTS, TOGETHER, drive
from tta_bench.runs.executors.work import Answer, Ended, Task, refuse_objects
from tta_bench.runs.spec import RunSpec

DONE = Answer(Path("somewhere"))


class Pretended:
    """Ends its oldest task at every `wait`; kills the worker of those that are to die."""

    def __init__(self, slots: int | None, waiting_costs: bool, deaths: dict[int, int] | None = None) -> None:
        self.slots, self.waiting_costs, self.deaths = slots, waiting_costs, deaths or {}
        self.sent: list[list[int]] = []
        self.running: list[Task] = []
        self.closed = False

    def submit(self, tasks: Sequence[Task]) -> None:
        self.sent.append([task.number for task in tasks])
        self.running += tasks
        assert self.slots is None or len(self.running) <= self.slots

    def wait(self) -> Sequence[Ended]:
        task = self.running.pop(0)
        if self.deaths.get(task.number, 0) > 0:
            self.deaths[task.number] -= 1
            return [Ended(task, None, "signal SIGKILL")]
        return [Ended(task, DONE)]

    def close(self) -> None:
        self.closed = True


def tasks(count: int) -> list[Task]:
    return [Task(number, RunSpec("clip", seed=number), False) for number in range(count)]


def run(executor: Pretended, count: int, needs: dict[int, str]) -> tuple[list[int], list[Answer], list[str]]:
    said: list[str] = []
    ended = list(drive(executor, tasks(count), lambda task: needs.get(task.number, ""), said.append))
    assert executor.closed
    return [task.number for task, _ in ended], [answer for _, answer in ended], said


def test_what_lacks_the_same_features_goes_after_what_does_not() -> None:
    executor = Pretended(3, waiting_costs=False)
    run(executor, 4, {0: "a", 1: "a", 2: "b", 3: "a"})
    assert executor.sent[0] == [0, 2, 1]


def test_where_waiting_costs_a_few_encode_together_and_the_others_come_when_they_have() -> None:
    executor = Pretended(None, waiting_costs=True)
    needs = dict.fromkeys(range(TOGETHER + 2), "a") | {TOGETHER + 2: "b", TOGETHER + 3: "ab"}
    ended, _, _ = run(executor, TOGETHER + 4, needs)
    assert executor.sent == [[0, TOGETHER + 2, *range(1, TOGETHER)], [TOGETHER, TOGETHER + 1, TOGETHER + 3]]
    assert sorted(ended) == list(range(TOGETHER + 4))


def test_an_idle_process_costs_nothing_so_all_may_encode_together() -> None:
    executor = Pretended(TOGETHER + 2, waiting_costs=False)
    run(executor, TOGETHER + 2, dict.fromkeys(range(TOGETHER + 2), "a"))
    assert len(executor.sent[0]) == TOGETHER + 2


def test_a_death_is_said_and_the_cell_sent_again_first() -> None:
    executor = Pretended(1, waiting_costs=False, deaths={0: 1})
    ended, answers, said = run(executor, 2, {})
    assert executor.sent == [[0], [0], [1]]
    assert (ended, answers) == ([0, 1], [DONE, DONE])
    assert said == ["clip on scenes with tiny, seed 0: its worker died (signal SIGKILL): again"]


def test_a_cell_that_kills_every_worker_fails_and_the_others_go_on() -> None:
    executor = Pretended(1, waiting_costs=True, deaths={0: 99})
    ended, answers, said = run(executor, 2, {0: "a", 1: "a"})
    assert executor.sent == [[0]] * ATTEMPTS + [[1]]  # what it never encoded is left to the next
    assert ended == [0, 1]
    assert answers == [Answer(failure=f"its worker died {ATTEMPTS} times, last by signal SIGKILL", exit_code=1), DONE]
    assert len(said) == ATTEMPTS - 1


def test_whoever_stops_listening_closes_the_executor() -> None:
    executor = Pretended(None, waiting_costs=True)
    listening = drive(executor, tasks(3), lambda _: "", lambda _: None)
    next(listening)
    listening.close()  # type: ignore[attr-defined]  # a generator
    assert executor.closed


def test_values_that_only_this_process_has_are_refused() -> None:
    from tta_bench.errors import UsageError
    from tta_bench.views import Plain

    refuse_objects(RunSpec("tda", recipes={"views": Plain(3)}, settings={"shots": 3}))
    with pytest.raises(UsageError, match="shots: a Path can't go to other processes".replace("Path", "PosixPath")):
        refuse_objects(RunSpec("tda", settings={"shots": Path("x")}))
