"""Several processes encode one entry of the store at once: each block once, with the bits of one process."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from tests import toy_plugin
from tta_bench.features import encoding, store
from tta_bench.features.encoding import EncodedViews
from tta_bench.features.entry_locks import any_claimed, claim, entry_lock
from tta_bench.features.options import EncodingOptions
from tta_bench.features.store import FeatureStore
from tta_bench.system.progress import Silent
from tta_bench.views import Plain

IMAGES, VIEWS = 24, 5
PATIENCE = 60.0
forks = multiprocessing.get_context("fork")  # a fresh interpreter would take longer than the test


def views_in(home: Path) -> EncodedViews:
    options = EncodingOptions(batch_size=VIEWS, workers=0)  # one image a block
    return EncodedViews(FeatureStore(home), toy_plugin.Toy("default"), toy_plugin.ToyCLIP(), Plain(VIEWS), 0, options)


def encode(home: Path, answer: Connection) -> None:
    answer.send(views_in(home).ensure(range(IMAGES), Silent()))


class Encoding:
    """A process that encodes all images."""

    def __init__(self, home: Path) -> None:
        self.answer, theirs = forks.Pipe(duplex=False)
        self.process = forks.Process(target=encode, args=(home, theirs))
        self.process.start()
        theirs.close()

    def forwards(self) -> int:
        assert self.answer.poll(PATIENCE), "never ended"
        forwards: int = self.answer.recv()
        self.process.join()
        return forwards


def journal(home: Path) -> list[str]:
    return [line for file in home.glob("*/*/journal.txt") for line in file.read_text().splitlines()]


def features(home: Path) -> bytes:
    (file,) = home.glob("*/*/features.bin")
    return file.read_bytes()


@pytest.fixture
def alone(tmp_path: Path) -> bytes:
    assert views_in(tmp_path / "alone").ensure(range(IMAGES), Silent()) == IMAGES * VIEWS
    return features(tmp_path / "alone")


@pytest.fixture
def shared(alone: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home in which images take their time and every block is journaled at once, in three ranges of eight."""
    monkeypatch.setenv("TOY_DELAY", "0.03")  # by which a busy machine may start the second process late
    monkeypatch.setattr(encoding, "FLUSH_SECONDS", -1.0)
    monkeypatch.setattr(store, "RANGES_AT_MOST", 3)
    return tmp_path / "shared"


def test_two_processes_share_the_work(shared: Path, alone: bytes) -> None:
    both = [Encoding(shared), Encoding(shared)]
    forwards = [one.forwards() for one in both]
    assert sum(forwards) == IMAGES * VIEWS
    assert min(forwards) >= IMAGES // 3 * VIEWS  # a range at least
    assert features(shared) == alone
    assert sorted(int(line.split()[0]) for line in journal(shared)) == list(range(IMAGES))


def test_what_a_killed_process_leaves_the_other_encodes(shared: Path, alone: bytes) -> None:
    killed = Encoding(shared)
    while len(journal(shared)) < 2:
        assert killed.process.is_alive()
        time.sleep(0.002)
    other = Encoding(shared)
    while len(journal(shared)) < 5:  # of two ranges: neither is done
        time.sleep(0.002)
    assert killed.process.pid is not None
    os.kill(killed.process.pid, signal.SIGKILL)
    killed.process.join()
    before = len(journal(shared))
    assert before < IMAGES
    assert IMAGES // 3 * VIEWS < other.forwards() < IMAGES * VIEWS
    assert features(shared) == alone
    assert sorted(int(line.split()[0]) for line in journal(shared)) == list(range(IMAGES))


def test_an_entry_is_not_set_aside_from_under_its_writer(tmp_path: Path) -> None:
    folder = views_in(tmp_path).entry.folder
    with entry_lock(folder):
        taken = claim(folder, 3)
        assert taken is not None
        assert claim(folder, 3) is None
        assert any_claimed(folder)
    (folder / "meta.json").write_text("{")
    opening = threading.Thread(target=views_in, args=(tmp_path,))
    opening.start()
    opening.join(0.2)
    assert opening.is_alive()
    taken.release()
    opening.join(PATIENCE)
    assert not any_claimed(folder)
    assert (folder.with_name(f"{folder.name}.set-aside-1") / "meta.json").read_text() == "{"
