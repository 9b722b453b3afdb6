"""Where the command begins. Imports next to nothing, so that Ctrl-C is looked after before anything else happens."""

from __future__ import annotations

import os
import signal
import sys

TYPE_CHECKING = False  # as in typing, which takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType
    from typing import NoReturn

INTERRUPTED = 130
SHOW_CURSOR = b"\x1b[?25h"  # a progress bar hides it


def main() -> None:
    """Entry point. Ctrl-C ends it with one line at any moment, and a second one at once."""
    interrupts = Interrupts()
    try:
        interrupts.listen()
        from tta_bench.cli.app import command

        command()
    except KeyboardInterrupt:
        interrupts.leave()
    finally:
        interrupts.end()


class Interrupts:
    """What Ctrl-C does. The first time it unwinds the command, as usual in Python. A second time, or while modules are
    imported (some swallow it or turn it into other errors), or when all is done, there is nothing to wait for: the
    files are such that even kill -9 does no harm."""

    def __init__(self) -> None:
        self.over = False  # the command has ended, the process not yet
        self._heard = False
        self._owner = os.getpid()

    def listen(self) -> None:
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            return  # a job in the background ignores it; or somebody has a handler of their own
        try:
            signal.signal(signal.SIGINT, self._hear)
        except ValueError:  # not the main thread
            return
        sys.unraisablehook = self._unraisable

    def end(self) -> None:
        """The command has ended. Who has been heard needs no second answer: while Python takes itself apart, its own
        handler is gone, and the signal would kill the process in mid-word."""
        self.over = True
        if self._heard:
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    def _hear(self, _: int, frame: FrameType | None) -> None:
        if os.getpid() != self._owner:  # a forked worker: its parent hears it, too, and speaks
            os._exit(0)
        if self._heard or self.over or _importing(frame):
            self.leave()
        self._heard = True
        raise KeyboardInterrupt

    def _unraisable(self, unraisable: sys.UnraisableHookArgs) -> None:
        """Raised where Python can't pass it on, for example in a destructor: it would be printed at length and lost."""
        if unraisable.exc_type is KeyboardInterrupt:
            self.leave()
        sys.__unraisablehook__(unraisable)

    def leave(self) -> NoReturn:
        try:
            say_once(lambda: os.write(2, (SHOW_CURSOR if os.isatty(2) else b"") + b"ttabench: interrupted\n"))
            sys.stdout.flush()  # may be closed, or interrupted in the middle of writing
        finally:
            os._exit(INTERRUPTED)


def say_once(say: Callable[[], object]) -> None:
    """Says that it was interrupted. Another Ctrl-C comes before that, and speaks instead, or after it, and is still.

    The handler is changed and the signal not blocked: blocked here, it would reach another thread, and Python all the
    same."""
    ours = isinstance(getattr(signal.getsignal(signal.SIGINT), "__self__", None), Interrupts)
    if ours:
        signal.signal(signal.SIGINT, lambda *_: None)
    say()
    if ours:
        signal.signal(signal.SIGINT, lambda *_: os._exit(INTERRUPTED))


def _importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_filename.startswith("<frozen importlib._bootstrap"):
            return True
        frame = frame.f_back
    return False
