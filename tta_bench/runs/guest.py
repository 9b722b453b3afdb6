"""The process in which a method that is not built in runs. It has one image at a time, and never a label.

A root process imports torch once. For each plugin it forks a host, which loads the plugin's code, and for each run the
host forks a session. So what a plugin does to its process reaches neither another plugin nor another run of its own.
"""

from __future__ import annotations

import contextlib
import ctypes
import dataclasses
import faulthandler
import functools
import io
import os
import signal
import socket
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor

import tta_bench.views  # noqa: F401  # most plugins import it, and OpenCV with it: once for all of them
from tta_bench.errors import BadData, DataMissing, PluginError, TTABenchError, UsageError, WeightsMissing
from tta_bench.features import global_rngs
from tta_bench.interfaces import Method, Observation, Preprocess, Task, TextEncoder
from tta_bench.plugins import KINDS, Registry
from tta_bench.records import as_plain
from tta_bench.runs import hyperparameters, known, reading, state
from tta_bench.runs.answers import reported, unusable_results, unusable_scores
from tta_bench.runs.channel import Channel, Lost
from tta_bench.runs.cost import FlopCounter, weigh
from tta_bench.runs.fingerprint import fingerprint, nameless_files, own_modules
from tta_bench.runs.reading import Reading
from tta_bench.runs.remote_prompts import RemotePrompts
from tta_bench.runs.state import Started, can_be_loaded
from tta_bench.runs.watched import Watch
from tta_bench.system import loading
from tta_bench.system.code import BUILT_IN, author_line, in_words, origin_of, told
from tta_bench.system.objects import like_nothing_else

DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)
ERRORS = (DataMissing, WeightsMissing, UsageError, BadData, PluginError, TTABenchError)  # the nearest one travels


def main() -> None:
    """Root: `python -m tta_bench.runs.guest DESCRIPTOR`, a socket through which more sockets come, one for a host."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the runner, which ends what it has begun
    torch.set_num_threads(1)  # a pool of threads would not survive a fork; a session sets its own number
    known.code_digest()  # of what all guests execute, which is loaded by now
    _fork_for_each(socket.socket(fileno=int(sys.argv[1])), _host)


def _fork_for_each(control: socket.socket, serve: Callable[[Channel], None]) -> None:
    """A child for every socket that comes in, until nobody is there to send any."""
    while True:
        try:
            data, descriptors, _, _ = socket.recv_fds(control, 1, 1)
        except OSError:
            data, descriptors = b"", []
        if not data:
            os._exit(0)
        with contextlib.closing(socket.socket(fileno=descriptors[0])) as connection:
            _flush()
            if os.fork() == 0:
                control.close()
                _die_with_parent()
                try:
                    serve(Channel(connection))
                except Lost:
                    pass
                finally:
                    _flush()
                    os._exit(0)


def _die_with_parent() -> None:
    with contextlib.suppress(OSError, AttributeError):  # Linux has it; elsewhere a guest that hangs outlives its host
        ctypes.CDLL(None).prctl(DIE_WITH_PARENT, signal.SIGKILL)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()


# ------------------------------------------------------------------------------------------------------------ the host


def _host(channel: Channel) -> None:
    """Loads one plugin's code, tells what it offers, and forks a session for every run; or, for a plugin that has
    threads as soon as it is loaded, which no fork would have, is the session itself."""
    request = channel.receive()
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.path[:] = request["path"]
    os.chdir(request["folder"])
    printed = tempfile.TemporaryFile()  # noqa: SIM115  # for as long as the process lives
    _print_to(printed)
    watch, before = Watch(), frozenset(sys.modules)
    global_rngs.seed()
    try:
        # The plugin and no other: the runner may leave one of the same name out, a built-in too.
        others = [] if request["only"] == [BUILT_IN] else [BUILT_IN]
        registry = Registry([Path(file) for file in request["files"]], others, request["only"])
        for name in request["load"]:
            registry.method(name)
    except BaseException as error:
        channel.send(**_fault(error))
        return
    watch.note_loaded()
    mine = [(p.kind, p.name) for kind in KINDS for p in registry.plugins(kind) if p.origin in request["files"]]
    alone = request["alone"]
    loaded = {"offers": mine, "contents": loading.contents(), "code": known.code_digest()}
    loaded["read"] = reading.present(watch.reached([]).unknown)
    channel.send(**loaded, forks=not alone and _threads() == 1)
    if alone:
        Session(channel, registry, printed, watch, before).serve()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a session
    _fork_for_each(channel.connection, lambda session: Session(session, registry, printed, watch, before).serve())


def _threads() -> int:
    """Of this process, those that Python does not know of included. A fork leaves all but one behind."""
    try:
        return len(list(Path("/proc/self/task").iterdir()))
    except OSError:
        return threading.active_count()


def _print_to(file: IO[bytes]) -> None:
    _flush()
    for descriptor in (1, 2):
        os.dup2(file.fileno(), descriptor)


def _fault(error: BaseException) -> dict[str, Any]:
    """An error as it travels: one that a user can mend by its words, any other with its place in the author's file."""
    for kind in ERRORS:
        if isinstance(error, kind):
            return {"error": kind.__name__, "text": str(error)}
    whole = "".join(traceback.format_exception(error))
    with contextlib.suppress(Exception):  # the plugin may have closed it
        traceback.print_exception(error)  # into the log
    return _complaint(in_words(error, author_line(error))) | {"traceback": whole}


def _complaint(text: str) -> dict[str, Any]:
    return {"error": "", "text": text}


# --------------------------------------------------------------------------------------------------------- the session


class Session:
    """One method for one run. Every public method but `serve` answers a request of the runner."""

    def __init__(
        self, channel: Channel, registry: Registry, printed: IO[bytes], watch: Watch, before: Collection[str]
    ) -> None:
        """`before`: the modules that were there before the plugin's code was loaded."""
        self._channel, self._registry, self._printed, self._watch = channel, registry, printed, watch
        self._method: Method
        self._task: Task
        self._number: int | None = None  # of the request that is being answered
        self._turn = threading.RLock()  # a question and its answer are one: the plugin may have threads
        watch.belong_here()
        self._open_before = nameless_files()
        self._before, self._reading = before, Reading(watch, before)
        self._imported_before: list[str] = []  # by the process from whose checkpoint it goes on
        self._proven = False  # that the state comes back from a checkpoint
        self._log = os.devnull

    def serve(self) -> None:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # a plugin may have children of its own
        os.setsid()  # with which they end
        self._own = own = os.getpid()
        self._channel.send(process=own)
        while True:
            request = self._channel.receive()
            self._number = request.pop("number")
            try:
                answer = getattr(self, request.pop("do"))(**request)
            except Lost:
                raise
            except BaseException as error:  # a plugin may raise anything, SystemExit included
                answer = _fault(error)
            if os.getpid() != own:  # a child that the plugin has forked and forgotten
                os._exit(0)
            with self._turn:
                number, self._number = self._number, None
                try:
                    self._channel.send(number=number, **answer)
                except Lost:
                    raise
                except Exception as error:
                    self._channel.send(number=number, **_fault(error))
            _flush()

    def describe(self, name: str) -> dict[str, Any]:
        cls = self._registry.method(name)
        fields, presets = [f.name for f in dataclasses.fields(cls)], list(cls.presets)
        return {"fields": fields, "presets": presets, "roles": list(cls().recipes)}

    def configure(self, name: str, settings: Mapping[str, Any], preset: str | None) -> dict[str, Any]:
        cls = self._registry.method(name)
        global_rngs.seed()
        built = hyperparameters.build(cls, settings, preset)
        method = self._method = built.method
        origin = self._registry.origin("methods", name)
        if self._watch.came_along:
            origin = origin.with_more(self._watch.came_along)
        return {
            "name": method.name,
            "version": method.version,
            "tag": built.tag,
            "changes": built.changes,
            "values": as_plain(built.values),
            "carried": built.carried,
            **self.digests(),
            "recipes": {role: self._described(recipe) for role, recipe in method.recipes.items()},
            "preset_recipes": {key: dict(roles) for key, roles in method.preset_recipes.items()},
            "status": str(method.status),
            "setting": str(method.setting),
            "tunes_prompts": bool(method.tunes_prompts),
            "finish_only": sorted(method.finish_only),
            "second_backbone": method.second_backbone(),
            "origin": dataclasses.asdict(origin),
        }

    def digests(self) -> dict[str, Any]:
        return {"digests": dict(self._method.digests())}

    def validate(self) -> dict[str, Any]:
        self._method.validate()
        return {}

    def start(self, log: str, threads: int, rng: Tensor, tunable: bool, **task: Any) -> dict[str, Any]:
        self._begin_log(Path(log))
        torch.set_num_threads(threads)
        device = task["device"]
        here: dict[str, Any] = {
            key: value.to(device) if isinstance(value, Tensor) else value for key, value in task.items()
        }
        generator = torch.Generator(device)
        generator.set_state(rng)
        global_rngs.seed(rng)
        self._task = Task(
            **here,
            encode_texts=TextEncoder(self._encode_texts),
            prompts=RemotePrompts(self._ask) if tunable else None,
            rng=generator,
        )
        with torch.no_grad():
            self._method.start(self._task)
        self._started = Started(self._method)
        return {}

    def step(self, index: int, image: Tensor, views: Mapping[str, Tensor], counted: bool) -> dict[str, Any]:
        device = self._task.device
        features = {role: view.to(device) for role, view in views.items()}
        counter = FlopCounter() if counted else None
        global_rngs.seed_opencv(self._task.rng, index)
        with torch.no_grad(), counter or contextlib.nullcontext():
            pixels = functools.partial(self._pixels, index)
            scores = self._method.step(Observation(index, image.to(device), features, pixels))
        if fault := unusable_scores(scores, len(self._task.class_names)):
            return _complaint(fault)
        flops = 0 if counter is None else counter.total
        return {"scores": scores, "report": reported(self._method), "flops": flops}

    def finish(self, outputs: Tensor) -> dict[str, Any]:
        scores = self._method.finish(outputs)
        if fault := unusable_results(scores, outputs):
            return _complaint(fault)
        return {"scores": scores, "unknown_code": self._unknown_code()}

    def _unknown_code(self) -> list[str]:
        return sorted({*self._imported_before, *loading.unhashed(self._before)})

    def reached(self) -> dict[str, Any]:
        """What the plugin's code reached for in this process so far, its log and the files it declares left out."""
        return self._watch.reached(self._declared())._asdict()

    def _declared(self) -> list[str]:
        return [*(str(getattr(self._method, field)) for field in self._method.digests()), self._log]

    def weigh(self) -> dict[str, Any]:
        return weigh(self._method)._asdict()

    def save(self) -> dict[str, Any]:
        buffer = io.BytesIO()
        kept = {"rng": self._task.rng.get_state(), "global_rngs": global_rngs.state()}
        kept |= {"reached": self._watch.told(), "unknown_code": self._unknown_code()}
        torch.save({"state": self._started.save(self._method), **kept}, buffer)
        self._proven = self._proven or can_be_loaded(buffer)
        return {"state": torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)}

    def load(self, checkpoint: Tensor) -> dict[str, Any]:
        content = torch.load(io.BytesIO(checkpoint.numpy().tobytes()), weights_only=True)
        state.load(self._method, content["state"])
        self._task.rng.set_state(content["rng"])
        global_rngs.restore(content["global_rngs"])
        self._watch.recall(content["reached"])
        self._imported_before = content["unknown_code"]
        return {}

    def fingerprint(self) -> dict[str, Any]:
        return {"seen": fingerprint(self._method, own_modules()) | self._without_name()}

    def _without_name(self) -> dict[str, str]:
        """What the plugin has open and nobody else can: it may keep there what no checkpoint has."""
        more = nameless_files() - self._open_before
        return {"a file or pipe without a name": like_nothing_else()} if more else {}

    def render(self, role: str, pixels: Tensor, image_id: str, seed: int, preprocess: Any) -> dict[str, Any]:
        """Views of a recipe of the plugin's own. The session that renders is never the one that adapts."""
        image, recipe = Image.fromarray(pixels.numpy().astype(np.uint8)), self._method.recipes[role]
        with global_rngs.for_views(recipe.name, image_id, seed):
            views = recipe.render(image, image_id, seed, Preprocess(**preprocess))
        if more := self._reading.more(self._declared()):
            return _complaint(reading.refusal(more))
        return {"views": views}

    def _described(self, recipe: Any) -> dict[str, Any]:
        origin, text = origin_of(recipe), told(recipe)
        if not origin.built_in:
            text = reading.kept_with(text, self._reading.contents(self._declared()), self._method.digests())
        seen = {"name": recipe.name, "count": recipe.count, "seeded": recipe.seeded, "text": text}
        return seen | {"origin": dataclasses.asdict(origin)}

    def _begin_log(self, log: Path) -> None:
        self._log = str(log)
        new = not log.exists()
        file = log.open("ab", buffering=0)
        if new:
            self._printed.seek(0)
            file.write(self._printed.read())  # what the plugin printed while it was loaded
        _print_to(file)
        faulthandler.enable(file)

    # ------------------------------------------------------------------------------------------- what it may ask for

    def _ask(self, what: str, **question: Any) -> dict[str, Any]:
        if os.getpid() != self._own:
            raise UsageError(f"{what} can't be had in a child process, whose answer another would get")
        with self._turn:
            if self._number is None:
                raise UsageError(f"{what} can be had only while the method is asked for something")
            self._channel.send(number=self._number, ask=what, **question)
            answer = self._channel.receive()
        if "refused" in answer:
            raise UsageError(answer["refused"])
        return answer

    def _encode_texts(self, texts: Sequence[str]) -> Tensor:
        features: Tensor = self._ask("texts", texts=list(texts))["features"]
        return features.to(self._task.device)

    def _pixels(self, index: int, role: str) -> Tensor:
        pixels: Tensor = self._ask("pixels", index=index, role=role)["pixels"]
        return pixels.to(self._task.device)


if __name__ == "__main__":
    main()
