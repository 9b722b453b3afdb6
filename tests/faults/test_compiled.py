"""Compiled code of an author's own counts by its bytes, or is named: rebuilt with another constant, it is another."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conftest import TOY, Invoke, some_slow
from tests.e2e.test_grid import METHOD
from tests.faults.compiled_code import build, needs_a_compiler
from tests.faults.test_fence import TOYS, guest
from tta_bench.errors import PluginError
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord
from tta_bench.runs.bench import Bench
from tta_bench.runs.fence import Fence
from tta_bench.runs.spec import RunSpec
from tta_bench.system import compiled, loading
from tta_bench.system.described import described
from tta_bench.system.files import file_digest

pytestmark = needs_a_compiler
BESIDE = "import sys; sys.path.insert(0, __file__.rpartition('/')[0]); "
GAINING = METHOD.replace("SCORES", "self.gain() * (self.task.text @ x.image)")
IMPORTS = {
    "at its import": (f"{BESIDE}import fast", "return fast.gain()"),
    "by name": (f"{BESIDE}from fast import gain", "return gain()"),
    "in a step": ("", f"{BESIDE}import fast; return fast.gain()"),
    "by a helper": (f"{BESIDE}import helper_of_fast", "return helper_of_fast.fast.gain()"),
}


def plugin_of(folder: Path, how: str) -> Path:
    first, then = IMPORTS[how]
    file = folder / "mine.py"
    method = GAINING.replace("    def step", f"    def gain(self):\n        {then}\n\n    def step")
    file.write_text(method.replace('"""A method."""', f'"""A method."""\n{first}'))
    (folder / "helper_of_fast.py").write_text("import fast\n")
    return file


def opened(plugin: Path, home: Path) -> Callable[[], RunRecord]:
    """A bench with the plugin in a process of its own, to run it in."""
    fence = Fence()
    bench = Bench(home, registry=Registry([TOY, plugin], ask=fence.offers), fence=fence)
    return lambda: bench.run(RunSpec("mine", "toy", "toyclip", limit=5)).record


@pytest.mark.parametrize("how", some_slow(list(IMPORTS)[:1], list(IMPORTS)[1:]))
def test_a_rebuilt_extension_beside_a_plugin_is_another_run(how: str, home: Path, tmp_path: Path) -> None:
    plugin, runs = plugin_of(tmp_path, how), []
    for gain in ("1.0", "1.0", "-1.0"):
        build(tmp_path, "fast", gain)
        runs.append(opened(plugin, home)())
    assert runs[0].created == runs[1].created
    assert runs[0].config != runs[2].config
    assert runs[0].metrics["mAP"] != runs[2].metrics["mAP"]
    assert not any(run.notes for run in runs)


def test_an_extension_that_is_rebuilt_between_its_digest_and_its_import_gives_no_number(
    home: Path, tmp_path: Path
) -> None:
    """Source is kept and executed as it was; of compiled code there is only the file."""
    plugin = plugin_of(tmp_path, "in a step")
    file = build(tmp_path, "fast", "-1.0").rename(tmp_path / "next.so")
    first = build(tmp_path, "fast", "1.0")
    # A copy, for it is started twice: before its run it has the first images in another process.
    rebuilt = f"self.task = task\n        __import__('shutil').copy({str(file)!r}, {str(first)!r})"
    plugin.write_text(plugin.read_text().replace("self.task = task", rebuilt))
    with pytest.raises(PluginError, match=r"fast\..*so was rebuilt after its digest was taken"):
        opened(plugin, home)()


def test_a_library_that_a_plugin_loads_with_ctypes_is_named(invoke: Invoke, tmp_path: Path) -> None:
    file = build(tmp_path, "libgain", "1.0")
    load = f"import ctypes\nctypes.CDLL({str(file)!r})\nctypes.CDLL('libm.so.6')\nctypes.CDLL(None)"
    result = invoke("run", "-m", "guest", "--plugin", str(guest(tmp_path, on_step=load)), *TOYS)
    assert f"it reached for {file}, which its identity does not know" in " ".join(result.err.split())


# ---------------------------------------------------------------------------------------------------------- notebooks

SCRIPT = """
from tta_bench.system.described import described
from tta_bench.system.files import digest
FIRST
def step():
    THEN
before = digest(described(step))
assert step() == float(GAIN)
print(before, digest(described(step)) == before)
"""


@pytest.mark.parametrize("how", some_slow(list(IMPORTS)[:1], list(IMPORTS)[1:]))
def test_a_rebuilt_extension_of_a_script_is_another_run(how: str, tmp_path: Path) -> None:
    found = []
    first, then = IMPORTS[how]
    (tmp_path / "helper_of_fast.py").write_text("import fast\n")
    for gain in ("1.0", "1.0", "-1.0"):
        build(tmp_path, "fast", gain)
        script = tmp_path / "script.py"
        script.write_text(SCRIPT.replace("FIRST", first).replace("THEN", then).replace("GAIN", gain))
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, script], env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        found.append(done.stdout.split())
    assert found[0] == found[1] != found[2]
    assert all(same == "True" for _, same in found)


def test_an_extension_counts_as_it_was_when_it_was_first_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python never loads one twice, whatever becomes of its file."""
    monkeypatch.syspath_prepend(str(tmp_path))
    build(tmp_path, "seen_before", "1.0")
    module = importlib.import_module("seen_before")
    before = described(module)
    build(tmp_path, "seen_before", "-1.0")
    assert described(module) == before
    assert described(module.gain) == described(module.gain)


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has loaded is not listed")
def test_an_extension_that_was_rebuilt_before_it_was_first_seen_is_like_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is another one than what will be executed."""
    monkeypatch.syspath_prepend(str(tmp_path))
    build(tmp_path, "rebuilt_since", "1.0")
    module = importlib.import_module("rebuilt_since")
    file = build(tmp_path, "rebuilt_since", "-1.0")
    assert compiled.content(module) not in ("", file_digest(file))
    assert described(module) == described(module)


def test_a_library_counts_by_its_name_as_before() -> None:
    import numpy as np

    assert described(np.frombuffer) == "numpy.frombuffer"
    assert not loading.is_outside_file(str(np.__file__))
