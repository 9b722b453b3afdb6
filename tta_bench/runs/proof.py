"""A killed run of somebody else's method goes on only after it has been seen to go on as if it had not been killed.

What such a method keeps outside of its state is not in a checkpoint, and it would go on to another number in silence.
So a checkpoint holds the state of a few images before its end. Whoever resumes it repeats these images: their scores
must come out again, bit for bit, and all that is visible of the method must then be what it was. Otherwise the run
starts from its first image, and nothing of the attempt may be left.
"""

from __future__ import annotations

import copy
import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from tta_bench.errors import BadData, PluginError
from tta_bench.features import global_rngs
from tta_bench.interfaces import Method, Task
from tta_bench.runs import state
from tta_bench.runs.fingerprint import FIXED, difference, fingerprint
from tta_bench.runs.state import Started

REPEATED = 4  # images; what a step leaves for the next one in a private attribute is back after them
NOT_AS_IT_WAS = "the method does not come back from it as it was"


@runtime_checkable
class Elsewhere(Protocol):
    """A method in another process: it is looked at there, and leaving that process leaves everything behind."""

    def fingerprint_remotely(self) -> dict[str, str]: ...

    def leave_process(self) -> None: ...


@dataclass(frozen=True)
class Earlier:
    """A method's state at a position of the stream, held until the next few steps are there to prove it by."""

    position: int
    content: Tensor  # bytes, written at once: an optimiser's state is the memory that it goes on with

    @classmethod
    def of(cls, method: Method, task: Task, started: Started, position: int) -> Earlier:
        """Raises `TypeError` for a state that could not be brought back."""
        content = {"state": started.save(method), "rng": task.rng.get_state()}
        buffer = io.BytesIO()
        if isinstance(method, Elsewhere):  # which has looked after the rest itself
            torch.save(content, buffer)
        else:
            torch.save(content | {"global_rngs": global_rngs.state()}, buffer)
            state.can_be_loaded(buffer)
        return cls(position, torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8))

    @property
    def proven_at(self) -> int:
        """Near the beginning there are fewer images to repeat, so that a short stream has checkpoints as well."""
        return self.position + min(REPEATED, self.position)

    def load(self, method: Method, task: Task) -> None:
        """Into a method that has just been started."""
        content = torch.load(io.BytesIO(self.content.numpy().tobytes()), weights_only=True)
        state.load(method, content["state"])
        task.rng.set_state(content["rng"])
        if "global_rngs" in content:
            global_rngs.restore(content["global_rngs"])


Looks = Mapping[str, str]  # a fingerprint


def seen(method: Method) -> Looks:
    """All that is visible of a method that is not built in."""
    return method.fingerprint_remotely() if isinstance(method, Elsewhere) else fingerprint(method, modules=[])


def refuse_other_scores(position: int, scores: Tensor, before: Tensor) -> None:
    if not torch.equal(scores.reshape(-1), before.reshape(-1)):
        raise BadData(f"{NOT_AS_IT_WAS}: it gives image {position} other scores")


def refuse_other_looks(at_start: tuple[Looks, Looks], at_the_end: tuple[Looks, Looks]) -> None:
    """Each time those before and now. What a process has from its start and never changed may differ between the two
    where that is harmless, for example the time of an import."""
    changed = [
        {place: seen for place, seen in end.items() if seen != start.get(place) or not seen.startswith(FIXED)}
        for start, end in zip(at_start, at_the_end, strict=True)
    ]
    if place := difference(*changed):
        raise BadData(f"{NOT_AS_IT_WAS}: {place} is not the same, so it keeps something outside of its state")


def way_back(method: Method) -> Callable[[], None]:
    """What undoes an attempt to go on, to be had before the method is started.

    Raises:
        BadData: there is none, so that nothing must be tried.
    """
    if isinstance(method, Elsewhere):
        return method.leave_process
    looks, rngs = seen(method), global_rngs.state()
    try:
        attributes = copy.deepcopy(vars(method))
    except Exception as error:  # whoever can't be copied may raise anything
        raise BadData("an attempt to go on could not be undone, for the instance can't be copied") from error
    if place := difference(looks, seen(method)):
        raise BadData(f"an attempt to go on could not be proven, for {place} can't be looked into")

    def undo() -> None:
        vars(method).clear()
        vars(method).update(attributes)
        global_rngs.restore(rngs)
        if place := difference(looks, seen(method)):
            raise PluginError(
                f"method '{method.name}' does not come back from its checkpoint as it was, and the attempt has changed "
                f"{place} in this process: the checkpoint is removed; run it again in a new process"
            )

    return undo
