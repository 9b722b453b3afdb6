"""Instances and notebook classes that differ are never taken for one another, whatever they hold."""

from __future__ import annotations

import collections
import dataclasses
import decimal
import enum
import fractions
import functools
import io
import logging
import operator
import random
import re
import sqlite3
import subprocess
import sys
import textwrap
import threading
import types
import weakref
from abc import ABCMeta
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path, PosixPath
from types import ModuleType
from typing import Annotated, Any

import numpy as np
import pytest
import regex  # type: ignore[import-untyped]
import torch
from torch.optim.swa_utils import get_ema_avg_fn

from tta_bench.interfaces import Method
from tta_bench.methods.tda import TDA
from tta_bench.system.code import origin_of, told
from tta_bench.system.described import described
from tta_bench.views import AugMix


@dataclass(slots=True)
class Slotted:
    k: float


class Plain:
    def __init__(self, k: float) -> None:
        self.k = k

    def times(self) -> float:
        return self.k


class Listed(list[int]):
    scale: float


def listed(scale: float) -> Listed:
    made = Listed([1, 2])
    made.scale = scale
    return made


def closure(a: int | None, b: int | None) -> Any:
    return lambda: (a, b)


def local(k: int) -> threading.local:
    made = threading.local()
    made.k = k
    return made


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Mode(enum.StrEnum):
    SUM = "sum"
    MEAN = "mean"


def coloured(number: int) -> torch.Tensor:
    made = torch.ones(2)
    made.colour = number  # type: ignore[attr-defined]
    return made


def wrapped(k: float) -> Any:
    """Says of itself that it is torch's."""
    made: dict[str, Any] = {"wraps": functools.wraps, "relu": torch.nn.functional.relu, "__name__": "__main__"}
    exec(f"@wraps(relu)\ndef g(x): return {k} * x", made)
    return made["g"]


def executed(k: float) -> Any:
    """Without a module."""
    made: dict[str, Any] = {}
    exec(f"class Made:\n    def times(self): return {k}", made)
    return made["Made"]


def looked_up(k: float, how: str) -> Any:
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(f"def score_a(): return {k}\ndef step(kind): return {how}", made)
    return made["step"]


def chosen(value: Any, how: str) -> Any:
    made: dict[str, Any] = {"__name__": "a_notebook", "sys": sys, "system": sys, "ALPHA_a": value}
    exec(f"def step(kind): return {how}", made)
    return made["step"]


def renamed(k: float) -> Any:
    """Says of itself that it is ours."""
    made = type("Mine", (TDA,), {"more": k})
    return functools.update_wrapper(made, TDA, updated=())


def twice(make: Callable[[], Any]) -> tuple[Any, Any]:
    """One thing in two places, and two that are equal: what is written into the one is in the other, or is not."""
    one = make()
    return {"a": one, "b": one}, {"a": make(), "b": make()}


def tied(together: bool) -> torch.nn.Module:
    torch.manual_seed(0)
    pair = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2)])
    pair[1].load_state_dict(pair[0].state_dict())
    if together:
        pair[1].weight = pair[0].weight
    return pair


def beside(part: Callable[[torch.Tensor], torch.Tensor], whole: torch.Tensor) -> tuple[Any, Any]:
    """A tensor with a part of it, and with a copy of that part."""
    return [whole, part(whole)], [whole, part(whole).clone()]


def ring(back_to: int) -> Any:
    """Three nodes in a row, the last of which points back to one of them."""
    nodes = [Plain(k) for k in range(3)]
    for node, following in zip(nodes, [*nodes[1:], nodes[back_to]], strict=True):
        node.next = following  # type: ignore[attr-defined]
    return nodes[0]


def frozen(which: int) -> Any:
    layers = [Plain(1), Plain(1)]
    return {"frozen": {layers[which]}, "layers": layers}


def noted_function(value: float) -> Any:
    made: dict[str, Any] = {"__name__": "a_notebook"}
    exec(f"def step(x: {value}): ...", made)
    return made["step"]


def made_with(**members: Any) -> Any:
    return type("Made", (), {"__module__": "a_notebook", **members})


def annotated(value: float) -> Any:
    notes = {"alpha": Annotated[float, value]}
    return type("Noted", (), {"__module__": "a_notebook", "__annotations__": notes})


def fielded(value: float) -> Any:
    made = dataclasses.make_dataclass(
        "F", [("alpha", float, dataclasses.field(default=1.0, metadata={"scale": value}))]
    )
    made.__module__ = "a_notebook"
    return made


def hooked(factor: float | None) -> torch.Tensor:
    made = torch.ones(2, requires_grad=True)
    if factor is not None:
        made.register_hook(chosen(factor, "ALPHA_a * kind"))  # type: ignore[no-untyped-call]
    return made


def with_gradient(value: float) -> torch.Tensor:
    made = torch.ones(2, requires_grad=True)
    made.grad = torch.full((2,), value)
    return made


class Heavy(logging.Handler):
    def __init__(self, weight: float) -> None:
        super().__init__()
        self.weight = weight


def partial_with(k: int) -> Any:
    made: Any = functools.partial(int, "1")
    made.k = k
    return made


def renamed_function(name: str) -> Any:
    made = chosen(1, "kind")
    made.__name__ = name
    return made


def read_to(place: int) -> io.StringIO:
    made = io.StringIO("a text")
    made.seek(place)
    return made


class Marked(PosixPath):
    scale = 1.0


class Scaled(property):
    scale = 1.0


class Named(io.StringIO):
    name = ""


class Own(threading.local):
    k = 1


class Weighted(weakref.ref[Any]):
    weight = 1.0


def typed(kind: type) -> Any:
    """By which it may cast."""
    return dataclasses.make_dataclass("Typed", [("value", kind)], namespace={"__module__": __name__})


def holding(made: Any, **held: Any) -> Any:
    vars(made).update(held)
    return made


def dtype_with(value: float) -> Any:
    return np.zeros(2, np.dtype("f4", metadata={"scale": value}))


PUT_TOGETHER, EVALUATED = "globals()['score_' + kind]()", "eval('score_' + kind + '()')"
VARIABLE, AMONG_MODULES = "globals()['ALPHA_' + kind]", "getattr(sys.modules[__name__], 'ALPHA_' + kind)"
RENAMED = "getattr(system.modules[__name__], 'ALPHA_' + kind)"
OF_MAIN = "getattr(__import__('__main__'), 'ALPHA_' + kind)"
KEPT = [torch.nn.Linear(1, 1), torch.nn.Linear(1, 1)]
PAIRS: dict[str, tuple[Any, Any]] = {
    "a function that says it is torch's": (wrapped(1), wrapped(2)),
    "a class without a module": (executed(1), executed(2)),
    "a class that says it is ours": (renamed(1), renamed(2)),
    "a name put together": (looked_up(1, PUT_TOGETHER), looked_up(2, PUT_TOGETHER)),
    "a text that is evaluated": (looked_up(1, EVALUATED), looked_up(2, EVALUATED)),
    "a variable put together": (chosen(1, VARIABLE), chosen(2, VARIABLE)),
    "a variable of modules under another name": (chosen(1, RENAMED), chosen(2, RENAMED)),
    "a list put together": (chosen([1], VARIABLE), chosen([2], VARIABLE)),
    "an array put together": (chosen({"w": np.ones(1)}, VARIABLE), chosen({"w": np.zeros(1)}, VARIABLE)),
    "a variable of a module among modules": (chosen(1, AMONG_MODULES), chosen(2, AMONG_MODULES)),
    "a variable of __main__": (chosen(1, OF_MAIN), chosen(2, OF_MAIN)),
    "a weak reference": (weakref.ref(KEPT[0]), weakref.ref(KEPT[1])),
    "Python's generator of numbers": (random.Random(1), random.Random(2)),
    "bytes that look like a file": (io.BytesIO(b"a"), io.BytesIO(b"b")),
    "a text's enumeration": (Mode.SUM, Mode.MEAN),
    "a function that a library made": (get_ema_avg_fn(0.9), get_ema_avg_fn(0.5)),  # type: ignore[no-untyped-call]
    "a tensor with an attribute": (coloured(1), coloured(2)),
    "a tensor with a gradient": (torch.ones(2), torch.ones(2, requires_grad=True)),
    "dtype": (torch.float32, torch.float16),
    "device": (torch.device("cpu"), torch.device("meta")),
    "range": (range(3), range(5)),
    "deque": (collections.deque([1]), collections.deque([1, 2])),
    "deque's length": (collections.deque([1], 2), collections.deque([1], 3)),
    "fraction": (fractions.Fraction(1, 2), fractions.Fraction(3, 2)),
    "decimal": (decimal.Decimal(1), decimal.Decimal(2)),
    "slice": (slice(3), slice(5)),
    "dataclass with slots": (Slotted(1), Slotted(2)),
    "bound method": (Plain(1).times, Plain(2).times),
    "bound built-in": ([1].count, [2].count),
    "pattern": (re.compile("a"), re.compile("b")),
    "another library's pattern": (regex.compile("a"), regex.compile("b")),
    "a list that a pattern names": (regex.compile(r"\L<x>", x=["a"]), regex.compile(r"\L<x>", x=["b"])),
    "pattern's flags": (re.compile("a"), re.compile("a", re.I)),
    "generator of numbers": (torch.Generator().manual_seed(1), torch.Generator().manual_seed(2)),
    "numpy's generator": (np.random.default_rng(1), np.random.default_rng(2)),
    "bytearray": (bytearray(b"a"), bytearray(b"b")),
    "closure over None": (closure(None, 1), closure(1, None)),
    "itemgetter": (operator.itemgetter(0), operator.itemgetter(1)),
    "path": (Path("a"), Path("b")),
    "enumeration": (Colour.RED, Colour.BLUE),
    "list with an attribute": (listed(1), listed(2)),
    "default of a dict": (collections.defaultdict(int), collections.defaultdict(list)),
    "double precision": (torch.tensor([1.0], dtype=torch.float64), torch.tensor([1.0 + 1e-12], dtype=torch.float64)),
    "precision": (torch.ones(2), torch.ones(2, dtype=torch.float64)),
    "bfloat16": (torch.ones(2, dtype=torch.bfloat16), torch.zeros(2, dtype=torch.bfloat16)),
    "array of objects": (np.array([{"a": 1}], dtype=object), np.array([{"a": 2}], dtype=object)),
    "exhausted generator": ((x for x in [1]), (x for x in [2])),
    "iterator": (iter([1]), iter([2])),
    "order of a dict": ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
    "a thread's own": (local(1), local(2)),
    "where a circle ends": (ring(0), ring(1)),
    "which of two is in a set": (frozen(0), frozen(1)),
    "an annotation": (noted_function(1.0), noted_function(2.0)),
    "an annotated type": (annotated(1.0), annotated(2.0)),
    "a field's type": (typed(int), typed(float)),
    "metadata of a field": (fielded(1.0), fielded(2.0)),
    "a hook on a tensor": (hooked(2.0), hooked(None)),
    "a gradient": (with_gradient(1.0), with_gradient(2.0)),
    "a handler of one's own": (Heavy(1.0), Heavy(2.0)),
    "how far a text was read": (read_to(0), read_to(2)),
    "a name that begins like Python's own": (made_with(_abc_weight=1.0), made_with(_abc_weight=2.0)),
    "an open file": (Path(__file__).open(), Path(logging.__file__).open()),  # noqa: SIM115
    "an attribute of a partial": (partial_with(1), partial_with(2)),
    "a function's name": (chosen(1, "kind"), renamed_function("other")),
    "the order of an array in memory": (np.ones((2, 3)), np.asfortranarray(np.ones((2, 3)))),
    "the order of a tensor in memory": (torch.ones(2, 3), torch.ones(3, 2).T),
    "a parameter": (torch.ones(2, requires_grad=True), torch.nn.Parameter(torch.ones(2))),
    "what stands beside a number's type": (dtype_with(1.0), dtype_with(2.0)),
    "a property of one's own": (holding(Scaled(), scale=1.0), holding(Scaled(), scale=2.0)),
    "a path of one's own": (holding(Marked("a"), scale=1.0), holding(Marked("a"), scale=2.0)),
    "a text's file of one's own": (holding(Named("a"), name="a"), holding(Named("a"), name="b")),
    "a thread's own, of a class": (threading.local(), Own()),
    "a weak reference of one's own": (holding(Weighted(KEPT[0]), weight=1.0), holding(Weighted(KEPT[0]), weight=2.0)),
    "one list twice": twice(list),
    "one object twice": twice(lambda: Plain(1)),
    "one tensor twice": twice(lambda: torch.ones(2)),
    "one array twice": twice(lambda: np.ones(2)),
    "tied weights": (tied(True), tied(False)),
    "a view of a tensor": beside(lambda whole: whole[1:], torch.ones(3)),
    "a view of an array": ([one := np.ones(3), one[1:]], [np.ones(3), np.ones(2)]),
    "values of a sparse tensor": beside(lambda whole: whole._values(), torch.eye(2).to_sparse()),
    "numpy's function of a function": (np.frompyfunc(closure(1, 2), 0, 1), np.frompyfunc(closure(1, 3), 0, 1)),
}


@pytest.mark.parametrize("what", PAIRS)
def test_what_differs_is_described_differently(what: str) -> None:
    one, other = PAIRS[what]
    assert described(one) != described(other)


AGAIN = [what for what in PAIRS if what != "exhausted generator"]  # nothing tells what it will yield


def test_what_c_keeps_for_itself_is_like_nothing_else() -> None:
    """It has attributes, and they say nothing of what is in it."""
    places = np.arange(5).flat
    before = described(places)
    next(places)
    assert described(places) != before
    drawn = (k for k in range(5))
    before = described(drawn)
    next(drawn)
    assert described(drawn) != before
    base = sqlite3.connect(":memory:")
    assert described(base) != described(base)


def test_the_arguments_of_a_script_count_where_it_reads_them(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, other = chosen(1, "float(sys.argv[1])"), chosen(1, "kind")
    said = []
    for given in ("1", "9"):
        monkeypatch.setattr(sys, "argv", ["script.py", given])
        said.append((described(reading), described(other)))
    assert said[0][0] != said[1][0]
    assert said[0][1] == said[1][1]


def test_equal_numbers_and_texts_are_one_wherever_they_are() -> None:
    assert described([1.5, "ab", (1, 2), Path("a")] * 2) == described(
        [1.5, "ab", (1, 2), Path("a"), *[1.5, "ab", (1, 2), Path("a")]]
    )


def test_a_path_that_was_written_out_is_the_same() -> None:
    used = Path("a/b")
    assert str(used) == "a/b"
    assert used.parts
    assert described(used) == described(Path("a/b"))


@pytest.mark.parametrize("what", AGAIN)
def test_the_same_is_described_alike(what: str) -> None:
    assert described(PAIRS[what][0]) == described(PAIRS[what][0])


def test_a_logger_and_a_lock_make_no_difference() -> None:
    assert described([logging.getLogger("a"), threading.Lock()]) == described(
        [logging.getLogger("a"), threading.Lock()]
    )


def test_what_a_dispatcher_remembers_of_its_calls_makes_no_difference() -> None:
    """Every run of a method that had one was another row, and said that it had changed its own code."""

    def dispatched(k: float) -> Any:
        @functools.singledispatch
        def scored(x: object) -> float:
            return k

        return scored

    one, other = dispatched(1.0), dispatched(2.0)
    before = described(one)
    assert described(other) != before
    one(1)
    one("a")
    assert described(one) == before
    one.register(int)(lambda x: -k_of_int)
    assert described(one) != before


k_of_int = 1.0

CODE = {
    "a metaclass": ("class M(type):\n    k = {}\nclass C(metaclass=M): pass\ndef step(): return C.k",),
    "a special method that is no function": (
        "import functools\nclass C:\n    __call__ = functools.partial(int, {})\ndef step(): return C()",
    ),
    "a function looked up by its name": ("def k(): return {}\ndef step(): return globals()['k']()",),
    "a handler": ("def step():\n    try: return int('x')\n    except ValueError: return {}",),
    "a star": ("def pick({}a): return a\ndef step(): return pick(1)",),
    "the code of a list's class": ("class L(list):\n    def w(self): return {}\nstep = L([1])",),
    "the code of a set's class": ("class L(set):\n    def w(self): return {}\nstep = L([1])",),
    "the code of a number's class": ("class F(float):\n    def w(self): return {}\nstep = F(1)",),
    "the code of an enumeration": (
        "import enum\nclass E(str, enum.Enum):\n    A = 'a'\n    def w(self): return {}\nstep = E.A",
    ),
    "the code of a named tuple": (
        "import typing\nclass T(typing.NamedTuple):\n    a: int\n    def w(self): return {}\nstep = T(1)",
    ),
    "a dataclass that is made": (
        "import dataclasses\nstep = dataclasses.make_dataclass('D', ['a'], namespace=dict(w=lambda self: {}))(1)",
    ),
    "an attribute of a function": ("def step(): return step.k\nstep.k = {}",),
    "two functions that call each other": (
        "def even(n): return n == 0 or odd(n - 1)\ndef odd(n): return n != 0 and even(n - {})\nstep = even",
    ),
}


@pytest.mark.parametrize("what", CODE)
def test_edited_code_is_described_differently(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def typed(number: int) -> Any:
        module = ModuleType("typed_in")
        monkeypatch.setitem(sys.modules, "typed_in", module)
        exec(CODE[what][0].format("*" * (number - 1) if what == "a star" else number), module.__dict__)
        return described(module.__dict__["step"])

    assert typed(1) == typed(1) != typed(2)


def test_a_helper_module_of_a_script_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))

    def of_script(number: int) -> Any:
        for name in ("helper_of_mine", "script_of_mine"):
            sys.modules.pop(name, None)
        helper, script = ModuleType("helper_of_mine"), ModuleType("script_of_mine")
        exec(f"import torch\nSCALE = {number}\ndef score(x): return SCALE * x", helper.__dict__)
        monkeypatch.setitem(sys.modules, "helper_of_mine", helper)
        monkeypatch.setitem(sys.modules, "script_of_mine", script)
        exec("import helper_of_mine\ndef step(x): return helper_of_mine.score(x)", script.__dict__)
        return described(script.__dict__["step"])

    assert of_script(1) == of_script(1) != of_script(2)


def test_forty_functions_that_call_each_other_take_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("net_of_calls")
    monkeypatch.setitem(sys.modules, "net_of_calls", module)
    calls = "; ".join(f"f{k}()" for k in range(40))
    exec("\n".join(f"def f{k}():\n    {calls}" for k in range(40)), module.__dict__)
    assert len(str(described(module.__dict__["f0"]))) < 1_000_000


def test_another_process_describes_it_alike(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        textwrap.dedent(
            """
            import collections, enum, operator, re
            import regex
            from tta_bench.system.described import described
            from tta_bench.system.files import digest

            class Kind(enum.Enum):
                A = 1

            def f(): return g, KINDS
            def g(): return f, Kind
            KINDS = {f, g, "a", "b", Kind.A}
            patterns = [re.compile("a|b"), regex.compile("<start>|<end>|'s|[a-z]+|[0-9]|[^a-z0-9]+", regex.I)]
            called = [operator.itemgetter(1), operator.attrgetter("a"), operator.methodcaller("b")]
            print(digest(described([f, g, collections.deque("ab"), object(), patterns, called])))
            """
        )
    )
    answers = {
        subprocess.run([sys.executable, script], env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
                       capture_output=True, text=True, check=True).stdout
        for seed in ("1", "2", "3")
    }  # fmt: skip
    assert len(answers) == 1


class Silent:
    """A recipe whose repr is an address, and one field of it decides what it draws."""

    def __init__(self, share: float) -> None:
        self.share = share


def test_a_recipe_that_says_nothing_of_itself_is_told_by_what_it_holds() -> None:
    assert told(Silent(0.3)) == told(Silent(0.3)) != told(Silent(1.0))
    assert told(AugMix(5)) == repr(AugMix(5))


@pytest.mark.filterwarnings("ignore:.*nested tensors")
@pytest.mark.parametrize("layout", ["strided", pytest.param("jagged", marks=pytest.mark.slow)])
def test_tensors_without_a_plain_layout_are_told_apart(layout: str) -> None:
    """They may be a method's field; torch itself says only that it can't convert them."""

    def nested(last: float) -> torch.Tensor:
        return torch.nested.nested_tensor([torch.ones(2), last * torch.ones(3)], layout=getattr(torch, layout))

    meta = [torch.empty(size, device="meta") for size in (2, 3)]
    seen = [str(described(tensor)) for tensor in (nested(1.0), nested(2.0), *meta, torch.ones(2))]
    assert len(set(seen)) == len(seen)
    assert str(described(nested(1.0))) == seen[0]


def test_what_a_notebook_keeps_for_itself_makes_no_difference() -> None:
    """Nor what it holds that is no plain data: a run would be another one after every cell."""
    step = chosen(1, VARIABLE)
    before = described(step)
    names = step.__globals__
    names |= {"_": 7, "_i3": "code", "In": ["code"], "Out": {3: 7}, "exit": object(), "quit": 1, "get_ipython": 1}
    names |= {"record": Plain(1), "records": [Plain(2)]}
    assert described(step) == before
    others = chosen(1, "[m for m in kind.modules()]")
    assert described(others) == described(chosen(2, "[m for m in kind.modules()]"))  # torch has some as well
    names["BETA"] = 1
    assert described(step) != before


class Settings:
    def __init__(self) -> None:
        self.width = 2.0


def test_looking_into_an_object_does_not_change_its_class() -> None:
    """Copying writes a note into the class, so that the second of three seeds was another configuration."""
    before = described(Settings)
    described(Settings())
    assert "__slotnames__" in vars(Settings)
    assert described(Settings) == before


@pytest.mark.parametrize("make", [type, dataclasses.make_dataclass, types.new_class])
def test_classes_made_by_a_call_are_told_apart(make: Any) -> None:
    """They say that they are of `abc`."""

    def variant(weight: float) -> Any:
        members = {"name": "q", "start": lambda self, task: None, "step": lambda self, x: x.image * weight}
        if make is type:
            return ABCMeta("Q", (Method,), members)
        if make is types.new_class:
            return types.new_class("Q", (Method,), {}, lambda namespace: namespace.update(members))
        return dataclasses.make_dataclass("Q", [("a", float, 1.0)], bases=(Method,), namespace=members)

    assert described(variant(0.0)) == described(variant(0.0))
    assert described(variant(0.0)) != described(variant(50.0))
    assert not origin_of(variant(0.0)()).built_in


def test_a_script_that_a_tool_runs_is_no_librarys(monkeypatch: pytest.MonkeyPatch) -> None:
    """As `python -m cProfile script.py` does it: what has the name of its module is the tool."""
    monkeypatch.setitem(sys.modules, "__main__", textwrap)
    made = [{"__name__": "__main__"} for _ in range(2)]
    for names, weight in zip(made, (1, 2), strict=True):
        exec(f"def step(self, x):\n    return x.image * {weight}", names)
    assert described(made[0]["step"]) != described(made[1]["step"])


def test_a_class_may_hold_an_instance_of_itself() -> None:
    """As enumerations were written once; looking into the instance writes something into the class."""

    class Level:
        def __init__(self, weight: float) -> None:
            self.weight = weight

    Level.HALF = Level(0.5)  # type: ignore[attr-defined]
    assert described(Level) == described(Level)
