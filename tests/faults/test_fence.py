"""A method that is not built in has a process of its own: it finds no label there, and can harm nobody but itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tta_bench
from tests.conftest import TOY, Invoke, some_slow, start_process
from tta_bench import records
from tta_bench.errors import UsageError
from tta_bench.plugins import Registry
from tta_bench.runs import fence as fences
from tta_bench.runs.bench import Bench
from tta_bench.runs.fence import Fence

METHODS = Path(tta_bench.__file__).parent / "methods"
TOYS = ("--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip", "--workers", "0")
GUEST = '''"""A method of somebody else."""
import torch
from dataclasses import dataclass
from typing import ClassVar
from tta_bench import hookimpl
from tta_bench.interfaces import Method
ON_IMPORT


@dataclass
class Guest(Method):
    name: ClassVar[str] = "guest"

    def start(self, task):
        self.task = task
        ON_START

    def step(self, x):
        ON_STEP
        return self.task.text @ x.image


@hookimpl
def ttabench_methods():
    return [Guest]
'''


def guest(folder: Path, on_import: str = "pass", on_start: str = "pass", on_step: str = "pass") -> Path:
    file = folder / "guest.py"
    source = GUEST.replace("ON_IMPORT", on_import)
    for place, code in (("ON_START", on_start), ("ON_STEP", on_step)):
        source = source.replace(place, code.replace("\n", "\n        "))
    file.write_text(source)
    return file


def scores_of(folder: Path, method: str) -> np.ndarray[Any, Any]:
    (record,) = (run for run in records.load_all(folder)[0] if run.method == method)
    return record.scores()


# ------------------------------------------------------------------------------------------- nothing reaches the others

PATCH = (
    "import torch, numpy, tta_bench.metrics as m\n"
    "torch.Tensor.__matmul__ = lambda a, b: torch.zeros(a.shape[0])\n"
    "m.average_precision = lambda *a, **k: numpy.ones(5)\n"
    "numpy.argsort = lambda a, *r, **k: numpy.zeros(a.shape, int)\n"
)


@pytest.mark.parametrize(
    "moment", [*(pytest.param(m, marks=pytest.mark.slow) for m in ("on_import", "on_start")), "on_step"]
)
def test_patches_reach_nobody(invoke: Invoke, home: Path, tmp_path: Path, moment: str) -> None:
    invoke("run", "-m", "clip", *TOYS, "--results", str(tmp_path / "clean"))
    plugin = guest(tmp_path, **{moment: PATCH})
    invoke("run", "-m", "guest,clip", "--plugin", str(plugin), *TOYS)
    (clean,), _ = records.load_all(tmp_path / "clean")
    (beside,) = (run for run in records.load_all(home / "runs")[0] if run.method == "clip")
    assert np.array_equal(beside.scores(), clean.scores())
    assert beside.metrics == clean.metrics


def test_one_run_leaves_nothing_to_the_next(invoke: Invoke, tmp_path: Path) -> None:
    """A module's own variables outlive a run within a process; a session does not."""
    plugin = guest(tmp_path, on_import="seen = []", on_step="seen.append(x.image)\nreturn self.task.text @ sum(seen)")
    common = ("-m", "guest", "--plugin", str(plugin), *TOYS)
    invoke("run", "--seed", "0,1", *common, "--results", str(tmp_path / "both"))
    invoke("run", "--seed", "1", *common, "--results", str(tmp_path / "alone"))
    (alone,) = records.load_all(tmp_path / "alone")[0]
    (after,) = (run for run in records.load_all(tmp_path / "both")[0] if run.seed == 1)
    assert np.array_equal(alone.scores(), after.scores())


FORKED = "import os, time\nif os.fork() == 0:\n    time.sleep(100)\nos._exit(1)"  # the child holds the connection
ENDINGS = [
    ("import os\nos._exit(0)", "its process has died"),
    ("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)", "its process has died"),
    ("import os, signal\nos.killpg(os.getpgrp(), signal.SIGTERM)", "its process has died"),
    ("import ctypes\nctypes.string_at(0)", "its process has died"),
    (FORKED, "its process has died"),
    ("raise SystemExit(0)", "SystemExit: 0 (guest.py, line "),
    ("raise KeyboardInterrupt", "KeyboardInterrupt: (guest.py, line "),
]
RETURNS = [
    ("while True: pass", "took longer than the 2 s of --step-timeout, so it was stopped"),
    ("return [1.0]", "step must return scores [4] or [branches, 4], not list"),
    ("return object()", "step must return scores [4] or [branches, 4], not object"),
    ("return torch.ones(0, 4)", "not (0, 4)"),
    ("return torch.full((4,), 1j)", "not a complex tensor"),
    ("return torch.ones(4).to_sparse()", "not a sparse tensor"),
    ("return torch.ones(4, device='meta')", "not a meta tensor"),
    ("return torch.ones(4).double() * 1e300", "scores are not finite"),
    ("return 1e6 + (self.task.text @ x.image).double()", "recorded as float32, which rounds these by up to 0.0"),
    ("return (self.task.text @ x.image - 200).double().exp()", "in which some of these become 0"),
    ("self.report({'a': 'b'})", "TypeError: report('a'): a number is wanted"),
    ("self.report({'__metadata__': 1.0})", "a report may not be called __metadata__"),
    ("self.take_report = lambda: None", "take_report must return a dict, not NoneType"),
    ("self.take_report = lambda: {'a': 'b'}", "take_report must return numbers by name, not str for 'a'"),
    ("raise ValueError('x' * 100_000)", "x …"),
]
BROKEN = [
    *(pytest.param("on_start", code, words, marks=pytest.mark.slow) for code, words in ENDINGS),
    *(("on_step", code, words) for code, words in (ENDINGS + RETURNS)[::3]),
    *(
        pytest.param("on_step", code, words, marks=pytest.mark.slow)
        for place, (code, words) in enumerate(ENDINGS + RETURNS)
        if place % 3
    ),
]


@pytest.mark.parametrize(("moment", "code", "words"), BROKEN)
def test_what_ends_a_guest_ends_only_its_own_cell(
    invoke: Invoke, home: Path, tmp_path: Path, moment: str, code: str, words: str
) -> None:
    plugin = guest(tmp_path, **{moment: code})
    result = invoke("run", "-m", "guest,clip", "--step-timeout", "2", "--plugin", str(plugin), *TOYS)
    assert result.code == 1
    assert [run.method for run in records.load_all(home / "runs")[0]] == ["clip"]
    assert words in result.err
    assert "Traceback" not in result.err


POOL = "from concurrent.futures import ThreadPoolExecutor\npool = ThreadPoolExecutor(1)\npool.submit(int).result()"
PRODUCT = "torch.ones(400, 400) @ torch.ones(400, 400)"
HARMLESS = [
    ("import os", "os.fork()"),  # both go on; only one of them may answer
    (POOL, "pool.submit(int).result()"),  # threads that a fork would leave behind
    (
        "torch.set_num_threads(2)\ntorch.ones(400, 400) @ torch.ones(400, 400)",
        "torch.ones(400, 400) @ torch.ones(400, 400)",
    ),
]


@pytest.mark.parametrize(("on_import", "on_step"), HARMLESS)
def test_forks_and_threads_of_a_plugin(
    invoke: Invoke, home: Path, tmp_path: Path, on_import: str, on_step: str
) -> None:
    invoke("run", "-m", "clip", *TOYS)
    result = invoke("run", "-m", "guest", "--plugin", str(guest(tmp_path, on_import, "pass", on_step)), *TOYS)
    assert result.code == 0, result.err
    (ours,), (theirs,) = (scores_of(home / "runs", name)[None] for name in ("clip", "guest"))
    assert np.allclose(ours / 10, theirs, atol=1e-5) or np.corrcoef(ours.ravel(), theirs.ravel())[0, 1] > 0.999


QUESTIONS = """import threading
names = [f"text {x.index} {i}" for i in range(4)]
alone = {name: self.task.encode_texts([name]) for name in names}
together = {}
threads = [threading.Thread(target=lambda n=n: together.update({n: self.task.encode_texts([n])})) for n in names]
[t.start() for t in threads], [t.join() for t in threads]
assert all(torch.equal(alone[n], together[n]) for n in names), "answers are swapped"
self.kept = getattr(self, "kept", []) + [x]
for earlier in self.kept[:-1]:
    try:
        earlier.pixels()
        raise AssertionError("pixels of another image")
    except tta_bench.errors.UsageError as refused:
        assert "only while their image is the present one" in str(refused)
if x.index == 0:
    def late():
        import time
        while self.task is not None:
            time.sleep(0.001)
            try: self.task.encode_texts(["late"])
            except tta_bench.errors.UsageError: pass
    threading.Thread(target=late, daemon=True).start()"""


def test_each_question_has_its_own_answer(invoke: Invoke, tmp_path: Path) -> None:
    """Of threads that ask at the same time, or between two steps; and for pixels of an image that is no more."""
    plugin = guest(tmp_path, on_import="import tta_bench.errors", on_step=QUESTIONS)
    result = invoke("run", "-m", "guest", "--plugin", str(plugin), *TOYS)
    assert result.code == 0, result.err


def test_a_method_may_not_call_itself_like_another(invoke: Invoke, tmp_path: Path) -> None:
    plugin = guest(tmp_path)
    named = 'name: ClassVar[str] = "guest"\n'
    init = "\n    def __post_init__(self):\n        self.name = 'clip'\n"
    plugin.write_text(plugin.read_text().replace(named, named + init))
    result = invoke("run", "-m", "guest", "--plugin", str(plugin), *TOYS)
    assert "method 'guest' gives itself the name 'clip' when it is made" in result.err


@pytest.mark.slow
def test_nothing_is_imported_from_the_working_folder(tmp_path: Path) -> None:
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "queue.py").write_text("raise RuntimeError('not this one')")
    command = [str(Path(sys.executable).with_name("ttabench")), "run", "-m", "guest", "--plugin", str(guest(tmp_path))]
    environment = {**os.environ, "TTABENCH_HOME": str(tmp_path), "PYTHONPATH": str(Path(tta_bench.__file__).parents[1])}
    done = subprocess.run([*command, *TOYS], cwd=folder, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr


def test_a_crash_leaves_its_trace_in_the_log(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    plugin = guest(tmp_path, on_import="import ctypes", on_step="print('so far')\nctypes.string_at(0)")
    result = invoke("run", "-m", "guest", "--plugin", str(plugin), *TOYS)
    (log,) = (home / "runs").glob("*/log.txt")
    assert f"{log} has what it left" in result.err
    assert "so far\nFatal Python error: Segmentation fault" in log.read_text()


def test_what_is_printed_goes_to_the_log(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    plugin = guest(tmp_path, "print('loaded')", "print('started')", "import os\nos.write(2, b'.')")
    result = invoke("run", "-m", "guest", "--plugin", str(plugin), *TOYS)
    (log,) = (home / "runs").glob("*/log.txt")
    assert log.read_text() == "loaded\nstarted\n" + "." * 24
    assert not any(word in result.out + result.err for word in ("loaded", "started", ".."))


# ------------------------------------------------------------------------------------------------- nothing can be found

SEARCH = """
import gc, sys
import numpy
def search():
    found = 0
    for thing in [*gc.get_objects(), *(f.f_locals for f in sys._current_frames().values())]:
        for inner in [thing, *gc.get_referents(thing)]:
            kind = type(inner).__name__
            ours = str(type(inner).__module__).startswith(("tta_bench", "ttabench"))
            found += ours and kind in ("ToyDataset", "Stream", "PixelDesk", "PackDataset", "EncodedViews", "Sample")
            found += isinstance(inner, numpy.ndarray) and inner.dtype == numpy.int8 and inner.size > 4
    return found
"""


def test_a_search_of_the_whole_process_finds_no_label(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    plugin = guest(tmp_path, SEARCH, "self.found = search()", "self.report({'found': self.found + search()})")
    invoke("run", "-m", "guest", "--limit", "4", "--plugin", str(plugin), *TOYS)
    (record,) = records.load_all(home / "runs")[0]
    assert record.diagnostics()["found"].tolist() == [0.0] * 4


@pytest.mark.slow
def test_the_same_search_finds_labels_in_the_runners_process(toy_bench: Bench) -> None:
    """So it is a search that can find something."""
    space: dict[str, object] = {}
    exec(SEARCH, space)
    dataset = toy_bench.dataset("toy")
    samples = [dataset[i] for i in range(len(dataset))]
    assert space["search"]() > len(samples)  # type: ignore[operator]


def test_only_the_present_image_is_there(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    """All tensors of an image's size in the process: the text's rows, and this image."""
    count = (
        "import gc\n"
        "rows = sum(t.numel() // x.image.numel() for t in gc.get_objects() if isinstance(t, torch.Tensor) "
        "and t.dim() and t.shape[-1] == x.image.numel() and t.is_floating_point())\n"
        "self.report({'rows': rows})"
    )
    invoke("run", "-m", "guest", "--plugin", str(guest(tmp_path, on_step=count)), *TOYS)
    (record,) = records.load_all(home / "runs")[0]
    rows = record.diagnostics()["rows"]
    assert rows.max() == rows.min()  # no image that stays, and none that is there before its turn
    assert rows.max() < 24


# -------------------------------------------------------------------------------------------------- the same bits there


@pytest.mark.parametrize("method", some_slow(["dmn", "purf", "tpt"], ["clip", "tda", "dpe", "reta", "mltta"]))
def test_a_built_in_method_as_a_plugin_gives_the_same_bits(
    invoke: Invoke, home: Path, tmp_path: Path, method: str
) -> None:
    """Caches, optimisers, random numbers, texts that are encoded, gradients through prompts: all of it from outside."""
    plugin = tmp_path / "copied.py"
    source = (METHODS / f"{method}.py").read_text()
    plugin.write_text(source.replace(f'name: ClassVar[str] = "{method}"', 'name: ClassVar[str] = "copied"'))
    common = ("--dataset", "toy", "--backbone", "toyclip", "--plugin", str(TOY), "--workers", "0", "--limit", "6")
    views = [f"--recipe={role}=plain3" for role in ("views",) if role in source]
    result = invoke("run", "-m", f"{method},copied", "--plugin", str(plugin), *common, *views)
    assert result.code == 0, result.err
    assert np.array_equal(scores_of(home / "runs", "copied"), scores_of(home / "runs", method))


def test_records_say_where_a_method_ran(toy_bench: Bench) -> None:
    class Mine(toy_bench.registry.method("secondeyes")):  # type: ignore[misc]
        name = "mine"

    results = tta_bench.grid(["clip", "secondeyes", Mine()], "toy", "toyclip", bench=toy_bench)
    assert [run.provenance["process"].partition(",")[0] for run in results] == [
        "the runner's",
        "its own",
        "the caller's: an instance",
    ]


def test_settings_must_be_plain_data(toy_bench: Bench) -> None:
    with pytest.raises(UsageError, match=r"must be plain data.*pass an instance"):
        tta_bench.run("secondeyes", "toy", "toyclip", settings={"strength": object()}, bench=toy_bench)


# --------------------------------------------------------------------------------------------------------- nobody stays


def guests_of(process: int) -> list[int]:
    """All descendants of a process."""
    listing = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
    parents = {int(line.split()[0]): int(line.split()[1]) for line in listing.splitlines()}
    found, todo = [], [process]
    while todo:
        parent = todo.pop()
        children = [pid for pid, above in parents.items() if above == parent]
        found += children
        todo += children
    return found


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_guests_end_with_the_runner(tmp_path: Path, sent: signal.Signals) -> None:
    """Also one that hangs in a step."""
    flag = tmp_path / "hangs"
    plugin = guest(tmp_path, on_step=f"open({str(flag)!r}, 'w')\nwhile True: pass")
    process = start_process("run", "-m", "guest", "--plugin", str(plugin), *TOYS, home=tmp_path)
    deadline = time.monotonic() + 60
    while not flag.exists():
        assert time.monotonic() < deadline
        assert process.poll() is None
        time.sleep(0.05)
    guests = guests_of(process.pid)
    assert len(guests) == 4  # the root, a host for either plugin, and the session
    process.send_signal(sent)
    process.communicate(timeout=30)
    while any(Path(f"/proc/{pid}").exists() for pid in guests):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.slow
def test_a_host_that_was_killed_is_started_again(tmp_path: Path, home: Path) -> None:
    fence = Fence()
    registry = Registry([guest(tmp_path), TOY], ask=fence.offers)
    bench = Bench(home, registry=registry, fence=fence)
    tta_bench.run("guest", "toy", "toyclip", limit=2, bench=bench)
    (root,) = fences._root
    for pid in guests_of(os.getpid()):
        with suppress(ProcessLookupError):  # each goes with the one before it
            os.kill(pid, signal.SIGKILL)
    root.process.wait(timeout=30)
    assert tta_bench.run("guest", "toy", "toyclip", limit=3, bench=bench).n == 3


@pytest.mark.slow
def test_a_host_that_was_stopped_is_left_behind(
    invoke: Invoke, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fences, "FORKING", 2.0)
    plugin = guest(tmp_path, on_step="import os, signal\nif x.index == 0: os.kill(os.getppid(), signal.SIGSTOP)")
    result = invoke("run", "-m", "guest", "--seed", "0-1", "--plugin", str(plugin), *TOYS)
    assert result.code == 0, result.err


@pytest.mark.parametrize("moment", some_slow(["on_finish"], ["on_start"]))
def test_a_method_that_hangs_elsewhere_than_in_its_steps(
    invoke: Invoke, home: Path, tmp_path: Path, moment: str
) -> None:
    plugin = guest(tmp_path, **({moment: "while True: pass"} if moment == "on_start" else {}))
    if moment == "on_finish":
        hanging = "    def finish(self, outputs):\n        while True: pass\n\n\n@hookimpl"
        plugin.write_text(plugin.read_text().replace("@hookimpl", hanging))
    result = invoke("run", "-m", "guest,clip", "--step-timeout", "0.2", "--plugin", str(plugin), *TOYS)
    assert f"took longer than the 2 s that --step-timeout leaves for {moment[3:]}" in result.err
    assert [run.method for run in records.load_all(home / "runs")[0]] == ["clip"]


RECIPE = """
@dataclass(frozen=True)
class Slow:
    name: ClassVar[str] = "slow"
    count: ClassVar[int] = 1
    seeded: ClassVar[bool] = False

    def render(self, image, image_id, seed, preprocess):
        while True: pass


@dataclass
"""
HANGING = {
    "validate": "    def validate(self):\n        while True: pass\n",
    "configure": "    def digests(self):\n        while True: pass\n",
    "render": '    recipes = {"views": Slow()}\n',
}


@pytest.mark.parametrize("asked", some_slow(["validate"], ["configure", "render"]))
def test_a_method_that_hangs_before_it_starts(invoke: Invoke, home: Path, tmp_path: Path, asked: str) -> None:
    plugin = guest(tmp_path)
    code = plugin.read_text().replace("@hookimpl", HANGING[asked] + "\n\n@hookimpl", 1)
    plugin.write_text(code.replace("@dataclass\n", RECIPE, 1))
    result = invoke("run", "-m", "guest,clip", "--step-timeout", "0.1", "--plugin", str(plugin), *TOYS)
    assert f"took longer than the 1 s that --step-timeout leaves for {asked}" in result.err
    assert [run.method for run in records.load_all(home / "runs")[0]] == ["clip"]


PRESET = """    presets: ClassVar = {"half": {"sign": -1.0}}

    def __init__(self, sign=1.0):
        self._sign = sign
"""


def test_what_a_preset_hands_to_an_init_of_its_own_counts(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    plugin = guest(tmp_path, on_step="return self._sign * (self.task.text @ x.image)")
    named = 'name: ClassVar[str] = "guest"\n'
    plugin.write_text(plugin.read_text().replace(named, named + PRESET).replace("@dataclass", "@dataclass(init=False)"))
    common = ("run", "-m", "guest", "--plugin", str(plugin), *TOYS)
    for more in ((), ("--preset", "half")):
        assert invoke(*common, *more).code == 0
    assert len({run.config.digest for run in records.load_all(home / "runs")[0]}) == 2
