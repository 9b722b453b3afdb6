"""A record that was checked before is not checked again, and not one byte of it is taken on trust."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.record_fixtures import COMPLETE, record
from tta_bench import records
from tta_bench.system import record_form, sound_records

ZEROS = np.zeros((COMPLETE, 2), dtype=np.float32)


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A sealed run.json that one command has read already."""
    monkeypatch.setenv("TTABENCH_HOME", str(tmp_path))
    monkeypatch.setattr(sound_records, "WORTH", 1)
    run = record(value=51.25)
    folder = tmp_path / "runs" / run.run_id
    ids = [str(i) for i in range(COMPLETE)]
    records.save(run, folder, ZEROS[:, None], ZEROS, ZEROS.astype(np.int8), np.arange(COMPLETE), ids, {})
    assert records.load_all(folder.parent)[1] == []
    return folder / "run.json"


def checks(file: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many records were checked in full when all were read; every check calls `fault`."""
    done = 0

    def counted(content: object) -> str:
        nonlocal done
        done += 1
        return ""

    with monkeypatch.context() as patched:
        patched.setattr(record_form, "fault", counted)
        records.load_all(file.parent.parent)
    return done


def test_a_second_command_checks_nothing_and_reads_the_same(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks(file, monkeypatch) == 0
    (again,) = records.load_all(file.parent.parent)[0]
    alone = records.load(file.parent)
    assert again == alone
    assert (again.run_id, again.protocol.digest, again.sealed) == (alone.run_id, record().protocol.digest, True)


def test_a_flipped_digit_is_found_although_the_record_was_sound_before(file: Path) -> None:
    file.write_bytes(file.read_bytes().replace(b"51.25", b"91.25", 1))
    found, (problem,) = records.load_all(file.parent.parent)
    assert found == []
    assert "its seal does not match" in problem


def test_a_list_that_was_edited_or_made_by_other_checks_is_not_believed(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = tmp_path / "statistics" / "sound-records"
    kept.write_bytes(kept.read_bytes().replace(b"a", b"b", 1))
    assert checks(file, monkeypatch) == 1
    records.load_all(file.parent.parent)
    other = tmp_path / "other.py"
    other.write_text("", encoding="utf-8")
    monkeypatch.setattr(records.files, "CHECKED_BY", (other,))
    assert checks(file, monkeypatch) == 1
