"""What a table, a figure or a plugin says when it is handed on, or meets what others have made."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import TOY, Invoke
from tests.faults.test_fence import GUEST, TOYS
from tests.record_fixtures import on, record, write
from tta_bench.errors import UsageError
from tta_bench.records import Identity, RunRecord
from tta_bench.report import figures
from tta_bench.runs.values import fitted

FAST: dict[str, Any] = {"speed": {"images_per_s": 100.0}}


def with_threads(run: RunRecord, threads: int) -> RunRecord:
    return replace(run, hardware={**run.hardware, "threads": threads})


def test_speeds_with_other_numbers_of_threads_are_not_compared(invoke: Invoke, home: Path) -> None:
    write(
        home / "runs",
        with_threads(on("toy", method="clip", **FAST), 1),
        with_threads(on("toy", method="tda", **FAST), 8),
    )
    assert "Runs with 1 and 8 threads: compare no img/s." in " ".join(invoke("leaderboard", "--fast").out.split())


def test_a_front_over_two_kinds_of_machine_says_so() -> None:
    runs = [with_threads(on("toy", method=m, **FAST), n) for m, n in (("clip", 1), ("tda", 8))]
    assert "2 kinds of machine" in str(figures.pareto(runs).get_suptitle())
    assert "machine" not in str(figures.pareto(runs[:1]).get_suptitle())


def test_a_table_that_is_handed_on_says_what_it_leaves_out(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    """Only who made it had seen a line: two people of one results folder each had a method `mine`."""
    runs = [
        record("mine", value, config=Identity({"source": str(value)}), created=f"2026-01-0{day}T00:00:00+00:00")
        for day, value in ((1, 50.0), (2, 6.0))
    ]
    write(home / "runs", *runs)
    said = "1 run by code of the same name that was edited since, or is somebody else's, left out (--all)."
    for format_ in ("console", "md", "latex", "html"):
        assert said in " ".join(invoke("leaderboard", "--format", format_).out.split()).replace("{-}", "-"), format_


def test_a_speed_is_no_percentage(invoke: Invoke, home: Path) -> None:
    write(home / "runs", on("toy", **FAST))
    for metrics, said in (("images_per_s", "{img/s with "), ("mAP,images_per_s", "{mAP in percent and img/s with ")):
        assert said in invoke("leaderboard", "--format", "latex", "--metric", metrics).out


@pytest.mark.parametrize("typed", ["[no, yes]", "[1.10]", "[null]"])
def test_texts_that_yaml_makes_something_else_are_refused(typed: str) -> None:
    with pytest.raises(UsageError, match="quote them"):
        fitted(typed, list[str], "mine.words")
    assert fitted("['no', \"1.10\"]", list[str], "mine.words") == ["no", "1.10"]
    assert fitted("[a, 3]", list[str], "mine.words") == ["a", "3"]


def test_folders_without_init_may_lie_within_each_other(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    """As those of official repositories: the plugin could not be loaded, `KeyError: 'nets'`."""
    helper = tmp_path / "nets" / "deep" / "consts.py"
    helper.parent.mkdir(parents=True)
    path = f"import sys; sys.path.insert(0, {str(tmp_path)!r})"
    source = GUEST.replace("ON_IMPORT", path).replace("ON_START", "from nets.deep.consts import K; self.k = K")
    (tmp_path / "guest.py").write_text(source.replace("ON_STEP", "return self.k * (self.task.text @ x.image)"))
    for sign in ("1.0", "-1.0"):
        helper.write_text(f"K = {sign}\n")
        done = invoke("run", "-m", "guest", "--plugin", f"{TOY},{tmp_path / 'guest.py'}", *TOYS)
        assert done.code == 0, done.err
    assert len(list((home / "runs").glob("guest-*"))) == 2  # an edit there is another row


def test_an_image_that_is_listed_twice_is_refused_by_a_new_dataset(
    invoke: Invoke, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """JSON kept the last of its two lists of labels: 45.49 in place of 48.68."""
    monkeypatch.chdir(tmp_path)
    assert invoke("new", "dataset", "birds", "--file").code == 0
    (tmp_path / "birds").mkdir()
    (tmp_path / "birds" / "labels.json").write_text('{"a.png": ["dog"], "b.png": ["cup"], "a.png": ["cup"]}')
    done = invoke(
        "run", "-m", "clip", "-d", "birds", "--plugin", "birds.py", "--data-root", str(tmp_path), "-b", "tiny"
    )
    assert done.code == 2
    assert "a.png is there twice" in done.err
