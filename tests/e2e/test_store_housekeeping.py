"""`ttabench store`: what the features take, which of them no run needs, and what is never deleted."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import filelock
import pytest

from tests.conftest import TOY, Invoke
from tests.faults.edited_records import edit
from tta_bench.features.store import FeatureKey, FeatureStore
from tta_bench.features.store_usage import StoredEntry, entries, usage
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord, load_all
from tta_bench.runs.bench import Bench
from tta_bench.runs.spec import RunSpec
from tta_bench.system.progress import Silent


def run(bench: Bench, method: str, seed: int = 0) -> RunRecord:
    return bench.run(RunSpec(method, "toy", "toyclip", seed)).record


def views(stored: list[StoredEntry]) -> set[tuple[str, int]]:
    return {(entry.key["recipe"], entry.key["seed"]) for entry in stored if entry.key is not None}


def unused(home: Path) -> set[tuple[str, int]]:
    runs, problems = load_all(home / "runs")
    assert problems == []
    return views([one.entry for one in usage(entries(home / "store"), runs) if not one.runs])


@pytest.mark.parametrize("method", ["clip", "tda", "purf", "twobranches"])
def test_what_a_run_has_encoded_it_needs(method: str, toy_bench: Bench, home: Path) -> None:
    """Built-in and outside code: whatever `EncodedViews` puts into a key can be told from the record."""
    run(toy_bench, method, seed=1)
    assert views(entries(home / "store"))
    assert unused(home) == set()


@pytest.mark.slow
def test_what_a_deleted_run_alone_needed_is_no_longer_needed(invoke: Invoke, toy_bench: Bench, home: Path) -> None:
    run(toy_bench, "clip")
    before = views(entries(home / "store"))
    made = [run(toy_bench, "tda", seed) for seed in (0, 1)]
    assert unused(home) == set()
    invoke("runs", "rm", "--yes", made[0].run_id)
    assert unused(home) == {("AugMix(n=63)", 0)}
    invoke("runs", "rm", "--yes", made[1].run_id)
    assert unused(home) == {("AugMix(n=63)", 0), ("AugMix(n=63)", 1)}
    result = invoke("store", "gc", "--yes")
    assert result.code == 0, result.err
    assert "freed" in result.out
    assert views(entries(home / "store")) == before
    again = run(toy_bench, "tda", 1)  # the emptied folder is encoded into afresh
    assert again.metrics == made[1].metrics
    assert unused(home) == set()


def test_another_version_of_a_dataset_or_backbone_is_not_needed(toy_bench: Bench, home: Path, tmp_path: Path) -> None:
    edited = tmp_path / "toy_plugin.py"
    edited.write_text(TOY.read_text() + "\n# edited\n")
    run(toy_bench, "clip")
    run(Bench(home, home / "data", registry=Registry([edited]), progress=Silent()), "clip")
    first, second = sorted(load_all(home / "runs")[0], key=lambda record: record.created)
    stored = entries(home / "store")
    assert len(stored) == 2
    for record in (first, second):
        assert sum(bool(one.runs) for one in usage(stored, [record])) == 1


def test_a_record_that_says_too_little_keeps_more(toy_bench: Bench, home: Path) -> None:
    from dataclasses import replace

    from tta_bench.records import Identity

    made = run(toy_bench, "clip")
    parts = {name: value for name, value in made.config.parts.items() if name != "recipe_sources"}
    (one,) = usage(entries(home / "store"), [replace(made, config=Identity(parts))])
    assert one.runs
    other = replace(made, protocol=Identity({**made.protocol.parts, "backbone_digest": "another"}))
    (one,) = usage(entries(home / "store"), [other])
    assert not one.runs


def test_the_features_of_a_second_backbone_are_needed(toy_bench: Bench, home: Path) -> None:
    run(toy_bench, "secondeyes", seed=1)
    backbones = {entry.key["backbone"] for entry in entries(home / "store") if entry.key is not None}
    assert len(backbones) == 2
    assert unused(home) == set()


def test_gc_asks(invoke: Invoke, toy_bench: Bench, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    invoke("runs", "rm", "--yes", run(toy_bench, "clip").run_id)
    for answer, left in (("", 1), ("no\n", 1), ("y\n", 0)):
        monkeypatch.setattr(sys, "stdin", io.StringIO(answer))
        assert (invoke("store", "gc").code == 0) == (left == 0)
        assert len(entries(home / "store")) == left, answer


def test_gc_leaves_alone_what_is_being_written(invoke: Invoke, toy_bench: Bench, home: Path) -> None:
    invoke("runs", "rm", "--yes", run(toy_bench, "clip").run_id)
    (entry,) = entries(home / "store")
    for lock in ("lock", "lock-0"):
        with filelock.FileLock(entry.folder / lock):
            result = invoke("store", "gc", "--yes")
        assert result.code == 1
        assert "another process is writing it" in result.err
        assert (entry.folder / "features.bin").exists()


def test_gc_refuses_while_a_run_is_going_on(invoke: Invoke, toy_bench: Bench, home: Path) -> None:
    made = run(toy_bench, "clip")
    invoke("runs", "rm", "--yes", made.run_id)
    with filelock.FileLock(home / "runs" / f".{made.run_id}.lock"):
        result = invoke("store", "gc", "--yes")
    assert result.code == 2
    assert "is running" in result.err
    assert len(entries(home / "store")) == 1


def test_gc_refuses_when_a_record_cannot_be_read(invoke: Invoke, toy_bench: Bench, home: Path) -> None:
    made = run(toy_bench, "clip")
    edit(home / "runs" / made.run_id, lambda content: content.update(schema=99))
    result = invoke("store", "gc", "--yes")
    assert result.code == 2
    (line,) = result.err.strip().splitlines()
    assert "can't be read" in line
    assert len(entries(home / "store")) == 1


def test_runs_kept_elsewhere_count_when_they_are_named(
    invoke: Invoke, toy_bench: Bench, home: Path, tmp_path: Path
) -> None:
    run(toy_bench, "clip")
    (home / "runs").rename(tmp_path / "mine")
    assert "nothing to delete" in invoke("store", "gc", "--yes", "--results", str(tmp_path / "mine")).out
    assert invoke("store", "gc", "--yes", "--results", str(tmp_path / "nowhere")).code == 2
    assert len(entries(home / "store")) == 1
    assert invoke("store", "gc", "--yes").code == 0
    assert entries(home / "store") == []


def test_ls_says_what_takes_how_much(invoke: Invoke, toy_bench: Bench, home: Path) -> None:
    run(toy_bench, "tda")
    FeatureStore(home / "store").entry(FeatureKey("data", "net", "Hostile('\x1b[31m<b>')", 0), (10, 1, 4), 16)
    aside = next((home / "store").glob("??/*")).with_name("abc.set-aside-1")
    aside.mkdir()
    (aside / "features.bin").write_bytes(b"x" * 5000)
    result = invoke("store", "ls")
    assert result.code == 0, result.err
    assert "AugMix(n=63) seed 0, toy, toyclip" in result.out
    assert "24 of 24 images; for 1 run" in result.out
    assert "abc.set-aside-1: set aside or damaged" in result.out
    assert "0 of 10 images; no run needs it" in result.out
    assert "\x1b" not in result.out
    facts = json.loads(invoke("store", "ls", "--json").out)
    assert len(facts) == 4
    assert sum(bool(one["runs"]) for one in facts) == 2
    assert invoke("store", "gc", "--yes").code == 0
    assert not aside.exists()
    assert len(entries(home / "store")) == 2


@pytest.mark.parametrize(
    "meta", [b"\xff", b"[]", b'{"key": {}}', b'{"key": 1e999, "shape": [1e999], "images_per_block": 1}']
)
def test_a_damaged_entry_is_shown_and_needed_by_nobody(
    meta: bytes, invoke: Invoke, home: Path, toy_bench: Bench
) -> None:
    run(toy_bench, "clip")
    (entry,) = entries(home / "store")
    (entry.folder / "meta.json").write_bytes(meta)
    (one,) = entries(home / "store")
    assert one.key is None
    assert "set aside or damaged" in invoke("store", "ls").out


@pytest.mark.parametrize("command", ["store ls", "store gc --yes", "runs ls", "runs export copy", "runs rm clip --yes"])
def test_torch_is_not_imported(command: str, toy_bench: Bench, home: Path, tmp_path: Path) -> None:
    run(toy_bench, "clip")
    code = (
        f"import sys; sys.argv = ['ttabench', *{command.split()!r}]\n"
        "from tta_bench.cli.main import main\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(not end.code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.splitlines()[-1] == "True False", done.stderr


def test_an_empty_store_has_nothing(invoke: Invoke) -> None:
    assert "nothing to delete" in invoke("store", "gc", "--yes").out
    assert invoke("store", "ls").code == 0
