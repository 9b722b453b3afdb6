"""A finished run is found without opening anything, and never when something that it depends on has changed."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.test_label_blind import Vandal
from tta_bench.errors import BadData, StoreError
from tta_bench.plugins import Registry
from tta_bench.runs import known
from tta_bench.runs.bench import Bench
from tta_bench.runs.spec import RunSpec
from tta_bench.system import provenance
from tta_bench.system.stamps import CLOCK_TICK, stamp


@pytest.fixture
def bench(home: Path) -> Bench:
    return Bench(home)


@pytest.fixture
def finished(bench: Bench, toy_pack: Path) -> RunSpec:
    """A run that was done and noted: a built-in method on a pack."""
    spec = RunSpec("clip", pack=toy_pack)
    time.sleep(2 * CLOCK_TICK / 1e9)  # what was changed only now is not noted
    bench.run(spec)
    return spec


def test_a_finished_run_is_found(bench: Bench, finished: RunSpec) -> None:
    found = bench.find(finished)
    assert found is not None
    assert found.run_id == bench.prepare(finished).run_id
    assert bench.run(finished).already
    assert not bench.run(finished, force=True).already


@pytest.mark.parametrize(
    "changed",
    [
        {"seed": 1},
        {"order": "sequential"},
        {"limit": 3},
        {"method": "regions"},
        {"prompt": "ensemble"},
        {"empty_classes": "zero"},
        {"ties": "dataset"},
        {"settings": {"shots": "2"}},
    ],
)
def test_another_request_is_another_run(bench: Bench, finished: RunSpec, changed: dict[str, object]) -> None:
    assert bench.find(replace(finished, **changed)) is None  # type: ignore[arg-type]


def test_stored_features_of_another_type_are_another_run(home: Path, finished: RunSpec) -> None:
    from tta_bench.features.options import EncodingOptions

    assert Bench(home, encoding=EncodingOptions("float32")).find(finished) is None


def _touch(spec: RunSpec, folder: Path) -> None:
    """The same size and, on purpose, the same modification time: the change time gives it away."""
    assert spec.pack is not None
    before = spec.pack.stat()
    content = bytearray(spec.pack.read_bytes())
    content[-1] ^= 1
    spec.pack.write_bytes(content)
    os.utime(spec.pack, ns=(before.st_atime_ns, before.st_mtime_ns))


def _edit_record(spec: RunSpec, folder: Path) -> None:
    content = json.loads((folder / "run.json").read_text())
    content["identities"]["replicate"]["parts"]["seed"] = 7
    (folder / "run.json").write_text(json.dumps(content))


def _damage_scores(spec: RunSpec, folder: Path) -> None:
    file = folder / "scores.safetensors"
    file.write_bytes(file.read_bytes()[:-1] + b"x")


def _other_folder(spec: RunSpec, folder: Path) -> None:
    folder.rename(folder.with_name("elsewhere"))


@pytest.mark.parametrize(
    "change",
    [
        _touch,
        _edit_record,
        _damage_scores,
        _other_folder,
        lambda spec, folder: shutil.rmtree(folder),
        lambda spec, folder: spec.pack.unlink(),
        lambda spec, folder: (folder / "run.json").write_text("{}"),
    ],
)
def test_what_has_changed_is_not_found(
    bench: Bench, finished: RunSpec, change: Callable[[RunSpec, Path], object]
) -> None:
    found = bench.find(finished)
    assert found is not None
    assert found.folder is not None
    change(finished, found.folder)
    assert bench.find(finished) is None


def test_other_code_or_libraries_are_another_run(
    bench: Bench, finished: RunSpec, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(known, "code_digest", lambda: "edited")
        assert bench.find(finished) is None
    with monkeypatch.context() as patch:
        patch.setattr(provenance, "versions", lambda: {"pillow": "another"})
        assert bench.find(finished) is None
    assert bench.find(finished) is not None


def test_the_code_counts_with_everything_that_comes_with_it() -> None:
    names = {file.name for file in known._files(Path(known.__file__).parent.parent)}
    assert {"purf.py", "scenes.py", "tiny.py", "known.py", "views.py", "tiny.safetensors"} <= names
    assert not any(name.endswith(".pyc") for name in names)


def test_another_requests_note_is_as_good_as_none(home: Path, bench: Bench, finished: RunSpec) -> None:
    """A tool that copies files may put one in the place of another."""
    other = replace(finished, method="tda", recipes={"views": "plain3"})
    bench.run(other)
    notes = [known._note(home, spec, bench.surroundings(spec)) for spec in (finished, other)]
    assert notes[0] is not None
    assert notes[1] is not None
    assert bench.find(other) is not None
    shutil.copy(notes[0], notes[1])
    assert bench.find(other) is None
    assert bench.run(other).record.method == "tda"


def test_a_damaged_note_is_as_good_as_none(home: Path, bench: Bench, finished: RunSpec) -> None:
    (note,) = (home / "known").glob("*/*.note")
    for content in (b"", b"[]", b'{"run": 3, "files": 4}', b"\xff"):
        note.write_bytes(content)
        assert bench.find(finished) is None
        assert bench.run(finished).already  # the long way


def test_outsiders_take_the_long_way(toy_bench: Bench, home: Path) -> None:
    for spec in (RunSpec("clip", "toy", "toyclip", limit=3), RunSpec(Vandal(), "toy", "toyclip", limit=3)):
        toy_bench.run(spec)
        assert toy_bench.find(spec) is None
        assert toy_bench.run(spec).already


def test_settings_that_name_a_file_take_the_long_way(bench: Bench, toy_pack: Path) -> None:
    """The method reads it, so nobody else can tell whether it has changed."""
    spec = RunSpec("mltta", pack=toy_pack, settings={"captions": str(toy_pack)})
    assert known._note(bench.home, spec, bench.surroundings(spec)) is None
    assert known._note(bench.home, replace(spec, settings={}), bench.surroundings(spec)) is not None


def test_a_folder_counts_with_all_that_is_in_it(tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(b"1")
    before = stamp(tmp_path)
    assert stamp(tmp_path) == before
    (tmp_path / "a.jpg").write_bytes(b"2")
    after = stamp(tmp_path)
    assert after != before
    (tmp_path / "b.jpg").write_bytes(b"2")
    assert stamp(tmp_path) != after
    (tmp_path / "link.jpg").symlink_to("nowhere")
    dangling = stamp(tmp_path)
    (tmp_path / "c.jpg").write_bytes(b"3")
    assert stamp(tmp_path) != dangling
    assert stamp(tmp_path / "nothing") is None


def test_a_folder_that_can_not_be_written_only_costs_time(
    home: Path, toy_pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, content: bytes) -> None:
        raise StoreError("no space left")

    monkeypatch.setattr(known, "write_atomically", full)
    spec = RunSpec("clip", pack=toy_pack)
    bench = Bench(home, registry=Registry())
    assert not bench.run(spec).already
    assert bench.run(spec).already


def test_a_file_that_changes_during_the_run_is_not_noted(
    bench: Bench, toy_pack: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Which of its contents were read nobody can tell, and afterwards it looks as it will next time."""
    prepare = Bench.prepare

    def edited_meanwhile(self: Bench, spec: RunSpec) -> object:
        run = prepare(self, spec)
        content = bytearray(toy_pack.read_bytes())
        content[-3] ^= 1
        toy_pack.write_bytes(content)
        return run

    monkeypatch.setattr(Bench, "prepare", edited_meanwhile)
    spec = RunSpec("clip", pack=toy_pack)
    time.sleep(2 * CLOCK_TICK / 1e9)
    with pytest.raises(BadData, match="was changed while the run read it"):
        bench.run(spec)
    assert bench.find(spec) is None
