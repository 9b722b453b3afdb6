"""Killed while a run replaces another: the old record or the new one is there, at any moment."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import some_slow, start_process
from tests.faults.toy_runs import QUICK, TOY_RUN, finish, hidden, kill_when, the_record
from tta_bench.runs import folder as folders
from tta_bench.runs.bench import Bench, RunSpec


@pytest.mark.slow
def test_a_forced_run_that_is_killed_leaves_the_old_record(tmp_path: Path) -> None:
    finish(tmp_path)
    before = the_record(tmp_path)
    kill_when(lambda: any((tmp_path / "runs").rglob("checkpoint.pt")), tmp_path, "--force")
    assert the_record(tmp_path).created == before.created
    assert "resuming at image" in finish(tmp_path, "--force")
    after = the_record(tmp_path)
    assert (after.scores() == before.scores()).all()
    assert hidden(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("seconds", [0.2, 0.5, 0.8, 1.1, 1.4, 1.7, 2.0, 2.4, 2.8, 3.2])
def test_a_forced_run_killed_at_any_moment(tmp_path: Path, seconds: float) -> None:
    finish(tmp_path)
    before = the_record(tmp_path)
    process = start_process(*QUICK, "--force", home=tmp_path, TOY_DELAY="0.01")
    time.sleep(seconds)
    process.kill()
    process.communicate()
    assert (the_record(tmp_path).scores() == before.scores()).all()
    finish(tmp_path, "--force")
    assert (the_record(tmp_path).scores() == before.scores()).all()
    assert hidden(tmp_path) == []


class Killed(KeyboardInterrupt):
    pass


@pytest.mark.parametrize("exchange", [True, False])
@pytest.mark.parametrize("step", some_slow([1], [0, 2, 3]))
@pytest.mark.parametrize("again", some_slow([True], [False]))
def test_a_kill_in_the_middle_of_the_swap(
    toy_bench: Bench, monkeypatch: pytest.MonkeyPatch, exchange: bool, step: int, again: bool
) -> None:
    """Killed before the step-th change of the file system. Where folders can't be exchanged, an instant without a
    record is left, and the next run ends it."""
    before = toy_bench.run(TOY_RUN).record
    steps = 0

    def counted(action: Callable[..., object]) -> Callable[..., object]:
        def call(*arguments: object, **more: object) -> object:
            nonlocal steps
            if steps == step:
                raise Killed
            steps += 1
            return action(*arguments, **more)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(folders, "_exchange", counted(folders._exchange) if exchange else lambda one, other: False)
        patch.setattr(Path, "rename", counted(Path.rename))
        patch.setattr(shutil, "rmtree", counted(shutil.rmtree))
        try:
            toy_bench.run(TOY_RUN, force=True)
        except Killed:
            if exchange:
                assert (the_record(toy_bench.home).scores() == before.scores()).all()
    toy_bench.run(TOY_RUN, force=again)
    assert (the_record(toy_bench.home).scores() == before.scores()).all()
    assert hidden(toy_bench.home) == []


def test_a_damaged_run_is_replaced_in_the_same_way(toy_bench: Bench) -> None:
    folder = toy_bench.run(TOY_RUN).record.folder
    assert folder is not None
    (folder / "scores.safetensors").write_bytes(b"xx")
    record = toy_bench.run(TOY_RUN).record
    assert record.folder == folder
    assert the_record(toy_bench.home).created == record.created
    assert hidden(toy_bench.home) == []


def test_what_a_kill_left_of_a_first_run_is_cleaned(toy_bench: Bench) -> None:
    folder = toy_bench.runs / toy_bench.prepare(TOY_RUN).run_id
    folder.mkdir(parents=True)
    (folder / ".run.json.x7s_3f").write_text("{")
    toy_bench.run(TOY_RUN)
    assert hidden(toy_bench.home) == []


@pytest.mark.slow
def test_a_run_that_lies_on_another_disk_is_replaced_as_often_as_one_likes(toy_bench: Bench, tmp_path: Path) -> None:
    folder = toy_bench.run(TOY_RUN).record.folder
    assert folder is not None
    folder.rename(tmp_path / "elsewhere")
    folder.symlink_to(tmp_path / "elsewhere")
    for _ in range(3):
        assert not toy_bench.run(TOY_RUN, force=True).already
    assert hidden(toy_bench.home) == []
    assert (tmp_path / "elsewhere" / "run.json").is_file()


def test_folders_that_somebody_put_into_an_unfinished_run(toy_bench: Bench) -> None:
    folder = toy_bench.runs / toy_bench.prepare(TOY_RUN).run_id
    for name in (".git", "x.safetensors"):
        (folder / name).mkdir(parents=True)
    assert toy_bench.run(TOY_RUN).record.metrics["mAP"] is not None


@pytest.mark.parametrize("moment", ["before the swap", "after it"])
def test_notes_in_a_run_survive_a_kill_in_its_replacement(
    moment: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were moved beside first, and the next `--force` removed what was left there."""
    run = folders.RunFolder(tmp_path, "tda-toy-tiny-1234")
    for folder in (run.final, run.beside):
        folder.mkdir(parents=True)
        (folder / "run.json").write_text("{}")
    (run.final / "notes.txt").write_text("mine")
    exchange = folders._exchange

    def killed(one: Path, other: Path) -> bool:
        if moment == "after it":
            exchange(one, other)
        raise KeyboardInterrupt

    monkeypatch.setattr(folders, "_exchange", killed)
    with pytest.raises(KeyboardInterrupt):
        run.publish()
    again = folders.RunFolder(tmp_path, "tda-toy-tiny-1234")
    again.recover()
    again.begin(replacing=True)
    assert (run.final / "notes.txt").read_text() == "mine"


def test_another_run_under_this_ones_name_is_set_aside(toy_bench: Bench) -> None:
    """Two folders had each other's names after a wrong restore: running one again destroyed the other."""
    clip, tda = (RunSpec(method, "toy", "toyclip") for method in ("clip", "tda"))
    one, other = (toy_bench.run(spec).record.folder for spec in (clip, tda))
    assert one is not None
    assert other is not None
    scores = (other / "scores.safetensors").read_bytes()
    one.rename(one.with_name("between"))
    other.rename(one)
    one.with_name("between").rename(other)
    assert not toy_bench.run(clip).already
    aside = one.with_name(f"{one.name}.set-aside-1")
    assert (aside / "scores.safetensors").read_bytes() == scores
    aside.rename(aside.with_name("between"))
    other.rename(aside)
    aside.with_name("between").rename(other)
    assert toy_bench.run(tda).already
