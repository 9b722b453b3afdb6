"""What a long command tells the person who waits for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

Advance = Callable[..., None]  # advance(count, note="")


class Reporter(Protocol):
    """The runner speaks to this, so that it works the same in a terminal, a notebook and a test."""

    def line(self, text: str) -> None: ...

    def task(self, title: str, total: int, unit: str, done: int = 0) -> AbstractContextManager[Advance]: ...


class Silent:
    """Says nothing, but remembers the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def line(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def task(self, title: str, total: int, unit: str, done: int = 0) -> Iterator[Advance]:
        yield lambda count, note="": None


class Terminal:
    """Lines and progress bars through rich: a bar in a terminal, only the lines in a log file."""

    def __init__(self) -> None:
        from rich.console import Console

        self.console = Console(stderr=True, highlight=False, soft_wrap=True)

    def line(self, text: str) -> None:
        self.console.print(text, markup=False)

    @contextmanager
    def task(self, title: str, total: int, unit: str, done: int = 0) -> Iterator[Advance]:
        if not self.console.is_terminal:  # rich would leave an empty line for each bar in a log file
            yield lambda count, note="": None
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
