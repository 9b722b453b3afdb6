"""Nothing is lost and nothing hangs: killed while replacing, records that can't be written, runs that wait."""

from __future__ import annotations

import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import filelock
import pytest
from torch import Tensor

from tests.conftest import TOY, Invoke, start_process
from tta_bench import records
from tta_bench.errors import StoreError
from tta_bench.features import rendering
from tta_bench.features.options import EncodingOptions
from tta_bench.features.pack import Pack
from tta_bench.features.pack_export import export
from tta_bench.plugins import Registry
from tta_bench.prompts.sets import PromptSet
from tta_bench.runs import folder as folders
from tta_bench.runs.bench import Bench
from tta_bench.runs.folder import RunFolder
from tta_bench.runs.spec import RunSpec
from tta_bench.system.progress import Silent
from tta_bench.views import Plain

RUN = ("run", "--method", "twobranches", "--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip")
QUICK = (*RUN, "--workers", "0", "--checkpoint-seconds", "0")
TOY_RUN = RunSpec("twobranches", "toy", "toyclip")
PATIENCE = 60.0
root_only = pytest.mark.skipif(os.geteuid() != 0, reason="mounting needs root")


def finish(home: Path, *more: str) -> str:
    process = start_process(*QUICK, *more, home=home)
    out, err = process.communicate(timeout=PATIENCE)
    assert process.returncode == 0, err
    assert "mAP" in out
    return err


def the_record(home: Path) -> records.RunRecord:
    """The only one, and whole."""
    (record,), problems = records.load_all(home / "runs")
    assert problems == []
    assert record.folder is not None
    assert records.damage(record.folder) == ""
    return record


def kill_when(condition: Callable[[], bool], home: Path, *more: str) -> None:
    process = start_process(*QUICK, *more, home=home, TOY_DELAY="0.05")
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert process.poll() is None, f"finished before it could be killed: {process.communicate()}"
        assert time.monotonic() < deadline, "never got there"
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()


def hidden(home: Path) -> list[Path]:
    """All that a kill may have left, but for locks and an empty folder."""
    files = (path for path in (home / "runs").rglob("*") if path.is_file() and path.suffix != ".lock")
    return [file for file in files if any(part.startswith(".") for part in file.relative_to(home).parts)]


# --------------------------------------------------------------------------------------------------- a forced run


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
@pytest.mark.parametrize("step", range(4))
@pytest.mark.parametrize("again", [True, False])
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


# -------------------------------------------------------------------------------------------- locks and permissions


def test_waiting_for_another_process_is_said(toy_bench: Bench) -> None:
    run_id = toy_bench.prepare(TOY_RUN).run_id
    toy_bench.runs.mkdir(parents=True)
    reporter, held = toy_bench.reporter, threading.Event()
    assert isinstance(reporter, Silent)

    def hold() -> None:
        with filelock.FileLock(toy_bench.runs / f".{run_id}.lock"):
            held.set()
            while not any("waiting" in line for line in reporter.lines):
                time.sleep(0.01)

    thread = threading.Thread(target=hold, daemon=True)
    thread.start()
    assert held.wait(PATIENCE)
    toy_bench.run(TOY_RUN)
    thread.join(PATIENCE)
    assert [line for line in reporter.lines if "waiting" in line] == [
        f"another process is running {run_id}: waiting for it"
    ]


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """A bind mount: root may write to folders without the permission to."""
    if os.system(f"mount --bind {folder} {folder} && mount -o remount,ro,bind {folder}"):
        pytest.skip("no mounting here")
    try:
        yield
    finally:
        os.system(f"umount {folder}")


@root_only
def test_a_finished_run_in_read_only_results_is_shown_and_skipped(toy_run: Invoke, invoke: Invoke, home: Path) -> None:
    assert toy_run("twobranches").code == 0
    for lock in (home / "runs").glob(".*.lock"):
        lock.unlink()
    with read_only(home / "runs"):
        again = toy_run("twobranches")
        assert again.code == 0, again.err
        assert "done before, nothing to do" in again.out
        assert invoke("show", the_record(home).run_id).code == 0
        forced = toy_run("twobranches", "--force")
        assert forced.code == 1
        assert "Read-only file system" in forced.err.splitlines()[-1]
        assert "Traceback" not in forced.err


def test_a_finished_run_takes_no_lock(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same where nothing can be mounted."""
    toy_bench.run(TOY_RUN)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(filelock.FileLock, "acquire", refuse)
    monkeypatch.setattr(Path, "mkdir", refuse)
    assert toy_bench.run(TOY_RUN).already


def test_a_run_folder_knows_when_it_is_whole(tmp_path: Path) -> None:
    assert RunFolder(tmp_path, "x").state() == (None, "")


# ----------------------------------------------------------------------------------------------- packs and features


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
        writer.write(block, torch.ones(len(entry.images_of(block)), 4, 512))
entry.read(63)
os.truncate(entry.folder / "features.bin", int(sys.argv[2]))
try:
    entry.read(63)
except StoreError as error:
    print(error)
print("missing:", entry.missing(range(64)))
"""


@pytest.mark.parametrize("size", [0, 1, 4096, 250_000])
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


# ------------------------------------------------------------------------------------------------------ shared memory

WORKERS = (*RUN, "--workers", "2", "--batch-size", "8")  # many blocks
IN_PROCESS = "rendering in this process"
SMALL_SHARED_MEMORY = "mount -t tmpfs -o size={size} tmpfs /dev/shm && exec "  # in a mount namespace of its own


@pytest.fixture
def rendered_here(toy_registry: Registry, tmp_path: Path) -> bytes:
    bench = Bench(tmp_path / "here", registry=toy_registry, encoding=EncodingOptions(workers=0), progress=Silent())
    folder = bench.run(TOY_RUN).record.folder
    assert folder is not None
    return (folder / "scores.safetensors").read_bytes()


def with_workers(registry: Registry, home: Path) -> tuple[bytes, list[str]]:
    reporter = Silent()
    bench = Bench(home, registry=registry, encoding=EncodingOptions(batch_size=8, workers=2), progress=reporter)
    folder = bench.run(TOY_RUN).record.folder
    assert folder is not None
    return (folder / "scores.safetensors").read_bytes(), reporter.lines


def test_too_little_shared_memory_is_seen_before_workers_start(
    toy_registry: Registry, tmp_path: Path, rendered_here: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rendering, "free_shared_memory", lambda: 1000)
    monkeypatch.setattr(rendering.Rendering, "from_workers", lambda *_: pytest.fail("workers were started"))
    scores, lines = with_workers(toy_registry, tmp_path / "small")
    assert scores == rendered_here
    assert [line for line in lines if IN_PROCESS in line and "MB left" in line]


def test_where_there_is_no_such_folder_workers_are_started(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(rendering, "SHARED_MEMORY", tmp_path / "none")
    assert rendering.free_shared_memory() is None


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGBUS, signal.SIGSEGV])
def test_a_worker_that_dies(
    toy_registry: Registry, tmp_path: Path, rendered_here: bytes, how: signal.Signals, capfd: pytest.CaptureFixture[str]
) -> None:
    parent, pixels = os.getpid(), rendering.Rendering.pixels

    def dying(self: rendering.Rendering, job: int) -> Tensor:
        if os.getpid() != parent and job == 3:
            os.kill(os.getpid(), how)
        return pixels(self, job)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(rendering.Rendering, "pixels", dying)
        scores, lines = with_workers(toy_registry, tmp_path / "dying")
    assert scores == rendered_here
    assert any("a worker process died" in line for line in lines)
    assert "Traceback" not in capfd.readouterr().err


@root_only
@pytest.mark.parametrize(("size", "seen"), [("60k", True), ("16k", False), ("60k", False)])
def test_a_small_dev_shm(tmp_path: Path, rendered_here: bytes, size: str, seen: bool) -> None:
    """A real one, in a mount namespace of its own. Unseen: somebody else has taken the room meanwhile; 16 kB don't
    suffice to start workers, 60 kB do."""
    blind = "" if seen else "from tta_bench.features import rendering; rendering.free_shared_memory = lambda: None; "
    command = [sys.executable, "-c", f"{blind}from tta_bench.cli.main import main; main()", *WORKERS]
    shell = SMALL_SHARED_MEMORY.format(size=size) + shlex.join(command)
    environment = {**os.environ, "TTABENCH_HOME": str(tmp_path / "small")}
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", shell], env=environment, capture_output=True, text=True, timeout=PATIENCE
    )
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip("no mounting here")
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    assert (IN_PROCESS if seen else "rendering the rest in this process") in done.stderr
    (file,) = (tmp_path / "small" / "runs").glob("*/scores.safetensors")
    assert file.read_bytes() == rendered_here


# ------------------------------------------------------------------------------------------------------------- Ctrl-C

COMMAND = "print('here', flush=True)\nfrom tta_bench.cli.main import main\nmain()"


def interrupted(home: Path, *delays: float) -> tuple[int, str]:
    """Counted from the first line of the script: what comes before is Python's own."""
    environment = {**os.environ, "TTABENCH_HOME": str(home), "TOY_DELAY": "0.02"}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *QUICK],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    for delay in delays:
        time.sleep(delay)
        process.send_signal(signal.SIGINT)
    err = process.communicate(timeout=PATIENCE)[1]
    return process.returncode, err


def check_interrupted(code: int, err: str) -> None:
    assert code == 130, (code, err)
    assert "Traceback" not in err
    assert [line for line in err.splitlines() if line.startswith("ttabench: ")] in (
        ["ttabench: interrupted"],
        ["ttabench: interrupted: the same command goes on from where it was"],
    )


@pytest.mark.parametrize("delays", [(0.03,), (0.1,), (0.4,), (0.9,), (0.05, 0.01), (1.5, 0.0), (1.5, 0.01)])
def test_interrupted_early_or_twice(tmp_path: Path, delays: tuple[float, ...]) -> None:
    check_interrupted(*interrupted(tmp_path, *delays))


def test_interrupted_before_a_command_looks_after_it(invoke: Invoke, monkeypatch: pytest.MonkeyPatch) -> None:
    """typer ends with 130 and says nothing."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("tta_bench.cli.run.registry", interrupt)
    result = invoke(*QUICK)
    assert result.code == 130
    assert result.err.strip() == "ttabench: interrupted"


@pytest.mark.slow
def test_interrupted_in_a_terminal_with_workers(tmp_path: Path) -> None:
    """Ctrl-C reaches the whole group of processes. Nobody waits for a worker that is in the middle of a block."""
    environment = {**os.environ, "TTABENCH_HOME": str(tmp_path), "TOY_DELAY": "2"}
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, *WORKERS],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    deadline = time.monotonic() + PATIENCE
    while sum(file.read_bytes().count(b"\n") for file in (tmp_path / "store").glob("*/*/journal.txt")) < 1:
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGINT)
    began = time.monotonic()
    err = process.communicate(timeout=PATIENCE)[1]
    assert time.monotonic() - began < 10
    check_interrupted(process.returncode, err)


@pytest.mark.slow
def test_interrupted_at_random_moments(tmp_path: Path) -> None:
    random = Random(0)
    for _ in range(20):
        check_interrupted(*interrupted(tmp_path, random.uniform(0.02, 1.0)))
    for _ in range(20):
        check_interrupted(*interrupted(tmp_path, random.uniform(0.02, 2.0), random.uniform(0.0, 0.05)))
