"""No way leads from what a method is handed to a label, a later image or the run.

The attack comes first: a walk over everything that is reachable from a Task and an Observation, and one cheater for
each kind of way. The toy dataset is chosen because its loaders close over the labels.
"""

from __future__ import annotations

import functools
import gc
import threading
import traceback
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.conftest import some_slow
from tta_bench.features.pack import Pack
from tta_bench.features.pack_source import PackDataset
from tta_bench.features.source import ImageSource, PackSource
from tta_bench.features.stream import Stream
from tta_bench.interfaces import Method, Observation, Sample, Task, ViewRecipe
from tta_bench.runs.bench import Bench
from tta_bench.runs.run import Run
from tta_bench.runs.spec import RunSpec
from tta_bench.views import Plain

CODE = (types.ModuleType, type, types.CodeType, types.BuiltinFunctionType)  # from code everything is reachable
PLAIN = (str, bytes, int, float, bool, type(None), torch.dtype, torch.device)


def ways_on(value: Any) -> Iterator[tuple[str, Any]]:
    """Every step from an object to another: attributes, slots, bound methods, closures, partials, containers, gc."""
    for name in (*getattr(value, "__dict__", {}), *_slots(type(value))):
        yield f".{name}", getattr(value, name, None)
    for name in ("__self__", "__func__", "__wrapped__", "__closure__", "__defaults__", "__kwdefaults__"):
        yield f".{name}", getattr(value, name, None)
    if isinstance(value, types.CellType):
        yield ".cell_contents", value.cell_contents
    if isinstance(value, functools.partial):
        yield from ((".func", value.func), (".args", value.args), (".keywords", value.keywords))
    if isinstance(value, dict):
        yield from ((f"[{key!r}]", item) for key, item in value.items())
    elif isinstance(value, list | tuple | set | frozenset):
        yield from ((f"[{i}]", item) for i, item in enumerate(value))
    yield from (("<gc>", item) for item in gc.get_referents(value))


def _slots(cls: type) -> list[str]:
    return [name for c in cls.__mro__ for name in vars(c).get("__slots__", ()) if name != "__weakref__"]


def walk(start: Any) -> Iterator[tuple[str, Any]]:
    """Everything reachable, with the way to it. Modules, classes and a function's globals are where it ends."""
    seen: dict[int, Any] = {}
    todo = [("", start)]
    while todo:
        way, value = todo.pop()
        if id(value) in seen or isinstance(value, (*CODE, *PLAIN)):
            continue
        if isinstance(value, dict) and "__builtins__" in value:
            continue
        seen[id(value)] = value  # kept alive, so that no other object gets its id
        yield way, value
        todo += [(way + step, item) for step, item in ways_on(value)]


def leaks(start: Any, stream: Stream) -> list[str]:
    """The ways to anything that holds labels, or to images that the method has not seen."""
    holders = (Stream, Run, Sample, Bench, Pack, PackDataset, ImageSource, PackSource)
    found = []
    for way, value in walk(start):
        name = type(value).__name__
        if isinstance(value, holders) or name == "Toy":
            found.append(f"{way}: {name}")
        if isinstance(value, np.ndarray | Tensor) and value.dtype in (np.int8, torch.int8):
            found.append(f"{way}: an array like labels")
        if value is stream.labels or value is stream.ids:
            found.append(f"{way}: the stream's own")
    return found


# -------------------------------------------------------------------------------------------------------- the attack


@dataclass
class Spy(Method):
    """Hands what it gets to the test."""

    name: ClassVar[str] = "spy"
    recipes: ClassVar[dict[str, ViewRecipe]] = {"views": Plain(3)}
    seen: ClassVar[list[Any]] = []

    def start(self, task: Task) -> None:
        self.task = task
        Spy.seen.append(task)

    def step(self, x: Observation) -> Tensor:
        Spy.seen.append(x)
        return self.task.text @ x.image


@dataclass
class TuningSpy(Spy):
    name: ClassVar[str] = "tuningspy"
    tunes_prompts: ClassVar[bool] = True


@pytest.fixture
def spied(toy_bench: Bench) -> Callable[..., tuple[list[Any], Stream]]:
    def run(method: Method, **more: Any) -> tuple[list[Any], Stream]:
        Spy.seen.clear()
        spec = RunSpec(method, "toy", "toyclip", limit=4, **more)
        toy_bench.run(spec)
        return list(Spy.seen), toy_bench.prepare(spec).stream

    return run


def test_the_walk_finds_what_is_there(toy_bench: Bench) -> None:
    """A guard that can't fail guards nothing: each kind of way, planted."""
    labels = np.zeros((2, 3), np.int8)
    stream = Stream(["a", "b"], labels, [0, 1])

    class Slotted:
        __slots__ = ("inside",)

        def __init__(self) -> None:
            self.inside = stream

        def method(self) -> None: ...

    planted = {
        "attribute": types.SimpleNamespace(deep=types.SimpleNamespace(er=stream)),
        "slot": Slotted(),
        "bound method": Slotted().method,
        "closure": lambda: labels,
        "partial": functools.partial(print, stream),
        "default": lambda x=stream: x,
        "container": {"a": [(stream,)]},
        "gc": iter([stream]),
    }
    for kind, thing in planted.items():
        assert leaks(thing, stream), kind


@pytest.mark.parametrize("method", [Spy(), TuningSpy()], ids=["plain", "tuning"])
def test_nothing_that_is_handed_out_leads_to_a_label(
    spied: Callable[..., tuple[list[Any], Stream]], method: Method
) -> None:
    handed, stream = spied(method)
    assert [type(thing) for thing in handed] == [Task, *[Observation] * 4]
    for thing in handed:
        assert leaks(thing, stream) == []


def test_nor_on_a_pack(toy_bench: Bench, toy_pack: Path) -> None:
    Spy.seen.clear()
    spec = RunSpec(Spy(), pack=toy_pack, limit=4)
    toy_bench.run(spec)
    assert len(Spy.seen) == 5
    stream = toy_bench.prepare(spec).stream
    for thing in Spy.seen:
        assert leaks(thing, stream) == []


@dataclass
class Cheater(Method):
    """Scores an image by its labels, if one of the ways leads to them."""

    name: ClassVar[str] = "cheater"
    way: str = ""
    found: ClassVar[list[str]] = []

    def start(self, task: Task) -> None:
        self.task = task

    def step(self, x: Observation) -> Tensor:
        try:
            labels = WAYS[self.way](self.task, x)
        except (AttributeError, TypeError, IndexError, KeyError, ValueError, StopIteration):
            return self.task.text @ x.image
        Cheater.found.append(self.way)
        return torch.as_tensor(np.asarray(labels)[x.index], dtype=torch.float32)


def _by_gc(start: Any) -> Any:
    arrays = (v for _, v in walk(start) if isinstance(v, np.ndarray) and v.dtype == np.int8 and v.ndim == 2)
    return next(arrays)


def _by_exception(x: Any) -> Any:
    """An error that comes back from the other side may bring its frames along."""
    try:
        x.pixels("nothing")
    except Exception as error:
        kept: list[Any] = [error, error.__cause__, error.__context__]
        frames = [frame for e in kept if e is not None for frame, _ in traceback.walk_tb(e.__traceback__)]
        inner = [value for frame in frames[1:] for value in frame.f_locals.values()]  # the first is this one
        return _by_gc(inner)
    raise ValueError("there was no error")


def _by_threads() -> Any:
    others = [thread for thread in threading.enumerate() if thread is not threading.main_thread()]
    return _by_gc([vars(thread) for thread in others if "ttabench" in thread.name or "_serve" in repr(vars(thread))])


WAYS: dict[str, Callable[[Any, Any], Any]] = {
    "an error's frames": lambda task, x: _by_exception(x),
    "threads": lambda task, x: _by_threads(),
    "bound method": lambda task, x: task.encode_texts.__self__.stream.labels,
    "closure": lambda task, x: x.load_pixels.__closure__[0].cell_contents.dataset.labels,
    "partial": lambda task, x: x.load_pixels.func.__self__.labels,
    "attribute": lambda task, x: x.load_pixels.dataset.labels,
    "slot": lambda task, x: x.load_pixels._desk.stream.labels,
    "encoder": lambda task, x: task.encode_texts._encode.__self__.pack.labels,
    "gc of the task": lambda task, x: _by_gc(task),
    "gc of the image": lambda task, x: _by_gc(x),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("packed", some_slow([False], [True]), ids=["images", "pack"])
def test_a_cheater_finds_nothing(toy_bench: Bench, toy_pack: Path, way: str, packed: bool) -> None:
    Cheater.found.clear()
    spec = RunSpec(Cheater(way), pack=toy_pack) if packed else RunSpec(Cheater(way), "toy", "toyclip")
    toy_bench.run(spec)
    assert Cheater.found == []


# ------------------------------------------------------------------------------------------------------ own copies


@dataclass
class Vandal(Method):
    """Overwrites everything that it can lay hands on."""

    name: ClassVar[str] = "vandal"
    recipes: ClassVar[dict[str, ViewRecipe]] = {"views": Plain(3)}

    def start(self, task: Task) -> None:
        self.text = task.text.clone()
        for tensor in (task.text, task.text_bank):
            tensor.fill_(7.0)

    def step(self, x: Observation) -> Tensor:
        scores = self.text @ x.image
        x.image.zero_()
        x["views"].mul_(-1)
        return scores


@pytest.mark.parametrize("packed", [False, True], ids=["images", "pack"])
def test_writing_in_place_reaches_neither_the_store_nor_another_run(
    toy_bench: Bench, toy_pack: Path, packed: bool
) -> None:
    def spec(method: Method) -> RunSpec:
        return RunSpec(method, pack=toy_pack) if packed else RunSpec(method, "toy", "toyclip")

    before = toy_bench.run(spec(Spy())).record.scores()
    stored = {file: file.read_bytes() for file in toy_bench.home.glob("store/*/*/features.bin")}
    assert np.array_equal(toy_bench.run(spec(Vandal())).record.scores(), before)
    assert np.array_equal(toy_bench.run(spec(Spy()), force=True).record.scores(), before)
    assert {file: file.read_bytes() for file in stored} == stored


# ---------------------------------------------------------------------------------------------------------- pixels


@dataclass
class Looks(Method):
    """Asks for pixels: of the present image, of one that is over, under a role that does not exist."""

    name: ClassVar[str] = "looks"
    recipes: ClassVar[dict[str, ViewRecipe]] = {"views": Plain(3)}
    said: ClassVar[list[str]] = []

    def start(self, task: Task) -> None:
        self.task = task
        self._last: Observation | None = None

    def step(self, x: Observation) -> Tensor:
        assert x.pixels().shape == (1, 3, 8, 8)
        assert x.pixels("views").shape == (3, 3, 8, 8)
        for observation, role in ((self._last, "image"), (x, "nothing")):
            try:
                if observation is not None:
                    observation.pixels(role)
            except Exception as error:
                Looks.said.append(str(error))
        self._last = x
        return self.task.text @ x.image


def test_pixels_are_those_of_the_present_image_alone(toy_bench: Bench) -> None:
    Looks.said.clear()
    toy_bench.run(RunSpec(Looks(), "toy", "toyclip", limit=2))
    assert "pixels can be had only while their image is the present one" in Looks.said
    assert any("unknown view role 'nothing'" in words for words in Looks.said)
    assert Looks.said[-2:-1] == ["pixels can be had only while their image is the present one"]
