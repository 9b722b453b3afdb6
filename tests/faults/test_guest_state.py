"""What a method in a process of its own keeps and asks for: state across a kill, prompts, settings."""

from __future__ import annotations

import gc
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tta_bench
from tests.conftest import TOY, Invoke, some_slow
from tests.faults.test_fence import TOYS, guest
from tta_bench import records
from tta_bench.errors import UsageError
from tta_bench.interfaces import Task
from tta_bench.plugins import Registry
from tta_bench.runs import watched
from tta_bench.runs.bench import Bench
from tta_bench.runs.fence import Fence
from tta_bench.runs.remote_prompts import RemotePrompts
from tta_bench.runs.session import Desk
from tta_bench.runs.spec import RunSpec

# ------------------------------------------------------------------------------------------------- across a kill

OPTIMISER = (
    "self.w = torch.zeros(4).requires_grad_()\nself.opt = torch.optim.SGD([self.w], lr=1.0)",
    "self.w.grad = self.task.text @ x.image\nself.opt.step()\nreturn self.task.text @ x.image + self.w.detach()",
)
VIEW = (
    "self.bank = torch.zeros(3, 4)\nself.row = self.bank[0]",
    "self.row += self.task.text @ x.image\nreturn self.task.text @ x.image - self.bank.sum(0)",
)
PRIVATE_VIEW = (
    "self.bank = torch.zeros(3, 4)\nself._row = self.bank[0]",
    "self._row += self.task.text @ x.image\nreturn self.task.text @ x.image - self.bank.sum(0)",
)
LATE_VIEW = (
    "self.bank, self.row = torch.zeros(3, 4), torch.zeros(4)",
    "self.row += self.task.text @ x.image\nself.row = self.bank[x.index % 3]\n"
    "return self.task.text @ x.image - self.bank.sum(0)",
)
REPLACED = (
    "self.text = task.text",
    "self.text = 0.9 * self.text + 0.1 * x.image\nreturn (self.task.text - self.text) @ x.image",
)
LIST = ("self.seen = []", "self.seen.append(x.image)\nreturn self.task.text @ torch.stack(self.seen).mean(0)")


def dies_once(folder: Path) -> str:
    """At image 9."""
    flag = str(folder / "killed")
    return f"import os\nif x.index == 9 and not os.path.exists({flag!r}):\n    open({flag!r}, 'w')\n    os._exit(1)"


GLOBAL_RNGS = (
    "import random, numpy",
    "import random, numpy\n"
    "return (self.task.text @ x.image) + torch.rand(4) + random.random() + float(numpy.random.rand())",
)
MANY_STATES = (VIEW, PRIVATE_VIEW, LATE_VIEW, REPLACED, LIST)


@pytest.mark.parametrize(
    "state", [GLOBAL_RNGS, *(pytest.param(s, marks=pytest.mark.slow) for s in (OPTIMISER, *MANY_STATES))]
)
def test_a_killed_guest_goes_on_bit_for_bit(invoke: Invoke, home: Path, tmp_path: Path, state: tuple[str, str]) -> None:
    """Whoever held a tensor of the state holds it again: an optimiser, a view, or nobody."""
    plugin = guest(tmp_path, on_start=state[0], on_step=f"{dies_once(tmp_path)}\n{state[1]}")
    common = ("run", "-m", "guest", "--plugin", str(plugin), "--checkpoint-seconds", "0", *TOYS)
    assert "its process has died" in invoke(*common).err
    resumed = invoke(*common)
    assert "resuming at image 8 of 24" in resumed.err, resumed.err
    assert invoke(*common, "--results", str(tmp_path / "whole")).code == 0
    (one,), (other,) = records.load_all(home / "runs")[0], records.load_all(tmp_path / "whole")[0]
    assert np.array_equal(one.scores(), other.scores())
    assert one.provenance["resumed_at"] == 8
    assert "resumed_at" not in other.provenance


def test_what_was_reached_for_before_a_kill_is_named(invoke: Invoke, tmp_path: Path) -> None:
    """A new process goes on from the checkpoint, and what the first one had read is in the state."""
    (tmp_path / "beside.txt").write_text("1.0")
    read = f"float(open({str(tmp_path / 'beside.txt')!r}).read())"
    first = f"if x.index == 0: self.k = {read}\n"
    plugin = guest(tmp_path, on_start="self.k = 0.0", on_step=f"{first}{dies_once(tmp_path)}")
    common = ("run", "-m", "guest", "--plugin", str(plugin), "--checkpoint-seconds", "0", *TOYS)
    assert "its process has died" in invoke(*common).err
    said = " ".join(invoke(*common).err.split())
    assert "resuming at image 8 of 24" in said
    assert f"it reached for {tmp_path / 'beside.txt'}" in said


@pytest.mark.parametrize("how", ["importlib.import_module(name)", "__import__(name)"])
def test_an_installed_package_that_is_asked_for_by_a_name_put_together_is_named(
    how: str, invoke: Invoke, tmp_path: Path
) -> None:
    step = f"import importlib\nname = 'hypo' + 'thesis'\n{how}"
    said = " ".join(invoke("run", "-m", "guest", "--plugin", str(guest(tmp_path, on_start=step)), *TOYS).err.split())
    assert "it reached for the installed package hypothesis" in said
    assert "which its identity does not know" in said
    plainly = guest(tmp_path, on_start="import hypothesis")
    assert "hypothesis" not in invoke("run", "-m", "guest", "--plugin", str(plainly), *TOYS).err


MADE_ANEW = (
    "pass",
    "self.w = torch.zeros(4).requires_grad_()\nself.opt = torch.optim.SGD([self.w], lr=1.0)\n"
    "return self.task.text @ x.image",
)
ARRAY = ("import numpy\nself.kept = numpy.zeros(3)", "return self.task.text @ x.image")
RAISING = ("def gone(): raise TypeError('gone')\nself.state_dict = gone", "return self.task.text @ x.image")
UNSAFE = ("import pathlib\nself.state_dict = lambda: {'a': pathlib.Path('b')}", "return self.task.text @ x.image")


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (MADE_ANEW, "guest.opt was made after start"),
        (UNSAFE, "its state holds what a checkpoint can't bring back"),
        (ARRAY, "guest.kept is a ndarray: state must be tensors"),
        (RAISING, "gone"),
    ],
)
def test_a_state_that_could_not_come_back_costs_checkpoints_and_no_number(
    invoke: Invoke, home: Path, tmp_path: Path, state: tuple[str, str], words: str
) -> None:
    """On a fast machine the run would have ended before its first checkpoint was due."""
    plugin = guest(tmp_path, on_start=state[0], on_step=state[1])
    result = invoke("run", "-m", "guest", "--plugin", str(plugin), "--checkpoint-seconds", "0", *TOYS)
    assert result.code == 0, result.err
    said = " ".join(result.err.split())
    assert f"no checkpoints, so if it is killed it starts from the first image: TypeError: {words}" in said
    assert "weights_only" not in said
    assert not list(home.glob("runs/*/checkpoint.pt"))


@pytest.mark.parametrize("fault", ["raise IndexError", "import os; os._exit(0)"])
def test_a_state_that_is_refused_means_starting_afresh(invoke: Invoke, home: Path, tmp_path: Path, fault: str) -> None:
    plugin = guest(tmp_path, on_step=dies_once(tmp_path))
    load = f"    def load_state_dict(self, state):\n        {fault}\n\n\n@hookimpl"
    plugin.write_text(plugin.read_text().replace("\n@hookimpl", load, 1))
    common = ("run", "-m", "guest", "--plugin", str(plugin), "--checkpoint-seconds", "0", *TOYS)
    assert invoke(*common).code == 1
    result = invoke(*common)
    assert "checkpoint unusable" in result.err
    assert result.code == 0


# -------------------------------------------------------------------------------------------------------------- prompts


class Prompts:
    """Features that are no linear function of the context."""

    def init_context(self, words: str) -> Tensor:
        return torch.ones(2, 3)

    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        return context.sum(0).pow(3).expand(len(class_names), 3)


def sent(message: dict[str, Any]) -> dict[str, Any]:
    """As it arrives in another process: no graph leads back."""
    return {key: value.detach().clone() if isinstance(value, Tensor) else value for key, value in message.items()}


def remote() -> tuple[Desk, RemotePrompts]:
    text = torch.eye(2, 3)
    desk = Desk(Task(["a", "b"], text, text[:, None], 1.0, prompts=Prompts()))

    def ask(what: str, **question: Any) -> dict[str, Any]:
        return sent(desk.answer(what, **sent(question)))

    return desk, RemotePrompts(ask)


def test_gradients_come_from_the_runner() -> None:
    _, prompts = remote()
    context = prompts.init_context("").requires_grad_()
    prompts.encode_context(context, ["a", "b"]).sum().backward()  # type: ignore[no-untyped-call]
    assert torch.equal(context.grad, torch.full((2, 3), 2 * 3 * 4.0))  # type: ignore[arg-type]  # d/dc of (c + c)^3, twice


def test_graphs_go_when_nobody_can_ask_for_them() -> None:
    desk, prompts = remote()
    context = prompts.init_context("").requires_grad_()
    for _ in range(20):
        prompts.encode_context(context, ["a", "b"]).sum().backward()  # type: ignore[no-untyped-call]
    gc.collect()
    prompts.encode_context(context, ["a", "b"])
    assert len(desk._graphs) <= 2


def test_second_derivatives_are_an_error() -> None:
    _, prompts = remote()
    context = prompts.init_context("").requires_grad_()
    with pytest.raises(RuntimeError, match="second derivatives"):
        torch.autograd.grad(prompts.encode_context(context, ["a"]).sum(), context, create_graph=True)


# ------------------------------------------------------------------------------------------------------------- settings


@pytest.mark.parametrize("value", [{1: 2.0}, [{"a": {2: 3}}], {"\0tensor": ["float32", 3]}])
def test_keys_that_json_would_change_are_refused(toy_bench: Bench, value: object) -> None:
    with pytest.raises(UsageError, match="must be plain data"):
        tta_bench.run("secondeyes", "toy", "toyclip", settings={"strength": value}, bench=toy_bench)


def test_keys_that_are_numbers_are_not_those_that_are_texts() -> None:
    assert records.as_plain({1: 2}) != records.as_plain({"1": 2})


def test_code_that_no_identity_knows_is_said(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "helper_of_guest.py").write_text("sign = 1\n")
    step = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n__import__('helper_of' + '_guest')"
    result = invoke("run", "-m", "guest", "--plugin", str(guest(tmp_path, on_step=step)), *TOYS)
    assert result.code == 0
    assert "it imported helper_of_guest in a way that can't be foreseen" in result.err


def test_code_that_is_loaded_with_a_plugin_under_a_name_put_together_is_said(invoke: Invoke, tmp_path: Path) -> None:
    (tmp_path / "helper_at_load.py").write_text("sign = 1\n")
    plugin = guest(tmp_path)
    first = f"import sys\nsys.path.insert(0, {str(tmp_path)!r})\n__import__('helper_at' + '_load')\n"
    plugin.write_text(first + plugin.read_text())
    result = invoke("run", "-m", "guest", "--plugin", str(plugin), *TOYS)
    assert result.code == 0, result.err
    assert "it imported helper_at_load in a way that can't be foreseen" in result.err


def test_threads_may_share_a_bench(tmp_path: Path, home: Path) -> None:
    bench = Bench(home, registry=Registry([TOY]))

    def run(limit: int) -> int:
        return tta_bench.run("clip", "toy", "toyclip", limit=limit, bench=bench).n

    with ThreadPoolExecutor(3) as pool:
        assert list(pool.map(run, (2, 3, 4))) == [2, 3, 4]


BESIDE = "import pathlib\nbeside = pathlib.Path(__file__).with_name('beside.txt')"
UNSEEN = {
    "a file of settings": ("", "float(beside.read_text())"),
    "a file that is executed": ("", "exec(beside.read_text())"),
    "a module under no name": (
        "import importlib.util",
        "s = importlib.util.spec_from_file_location('x', beside.with_name('beside.py'))\n"
        "s.loader.exec_module(importlib.util.module_from_spec(s))",
    ),
}


@pytest.mark.parametrize("what", some_slow(list(UNSEEN)[:1], list(UNSEEN)[1:]))
def test_a_record_names_the_files_that_no_identity_knows(what: str, invoke: Invoke, tmp_path: Path) -> None:
    for name in ("beside.txt", "beside.py"):
        (tmp_path / name).write_text("1.0\n")
    more, step = UNSEEN[what]
    plugin = guest(tmp_path, on_import=f"{BESIDE}\n{more}", on_step=step)
    for _ in range(2):  # the second time a module comes from Python's own cache
        result = invoke("run", "-m", "guest", "--plugin", str(plugin), *TOYS, "--force")
        assert f"it reached for {tmp_path}/beside." in " ".join(result.err.split()), result.err


def test_a_record_names_the_variables_that_no_identity_knows(invoke: Invoke, tmp_path: Path) -> None:
    plugin = guest(tmp_path, on_import="import os\nos.environ.get('RATE')", on_step="'SHOTS' in os.environ")
    result = invoke("run", "-m", "guest", "--plugin", str(plugin), *TOYS)
    assert "it asked the environment for RATE, SHOTS, which its identity does not know" in " ".join(result.err.split())


READ_BEFORE = {  # what its module does, and what it says later
    "a file": ("SIGN = float((pathlib.Path(__file__).parent / 'sign.txt').read_text())", "SIGN"),
    "a file in the working folder": ("SIGN = float(pathlib.Path('sign.txt').read_text())", "SIGN"),
    "a variable": ("SIGN = float(os.environ['SIGN_OF_TEST'])", "SIGN"),
    "a variable that it asks for later": ("pass", "float(os.environ['SIGN_OF_TEST'])"),
}


@pytest.mark.parametrize("what", some_slow(list(READ_BEFORE)[:1], list(READ_BEFORE)[1:]))
def test_what_a_plugins_process_had_read_is_read_again(
    what: str, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Within one bench, `force` recorded the number of before once more."""
    before, sign_of = READ_BEFORE[what]
    on_import = f"import os, pathlib\n{before}"
    plugin = guest(tmp_path, on_import, on_step=f"return {sign_of} * self.task.text @ x.image")
    bench, found = None, []
    for sign in ("1.0", "-1.0"):
        there = tmp_path / sign
        there.mkdir()
        for folder in (there, tmp_path):
            (folder / "sign.txt").write_text(sign)
        monkeypatch.setenv("SIGN_OF_TEST", sign)
        monkeypatch.chdir(there)
        bench = bench or Bench(home=home, registry=Registry([TOY, plugin]))
        found.append(bench.run(RunSpec("guest", "toy", "toyclip", limit=4), force=True).record.scores())
    assert np.array_equal(found[0], -found[1])


def test_an_environment_is_not_all_a_library() -> None:
    """A project's own folder may be one."""
    assert not watched._known(Path(sys.prefix) / "settings.json", [])
    assert watched._known(Path(torch.__file__).with_name("version.py"), [])


def test_a_time_limit_without_end_is_none() -> None:
    with pytest.raises(UsageError, match="--step-timeout inf: a number of seconds is wanted"):
        Fence(float("inf"))


# --------------------------------------------------------------------------------------------------- the same each time

EACH_TIME = "guest gives the same images other scores each time"
UNSEEDED = ("import numpy", "import numpy\nreturn self.task.text @ x.image + numpy.random.default_rng().random()")
CACHED = (
    "import os\nself.k = float(open(FILE).read()) if os.path.exists(FILE) else 9.0\nopen(FILE, 'w').write('0.1')",
    "return self.task.text @ x.image * self.k",
)


LATE = (
    "self.seen = 0",
    "import numpy\nself.seen += 1\nlate = float(numpy.random.default_rng().random()) if self.seen > 6 else 0.0\n"
    "return self.task.text @ x.image + late",
)


@pytest.mark.parametrize("state", [UNSEEDED, CACHED, LATE], ids=["unseeded", "a file that it keeps", "later on"])
def test_a_number_that_can_not_be_repeated_says_so(
    invoke: Invoke, home: Path, tmp_path: Path, state: tuple[str, str]
) -> None:
    """46.54 and 48.97 stood under one id, without a note."""
    start, step = (text.replace("FILE", repr(str(tmp_path / "kept.txt"))) for text in state)
    plugin = guest(tmp_path, on_start=start, on_step=step)
    result = invoke("run", "-m", "guest", "--plugin", str(plugin), *TOYS)
    assert result.code == 0, result.err
    assert EACH_TIME in " ".join(result.err.split())
    (record,) = records.load_all(home / "runs")[0]
    assert any(EACH_TIME in note for note in record.notes)


def test_random_numbers_of_the_process_can_be_repeated(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    plugin = guest(tmp_path, on_start=GLOBAL_RNGS[0], on_step=GLOBAL_RNGS[1])
    assert invoke("run", "-m", "guest", "--plugin", str(plugin), *TOYS).code == 0
    (record,) = records.load_all(home / "runs")[0]
    assert not any(EACH_TIME in note for note in record.notes)
