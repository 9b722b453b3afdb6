"""Exports that are killed or fail, and feature files that are cut short under their reader."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke, some_slow
from tests.faults.toy_runs import PATIENCE
from tta_bench.errors import StoreError
from tta_bench.features.pack import Pack
from tta_bench.features.pack_export import export
from tta_bench.prompts.sets import PromptSet
from tta_bench.runs.bench import Bench
from tta_bench.system.progress import Silent
from tta_bench.views import Plain


def export_to(bench: Bench, file: Path) -> Pack:
    return export(
        file,
        dataset=bench.dataset("toy"),
        backbone=bench.backbone("toyclip"),
        recipes=[Plain(3)],
        prompts=[PromptSet.named("photo", bench.dataset("toy").class_names)],
        store=bench.store,
        encoding=bench.encoding,
        reporter=bench.reporter,
    )


KILLED_EXPORT = """
import os, signal, sys
from pathlib import Path
from tta_bench.features import pack_export
from tta_bench.system.progress import Silent
os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)  # the whole pack is written, and has not its name yet
pack_export._write(Path(sys.argv[1]), {}, {}, Silent())
"""


@pytest.mark.slow
def test_what_a_killed_export_leaves_goes_with_the_next(toy_bench: Bench, tmp_path: Path) -> None:
    folder = tmp_path / "packs"
    for _ in range(3):
        killed = subprocess.run([sys.executable, "-c", KILLED_EXPORT, str(folder / "p.safetensors")])
        assert killed.returncode == -signal.SIGKILL
    assert [file.name for file in folder.iterdir()] == [".p.safetensors.unfinished"]
    export_to(toy_bench, folder / "p.safetensors")
    assert [file.name for file in folder.iterdir()] == ["p.safetensors"]


def test_a_second_export_of_the_same_file_waits(toy_bench: Bench, tmp_path: Path) -> None:
    """The first one finishes meanwhile: its pack must not be overwritten in place."""
    file = tmp_path / "p.safetensors"
    export_to(toy_bench, file)
    whole, unfinished = file.read_bytes(), tmp_path / ".p.safetensors.unfinished"
    reporter = toy_bench.reporter
    assert isinstance(reporter, Silent)
    unfinished.write_bytes(whole)
    with unfinished.open("rb+") as first:
        fcntl.flock(first, fcntl.LOCK_EX)
        thread = threading.Thread(target=lambda: export_to(toy_bench, file), daemon=True)
        thread.start()
        deadline = time.monotonic() + PATIENCE
        while not any("is writing" in line for line in reporter.lines):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        unfinished.replace(file)
        finished = file.open("rb")
    thread.join(PATIENCE)
    with finished:
        assert finished.read() == whole
    assert file.read_bytes() == whole
    assert not unfinished.exists()


def test_an_export_that_fails_leaves_nothing(toy_bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    folder = tmp_path / "packs"
    export_to(toy_bench, tmp_path / "other.safetensors")  # the features are there
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StoreError, match="no space left"):
        export_to(toy_bench, folder / "p.safetensors")
    assert list(folder.iterdir()) == []


TRUNCATED_READER = """
import os, sys, torch
from pathlib import Path
from tta_bench.errors import StoreError
from tta_bench.features.store import FeatureKey, FeatureStore
entry = FeatureStore(Path(sys.argv[1])).entry(FeatureKey("a", "b", "c", 0), (64, 4, 512), 64)
with entry.writing() as writer:
    for block in entry.missing(range(64)):
        writer.claim([block])
        writer.write(block, torch.ones(len(entry.images_of(block)), 4, 512))
entry.read(63)
os.truncate(entry.folder / "features.bin", int(sys.argv[2]))
try:
    entry.read(63)
except StoreError as error:
    print(error)
print("missing:", entry.missing(range(64)))
"""


@pytest.mark.parametrize("size", some_slow([250_000], [0, 1, 4096]))
def test_a_features_file_truncated_under_a_reader(tmp_path: Path, size: int) -> None:
    reader = [sys.executable, "-c", TRUNCATED_READER, str(tmp_path / "store"), str(size)]
    done = subprocess.run(reader, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stderr)
    message, missing = done.stdout.splitlines()
    assert str(tmp_path / "store") in message
    assert "the same command encodes again what is missing" in message
    assert missing.endswith("3]")  # of the four blocks, the last at least


def test_truncated_while_a_method_adapts_is_one_line_and_mended(toy_run: Invoke, tmp_path: Path) -> None:
    text = TOY.read_text()
    line = "        self.seen += 1\n"
    truncate = (
        "        if self.seen == 9 and os.environ.get('TRUNCATE'):\n"
        "            for file in Path(os.environ['TTABENCH_HOME']).glob('store/*/*/features.bin'):\n"
        "                os.truncate(file, 3)\n"
    )
    assert line in text
    plugin = tmp_path / "toy_plugin.py"
    plugin.write_text(text.replace(line, line + truncate))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRUNCATE", "1")
        result = toy_run("twobranches", "--plugin", str(plugin))
    assert result.code == 1
    assert "features.bin can't be read (the file is shorter than it was)" in result.err.splitlines()[-1]
    assert "Traceback" not in result.err
    again = toy_run("twobranches", "--plugin", str(plugin))
    assert again.code == 0
    assert "damaged blocks" in again.err
