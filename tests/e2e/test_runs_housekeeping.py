"""`ttabench runs`: what is listed, deleted, and moved between machines."""

from __future__ import annotations

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.conftest import Invoke
from tests.faults.edited_records import edit
from tests.record_fixtures import record, write
from tta_bench import records
from tta_bench.records import SCORES, RunRecord
from tta_bench.runs.bench import Bench
from tta_bench.runs.spec import RunSpec
from tta_bench.system.files import file_digest
from tta_bench.system.record_form import seal

HOSTILE = "<script>alert(1)</script>\x1b[31m\x1b]0;title\x07"


def run(bench: Bench, method: str = "clip", seed: int = 0) -> RunRecord:
    return bench.run(RunSpec(method, "toy", "toyclip", seed)).record


def sealed_again(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """As somebody would who knows how records are sealed."""
    edit(folder, change)
    edit(folder, lambda content: content.update(seal=seal(content)))


def rewrite_scores(folder: Path, change: Callable[[dict[str, np.ndarray[Any, Any]]], object]) -> None:
    """Other arrays in a file whose digest and seal match."""
    file, ids = folder / SCORES, records.load(folder).ids()
    tensors = load_file(file)
    change(tensors)
    save_file(tensors, file, {"ids": json.dumps(ids)})
    sealed_again(folder, lambda content: content["files"].update({SCORES: file_digest(file)}))


def other_scores(folder: Path) -> None:
    """The run as another machine might have computed it: sound in itself, its ranking the same."""
    rewrite_scores(folder, lambda tensors: tensors.update(scores=tensors["scores"] * np.float32(1.0001)))


def test_ls_names_every_run_and_what_is_wrong_with_it(invoke: Invoke, toy_bench: Bench, home: Path) -> None:
    seeds = [run(toy_bench, seed=seed) for seed in range(4)]
    good, bad = seeds[0], seeds[1]
    edit(home / "runs" / bad.run_id, lambda content: content.update(method=HOSTILE))
    (home / "runs" / "half").mkdir()
    (home / "runs" / "half" / "checkpoint.pt").touch()
    (home / "runs" / "photos").mkdir()
    result = invoke("runs", "ls")
    assert result.code == 0
    header, *rows, total = result.out.splitlines()
    assert header.split() == ["mAP", "images", "seed", "size", "date", "run"]
    readable = [seed.run_id for seed in (good, *seeds[2:])]
    assert [row.split()[-1] for row in rows] == [*readable, bad.run_id, "half"]
    assert f"{good.metrics['mAP']:.2f}" in result.out
    assert total.startswith("5 runs, ")
    assert "half: did not finish" in result.err
    assert "seal does not match" in result.err
    assert "\x1b" not in result.out + result.err
    assert [facts["run"] for facts in json.loads(invoke("runs", "ls", "--json", "--method", "clip").out)] == readable


def test_a_hostile_record_that_is_whole_is_shown_as_text(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    made = record(HOSTILE, None, created="\x1b[2J\u202e", dataset="d\x1b[0m\n", seed=2**53)
    write(home / "runs", made)
    for arguments in (("ls",), ("ls", "--json"), ("ls", "--method", "nobody"), ("export", str(tmp_path / "disk"))):
        result = invoke("runs", *arguments)
        assert "\x1b" not in result.out + result.err
        assert "Traceback" not in result.err
    assert "scores" in result.err  # which it lacks, so it can't be checked
    assert not (tmp_path / "disk").exists()
    assert invoke("runs", "rm", "--yes", "--", made.run_id).code == 0
    assert not list(home.glob("runs/*/run.json"))


def test_ls_leaves_columns_out_where_the_terminal_is_narrow() -> None:
    from tta_bench.cli.runs import _table

    row = ("51.11", "40 of 600", "0", "20 kB", "2026-11-18", "clip-scenes-tiny-e0ccdb27c890")
    assert _table([row], 80)[0].split() == ["mAP", "images", "seed", "size", "date", "run"]
    assert _table([row], 60)[0].split() == ["mAP", "images", "seed", "size", "run"]
    assert max(map(len, _table([row], 60))) <= 60


def test_rm_asks_and_deletes_only_what_is_meant(
    invoke: Invoke, toy_bench: Bench, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clip, tda = run(toy_bench), run(toy_bench, "tda")
    for answer, expected in (("", 2), ("n\n", 2), ("y\n", 1)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        result = invoke("runs", "rm", "--method", "clip")
        assert len(list(home.glob("runs/*/run.json"))) == expected, answer
        assert (result.code == 0) == (expected == 1)
    assert not (home / "runs" / clip.run_id).exists()
    assert (home / "runs" / tda.run_id / "run.json").exists()
    assert invoke("runs", "rm", "--yes", "--dataset", "toy", "nonsense").code == 2
    assert "say which" in invoke("runs", "rm", "--yes").err
    assert (home / "runs" / tda.run_id / "run.json").exists()
    assert invoke("runs", "rm", "--yes", tda.run_id[:5]).code == 0
    assert list(home.glob("runs/*")) == [] or all(p.name.startswith(".") for p in home.glob("runs/*"))


def test_rm_takes_an_unreadable_record_by_its_full_name_only(invoke: Invoke, home: Path) -> None:
    folder = home / "runs" / "future-run"
    folder.mkdir(parents=True)
    (folder / "run.json").write_text('{"schema": 99}')
    assert invoke("runs", "rm", "--yes", "future").code == 2
    assert folder.exists()
    assert invoke("runs", "rm", "--yes", "future-run").code == 0
    assert not folder.exists()


def test_rm_leaves_a_run_alone_that_is_going_on(invoke: Invoke, toy_bench: Bench, home: Path) -> None:
    made = run(toy_bench)
    with filelock.FileLock(home / "runs" / f".{made.run_id}.lock"):
        result = invoke("runs", "rm", "--yes", made.run_id)
    assert result.code == 1
    assert "another process is running it" in result.err
    assert (home / "runs" / made.run_id / "run.json").exists()


def test_rm_does_not_follow_a_link(invoke: Invoke, toy_bench: Bench, home: Path, tmp_path: Path) -> None:
    made = run(toy_bench)
    folder, elsewhere = home / "runs" / made.run_id, tmp_path / made.run_id
    folder.rename(elsewhere)
    folder.symlink_to(elsewhere)
    assert invoke("runs", "rm", "--yes", made.run_id).code == 0
    assert not folder.is_symlink()
    assert (elsewhere / "run.json").exists()


def test_runs_of_two_machines_are_merged(invoke: Invoke, toy_bench: Bench, home: Path, tmp_path: Path) -> None:
    clip, tda = run(toy_bench), run(toy_bench, "tda")
    disk = tmp_path / "disk"
    assert invoke("runs", "export", str(disk)).out.startswith("2 runs copied")
    assert sorted(p.name for p in disk.iterdir()) == sorted([clip.run_id, tda.run_id])
    assert invoke("runs", "rm", "--yes", "clip").code == 0
    result = invoke("runs", "import", str(disk))
    assert result.code == 0, result.err
    assert "1 run copied" in result.out
    assert "1 there already" in result.out
    for name in (clip.run_id, tda.run_id):
        assert records.damage(home / "runs" / name) == ""
    assert toy_bench.run(RunSpec("clip", "toy", "toyclip")).already


def test_a_run_with_other_scores_is_refused_and_both_are_kept(
    invoke: Invoke, toy_bench: Bench, home: Path, tmp_path: Path
) -> None:
    clip, tda = run(toy_bench), run(toy_bench, "tda")
    disk = tmp_path / "disk"
    invoke("runs", "export", str(disk))
    invoke("runs", "rm", "--yes", "tda")
    other_scores(disk / clip.run_id)
    before = [file_digest(folder / clip.run_id / SCORES) for folder in (disk, home / "runs")]
    result = invoke("runs", "import", str(disk))
    assert result.code == 1
    assert "1 run copied" in result.out  # the sound one
    assert "1 refused" in result.out
    (line,) = result.err.strip().splitlines()
    assert clip.run_id in line
    assert "both are left as is" in line
    assert [file_digest(folder / clip.run_id / SCORES) for folder in (disk, home / "runs")] == before
    assert (home / "runs" / tda.run_id / "run.json").exists()


def cut_scores(folder: Path) -> None:
    content = (folder / SCORES).read_bytes()
    (folder / SCORES).write_bytes(content[:-1])


FAULTS: dict[str, tuple[Callable[[Path], object], str]] = {
    "edited": (lambda f: edit(f, lambda c: c["metrics"].update(mAP=99.0)), "seal does not match"),
    "a better number under a new seal": (
        lambda f: sealed_again(f, lambda c: c["metrics"].update(mAP=99.0)),
        "says mAP",
    ),
    "another class": (
        lambda f: sealed_again(f, lambda c: c["per_class_ap"].update(red=0.0)),
        "'per_class_ap' says red",
    ),
    "future schema": (lambda f: edit(f, lambda c: c.update(schema=99)), "newer ttabench"),
    "a missing field": (lambda f: sealed_again(f, lambda c: c.pop("counts")), "'counts' is missing"),
    "a huge number": (lambda f: sealed_again(f, lambda c: c["metrics"].update(mAP=1e308)), "is not between"),
    "NaN": (lambda f: sealed_again(f, lambda c: c["metrics"].update(mAP=float("nan"))), "is not between"),
    "escape sequences": (
        lambda f: sealed_again(f, lambda c: c.update(method=HOSTILE)),
        "is not that of its config",
    ),
    "no JSON": (lambda f: (f / "run.json").write_bytes(b"\xff\x00"), "not a run record"),
    "scores cut short": (cut_scores, "is not what was written"),
    "scores that are not finite": (lambda f: rewrite_scores(f, lambda t: t["scores"].fill(np.nan)), "can't be ranked"),
    "labels of other images": (
        lambda f: rewrite_scores(f, lambda t: t["labels"].fill(1)),
        "are not those of the protocol",
    ),
    "one image many times": (lambda f: rewrite_scores(f, lambda t: t["index"].fill(0)), "names no 24 images"),
    "outputs gone": (lambda f: (f / "outputs.safetensors").unlink(), "is missing"),
    "under another name": (lambda f: f.rename(f.with_name("tda-toy-toyclip-000000000000")), "holds the run"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_what_is_not_sound_is_refused_in_one_line(
    fault: str, invoke: Invoke, toy_bench: Bench, home: Path, tmp_path: Path
) -> None:
    made = run(toy_bench)
    disk = tmp_path / "disk"
    shutil.move(home / "runs" / made.run_id, disk / made.run_id)
    damage, said = FAULTS[fault]
    damage(disk / made.run_id)
    result = invoke("runs", "import", str(disk))
    assert result.code == 1
    (line,) = result.err.strip().splitlines()
    assert said in line
    assert "\x1b" not in line
    assert "0 runs copied" in result.out
    assert not list(home.glob("runs/*/run.json"))


def test_a_damaged_run_is_mended_by_an_import(invoke: Invoke, toy_bench: Bench, home: Path, tmp_path: Path) -> None:
    made = run(toy_bench)
    invoke("runs", "export", str(tmp_path / "disk"))
    cut_scores(home / "runs" / made.run_id)
    assert invoke("runs", "import", str(tmp_path / "disk")).code == 0
    assert records.damage(home / "runs" / made.run_id) == ""


def test_the_compact_form_is_a_sound_run_without_outputs(
    invoke: Invoke, toy_bench: Bench, home: Path, tmp_path: Path
) -> None:
    made = run(toy_bench)
    invoke("runs", "export", str(tmp_path / "disk"), "--compact")
    folder = tmp_path / "disk" / made.run_id
    assert sorted(file.name for file in folder.iterdir()) == ["run.json", SCORES]
    assert records.damage(folder) == ""
    small = records.load(folder, named=True)
    assert small.sealed
    assert small.metrics == made.metrics
    assert np.array_equal(small.scores(), made.scores())
    left_out = json.loads((folder / "run.json").read_text())["left_out"]
    assert left_out == {"outputs.safetensors": made.files["outputs.safetensors"]}
    invoke("runs", "rm", "--yes", made.run_id)
    assert invoke("runs", "import", str(tmp_path / "disk")).code == 0
    assert toy_bench.run(RunSpec("clip", "toy", "toyclip")).already


@pytest.mark.parametrize("version", ["record_v1", "record_v2"])
def test_old_records_can_be_imported(version: str, invoke: Invoke, home: Path, tmp_path: Path) -> None:
    golden = Path(__file__).parents[1] / "golden" / version
    name = (golden / "name.txt").read_text().strip()
    shutil.copytree(golden, tmp_path / "disk" / name)
    result = invoke("runs", "import", str(tmp_path / "disk"))
    assert result.code == 0, result.err
    assert (home / "runs" / name / "run.json").exists()


def test_a_folder_without_runs_is_no_export(invoke: Invoke, tmp_path: Path) -> None:
    assert "no runs there" in invoke("runs", "import", str(tmp_path)).err
    assert "no runs to export" in invoke("runs", "export", str(tmp_path / "new")).err
    assert not (tmp_path / "new").exists()
