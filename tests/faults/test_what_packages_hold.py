"""What installed packages hold beside their code: it counts, or is named; two classes of one name are refused."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import TOY, Invoke
from tests.e2e.test_grid import METHOD
from tests.faults.compiled_code import build, needs_a_compiler
from tests.faults.test_fence import TOYS, guest
from tests.faults.test_installed_plugins import forget, put
from tests.faults.test_resumed_plugins import finished
from tests.faults.toy_runs import lines
from tta_bench import records
from tta_bench.errors import PluginError
from tta_bench.plugins import Registry
from tta_bench.runs import watched
from tta_bench.runs.bench import Bench
from tta_bench.runs.fence import Fence
from tta_bench.runs.spec import RunSpec
from tta_bench.runs.watched import FILES, Seen
from tta_bench.system import distributions, loading
from tta_bench.system.progress import Silent

SOUND = METHOD.replace("SCORES", "self.task.text @ x.image")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder of libraries that Python looks into."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(str(folder))
    yield folder
    for name, module in sys.modules.copy().items():
        if str(getattr(module, "__file__", "")).startswith(str(folder)):
            del sys.modules[name]


def test_two_classes_of_one_name_in_a_package_are_refused(site: Path) -> None:
    better = "\n\nclass Better(Mine):  # forgot a name of its own\n    pass\n"
    code = SOUND.replace("\n\n@hookimpl", f"{better}\n\n@hookimpl")
    for name, offered, refused in (("twice", "Mine, Better", True), ("again", "Mine, Mine", False)):
        put(site, name, {f"{name}/__init__.py": code.replace("[Mine]", f"[{offered}]")}, offers=name)
        registry = Registry(only=[name])
        if not refused:
            assert registry.method("mine").__qualname__ == "Mine"
            continue
        with pytest.raises(PluginError, match=r"two classes offer the method 'mine': twice\.Mine and twice\.Better"):
            registry.method("mine")


# ----------------------------------------------------------------------------------------------- files beside the code

READING = METHOD.replace(
    "SCORES", 'float(Path(__file__).with_name("prior.json").read_text()) * (self.task.text @ x.image)'
).replace("from dataclasses", "from pathlib import Path\nfrom dataclasses")


def run_installed(site: Path, home: Path) -> str:
    """What `ttabench run` says of the installed method, in a process that finds these libraries as any other."""
    line = [sys.executable, "-m", "tta_bench", "run", "-m", "mine", "--plugin", str(TOY), "--dataset", "toy"]
    line += ["--backbone", "toyclip", "--workers", "0", "--limit", "3"]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(site), *sys.path]), "TTABENCH_HOME": str(home)}
    done = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return " ".join(done.stderr.split())


@pytest.mark.slow
def test_a_file_in_a_plugins_folder_that_nobody_lists_is_named(site: Path, home: Path) -> None:
    """The package's own script has fetched it, or it is a cache."""
    files = {"mine_of_prior/__init__.py": READING}
    put(site, "mine_of_prior", files, offers="mine_of_prior")
    prior = site / "mine_of_prior" / "prior.json"
    prior.write_text("1.0")
    assert f"it reached for {prior}, which its identity does not know" in run_installed(site, home)
    put(site, "mine_of_prior", files | {"mine_of_prior/prior.json": "2.0"}, offers="mine_of_prior")
    assert "it reached for" not in run_installed(site, home)  # it counts


LISTED, NOT_LISTED = "lab/gain.json", "lab/cache.json"
READERS = {
    "itself": "def read(file):\n    with open(file) as opened:\n        return opened.read()\n",
    "a library": "import numpy\ndef read(file):\n    return numpy.loadtxt(file)\n",
    "resources": "from importlib import resources\n"
    "def read(file):\n    return resources.files(file.parent.name).joinpath(file.name).read_text()\n",
}


@pytest.fixture
def reached(site: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Callable[[], object]], list[str]]]:
    """What is not known of all that a call opens."""
    for module in (loading, watched):
        monkeypatch.setattr(module, "LIBRARIES", (*module.LIBRARIES, str(site)))
    forget()
    watched._is_outside_file.cache_clear()
    seen: list[Seen] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in FILES and seen:
            seen[0].note(event, arguments, sys._getframe(1))

    sys.addaudithook(hook)

    def look(call: Callable[[], object]) -> list[str]:
        seen.append(Seen())
        call()
        return seen.pop().all_but(watched.own_code()).unknown

    yield look
    monkeypatch.undo()
    forget()
    watched._is_outside_file.cache_clear()


@pytest.mark.parametrize("how", READERS)
def test_what_a_plugin_reads_among_the_libraries_is_named_unless_it_counts(
    how: str, site: Path, reached: Callable[[Callable[[], object]], list[str]]
) -> None:
    put(site, "lab", {"lab/__init__.py": "", LISTED: "1"})
    put(site, "other", {"other/__init__.py": "", "other/gain.json": "1"})
    (site / NOT_LISTED).write_text("2")
    put(site, "reader", {"reader/__init__.py": READERS[how], "reader/gain.json": "3"}, requires="lab", offers="reader")
    reader = importlib.import_module("reader")
    distributions.content("reader")
    files = [site / name for name in (LISTED, NOT_LISTED, "reader/gain.json", "other/gain.json")]
    found = [reached(lambda file=file: reader.read(file)) for file in files]  # type: ignore[misc]
    assert found == [[], [str(files[1])], [], [str(files[3])]]


def test_what_a_library_reads_for_itself_is_its_own_matter(
    site: Path, reached: Callable[[Callable[[], object]], list[str]]
) -> None:
    put(
        site, "lab", {"lab/__init__.py": "def own():\n    return open(__file__.replace('__init__.py', 'cache.json'))\n"}
    )
    (site / NOT_LISTED).write_text("2")
    put(site, "reader", {"reader/__init__.py": "import lab\ndef use():\n    lab.own().close()\n"}, offers="reader")
    assert reached(importlib.import_module("reader").use) == []


# ------------------------------------------------------------------------------------ modules that nobody could foresee


def test_a_helper_that_is_another_file_than_the_one_beside_the_plugin_is_said(invoke: Invoke, tmp_path: Path) -> None:
    """Its digest is of the one that Python would have found as things were then."""
    (tmp_path / "variant").mkdir()
    for folder in (tmp_path, tmp_path / "variant"):
        (folder / "helper_of_two.py").write_text(f"sign = {len(folder.name)}\n")
    step = f"import sys\nsys.path.insert(0, {str(tmp_path / 'variant')!r})\nimport helper_of_two"
    result = invoke("run", "-m", "guest", "--plugin", str(guest(tmp_path, on_step=step)), *TOYS, "--limit", "3")
    assert result.code == 0, result.err
    assert "it imported helper_of_two in a way that can't be foreseen" in " ".join(result.err.split())


# ------------------------------------------------------------------------------------------- what a library rests on

LIBRARIES_OF_ITS_OWN = {
    "declares it for an extra that was asked for": ("import behind", "behind ; extra == 'fast'", "lab[fast]"),
    "does not declare it": ("import behind", "", "lab"),
    "finds it by an entry point": (
        "import importlib.metadata as m\nbehind = next(iter(m.entry_points(group='of_lab'))).load()",
        "",
        "lab",
    ),
}


@pytest.mark.parametrize("how", LIBRARIES_OF_ITS_OWN)
@pytest.mark.slow
def test_what_a_library_has_loaded_counts(how: str, site: Path, home: Path) -> None:
    code, its, asked = LIBRARIES_OF_ITS_OWN[how]
    using = METHOD.replace("SCORES", "lab.behind.SIGN * (self.task.text @ x.image)").replace(
        "from dataclasses", "import lab\nfrom dataclasses"
    )
    for sign in ("1.0", "-1.0"):
        put(site, "behind", {"behind/__init__.py": f"SIGN = {sign}\n"}, version=sign.strip("-"))
        (next(site.glob("behind-*.dist-info")) / "entry_points.txt").write_text("[of_lab]\na = behind\n")
        put(site, "lab", {"lab/__init__.py": f"{code}\n"}, requires=its)
        put(site, "user_of_lab", {"user_of_lab/__init__.py": using}, requires=asked, offers="user_of_lab")
        shutil.rmtree(site / "behind" / "__pycache__", ignore_errors=True)
        assert "it reached for" not in run_installed(site, home)
    first, second = (run for run in records.load_all(home / "runs")[0] if run.method == "mine")
    assert first.config != second.config
    assert not np.array_equal(first.scores(), second.scores())


def test_what_a_library_loads_only_later_is_named(site: Path, home: Path) -> None:
    put(site, "behind", {"behind/__init__.py": "SIGN = 1.0\n"})
    put(site, "lab", {"lab/__init__.py": "def sign():\n    import behind\n    return behind.SIGN\n"})
    using = METHOD.replace("SCORES", "lab.sign() * (self.task.text @ x.image)").replace(
        "from dataclasses", "import lab\nfrom dataclasses"
    )
    put(site, "later", {"later/__init__.py": using}, requires="lab", offers="later")
    assert "it reached for the installed package behind, which its identity does not know" in run_installed(site, home)


def test_what_only_a_library_of_everybodys_loads_is_its_own_matter(site: Path, home: Path) -> None:
    """As pandas does what makes it faster, where that is there."""
    put(site, "behind", {"behind/__init__.py": ""})
    step = "optional.import_optional_dependency('behind') and self.task.text @ x.image"
    code = METHOD.replace("SCORES", step).replace(
        "from dataclasses", "from pandas.compat import _optional as optional\nfrom dataclasses"
    )
    put(site, "later", {"later/__init__.py": code}, offers="later")
    assert "it reached for" not in run_installed(site, home)


# --------------------------------------------------------------------------------- code that no distribution has listed


@pytest.mark.parametrize("how", ["dropped into a library", "of a distribution that lists nothing"])
def test_code_that_nobody_lists_counts_by_its_bytes(how: str, site: Path) -> None:
    put(site, "lab", {"lab/__init__.py": ""})
    record = next(site.glob("lab-*.dist-info")) / "RECORD"
    if how.startswith("of a"):
        record.unlink()  # as Debian leaves it
        (record.parent / "top_level.txt").write_text("lab\n")
    found: list[str] = []
    for gain in ("1", "1", "2"):
        (site / "lab" / "mine.py").write_text(f"gain = {gain}")
        (site / "lab" / "cache.json").write_text(str(len(found)))
        forget()
        found.append(distributions.content("lab"))
    forget()
    assert found[0] == found[1] != found[2]


# --------------------------------------------------------------------------------------- extensions that keep something

COUNTING = "({ static double n; n += 1; n; })"
DYING = """
        flag = pathlib.Path(__file__).with_name("killed")
        if x.index == 9 and not flag.exists():
            flag.touch()
            os._exit(1)
        kept = counting_in_c.gain()
        return self.task.text @ x.image + (kept * torch.arange(4) if x.index >= 20 else 0)
"""


@needs_a_compiler
def test_an_extension_may_remember_so_that_its_run_starts_afresh(home: Path, tmp_path: Path) -> None:
    build(tmp_path, "counting_in_c", COUNTING)
    plugin = tmp_path / "mine.py"
    first = (
        "import os, pathlib, sys, torch\nsys.path.insert(0, str(pathlib.Path(__file__).parent))\nimport counting_in_c\n"
    )
    plugin.write_text(first + METHOD.replace("        return SCORES\n", DYING))
    fence = Fence()
    registry = Registry([plugin, TOY], ask=fence.offers)
    bench = Bench(home, registry=registry, fence=fence, progress=Silent(), checkpoint_seconds=0.0)
    with pytest.raises(PluginError, match="its process has died"):
        bench.run(RunSpec("mine", "toy", "toyclip"))
    resumed, scores = finished(bench, RunSpec("mine", "toy", "toyclip"))
    said = [line for line in lines(bench) if line.startswith("checkpoint unusable")]
    assert "the extension counting_in_c" in said[0]
    assert np.array_equal(scores, finished(bench, RunSpec("mine", "toy", "toyclip"))[1])
    assert "resumed_at" not in resumed.provenance


def test_a_large_library_that_was_edited_in_place_counts_and_the_same_again_does_not(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(distributions, "LARGE", 0)

    def seen() -> str:
        forget()
        return distributions.content("lab")

    file = site / "lab" / "__init__.py"
    put(site, "lab", {"lab/__init__.py": "K=1.0\n"})
    before = seen()
    put(site, "lab", {"lab/__init__.py": "K=1.0\n"})
    os.utime(file, (later := file.stat().st_mtime + 60, later))  # as a copy of the environment
    assert seen() == before
    file.write_text("K=3.0\n")
    os.utime(file, (later, later))
    assert seen() != before
    file.write_text("K=13.0\n")
    os.utime(file, (0, 0))
    assert seen() != before
    file.unlink()
    assert seen() != before
    forget()
