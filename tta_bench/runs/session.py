"""The runner's end of a guest's session: what it is asked to do, and what it may ask for meanwhile."""

from __future__ import annotations

import itertools
import os
import signal
import time
import weakref
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tta_bench import errors
from tta_bench.errors import Raised, TTABenchError, UsageError
from tta_bench.features.stream import TOO_LATE
from tta_bench.interfaces import Observation, Task
from tta_bench.runs.channel import Channel, Lost

STARTING = 300.0  # seconds for Python and torch to come up on a busy machine
FORKING = 30.0  # seconds for a process that is up to fork; one that takes longer has been stopped


class Session:
    """One method in a process of its own. It ends with the last reference to it."""

    def __init__(self, channel: Channel, patience: float) -> None:
        """Raises `Lost` or `TimeoutError` if it does not come up within `patience` seconds."""
        self._channel = channel
        self._process: int = channel.receive(time.monotonic() + patience)["process"]
        self._numbers = itertools.count()
        self.alive = True
        self.log: Path | None = None
        with suppress(AttributeError, OSError):  # Linux has it
            channel.watched = os.pidfd_open(self._process)
        self._ending = weakref.finalize(self, _end, channel, self._process, os.getpid())

    def call(self, do: str, desk: Desk | None = None, timeout: float | None = None, **request: Any) -> dict[str, Any]:
        """Has the guest do it, and answers meanwhile, from the desk, what it asks for.

        Raises:
            Raised: the plugin raised something.
            PluginError: its process is gone, or took longer than `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        number = next(self._numbers)
        try:
            self._channel.send(do=do, number=number, **request)
            while True:
                answer = self._channel.receive(deadline)
                if answer.pop("number", None) != number:
                    raise Lost("an answer to something else")
                if "ask" not in answer:
                    break
                self._channel.send(**(desk or Desk()).answer(**answer))
        except Lost:
            self.stop()
            where = f"; {self.log} has what it left" if self.log is not None and self.log.exists() else ""
            raise Raised(f"its process has died{where}") from None
        except TimeoutError:
            self.stop()
            limit = "of --step-timeout" if do == "step" else f"that --step-timeout leaves for {do}"
            raise Raised(f"took longer than the {timeout:g} s {limit}, so it was stopped") from None
        check(answer)
        return answer

    def stop(self) -> None:
        self.alive = False
        self._ending()


def _end(channel: Channel, process: int, owner: int) -> None:
    """One that waits sees the closed channel; one that is busy, and what it has started, would go on for nobody."""
    channel.connection.close()
    if os.getpid() == owner:
        with suppress(OSError):
            os.killpg(process, signal.SIGKILL)
    if channel.watched is not None:
        os.close(channel.watched)
        channel.watched = None


@dataclass
class Desk:
    """What a guest may ask for, and who answers: the run's own task, and the present image."""

    task: Task | None = None
    present: Observation | None = None
    _graphs: dict[int, tuple[Tensor, Tensor]] = field(default_factory=dict)  # ticket -> a prompt's context, features
    _tickets: Iterator[int] = field(default_factory=itertools.count)

    def answer(self, ask: str, **question: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self, f"_{ask}")(**question)
        except TTABenchError as error:
            return {"refused": str(error)}
        except Exception as error:
            return {"refused": f"{type(error).__name__}: {error}"}
        return answer

    def _texts(self, texts: list[str]) -> dict[str, Any]:
        if self.task is None or self.task.encode_texts is None:
            raise UsageError("texts can be encoded between start and finish only")
        return {"features": self.task.encode_texts(texts)}

    def _pixels(self, index: int, role: str) -> dict[str, Any]:
        if self.present is None or self.present.index != index:
            raise UsageError(TOO_LATE)
        return {"pixels": self.present.pixels(role)}

    def _words(self, words: str) -> dict[str, Any]:
        assert self.task is not None
        assert self.task.prompts is not None
        return {"context": self.task.prompts.init_context(words)}

    def _context(self, context: Tensor, names: list[str], tuned: bool, unused: list[int]) -> dict[str, Any]:
        assert self.task is not None
        assert self.task.prompts is not None
        for ticket in unused:  # nobody there can ask for their gradients any more
            del self._graphs[ticket]
        leaf = context.to(self.task.device).requires_grad_(tuned)
        with torch.set_grad_enabled(tuned):
            features = self.task.prompts.encode_context(leaf, names)
        ticket = next(self._tickets)
        if tuned:
            self._graphs[ticket] = (leaf, features)
        return {"features": features, "ticket": ticket}

    def _gradient(self, ticket: int, gradient: Tensor) -> dict[str, Any]:
        leaf, features = self._graphs[ticket]
        (found,) = torch.autograd.grad(features, leaf, gradient.to(features.device), retain_graph=True)
        return {"gradient": found}


def check(answer: Mapping[str, Any]) -> None:
    """Raises what the guest raised."""
    if "error" not in answer:
        return
    raised: Exception = getattr(errors, str(answer["error"]), Raised)(str(answer["text"]))
    if "traceback" in answer:
        raised.add_note(f"In the plugin's process:\n{answer['traceback']}")  # for --debug
    raise raised
