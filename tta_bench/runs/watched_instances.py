"""What an instance reaches for in its caller's process, told apart from what everybody else does there.

One hook at most, which notes something only while a run of an instance is under way, and only for its own code: between
the event and the runner's call of `start`, `step`, `finish`, `take_report` or a recipe's `render` there is a frame of
somebody's own, and no other one of the runner's. So what it is handed (`encode_texts`, pixels) may read what it likes,
and so may datasets and backbones. Threads that a method starts are not looked at: nothing tells whose they are.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections.abc import Callable, Collection
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self

from torch import Tensor

from tta_bench.errors import PluginError
from tta_bench.features import global_rngs
from tta_bench.interfaces import Method, Preprocess, TextEncoder, ViewRecipe
from tta_bench.runs import answers, reading, replay
from tta_bench.runs.watched import FILES, OTHERS, Reached, Seen, is_own, own_code, watch_environment
from tta_bench.system import loading
from tta_bench.system.code import origin_of, told
from tta_bench.system.whose import own_packages

if TYPE_CHECKING:
    from PIL import Image

RUNNERS = ("tta_bench.runs.", "tta_bench.features.")
HANDED = TextEncoder.__call__.__code__
NOTED = frozenset((*FILES, *OTHERS))
_now: list[InstanceWatch] = []  # runs that are under way; of several, one within the other, the last


class InstanceWatch(Seen):
    """Of a method while it is entered."""

    def __init__(self, method: Method) -> None:
        super().__init__()
        self._method, self._packages = method, own_packages(type(method).__module__)
        self._code: set[Path] = set()
        self._end: Callable[[], None]

    def __enter__(self) -> Self:
        _install()
        self._code = own_code()  # what is imported later is known only if its digest was taken
        self._end = watch_environment(self._note_asked)
        _now.append(self)
        return self

    def __exit__(self, *error: object) -> None:
        _now.remove(self)
        self._end()

    def reached(self) -> Reached:
        """So far; its own code and the files that it declares left out."""
        declared = {Path(str(getattr(self._method, field, ""))).resolve() for field in self._method.digests()}
        return self.all_but(self._code | loading.files() | declared)

    def note_own(self, event: str, arguments: tuple[Any, ...], frame: FrameType) -> None:
        if _asked_by_runner(frame, self._packages):
            self.note(event, arguments, frame)

    def _note_asked(self, name: str, asker: FrameType) -> None:
        if self in _now[-1:] and is_own(asker, self._packages) and _asked_by_runner(asker, self._packages):
            self.note_variable(name)


class WatchedRecipe:
    """An instance's own views. Their features are kept, so what they read beyond their fields is refused, or counts."""

    def __init__(self, recipe: ViewRecipe, method: Method) -> None:
        self._recipe, self._method = recipe, method
        self.name, self.count, self.seeded = recipe.name, recipe.count, recipe.seeded
        self.origin = origin_of(recipe)

    def anew(self) -> WatchedRecipe:
        """The same, and what it has kept of earlier draws is gone."""
        return WatchedRecipe(copy.deepcopy(self._recipe), self._method)

    def __repr__(self) -> str:
        return reading.kept_with(told(self._recipe), {}, self._method.digests())

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        drawing = global_rngs.for_views(self.name, image_id, seed)
        with drawing, InstanceWatch(self._method) as watch:
            views = self._recipe.render(image, image_id, seed, preprocess)
        if more := reading.contents(watch.reached()):
            raise PluginError(f"recipe {self.name}, image {image_id}: {reading.refusal(more)}")
        return views


CALLERS = (replay._start, replay._step, replay.finished, answers.reported, WatchedRecipe.render)
CALLS = {call.__code__ for call in CALLERS}


@functools.cache
def _install() -> None:
    sys.addaudithook(_hook)


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _now and event in NOTED:
        with suppress(Exception):  # it would be raised by whatever the method has called
            _now[-1].note_own(event, arguments, sys._getframe(1))


def _asked_by_runner(frame: FrameType | None, packages: Collection[str]) -> bool:
    """Whether the runner has called a method's own code, which has led to this frame."""
    own = False
    while frame is not None and frame.f_code is not HANDED:
        if frame.f_code in CALLS:
            return own
        if str(frame.f_globals.get("__name__")).startswith(RUNNERS):
            return False
        own = own or is_own(frame, packages)
        frame = frame.f_back
    return False
