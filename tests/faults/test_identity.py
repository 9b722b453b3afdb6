"""Identity is fixed when code is loaded: of a built-in counts what it says, of a plugin all that it will execute."""

from __future__ import annotations

import math
import shutil
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

import tta_bench
from tests.conftest import TOY, some_slow
from tests.e2e.test_grid import METHOD
from tests.e2e.test_loading import helper
from tests.record_fixtures import record
from tta_bench import metrics
from tta_bench.datasets.scenes import Scenes
from tta_bench.errors import PluginError
from tta_bench.methods.clip import CLIP
from tta_bench.methods.tda import TDA
from tta_bench.plugins import Registry
from tta_bench.records import Identity, Results
from tta_bench.report.selection import Selection
from tta_bench.runs import identity, known
from tta_bench.runs.bench import Bench
from tta_bench.runs.fence import Fence
from tta_bench.runs.guest_method import GuestMethod
from tta_bench.runs.spec import RunSpec
from tta_bench.system import live, loading, sources
from tta_bench.system.progress import Silent, TTABenchWarning
from tta_bench.system.sources import built_in_source, essence, imported, own_source
from tta_bench.views import AugMix

# ----------------------------------------------------------------------------------------------------------- built-ins


@pytest.fixture
def copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The package's source in a folder of its own, where it may be edited."""
    root = tmp_path / "tta_bench"
    shutil.copytree(Path(tta_bench.__file__).parent, root, ignore=shutil.ignore_patterns("data", "__pycache__"))
    monkeypatch.setattr(sources, "PACKAGE", root)
    yield root
    forget()


def forget() -> None:
    for cached in (sources.built_in_source, sources.source_of, sources.own_source, live._as_written):
        cached.cache_clear()
    live._sound.clear()


def source_after(edit: Callable[[], object], module: str) -> tuple[str, str]:
    """A built-in's digest before and after an edit, as two processes would have it."""
    forget()
    before = built_in_source(module)
    edit()
    forget()
    return before, built_in_source(module)


def replaced(file: Path, old: str, new: str) -> Callable[[], object]:
    text = file.read_text()
    assert old in text
    return lambda: file.write_text(text.replace(old, new, 1))


SAYS_THE_SAME = {
    "a docstring": ("methods/clip.py", "class CLIP(Method):\n", 'class CLIP(Method):\n    """Another one."""\n'),
    "a comment": ("methods/clip.py", "        self.task = task", "        self.task = task  # kept"),
    "a comment's line": ("methods/clip.py", "        self.task = task", "    # kept\n\n        self.task = task"),
    "blanks": ("methods/clip.py", "self.task = task", "self.task  =  task   "),
    "layout": ("methods/clip.py", "return [CLIP]", "return [\n        CLIP\n    ]"),
    "line ends": ("methods/clip.py", "self.task = task\n", "self.task = task\r\n"),
    "what it does not use": ("methods/tda.py", "alpha", "alpha_"),
}


@pytest.mark.parametrize("what", SAYS_THE_SAME)
def test_what_says_the_same_is_the_same_method(what: str, copy: Path) -> None:
    file, old, new = SAYS_THE_SAME[what]
    before, after = source_after(replaced(copy / file, old, new), "tta_bench.methods.clip")
    assert after == before


SAYS_SOMETHING_ELSE = {
    "a number": ("methods/tda.py", "3", "4", "methods.tda"),
    "an operator": ("methods/clip.py", "self.task.scale *", "self.task.scale +", "methods.clip"),
    "what it imports": ("functional/__init__.py", "return ", "return 2 * ", "methods.tda"),
    "what that imports": ("functional/prototypes.py", "return ", "return 2 * ", "methods.dpe"),
    "how its images are read": ("pixels/resize.py", "255", "256", "methods.difftpt"),
    "words of a caption": ("prompts/synonyms.py", '"person"', '"persons"', "methods.mltta"),
    "what a recipe cuts": ("views.py", "0.5", "0.6", "views"),
    "what a recipe calls": ("pixels/operations.py", "return ", "return 2 * ", "views"),
}


@pytest.mark.parametrize("what", SAYS_SOMETHING_ELSE)
def test_what_says_something_else_is_another_method(what: str, copy: Path) -> None:
    file, old, new, module = SAYS_SOMETHING_ELSE[what]
    text = (copy / file).read_text()
    code = text.index("\nfrom __future__") if "from __future__" in text else 0  # behind the module's docstring
    assert old in text[code:]
    edit = text[:code] + text[code:].replace(old, new)
    before, after = source_after(lambda: (copy / file).write_text(edit), f"tta_bench.{module}")
    assert after != before


def test_every_built_in_method_has_a_source_of_its_own() -> None:
    registry = Registry()
    origins = [registry.origin("methods", p.name) for p in registry.plugins("methods") if p.distribution == "ttabench"]
    assert all(origin.built_in and len(origin.source) == 64 for origin in origins)
    assert len({origin.source for origin in origins}) == len(origins)


def test_a_name_in_print_changes_no_identity() -> None:
    plain = b'class A:\n    name: ClassVar[str] = "a"\n'
    assert essence(plain + b'    title: ClassVar[str] = "A"\n') == essence(plain)
    assert essence(plain + b'    title = "A"\n') != essence(plain)  # any other variable of that name says something


def test_what_counts_is_the_same_under_every_python() -> None:
    """An f-string is one token before 3.12 and many since; the digest was computed with 3.11."""
    source = b'x = f"{a!r:>{width}} {{}} {f\'{b}\'}"  # c\ny = f"""\n\n{a} # no comment\n"""\n"gone"\nf"{stays}"\n'
    lines = ["0 x = f\"{a!r:>{width}} {{}} {f'{b}'}\"", '0 y = f"""\n\n{a} # no comment\n"""', '0 f"{stays}"']
    assert essence(source) == "\n".join(lines)


def test_an_edited_built_in_is_not_done_before(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = RunSpec("clip", "toy", "toyclip", limit=3)
    first = toy_bench.run(spec).record
    assert toy_bench.run(spec).already
    monkeypatch.setattr("tta_bench.system.code.built_in_source", lambda module: "edited")
    second = toy_bench.run(spec)
    assert not second.already
    assert second.record.config.parts["source"] == "edited" != first.config.parts["source"]
    assert second.record.protocol == first.protocol


def test_python_without_asserts_is_another_configuration(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = RunSpec("clip", "toy", "toyclip")
    before = toy_bench.prepare(spec).run_id
    assert toy_bench.prepare(spec).run_id == before
    monkeypatch.setattr(identity, "sys", SimpleNamespace(flags=SimpleNamespace(optimize=1)))
    assert toy_bench.prepare(spec).run_id != before


def test_a_run_without_asserts_is_not_found_with_them(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """`done before, nothing to do`: the note of what was asked did not know what the configuration knows."""
    spec = RunSpec("clip", "scenes", "tiny", limit=2)
    with_asserts = known._note(toy_bench.home, spec, toy_bench.surroundings(spec))
    monkeypatch.setattr(known, "sys", SimpleNamespace(flags=SimpleNamespace(optimize=1)))
    assert with_asserts != known._note(toy_bench.home, spec, toy_bench.surroundings(spec))


def test_python_without_asserts_encodes_for_itself(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = RunSpec("clip", "toy", "toyclip", limit=3)
    assert toy_bench.run(spec).record.counts["encoder_forwards"] > 0
    monkeypatch.setattr("tta_bench.features.source.sys", SimpleNamespace(flags=SimpleNamespace(optimize=1)))
    assert toy_bench.run(spec, force=True).record.counts["encoder_forwards"] > 0


def test_edited_views_are_encoded_again(toy_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = RunSpec("clip", "toy", "toyclip", limit=3)
    first = toy_bench.run(spec).record
    monkeypatch.setattr("tta_bench.system.code.built_in_source", lambda module: f"edited {module}")
    second = toy_bench.run(spec).record
    assert second.counts["encoder_forwards"] == first.counts["encoder_forwards"] > 0
    assert second.config != first.config


FEATURES = ("backbones.tiny", "datasets.scenes", "features.rendering")  # what they come out of


@pytest.mark.parametrize(
    "edited",
    some_slow(
        ["features.rendering", "metrics"], ["backbones.tiny", "datasets.scenes", "features.orders", "prompts.sets"]
    ),
)
def test_what_all_methods_share_counts_by_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, edited: str) -> None:
    def bench() -> Bench:
        return Bench(home=tmp_path)  # code is hashed once in a process, and this stands for another one

    spec = RunSpec("clip", limit=2)
    first = bench().run(spec).record
    assert bench().run(spec).already

    def with_edit(source_of: Callable[[str], str]) -> Callable[[str], str]:
        return lambda module: f"edited {module}" if module == f"tta_bench.{edited}" else source_of(module)

    monkeypatch.setattr("tta_bench.plugins.built_in_source", with_edit(built_in_source))
    for user in ("features.source", "runs.identity"):
        monkeypatch.setattr(f"tta_bench.{user}.own_source", with_edit(own_source))
    monkeypatch.setattr("tta_bench.runs.known.code_digest", lambda: "edited")
    monkeypatch.setattr("tta_bench.runs.sourcing.replaced", dict)  # the patches are the test's
    second = bench().run(spec)
    assert not second.already
    encodes = edited in FEATURES
    assert bool(second.record.counts["encoder_forwards"]) == encodes
    assert (second.record.protocol != first.protocol) == encodes  # a method is one row over all datasets
    assert (second.record.config != first.config) == (not encodes)
    assert [run.run_id for run in Selection({}).of([first, second.record]).runs] == [second.record.run_id]


def test_a_run_that_other_code_recorded_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What else of the package was edited, the runner for one, is no part of an identity."""
    spec = RunSpec("clip", limit=2)
    Bench(home=tmp_path).run(spec)
    monkeypatch.setattr("tta_bench.runs.known.code_digest", lambda: "edited")
    with pytest.warns(TTABenchWarning, match=r"recorded by other code of ttabench \(.*\+edited\): --force"):
        assert Bench(home=tmp_path).run(spec).already
    Bench(home=tmp_path).run(spec, force=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert Bench(home=tmp_path).run(spec).already


def test_what_a_notebook_puts_in_the_place_of_ours_counts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    spec = RunSpec("clip", "toy", "toyclip")
    plain = bench.run(spec).record
    step = CLIP.step
    monkeypatch.setattr(CLIP, "step", lambda self, x: -step(self, x))
    patched = bench.run(spec)
    assert not patched.already
    assert patched.record.run_id != plain.run_id
    assert "tta_bench.methods.clip.CLIP.step stood for other code" in patched.record.notes[0]
    monkeypatch.undo()
    assert bench.run(spec).record.run_id == plain.run_id


@pytest.mark.parametrize(
    ("place", "value"),
    [
        ("tta_bench.methods.clip.CLIP.setting", "online"),  # an attribute of a class
        ("tta_bench.methods.clip.CLIP.digests", lambda self: {}),  # a method that the class inherits
        ("tta_bench.metrics.AP_CONVENTIONS", {"one_threshold": "mine", "dataset": "mine"}),
        ("tta_bench.prompts.sets.TEMPLATES", {"photo": ("a drawing of a {}.",)}),
        ("tta_bench.features.orders.SHUFFLED", "mixed"),
        ("tta_bench.functional.unit", math.sqrt),  # a library's
        ("tta_bench.metrics.average_precision", metrics.summary),  # another one of ours
        ("tta_bench.metrics.sum", max),  # a name that hides Python's own
    ],
)
def test_whatever_is_not_as_our_source_says_is_noticed(
    place: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = live.replaced()
    monkeypatch.setattr(place, value, raising=False)
    assert [name for name in live.replaced() if name not in before] == [place]


def other(*_: object, scale: float = 2.0) -> float:
    return scale


@pytest.mark.parametrize(
    ("function", "part", "value"),
    [
        (CLIP.step, "__code__", other.__code__),
        (TDA.__init__, "__defaults__", (0,)),
        (metrics.summary, "__kwdefaults__", {"ties": "dataset"}),
        (AugMix.name.fget, "__code__", other.__code__),  # type: ignore[attr-defined]  # in a property
        (Scenes.open.__func__, "__defaults__", ("noisy",)),  # type: ignore[attr-defined]  # in a class method
    ],
)
def test_a_function_of_ours_that_is_changed_in_place_is_noticed(
    function: object, part: str, value: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As tools do that bring edits into a running process."""
    before = live.replaced()
    monkeypatch.setattr(function, part, value)
    assert len(live.replaced()) == len(before) + 1
    monkeypatch.undo()
    assert list(live.replaced()) == list(before)


def test_a_file_of_ours_that_is_edited_after_its_import_is_noticed(copy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The digest is of what is on the disk, and the number of what is in memory."""
    edit = replaced(copy / "methods" / "clip.py", "return ", "return 2 * ")
    edit()
    forget()
    assert list(live.replaced()) == ["tta_bench.methods.clip.CLIP.step"]


def test_scenes_are_what_their_code_draws(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Scenes("clean", 2).fingerprint
    monkeypatch.setattr("tta_bench.datasets.scenes.built_in_source", lambda module: "edited")
    assert Scenes("clean", 2).fingerprint != before


def test_a_table_says_that_rows_are_of_other_code() -> None:
    old = record("tda", 50.0)
    new = record("tda", 60.0, config=Identity({"method": "tda", "source": "0" * 64}))
    for format_ in ("md", "console"):
        assert "tda: 2 rows by other code" in " ".join(Results([old, new]).leaderboard(format_).split())
        assert "other code" not in Results([new]).leaderboard(format_)


# ------------------------------------------------------------------------------------------------------------- helpers

LAZY = METHOD.replace("SCORES", "self.sign() * (self.task.text @ x.image)")


def lazy_plugin(folder: Path, importing: str = "from {} import sign", name: str = "late_helper") -> tuple[Path, str]:
    """A loose file whose helper is imported by the first step. Every test has a name of its own."""
    late = f"{name}_{folder.name.replace('-', '_')}"
    plugin = folder / "mine.py"
    body = importing.format(late)
    plugin.write_text(
        LAZY.replace("    def step", f"    def sign(self):\n        {body}\n        return sign()\n\n    def step")
    )
    return plugin, late


@pytest.fixture
def beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith(("late_", "ttabench_loose")):
            del sys.modules[name]


IMPORTS = {
    "from": "from {} import sign",
    "import": "import {0}; sign = {0}.sign",
    "import_module": "import importlib; sign = importlib.import_module('{}').sign",
    "__import__": "sign = __import__('{}').sign",
}


@pytest.mark.parametrize("how", IMPORTS)
def test_a_helper_that_is_imported_late_counts(how: str, beside: Path) -> None:
    plugin, late = lazy_plugin(beside, IMPORTS[how])
    found = []
    for sign in ("+1", "+1", "-1"):
        (beside / f"{late}.py").write_text(helper(sign))
        found.append(Registry([plugin]).origin("methods", "mine").source)
    assert found[0] == found[1] != found[2]


def test_a_late_helpers_own_helper_counts(beside: Path) -> None:
    plugin, late = lazy_plugin(beside)
    (beside / f"{late}.py").write_text(f"def sign():\n    from {late}_core import sign\n    return sign()\n")
    found = []
    for sign in ("+1", "-1"):
        (beside / f"{late}_core.py").write_text(helper(sign))
        found.append(Registry([plugin]).origin("methods", "mine").source)
    assert found[0] != found[1]


def test_a_helper_on_a_path_that_the_step_adds_counts(tmp_path: Path) -> None:
    plugin, late = lazy_plugin(tmp_path, "import sys; sys.path.insert(0, __file__[:-8]); from {} import sign")
    found = []
    for sign in ("+1", "-1"):
        (tmp_path / f"{late}.py").write_text(helper(sign))
        found.append(Registry([plugin]).origin("methods", "mine").source)
    assert found[0] != found[1]


def test_what_was_hashed_is_executed_though_the_helper_was_edited_meanwhile(beside: Path, home: Path) -> None:
    plugin, late = lazy_plugin(beside)
    values = {}
    for sign, edited in (("+1", "+1"), ("+1", "-1"), ("-1", "+1")):
        (beside / f"{late}.py").write_text(helper(sign))
        bench = Bench(home / f"{sign}{edited}", registry=Registry([TOY, plugin]))
        prepared = bench.prepare(RunSpec("mine", "toy", "toyclip", limit=5))
        (beside / f"{late}.py").write_text(helper(edited))
        made = prepared.execute(beside, 10.0, Silent())
        values[sign, edited] = made.config.digest, made.metrics["mAP"]
    assert values["+1", "+1"] == values["+1", "-1"] != values["-1", "+1"]
    assert values["+1", "+1"][1] != values["-1", "+1"][1]


def test_what_was_hashed_is_executed_from_a_path_that_the_step_adds(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And though that path is a link: one file has many names."""
    link = tmp_path / "link"
    link.symlink_to(tmp_path)
    plugin, late = lazy_plugin(tmp_path, f"import sys; sys.path.insert(0, {str(link)!r}); from {{}} import sign")
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / f"{late}.py").write_text(helper("+1"))
    prepared = Bench(home, registry=Registry([TOY, plugin])).prepare(RunSpec("mine", "toy", "toyclip", limit=3))
    (tmp_path / f"{late}.py").write_text("raise RuntimeError('edited')")
    prepared.execute(tmp_path, 10.0, Silent())


@pytest.mark.slow
def test_another_module_of_the_distribution_counts(tmp_path: Path) -> None:
    """In the folder of libraries too, where a module of its own would look like anybody's."""
    site = tmp_path / "site"
    info = site / "two-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: two\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[ttabench]\nmethods.mine = two_method\n")
    (info / "RECORD").write_text("two_method.py,,\ntwo_helper.py,,\n")
    (site / "two_method.py").write_text(LAZY.replace("self.sign()", "__import__('two_helper').sign()"))
    script = (
        "import sys; from tta_bench.system import loading; from tta_bench.plugins import Registry; "
        "loading.LIBRARIES = (*loading.LIBRARIES, sys.argv[1]); print(Registry().origin('methods', 'mine').source)"
    )
    found = []
    for sign in ("+1", "-1"):
        (site / "two_helper.py").write_text(helper(sign))
        line = [sys.executable, "-c", f"import sys; sys.path.insert(0, sys.argv[1]); {script}", str(site)]
        found.append(subprocess.run(line, capture_output=True, text=True, check=True).stdout)
    assert found[0] != found[1]


def test_a_helper_that_somebody_imported_before_counts_as_it_is_in_memory(beside: Path) -> None:
    plugin, late = lazy_plugin(beside)
    found = []
    for sign in ("+1", "-1"):
        (beside / f"{late}.py").write_text(helper(sign))
        module = type(sys)(late)
        exec(helper(sign), vars(module))
        sys.modules[late] = module
        found.append(Registry([plugin]).origin("methods", "mine").source)
    assert found[0] != found[1]


def test_what_a_plugin_uses_of_ours_counts(beside: Path, copy: Path) -> None:
    plugin = beside / "mine.py"
    plugin.write_text(
        METHOD.replace("SCORES", "dot(self.task.text, x.image)") + "\nfrom tta_bench.functional import dot\n"
    )
    edit = replaced(copy / "functional" / "__init__.py", "return ", "return 2 * ")
    forget()
    before = Registry([plugin]).origin("methods", "mine").source
    edit()
    forget()
    assert Registry([plugin]).origin("methods", "mine").source != before


def test_imports_are_found_wherever_they_stand() -> None:
    source = b"""
import a.b
def f():
    from . import c
    from ..d import e
    importlib.import_module("g.h"); import_module(".i"); import_module(name)
"""
    found = imported(source, "pkg.sub.mod", is_package=False)
    assert {"a", "a.b", "pkg", "pkg.sub", "pkg.sub.c", "pkg.d", "pkg.d.e", "g", "g.h", "pkg.sub.i"} <= found
    assert "name" not in found


def test_a_folder_whose_name_begins_like_ours_is_an_outsiders() -> None:
    ours = Path(tta_bench.__file__).parent
    assert loading.is_outside_file(f"{ours}_plugins/pm.py")
    assert not loading.is_outside_file(f"{ours}/views.py")


def test_the_variables_of_a_module_without_source_count(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("without_source")
    monkeypatch.setitem(sys.modules, "without_source", module)
    digests = set()
    for sign in (1, -1):
        module.__dict__["SIGN"] = sign
        digests.add(loading.source_digest("without_source"))
    assert len(digests) == 2


@pytest.mark.slow
def test_a_plugin_edited_while_its_run_is_under_way_is_not_mixed_with_itself(tmp_path: Path) -> None:
    plugin = tmp_path / "mine.py"
    plugin.write_text(METHOD.replace("SCORES", "self.task.text @ x.image"))
    fence = Fence()
    found = Registry([plugin]).find("methods", "mine")
    method = fence.configure(found, {}, None).method
    assert isinstance(method, GuestMethod)
    method._reopen()
    plugin.write_text(METHOD.replace("SCORES", "-self.task.text @ x.image"))
    fence._hosts.clear()  # as for a plugin that no session can be forked for
    with pytest.raises(PluginError, match=r"mine\.py was edited while its run was under way"):
        method._reopen()
