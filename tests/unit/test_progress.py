"""Progress in a log file: a line every half minute, and none for what is over sooner."""

from __future__ import annotations

import pytest

from tta_bench.system.progress import Terminal


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    return now


def test_a_long_task_is_heard_of(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    terminal = Terminal()
    assert not terminal.console.is_terminal
    with terminal.task("encoding augmix63", 1000, "images", done=100) as advance:
        for _ in range(90):
            clock[0] += 1
            advance(5, "mAP 51.2")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "encoding augmix63: 250 of 1,000 images, 5.0/s, 2 min to go, mAP 51.2"
    assert len(lines) == 3


def test_a_short_task_says_nothing(clock: list[float], capsys: pytest.CaptureFixture[str]) -> None:
    with Terminal().task("adapting clip", 10, "images") as advance:
        for _ in range(10):
            clock[0] += 2
            advance(1)
    assert capsys.readouterr().err == ""
