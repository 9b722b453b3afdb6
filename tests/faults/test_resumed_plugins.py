"""A plugin's killed run ends with the number of one that was not, wherever its objects keep what it learns."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import textwrap
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import cv2
import numpy as np
import pytest
import torch
from torch import Tensor

from tests.conftest import TOY
from tests.faults.toy_runs import lines
from tta_bench.errors import Interrupted, PluginError
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord
from tta_bench.runs import replay
from tta_bench.runs.bench import Bench
from tta_bench.runs.fence import Fence
from tta_bench.runs.spec import RunSpec
from tta_bench.system.progress import Silent

KILLED_AT, USED_FROM = 9, 20  # images: what was lost in between shows in no score that a resumed run would repeat


class Kind(NamedTuple):
    """Code of a plugin. What it keeps is `kept` at the end of a step."""

    on_step: str
    on_import: str = ""
    on_start: str = ""
    in_class: str = ""


COUNTER = """
def counter():
    n = 0
    def count():
        nonlocal n
        n += 1
        return n
    return count
count = counter()
"""
COUNTING_THREAD = """
import queue, threading
def count_on(asked, told):
    n = 0
    while asked.get():
        n += 1
        told.put(n)
"""
FINISH = """
def finish(self, outputs):
    rows = torch.linspace(0, 1, len(outputs))[:, None]
    return outputs[:, 0] + len(for_finish) * rows * torch.arange(4)
"""
CACHED = "import functools\n@functools.CACHE\ndef NAME(key):\n    return []"
HIDDEN = {
    "a module's variable": Kind("seen.append(1)\nkept = len(seen)", on_import="seen = []"),
    "an attribute of the class": Kind("type(self).total += 1\nkept = type(self).total", in_class="total = 0"),
    "a private attribute": Kind("self._n += 1\nkept = self._n", on_start="self._n = 0"),
    "a hyper-parameter": Kind("self.rate *= 1.1\nkept = self.rate", in_class="rate: float = 1.0"),
    "one list by two names": Kind("self.a.append(1)\nkept = len(self.b)", on_start="self.a = self.b = []"),
    "a closure": Kind("kept = count()", on_import=COUNTER),
    "what only finish reads": Kind("for_finish.append(1)\nkept = 0", on_import="for_finish = []", in_class=FINISH),
    "a cache": Kind(
        "cached(1).append(1)\nkept = len(cached(1))",
        on_import=CACHED.replace("CACHE", "cache").replace("NAME", "cached"),
    ),
    "a cache of a few": Kind(
        "few(1).append(1)\nkept = len(few(1))",
        on_import=CACHED.replace("CACHE", "lru_cache(2)").replace("NAME", "few"),
    ),
    "a generator": Kind("kept = next(self._ticks)", on_start="self._ticks = (i for i in range(99))"),
    "a thread": Kind(
        "self._asked.put(1)\nkept = self._told.get()",
        on_import=COUNTING_THREAD,
        on_start="self._asked, self._told = queue.SimpleQueue(), queue.SimpleQueue()\n"
        "self._thread = threading.Thread(target=count_on, args=(self._asked, self._told), daemon=True)\n"
        "self._thread.start()",
    ),
    "what a generator delegates to": Kind(
        "kept = next(self._plan)",
        on_import="def plan():\n    yield from [1] * 15 + [7] * 99\n",
        on_start="self._plan = plan()",
    ),
    "a graph": Kind(
        "with torch.enable_grad(): self.loss = self.loss + (self.w * x.image[:4]).sum()\n"
        "kept = 0\nif x.index == 19: kept = float(torch.autograd.grad(self.loss, self.w)[0].sum())",
        on_start="self.w = torch.ones(4, requires_grad=True)\nself.loss = torch.zeros(())",
    ),
    "the environment": Kind(
        "os.environ['N'] = str(int(os.environ.get('N', 0)) + 1)\nkept = int(os.environ['N'])",
    ),
    "a file without a name": Kind(
        "FILE.seek(0)\nn = int(FILE.read() or 0) + 1\nFILE.seek(0)\nFILE.write(b'%d' % n)\nFILE.flush()\nkept = n",
        on_start="import tempfile\nglobal FILE\nFILE = tempfile.TemporaryFile()",
    ),
    "a pipe": Kind(
        "os.write(self._into, b'%3d' % (int(os.read(self._out, 3)) + 1))\nn = os.read(self._out, 3)\n"
        "os.write(self._into, n)\nkept = int(n)",
        on_start="self._out, self._into = os.pipe()\nos.write(self._into, b'  0')",
    ),
    "an iterator": Kind("kept = next(self._list)", on_start="self._list = iter(list(range(99)))"),
    "what can't be looked into": Kind(
        "self._hash.update(b'.')\nkept = self._hash.digest()[0]", on_start="import hashlib\nself._hash = hashlib.md5()"
    ),
    "the task": Kind("self.task.text[0] += 0.1\nkept = 0"),
    "a default argument": Kind(
        "kept = defaulted()", on_import="def defaulted(n=[]):\n    n.append(1)\n    return len(n)"
    ),
    "an attribute of a function": Kind("named.n += 1\nkept = named.n", on_import="def named():\n    pass\nnamed.n = 0"),
    "a gradient": Kind(
        "before = 0 if self.w.grad is None else self.w.grad\nself.w.grad = before + x.image[:4]\n"
        "kept = float(self.w.grad.sum())",
        on_start="self.w = torch.zeros(4, requires_grad=True)",
    ),
    "the order in a dict": Kind(
        "if x.index == 0: self._names = {'b': 0, 'a': 0}\nkept = ord(list(self._names)[0])",
        on_start="self._names = {'a': 0, 'b': 0}",
    ),
    "memory of a sparse tensor": Kind(
        "if x.index == 15: self._sparse._values().add_(1)\nkept = float(self.rows[0].sum())",
        on_start="self.rows = [torch.zeros(2)]\n"
        "self._sparse = torch.sparse_coo_tensor(torch.arange(2)[None], self.rows[0], check_invariants=False)",
    ),
    "a missing key": Kind(
        "kept = self.counts[x.index % 24]\nself.counts[x.index] += 1",
        on_start="import collections\nself.counts = collections.defaultdict(int)",
    ),
    "autocast": Kind(
        "if x.index == 2: torch.autocast('cpu', torch.bfloat16).__enter__()\n"
        "kept = float((torch.ones(4, 4) * 0.1 @ torch.ones(4, 4)).float().sum()) * 1e3 % 10"
    ),
    "the working folder": Kind(
        "if x.index == 2: os.chdir('/')\nkept = len(os.getcwd())", on_start="os.chdir(pathlib.Path(__file__).parent)"
    ),
    "decimal's precision": Kind(
        "if x.index == 2: decimal.getcontext().prec = 5\nkept = decimal.getcontext().prec", on_import="import decimal"
    ),
    "denormal numbers": Kind(
        "if x.index == 2: torch.set_flush_denormal(True)\nkept = float(torch.tensor([1e-40]) * 1 > 0)",
        on_start="torch.set_flush_denormal(False)",
    ),
    "rights of new files": Kind(
        "if x.index == 2: os.umask(0o77)\nkept = os.umask(0)\nos.umask(kept)", on_start="os.umask(0o22)"
    ),
    "how a signal is handled": Kind(
        "if x.index == 2: signal.signal(signal.SIGUSR1, signal.SIG_IGN)\nkept = int(signal.getsignal(signal.SIGUSR1))",
        on_import="import signal",
    ),
    "how deep calls may go": Kind(
        "if x.index == 2: sys.setrecursionlimit(2000)\nkept = sys.getrecursionlimit()", on_import="import sys"
    ),
    "torch's own settings": Kind(
        "if x.index == 2: torch.set_default_dtype(torch.float64)\nkept = torch.tensor(0.1).double().item() * 1e9 % 10"
    ),
}
HONEST = {
    "state": Kind("self.n += 1\nkept = self.n", on_start="self.n = 0"),
    "the last image": Kind(
        "kept = float((x.image * self._last).sum())\nself._last = x.image", on_start="self._last = 0"
    ),
    "OpenCV's random numbers": Kind(
        "kept = float(cv2.randu(numpy.zeros((1, 1)), 0, 100)[0, 0])", on_import="import cv2\nimport numpy"
    ),
    "a precise sum": Kind("self._sum = decimal.Decimal(1) / 3\nkept = float(self._sum)", on_import="import decimal"),
    "numpy's random numbers": Kind("kept = float(numpy.random.rand())", on_import="import numpy"),
    "what start makes": Kind(
        "kept = len(prepared) + float(self._rows.sum())",
        on_import="prepared = {'a', 'b', 'c'}",
        on_start="self._rows = {name: task.text[0] for name in 'ab'}['a']",
    ),
    "a cache that start fills": Kind(
        "kept = filled('dog')",
        on_import="import functools\n@functools.cache\ndef filled(key):\n    return len(key)",
        on_start="filled('dog')",
    ),
    "what numpy drew at its import": Kind("kept = drawn", on_import="import numpy\ndrawn = numpy.random.rand()"),
    "the time of its import": Kind("kept = 0", on_import="import time\nimported = time.time_ns()"),
    "an optimiser": Kind(
        "self.w.grad = x.image[:4].clone()\nself.opt.step()\nkept = float(self.w.detach().sum())",
        on_start="self.w = torch.zeros(4).requires_grad_()\nself.opt = torch.optim.Adam([self.w], lr=0.1)",
    ),
}
KINDS = HIDDEN | HONEST
FAST = ("a module's variable", "one list by two names", "the last image")
METHOD = """
@dataclass
class {name}(Method):
    name: ClassVar[str] = "{name}"
{in_class}

    def start(self, task):
        self.task = task
{on_start}

    def step(self, x):
        flag = pathlib.Path(__file__).with_name("{name}.killed")
        if x.index == {killed_at} and not flag.exists():
            flag.touch()
            os._exit(1)
        kept = 0
{on_step}
        return self.task.text @ x.image + (kept * torch.arange(4) if x.index >= {used_from} else 0)
"""
IMPORTS = """
import os
import pathlib
from dataclasses import dataclass
from typing import ClassVar

import torch

from tta_bench import hookimpl
from tta_bench.interfaces import Method
"""


def method_name(kind: str) -> str:
    return f"kind{list(KINDS).index(kind)}"


def source(kind: str) -> str:
    code = KINDS[kind]
    return code.on_import + METHOD.format(
        name=method_name(kind),
        in_class=textwrap.indent(code.in_class, " " * 4),
        on_start=textwrap.indent(code.on_start, " " * 8),
        on_step=textwrap.indent(code.on_step, " " * 8),
        killed_at=KILLED_AT,
        used_from=USED_FROM,
    )


@pytest.fixture(scope="module")
def plugins(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    """All kinds in one plugin, so that its process is started once."""
    folder = tmp_path_factory.mktemp("plugins")
    offered = f"@hookimpl\ndef ttabench_methods():\n    return [{', '.join(map(method_name, KINDS))}]\n"
    (folder / "kinds.py").write_text("\n\n".join([IMPORTS, *map(source, KINDS), offered]))
    fence = Fence()
    registry = Registry([folder / "kinds.py", TOY], ask=fence.offers)
    return Bench(folder, registry=registry, fence=fence, progress=Silent(), checkpoint_seconds=0.0)


def finished(bench: Bench, spec: RunSpec) -> tuple[RunRecord, np.ndarray[Any, Any]]:
    """A run's record and scores, out of the way of the next one."""
    record = bench.run(spec).record
    scores = record.scores()
    assert record.folder is not None
    shutil.rmtree(record.folder)
    return record, scores


def killed_and_whole(bench: Bench, kind: str) -> bool:
    """Runs a kind twice, once killed and resumed: both must be the same. Whether it went on from where it was."""
    spec = RunSpec(method_name(kind), "toy", "toyclip")
    with pytest.raises(PluginError, match="its process has died"):
        bench.run(spec)
    lines(bench).clear()
    resumed, scores = finished(bench, spec)
    said = list(lines(bench))
    whole, expected = finished(bench, spec)
    assert np.array_equal(scores, expected)
    assert resumed.metrics == whole.metrics
    went_on = "resuming at image 8 of 24" in said
    assert went_on == (resumed.provenance.get("resumed_at") == 8)
    assert went_on != any(line.startswith("checkpoint unusable (the method does not come back") for line in said)
    return went_on


def each(kinds: dict[str, Kind]) -> list[Any]:
    return [kind if kind in FAST else pytest.param(kind, marks=pytest.mark.slow) for kind in kinds]


@pytest.mark.parametrize("kind", each(HIDDEN))
def test_what_no_checkpoint_has_means_starting_afresh(plugins: Bench, kind: str) -> None:
    assert not killed_and_whole(plugins, kind)


@pytest.mark.parametrize("kind", each(HONEST))
def test_what_comes_back_goes_on(plugins: Bench, kind: str) -> None:
    assert killed_and_whole(plugins, kind)


# ------------------------------------------------------------------------------ instances, in the caller's own process


@dataclass
class Counting(Method):
    """Counts images, in one place or another."""

    name: ClassVar[str] = "counting"
    images: ClassVar[int] = 0
    where: str = "state"

    def start(self, task: Task) -> None:
        self.text, self._private, self.state = task.text, 0, 0

    def step(self, x: Observation) -> Tensor:
        return self.text @ x.image + self.kept() * torch.arange(4) * (x.index >= USED_FROM)

    def kept(self) -> float:
        if self.where == "state":
            self.state += 1
            return self.state
        if self.where == "private":
            self._private += 1
            return self._private
        if self.where == "numpy":
            return float(np.random.rand())  # noqa: NPY002  # the global one is what is meant
        if self.where == "opencv":
            return float(cv2.randu(np.zeros((1, 1)), np.zeros(1), np.full(1, 100.0))[0, 0])
        Counting.images += 1
        return Counting.images


class Uncopied(Counting):
    """May be tried once only."""

    name: ClassVar[str] = "uncopied"

    def __init__(self, where: str) -> None:
        super().__init__(where)
        self._ticks = (i for i in range(99))


def instance(where: str, kind: type[Counting] = Counting) -> RunSpec:
    """As in a new process."""
    Counting.images = 0
    return RunSpec(kind(where), "toy", "toyclip")


def interrupt(bench: Bench, spec: RunSpec) -> None:
    step = replay._step

    def until_killed(method: Method, x: Observation, image_id: str, classes: int) -> Tensor:
        if x.index == KILLED_AT:
            raise KeyboardInterrupt
        return step(method, x, image_id, classes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(replay, "_step", until_killed)
        patch.setattr("tta_bench.runs.sourcing.replaced", dict)  # the patch is the test's, not a notebook's
        with pytest.raises((Interrupted, KeyboardInterrupt)):
            bench.run(spec)
    lines(bench).clear()


@pytest.mark.parametrize(
    ("where", "kind", "goes_on"),
    [
        *((where, Counting, True) for where in ("state", "numpy", "opencv")),
        ("private", Counting, False),
        ("state", Uncopied, False),
    ],
)
def test_an_instance_ends_as_if_it_had_not_been_interrupted(
    bench: Bench, where: str, kind: type[Counting], goes_on: bool
) -> None:
    interrupt(bench, instance(where, kind))
    np.random.seed(1)  # noqa: NPY002  # another process has other random numbers
    _, scores = finished(bench, instance(where, kind))
    assert ("resuming at image 8 of 24" in lines(bench)) == goes_on
    assert any(line.startswith("checkpoint unusable") for line in lines(bench)) != goes_on
    assert np.array_equal(scores, finished(bench, instance(where, kind))[1])


def test_an_attempt_that_has_changed_the_process_gives_no_number(bench: Bench) -> None:
    _, expected = finished(bench, instance("class"))
    interrupt(bench, instance("class"))
    with pytest.raises(PluginError, match=r"the attempt has changed .*Counting\.\w+ in this process"):
        bench.run(instance("class"))
    assert np.array_equal(finished(bench, instance("class"))[1], expected)


def test_an_instance_that_changes_its_class_says_so(bench: Bench) -> None:
    class Own(Counting):
        """Of which no run has been."""

    assert not bench.run(instance("state", Own)).record.notes
    assert "has changed its own class" in " ".join(bench.run(instance("class", Own)).record.notes)


def test_random_numbers_of_the_caller_go_on_as_if_no_run_had_been(bench: Bench) -> None:
    np.random.seed(1)  # noqa: NPY002
    expected = np.random.rand(2)  # noqa: NPY002
    np.random.seed(1)  # noqa: NPY002
    finished(bench, instance("numpy"))
    assert np.array_equal(np.random.rand(2), expected)  # noqa: NPY002


# --------------------------------------------------------------------------------------------------- between processes


def test_what_is_drawn_at_import_is_the_same_in_every_process(plugins: Bench) -> None:
    spec = RunSpec(method_name("what numpy drew at its import"), "toy", "toyclip")
    with suppress(PluginError):
        plugins.run(spec)  # is killed, unless it was before
    plugins.fence._hosts.clear()  # whose forks would have it from one import
    _, one = finished(plugins, spec)
    plugins.fence._hosts.clear()
    _, other = finished(plugins, spec)
    assert np.array_equal(one, other)


@pytest.mark.slow
def test_a_fingerprint_is_the_same_in_every_process(plugins: Bench) -> None:
    """Addresses and the order in a set are not."""
    file = next(plugin.origin for plugin in plugins.registry.plugins("methods") if plugin.name == "kind0")
    look = (
        "from pathlib import Path; from tta_bench.plugins import Registry; import torch;"
        "from tta_bench.features import global_rngs;"
        "from tta_bench.runs.fingerprint import fingerprint, own_modules; from tta_bench.interfaces import Task;"
        f"global_rngs.seed(); registry = Registry([Path({file!r})]); t = torch.eye(4); torch.manual_seed(0);"
        "import random, numpy; random.seed(0); numpy.random.seed(0);"
        f"methods = [registry.method(name)() for name in {list(map(method_name, HONEST))!r}];"
        "[m.start(Task(list('abcd'), t, t[:, None], 1.0)) for m in methods];"
        "seen = [fingerprint(m, own_modules()) for m in methods];"
        "theirs = ('.imported', 'environment');"
        "print([{place: d for place, d in one.items() if not place.endswith(theirs)} for one in seen])"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", look],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(seen) == 1
