"""What a process has once, such as a library's switches, for several threads at a time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


class Turns:
    """One at a time for each object, whatever thread they are in. Who has the turn may take it again."""

    def __init__(self) -> None:
        self._forked()
        os.register_at_fork(after_in_child=self._forked)

    @contextmanager
    def of(self, thing: object) -> Iterator[None]:
        with self._guard:
            turn, waiting = self._turns.get(id(thing), (threading.RLock(), 0))
            self._turns[id(thing)] = turn, waiting + 1
        try:
            with turn:
                yield
        finally:
            with self._guard:
                _, waiting = self._turns.pop(id(thing))
                if waiting > 1:
                    self._turns[id(thing)] = turn, waiting - 1

    def _forked(self) -> None:
        self._guard = threading.Lock()
        self._turns: dict[int, tuple[threading.RLock, int]] = {}  # by the object's id; with how many want it


class Together:
    """A context that the first thread to come enters and the last to go leaves. If each had its own, it would save what
    another has set, and give that back while others are still at work."""

    def __init__(self, make: Callable[[], AbstractContextManager[object]]) -> None:
        self._make, self._inside, self._lock = make, 0, threading.Lock()
        os.register_at_fork(after_in_child=self._forked)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            if not self._inside:
                self._context = self._make()
                self._context.__enter__()
            self._inside += 1
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    self._context.__exit__(None, None, None)

    def _forked(self) -> None:
        """A thread that held the lock is not there any more to let it go."""
        self._lock = threading.Lock()
