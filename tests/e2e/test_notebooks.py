"""Classes of a notebook: whatever would give other scores is another run, and what would give the same is the same."""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import tta_bench
from tests.conftest import TOY, some_slow
from tta_bench.interfaces import Observation
from tta_bench.methods.clip import CLIP
from tta_bench.plugins import Registry
from tta_bench.system import loading
from tta_bench.system.described import described
from tta_bench.system.progress import TTABenchWarning

HEAD = """
from dataclasses import dataclass, field
from typing import Any, ClassVar
import functools
import numpy as np
import torch
from tta_bench.interfaces import Method
"""
PLAIN = """
@dataclass
class Mine(Method):
    name: ClassVar[str] = "mine"
    MEMBERS
    def start(self, task):
        self.task = task

    def step(self, x):
        return FACTOR * (self.task.text @ x.image)
"""
OWN_INIT = """
class Mine(Method):
    name = "mine"
    def __init__(self, k=1.0):
        self.k = k

    def start(self, task):
        self.task = task

    def step(self, x):
        return self.k * (self.task.text @ x.image)
"""


def cell(factor: str, members: str = "", before: str = "") -> str:
    return before + PLAIN.replace("FACTOR", factor).replace("MEMBERS", members)


EDITED = {
    "a number in step": (cell("1.0"), cell("-1.0")),
    "class constant": (cell("self.K", "K = 1.0"), cell("self.K", "K = -1.0")),
    "property": (
        cell("self.k", "@property\n    def k(self): return 1.0"),
        cell("self.k", "@property\n    def k(self): return -1.0"),
    ),
    "static method": (
        cell("self.k()", "@staticmethod\n    def k(): return 1.0"),
        cell("self.k()", "@staticmethod\n    def k(): return -1.0"),
    ),
    "class method": (
        cell("self.k()", "@classmethod\n    def k(cls): return 1.0"),
        cell("self.k()", "@classmethod\n    def k(cls): return -1.0"),
    ),
    "function of another cell": (
        cell("helper()", before="def helper(): return 1.0\n"),
        cell("helper()", before="def helper(): return -1.0\n"),
    ),
    "class of another cell": (
        cell("Helper.k", before="class Helper:\n    k = 1.0\n"),
        cell("Helper.k", before="class Helper:\n    k = -1.0\n"),
    ),
    "global constant": (cell("K", before="K = 1.0\n"), cell("K", before="K = -1.0\n")),
    "global tensor": (
        cell("K[1000]", before="K = torch.ones(2000)\n"),
        cell("K[1000]", before="K = torch.ones(2000)\nK[1000] = -1\n"),
    ),
    "default of an argument": (
        cell("self.k()", "def k(self, value=1.0): return value"),
        cell("self.k()", "def k(self, value=-1.0): return value"),
    ),
    "base class": (
        cell("self.k", before="class Base:\n    k = 1.0\n").replace("Mine(Method)", "Mine(Base, Method)"),
        cell("self.k", before="class Base:\n    k = -1.0\n").replace("Mine(Method)", "Mine(Base, Method)"),
    ),
    "partial": (
        cell("K()", before="K = functools.partial(float, 1)\n"),
        cell("K()", before="K = functools.partial(float, -1)\n"),
    ),
}


@pytest.fixture
def bench(home: Any) -> tta_bench.Bench:
    return tta_bench.Bench(home, registry=Registry([TOY]))


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Any]:
    """A cell's namespace: a module without a file, as IPython's."""

    def run(code: str) -> Any:
        notebook = types.ModuleType("notebook_cell")
        monkeypatch.setitem(sys.modules, notebook.__name__, notebook)
        exec(HEAD + code, vars(notebook))
        return notebook

    return run


def mine(bench: tta_bench.Bench, method: Any) -> tta_bench.RunRecord:
    return tta_bench.run(method, "toy", "toyclip", limit=6, bench=bench)


FAST = ("a number in step", "function of another cell", "global tensor", "base class")


@pytest.mark.parametrize("what", some_slow(FAST, [what for what in EDITED if what not in FAST]))
def test_an_edit_is_another_run(bench: tta_bench.Bench, typed: Callable[[str], Any], what: str) -> None:
    before, after = EDITED[what]
    first, same, edited = (mine(bench, typed(code).Mine()) for code in (before, before, after))
    assert first.created == same.created
    assert first.run_id == same.run_id != edited.run_id
    assert not np.array_equal(first.scores(), edited.scores())
    assert first.provenance["code"]["method"] == "notebook"


def test_what_an_init_of_its_own_sets_counts(bench: tta_bench.Bench, typed: Callable[[str], Any]) -> None:
    cls = typed(OWN_INIT).Mine
    plus, minus = mine(bench, cls(1.0)), mine(bench, cls(-1.0))
    assert plus.run_id != minus.run_id
    changed = cls(1.0)
    changed.k = -1.0
    assert mine(bench, changed).run_id == minus.run_id


def test_closures_and_arrays_count(bench: tta_bench.Bench, typed: Callable[[str], Any]) -> None:
    factory = "def make(k):\n" + "".join(f"    {line}\n" for line in cell("k").splitlines()) + "    return Mine\n"
    notebook = typed(factory)
    assert mine(bench, notebook.make(1.0)()).run_id != mine(bench, notebook.make(-1.0)()).run_id
    with_array = typed(cell("1.0", "table: Any = None"))
    tables = [np.zeros(2000), np.zeros(2000)]
    tables[1][1000] = 1
    assert len({mine(bench, with_array.Mine(table)).run_id for table in tables}) == 2
    functions: list[Any] = [lambda: 1, lambda: 2, lambda: 1]
    ids = [mine(bench, with_array.Mine(function)).run_id for function in functions]
    assert ids[0] == ids[2] != ids[1]


def test_an_instance_stays_as_it_was_made(bench: tta_bench.Bench, typed: Callable[[str], Any]) -> None:
    """A second run of the same instance is the run of a fresh one: the first has left no state in it."""
    method = typed(OWN_INIT).Mine(1.0)
    results = tta_bench.grid([method], "toy", "toyclip", seeds=range(2), limit=6, bench=bench)
    assert set(vars(method)) == {"k"}
    assert len({run.config.digest for run in results}) == 1


def test_an_edited_file_that_was_imported_before_is_the_code_that_runs(
    bench: tta_bench.Bench, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "imported_before.py"
    file.write_text(HEAD + cell("1.0"))
    monkeypatch.syspath_prepend(str(tmp_path))
    import imported_before  # type: ignore[import-not-found]

    first = mine(bench, imported_before.Mine())
    file.write_text(HEAD + cell("-1.0"))
    assert mine(bench, imported_before.Mine()).created == first.created  # the old code, and its identity
    monkeypatch.delitem(sys.modules, "imported_before")
    sys.path_importer_cache.clear()
    import importlib

    importlib.invalidate_caches()
    assert mine(bench, importlib.import_module("imported_before").Mine()).run_id != first.run_id


def test_descriptions_do_not_depend_on_the_process() -> None:
    assert described({"a", "b", "c"}) == described({"c", "b", "a"})
    assert described(torch.ones(2)) == described(torch.ones(2))
    assert described(torch.ones(2)) != described(torch.ones(2, dtype=torch.float64)[:1])
    circle: list[Any] = []
    circle.append(circle)
    assert described(circle) == ["list", "#0"]
    assert described(print) == "builtins.print"
    assert described(torch.relu) == described(torch.relu)


def test_a_layer_that_an_instance_trains_is_as_it_was_for_the_next_seed(
    bench: tta_bench.Bench, typed: Callable[[str], Any]
) -> None:
    source = HEAD + (
        "@dataclass\nclass Mine(Method):\n"
        "    name: ClassVar[str] = 'mine'\n"
        "    layer: torch.nn.Module = None\n"
        "    def start(self, task): self.task = task\n"
        "    def step(self, x):\n"
        "        self.layer.weight.data += 1.0\n"
        "        return self.layer.weight.sum() * (self.task.text @ x.image)\n"
    )
    layer = torch.nn.Linear(2, 2)
    before = layer.weight.detach().clone()
    mine(bench, typed(source).Mine(layer))
    assert torch.equal(layer.weight, before)


LATE = cell("self.gain()", "def gain(self):\n        from late_of_notebook import gain\n        return gain")


def test_a_late_import_counts_by_what_it_will_execute(
    bench: tta_bench.Bench, typed: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    runs = []
    for gain in ("1.0", "-1.0"):
        (tmp_path / "late_of_notebook.py").write_text(f"gain = {gain}\n")
        monkeypatch.delitem(sys.modules, "late_of_notebook", raising=False)  # as in another session
        loading._loaded.pop("late_of_notebook", None)
        runs += [tta_bench.run(typed(LATE).Mine(), "toy", "toyclip", bench=bench) for _ in range(2)]
    assert runs[0].config == runs[1].config != runs[2].config == runs[3].config
    assert runs[0].metrics["mAP"] != runs[2].metrics["mAP"]
    assert not any(run.notes for run in runs)


ITSELF = cell(
    "self.gain()", "def gain(self):\n        import notebook_cell\n        return notebook_cell.GAIN", "GAIN = 1.0\n"
)


def test_a_cell_that_imports_its_own_module_counts_by_its_variables(
    bench: tta_bench.Bench, typed: Callable[[str], Any]
) -> None:
    """`import __main__` in a step ended in a RecursionError."""
    code = (ITSELF, ITSELF, ITSELF.replace("GAIN = 1.0", "GAIN = -1.0"))
    first, same, edited = (mine(bench, typed(source).Mine()) for source in code)
    assert first.config == same.config != edited.config


KEEPING = """
@functools.cache
def kept():
    return []
"""


def test_what_a_cache_keeps_is_forgotten_before_the_next_run(
    bench: tta_bench.Bench, typed: Callable[[str], Any]
) -> None:
    """A method that remembers in a cached list would begin its second run with what it learnt in the first."""
    mine = typed(cell("(kept().append(1) or len(kept())) * x.index", before=KEEPING))
    scores = [
        tta_bench.run(mine.Mine(), "toy", "toyclip", order=order, bench=bench).scores()
        for order in ("shuffled:1", "rarest")
    ]
    alone = typed(cell("(kept().append(1) or len(kept())) * x.index", before=KEEPING))
    assert np.array_equal(
        tta_bench.run(alone.Mine(), "toy", "toyclip", order="rarest", bench=bench).scores(), scores[1]
    )


def test_what_a_class_keeps_is_said_of_both_runs(bench: tta_bench.Bench, typed: Callable[[str], Any]) -> None:
    mine = typed(cell("(self.seen.append(1) or len(self.seen))", "seen: ClassVar[list] = []"))
    first, second = (tta_bench.run(mine.Mine(), "toy", "toyclip", seed=seed, bench=bench) for seed in (0, 1))
    assert "has changed its own class" in first.notes[0]
    assert "an earlier run in this process has changed the class of mine" in second.notes[0]
    assert first.config != second.config


def test_what_no_identity_knows_is_seen_in_the_scores(
    bench: tta_bench.Bench, typed: Callable[[str], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that somebody has put on a library's module."""
    mine = typed(cell("torch.alpha_of_mine"))
    runs, scores = [], []
    for alpha in (1.0, 1.0, -1.0, -1.0):
        monkeypatch.setattr(torch, "alpha_of_mine", alpha, raising=False)
        runs.append(tta_bench.run(mine.Mine(), "toy", "toyclip", bench=bench))
        scores.append(runs[-1].scores())
    assert len({run.run_id for run in runs}) == 1
    assert runs[0].created == runs[1].created != runs[2].created == runs[3].created
    assert runs[1].notes == []
    assert np.array_equal(scores[1], -scores[2])
    assert "an earlier run of the same identity gave mine other scores" in runs[3].notes[0]


CLOSED = """
def memory():
    seen = []
    return lambda: seen.append(1) or len(seen)
"""


def test_what_a_copy_shares_is_said_of_both_runs(bench: tta_bench.Bench, typed: Callable[[str], Any]) -> None:
    """Copying an instance copies no closure."""
    mine = typed(cell("self.counted()", "counted: object = None", CLOSED))
    given = mine.Mine(counted=mine.memory())
    first, second = (tta_bench.run(given, "toy", "toyclip", seed=seed, bench=bench) for seed in (0, 1))
    assert "was changed by its own run" in first.notes[0]
    assert "an earlier run in this process has changed" in second.notes[0]
    assert first.config != second.config
    other = tta_bench.run(mine.Mine(counted=mine.memory()), "toy", "toyclip", seed=2, limit=1, bench=bench)
    assert not any("an earlier run" in note for note in other.notes)


SHARING = """
class Mine(Method):
    name = "mine"

    def __init__(self):
        self.seen = []
        self.count = lambda: len(self.seen)

    def start(self, task):
        self.task = task

    def step(self, x):
        self.seen.append(1)
        return self.count() * (self.task.text @ x.image)
"""


def test_an_instance_runs_itself_where_a_copy_would_be_another(
    bench: tta_bench.Bench, typed: Callable[[str], Any]
) -> None:
    """A copied closure leads to the original: it would never see what the copy learns."""
    run = mine(bench, typed(SHARING).Mine())
    assert "mine ran itself and not a copy of it (a copy would lose a hook or an attribute)" in run.notes[0]
    plain = mine(bench, typed(cell("1.0")).Mine())
    assert np.allclose(run.scores(), np.arange(1, 7)[:, None] * plain.scores())
    again = mine(bench, typed(SHARING).Mine())  # nothing tells whether it is the one that was run
    assert "mine can't be copied to see whether it still gives" in " ".join(again.notes)


def test_what_a_late_helper_learns_is_said_of_both_runs(
    bench: tta_bench.Bench, typed: Callable[[str], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "late_memory.py").write_text("seen = []\n")
    counted = "def counted(self):\n        from late_memory import seen\n        return seen.append(1) or len(seen)"
    mine = typed(cell("self.counted()", counted))
    first, second = (tta_bench.run(mine.Mine(), "toy", "toyclip", seed=seed, bench=bench) for seed in (0, 1))
    assert "has changed its own class or what it uses of its module" in first.notes[0]
    assert first.config != second.config


def test_one_list_in_two_fields_is_not_two(bench: tta_bench.Bench, typed: Callable[[str], Any]) -> None:
    mine = typed(cell("(self.a.append(1) or len(self.b))", "a: list = None\n    b: list = None"))
    one: list[int] = []
    runs = [tta_bench.run(mine.Mine(*lists), "toy", "toyclip", bench=bench) for lists in ((one, one), ([], []))]
    assert runs[0].config != runs[1].config
    assert not np.array_equal(runs[0].scores(), runs[1].scores())


def test_a_class_that_calls_itself_a_built_in_is_none(bench: tta_bench.Bench) -> None:
    """`functools.update_wrapper` gives it the name and the module of ours."""

    class Louder(CLIP):
        def step(self, x: Observation) -> Tensor:
            return -super().step(x)

    true = tta_bench.run("clip", "toy", "toyclip", bench=bench)
    functools.update_wrapper(Louder, CLIP, updated=())
    other = tta_bench.run(Louder(), "toy", "toyclip", bench=bench)
    assert other.run_id != true.run_id
    assert not np.array_equal(other.scores(), true.scores())
    assert tta_bench.run("clip", "toy", "toyclip", bench=bench).run_id == true.run_id


def test_what_a_bench_has_handed_out_is_looked_at_again(home: Path) -> None:
    """A changed backbone's run was noted under the plain request, and served to every later process."""
    bench = tta_bench.Bench(home)
    backbone: Any = bench.backbone("tiny")
    with torch.no_grad():
        next(backbone.model.visual.parameters()).mul_(-1)
    changed = tta_bench.run("clip", limit=4, bench=bench)
    plain = tta_bench.run("clip", limit=4, bench=tta_bench.Bench(home))
    assert plain.run_id != changed.run_id
    assert tta_bench.run("clip", limit=4, bench=bench).run_id == changed.run_id


@pytest.mark.parametrize("how", ["its encoder", "a hook"])
def test_what_hangs_on_a_built_in_backbone_counts(home: Path, how: str) -> None:
    bench = tta_bench.Bench(home)
    backbone: Any = bench.backbone("tiny")
    if how == "a hook":
        backbone.model.visual.ln_pre.register_forward_hook(lambda module, given, made: made.flip(-1))
    else:
        encode = backbone.encode_images
        backbone.encode_images = lambda pixels: encode(pixels.flip(-1))
    with pytest.warns(TTABenchWarning, match="stood for other code than ttabench's"):
        changed = tta_bench.run("clip", limit=4, bench=bench)
    plain = tta_bench.run("clip", limit=4, bench=tta_bench.Bench(home))
    assert plain.run_id != changed.run_id
    assert not np.array_equal(plain.scores(), changed.scores())  # nor was a feature of the other read


def test_a_method_is_one_row_over_all_datasets(home: Path, bench: tta_bench.Bench) -> None:
    runs = [tta_bench.run("clip", name, "tiny", limit=4, bench=bench) for name in ("toy", "scenes", "scenes:fog")]
    assert len({run.config.digest for run in runs}) == 1
