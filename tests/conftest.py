"""Shared fixtures: an own home for every test, and the command line as a user types it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tta_bench.cli import main as cli
from tta_bench.features.pack_export import export
from tta_bench.plugins import Registry
from tta_bench.prompts.sets import PromptSet
from tta_bench.runs.bench import Bench
from tta_bench.system.progress import Silent
from tta_bench.views import Plain

os.environ.setdefault("OMP_NUM_THREADS", "1")  # inherited by the processes that tests start
TOY = Path(__file__).parent / "toy_plugin.py"


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


Invoke = Callable[..., Result]


def some_slow(fast: Sequence[Any], slow: Sequence[Any]) -> list[Any]:
    """Parameters of a test: a few for `make test`, all for `make test-slow`."""
    return [*fast, *(pytest.param(value, marks=pytest.mark.slow) for value in slow)]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No test reads or writes the user's store."""
    folder = tmp_path / "home"
    monkeypatch.setenv("TTABENCH_HOME", str(folder))
    for name in ("TTABENCH_CONFIG", "TTABENCH_DATA", "TTABENCH_PLUGINS", "TOY_DELAY"):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def invoke(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Invoke:
    """The command line in this process."""

    def call(*arguments: str) -> Result:
        monkeypatch.setattr(sys, "argv", ["ttabench", *map(str, arguments)])
        monkeypatch.setenv("COLUMNS", "200")
        capsys.readouterr()
        code, on_interrupt, on_unraisable = 0, signal.getsignal(signal.SIGINT), sys.unraisablehook
        try:
            cli.main()
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else int(exit_.code is not None)
        finally:  # a process that the command has for itself ends here
            signal.signal(signal.SIGINT, on_interrupt)
            sys.unraisablehook = on_unraisable
        out, err = capsys.readouterr()
        return Result(code, out, err)

    return call


@pytest.fixture
def toy_run(invoke: Invoke) -> Invoke:
    """`ttabench run` on the toy dataset and backbone."""
    usual = {"--plugin": str(TOY), "--dataset": "toy", "--backbone": "toyclip", "--workers": "0"}

    def run(method: str, *more: str) -> Result:
        common = (word for option, value in usual.items() if option not in more for word in (option, value))
        return invoke("run", "--method", method, *common, *more)

    return run


@pytest.fixture
def toy_registry() -> Registry:
    return Registry([TOY])


@pytest.fixture
def toy_bench(toy_registry: Registry, home: Path) -> Bench:
    return Bench(home, home / "data", registry=toy_registry, progress=Silent())


@pytest.fixture
def toy_pack(toy_bench: Bench, tmp_path: Path) -> Path:
    """The toy dataset seen by the toy backbone, with three plain views."""
    dataset = toy_bench.dataset("toy")
    file = tmp_path / "toy.safetensors"
    export(
        file,
        dataset=dataset,
        backbone=toy_bench.backbone("toyclip"),
        recipes=[Plain(3)],
        prompts=[PromptSet.named("photo", dataset.class_names)],
        store=toy_bench.store,
        encoding=toy_bench.encoding,
        reporter=toy_bench.reporter,
    )
    return file


def start_process(*arguments: str, home: Path, **environment: str) -> subprocess.Popen[str]:
    """The command line in a process of its own, so that it can be killed."""
    command = [sys.executable, "-c", "from tta_bench.cli.main import main; main()", *arguments]
    settings = {**os.environ, "TTABENCH_HOME": str(home), **environment}

    def hear_interrupts() -> None:  # a shell lets its background jobs, and all that they start, ignore Ctrl-C
        signal.signal(signal.SIGINT, signal.SIG_DFL)

    pipe = subprocess.PIPE
    return subprocess.Popen(command, env=settings, stdout=pipe, stderr=pipe, text=True, preexec_fn=hear_interrupts)
