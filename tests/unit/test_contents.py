"""Digests of many files: read once, and again when a file looks otherwise."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from tta_bench.errors import BadData
from tta_bench.system import contents
from tta_bench.system.files import file_digest
from tta_bench.system.stamps import CLOCK_TICK


def settle() -> None:
    time.sleep(2 * CLOCK_TICK / 1e9)  # what was changed only now is not kept


@pytest.fixture
def files(home: Path, tmp_path: Path) -> list[Path]:
    found = [tmp_path / "photos" / name for name in ("a.bmp", "more/b.bmp", "c.bmp")]
    for number, file in enumerate(found):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(bytes([number]) * 1000)
    settle()
    return found


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    names: list[str] = []

    def counted(file: Path) -> str:
        names.append(file.name)
        return file_digest(file)

    monkeypatch.setattr(contents, "file_digest", counted)
    return names


def test_each_file_is_read_once(files: list[Path], reads: list[str]) -> None:
    first = contents.digests(files)
    assert first == [file_digest(file) for file in files]
    assert reads == ["a.bmp", "b.bmp", "c.bmp"]
    assert contents.digests(files[::-1]) == first[::-1]
    assert contents.digests([files[0], files[0]]) == [first[0], first[0]]
    assert len(reads) == 3


def test_a_file_of_the_same_length_and_time_is_read_again(files: list[Path], reads: list[str]) -> None:
    first = contents.digests(files)
    times = files[1].stat()
    files[1].write_bytes(b"x" * 1000)
    os.utime(files[1], ns=(times.st_atime_ns, times.st_mtime_ns))
    settle()
    second = contents.digests(files)
    assert reads[3:] == ["b.bmp"]
    assert [a == b for a, b in zip(first, second, strict=True)] == [True, False, True]


def test_what_was_changed_only_now_is_not_kept(files: list[Path], reads: list[str]) -> None:
    """Within a tick of the clock it could be changed again and look the same."""
    files[0].write_bytes(b"y" * 1000)
    contents.digests(files)
    contents.digests(files)
    assert reads == ["a.bmp", "b.bmp", "c.bmp", "a.bmp"]


@pytest.mark.parametrize("damage", [b"", b"{}", b"[1]"])
def test_a_damaged_note_is_made_again(home: Path, files: list[Path], reads: list[str], damage: bytes) -> None:
    first = contents.digests(files)
    (note,) = (home / "contents").glob("*.note")
    sealed = note.read_bytes()
    note.write_bytes(damage or sealed.replace(first[0].encode(), first[1].encode()))
    assert contents.digests(files) == first
    assert len(reads) == 6
    assert note.read_bytes() == sealed


def test_what_is_no_file_is_refused(files: list[Path]) -> None:
    os.mkfifo(files[0].with_name("pipe"))
    with pytest.raises(BadData, match="pipe: not a regular file"):
        contents.digests([files[0].with_name("pipe")])
    with pytest.raises(BadData, match="gone"):
        contents.digests([files[0].with_name("gone")])
