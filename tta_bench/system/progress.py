"""What a long command tells the person who waits for it."""

from __future__ import annotations

import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Advance = Callable[..., None]  # advance(count, note="")
LOG_SECONDS = 30.0  # between two lines of progress in a log file


class Reporter(Protocol):
    """The runner speaks to this, so that it works the same in a terminal, a notebook and a test."""

    def line(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def task(self, title: str, total: int, unit: str, done: int = 0) -> AbstractContextManager[Advance]: ...


class TTABenchWarning(UserWarning):
    """Something that makes a number mean less than it seems to."""


@contextmanager
def patience(reporter: Reporter, text: str, seconds: float = 3.0) -> Iterator[None]:
    """Says why nothing happens, if it lasts."""
    timer = threading.Timer(seconds, reporter.line, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


class Silent:
    """Says nothing, but remembers the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    def warn(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def task(self, title: str, total: int, unit: str, done: int = 0) -> Iterator[Advance]:
        yield lambda count, note="": None


class Quiet(Silent):
    """For Python: no progress, but what a reader of the numbers must know arrives as a Python warning."""

    def warn(self, text: str) -> None:
        warnings.warn(text, TTABenchWarning, stacklevel=2)


class Terminal:
    """Lines and progress through rich: a bar in a terminal, a line now and then in a log file."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, soft_wrap=True)

    def line(self, text: str) -> None:
        self.console.print(text, markup=False)

    def warn(self, text: str) -> None:
        self.line(f"ttabench: warning: {text}")

    @contextmanager
    def task(self, title: str, total: int, unit: str, done: int = 0) -> Iterator[Advance]:
        if not self.console.is_terminal:
            yield self._log(title, total, unit, done)
            return
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            ProgressColumn,
            TextColumn,
            TimeRemainingColumn,
        )
        from rich.progress import Task as Bar
        from rich.text import Text

        class Speed(ProgressColumn):
            def render(self, task: Bar) -> Text:
                return Text(f"{task.speed or 0.0:,.0f} {unit}/s")

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            Speed(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}", markup=False),
        )
        with Progress(*columns, console=self.console, transient=True) as progress:
            bar = progress.add_task(title, total=total, completed=done, note="")

            def advance(count: int, note: str = "") -> None:
                if note:
                    progress.update(bar, advance=count, note=note)
                else:
                    progress.update(bar, advance=count)

            yield advance

    def _log(self, title: str, total: int, unit: str, done: int) -> Advance:
        """A line every half minute, for the logs of batch jobs; what is over sooner says nothing."""
        began = last = time.monotonic()
        first, latest = done, ""

        def advance(count: int, note: str = "") -> None:
            nonlocal done, last, latest
            done += count
            latest = note or latest
            now = time.monotonic()
            if now - last >= LOG_SECONDS and done < total:
                last = now
                speed = (done - first) / (now - began)
                minutes = (total - done) / speed / 60 if speed else 0.0
                extra = f", {latest}" if latest else ""
                self.line(f"{title}: {done:,} of {total:,} {unit}, {speed:,.1f}/s, {minutes:.0f} min to go{extra}")

        return advance
