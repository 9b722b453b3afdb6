"""Methods that are not built in, each plugin in processes of its own: this is the runner's side of it (see guest.py).

The labels, the metrics, the other methods and every image but the present one are here; the plugin's code is there.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from tta_bench import errors
from tta_bench.errors import PluginError, Raised, TTABenchError, UsageError
from tta_bench.interfaces import Method, Observation, Preprocess, State, Task, ViewRecipe
from tta_bench.plugins import Kind, Plugin
from tta_bench.runs.channel import Channel, Lost
from tta_bench.runs.hyperparameters import Configured, Offer
from tta_bench.runs.replay import adapting_threads
from tta_bench.system.code import Origin
from tta_bench.views import parse_recipe

if TYPE_CHECKING:
    from PIL import Image

LOG = "log.txt"  # in the run's folder: what the plugin printed
STARTING = 300.0  # seconds for Python and torch to come up on a busy machine


class Root:
    """The process that has torch and nothing else, from which all guests are forked."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tta_bench.runs.guest", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
            )
        self.control = ours

    @property
    def usable(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None


_root: list[Root] = []  # at most one


def _fork(control: socket.socket) -> Channel:
    """Asks the process at the other end of `control` for a child."""
    ours, theirs = socket.socketpair()
    with theirs:
        try:
            socket.send_fds(control, [b"+"], [theirs.fileno()])
        except OSError as error:
            raise Lost(str(error)) from error
    return Channel(ours)


class Fence:
    """The guests of one grid: a host for each plugin, started when it is first asked for.

    Args:
        step_timeout: seconds after which a step counts as hanging; None waits for ever.
    """

    def __init__(self, step_timeout: float | None = None) -> None:
        self.step_timeout = step_timeout
        self._hosts: dict[str, Channel] = {}

    def offers(self, file: Path) -> list[tuple[Kind, str]]:
        """What a loose file offers, found without running it here."""
        key = str(file)
        self._hosts[key], offers = _start_host(files=[key], only=[], load=[])
        return [(kind, name) for kind, name in offers]

    def offer(self, plugin: Plugin) -> Offer:
        """What the method of a plugin can be asked for."""
        session = self._session(plugin)
        described = session.call("describe", name=plugin.name)
        return Offer(frozenset(described["fields"]), frozenset(described["presets"]), frozenset(described["roles"]))

    def configure(self, plugin: Plugin, settings: Mapping[str, Any], preset: str | None) -> Configured:
        """The method, in a session of its own, with its hyper-parameters."""

        def configured() -> tuple[Session, dict[str, Any]]:
            session = self._session(plugin)
            try:
                return session, session.call("configure", name=plugin.name, settings=dict(settings), preset=preset)
            except TypeError as error:
                raise UsageError(
                    f"{plugin.name}: settings of a plugin's method must be plain data ({error}); "
                    "in Python, pass an instance of the method instead"
                ) from error

        session, about = configured()
        recipes: dict[str, ViewRecipe] = {}
        for role, recipe in about["recipes"].items():
            recipes[role] = _own(recipe) or GuestRecipe(
                role=role,
                origin=Origin(recipe.pop("label"), recipe.pop("source")),
                text=recipe.pop("repr"),
                open_session=lambda: configured()[0],
                **recipe,
            )
        method = GuestMethod(session, about, recipes, self.step_timeout)
        return Configured(method, about["tag"], about["changes"], about["values"])

    def _session(self, plugin: Plugin) -> Session:
        loose = not plugin.distribution
        key = plugin.origin if loose else plugin.module
        if key not in self._hosts:
            files = [plugin.origin] if loose else []
            self._hosts[key], _ = _start_host(files, [] if loose else [plugin.distribution], [plugin.name])
        try:
            return Session(_fork(self._hosts[key].connection))
        except Lost as error:
            del self._hosts[key]
            raise PluginError(f"plugin {plugin.entry_point} ({plugin.origin}): its process is gone: {error}") from error


def _start_host(files: list[str], only: list[str], load: list[str]) -> tuple[Channel, list[Any]]:
    if not _root or not _root[0].usable:
        _root[:] = [Root()]
    try:
        channel = _fork(_root[0].control)
        channel.send(
            environment=dict(os.environ), path=sys.path, folder=str(Path.cwd()), files=files, only=only, load=load
        )
        answer = channel.receive(time.monotonic() + STARTING)
    except (Lost, TimeoutError) as error:
        what = ", ".join([*files, *load])
        raise PluginError(f"plugin {what}: its process ended or hung while the code was loaded") from error
    _check(answer)
    return channel, answer.get("offers", [])


def _check(answer: Mapping[str, Any]) -> None:
    """Raises what the guest raised."""
    if "error" not in answer:
        return
    raised: Exception = getattr(errors, str(answer["error"]), Raised)(str(answer["text"]))
    if "traceback" in answer:
        raised.add_note(f"In the plugin's process:\n{answer['traceback']}")  # for --debug
    raise raised


class Session:
    """One method in a process of its own. It ends with the last reference to it."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._process: int = channel.receive(time.monotonic() + STARTING)["process"]
        self.log: Path | None = None
        self._ending = weakref.finalize(self, _end, channel, self._process, os.getpid())

    def call(self, do: str, desk: Desk | None = None, timeout: float | None = None, **request: Any) -> dict[str, Any]:
        """Has the guest do it, and answers meanwhile, from the desk, what it asks for.

        Raises:
            Raised: the plugin raised something.
            PluginError: its process is gone, or took longer than `timeout` seconds.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        try:
            self._channel.send(do=do, **request)
            while True:
                answer = self._channel.receive(deadline)
                if "ask" not in answer:
                    break
                self._channel.send(**(desk or Desk()).answer(**answer))
        except Lost:
            self._ending.detach()  # its number may be another process's soon
            where = f"; {self.log} has what it left" if self.log is not None and self.log.exists() else ""
            raise Raised(f"its process has died{where}") from None
        except TimeoutError:
            os.kill(self._process, signal.SIGKILL)
            raise Raised(f"took longer than the {timeout:g} s of --step-timeout, so it was stopped") from None
        _check(answer)
        return answer


def _end(channel: Channel, process: int, owner: int) -> None:
    """A session that waits sees the closed channel; one that is busy would go on for nobody."""
    channel.connection.close()
    if os.getpid() == owner:
        try:
            os.kill(process, signal.SIGKILL)
        except OSError:
            return


@dataclass
class Desk:
    """What a guest may ask for, and who answers: the run's own task, and the present image."""

    task: Task | None = None
    present: Observation | None = None
    _graphs: list[tuple[Tensor, Tensor]] = field(default_factory=list)  # of prompts: context and features

    def answer(self, ask: str, **question: Any) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = getattr(self, f"_{ask}")(**question)
        except TTABenchError as error:
            return {"refused": str(error)}
        except Exception as error:
            return {"refused": f"{type(error).__name__}: {error}"}
        return answer

    def _texts(self, texts: list[str]) -> dict[str, Any]:
        if self.task is None or self.task.encode_texts is None:
            raise UsageError("texts can be encoded between start and finish only")
        return {"features": self.task.encode_texts(texts)}

    def _pixels(self, role: str) -> dict[str, Any]:
        if self.present is None:
            raise UsageError("pixels can be had only while their image is the present one")
        return {"pixels": self.present.pixels(role)}

    def _words(self, words: str) -> dict[str, Any]:
        assert self.task is not None
        assert self.task.prompts is not None
        return {"context": self.task.prompts.init_context(words)}

    def _context(self, context: Tensor, names: list[str], tuned: bool) -> dict[str, Any]:
        assert self.task is not None
        assert self.task.prompts is not None
        leaf = context.to(self.task.device).requires_grad_(tuned)
        with torch.set_grad_enabled(tuned):
            features = self.task.prompts.encode_context(leaf, names)
        if tuned:
            self._graphs.append((leaf, features))
        return {"features": features, "ticket": len(self._graphs) - 1}

    def _gradient(self, ticket: int, gradient: Tensor) -> dict[str, Any]:
        leaf, features = self._graphs[ticket]
        (found,) = torch.autograd.grad(features, leaf, gradient.to(features.device), retain_graph=True)
        return {"gradient": found}


class GuestMethod(Method):
    """A method as the runner sees it; everything that it does, it does in its own process."""

    def __init__(
        self,
        session: Session,
        about: Mapping[str, Any],
        recipes: Mapping[str, ViewRecipe],
        step_timeout: float | None,
    ) -> None:
        self.name = about["name"]  # type: ignore[misc]  # for other methods these belong to the class
        self.version = about["version"]  # type: ignore[misc]
        self.recipes = recipes  # type: ignore[misc]
        self.preset_recipes = about["preset_recipes"]  # type: ignore[misc]
        self.tunes_prompts = about["tunes_prompts"]  # type: ignore[misc]
        self.origin = Origin(about["label"], about["source"])
        self._about, self._session, self._timeout = about, session, step_timeout
        self._desk = Desk()

    def second_backbone(self) -> str | None:
        second: str | None = self._about["second_backbone"]
        return second

    def validate(self) -> None:
        self._session.call("validate")

    def digests(self) -> Mapping[str, str]:
        digests: Mapping[str, str] = self._about["digests"]
        return digests

    def log_to(self, folder: Path) -> None:
        self._session.log = folder / LOG

    def start(self, task: Task) -> None:
        self._desk = Desk(task)
        self._session.call(
            "start",
            self._desk,
            log=os.devnull if self._session.log is None else str(self._session.log.absolute()),
            threads=adapting_threads(self),
            rng=task.rng.get_state(),
            tunable=task.prompts is not None,
            class_names=list(task.class_names),
            text=task.text,
            text_bank=task.text_bank,
            scale=task.scale,
            bias=task.bias,
            device=task.device,
            reward_text=task.reward_text,
        )

    def step(self, x: Observation) -> Tensor:
        self._desk = Desk(self._desk.task, x)
        answer = self._session.call(
            "step", self._desk, self._timeout, index=x.index, image=x.image, views=dict(x.views)
        )
        self._report = answer["report"]
        scores: Tensor = answer["scores"]
        return scores

    def take_report(self) -> dict[str, float]:
        report: dict[str, float] = self.__dict__.pop("_report", {})
        return report

    def finish(self, outputs: Tensor) -> Tensor:
        scores: Tensor = self._session.call("finish", Desk(self._desk.task), outputs=outputs)["scores"]
        return scores

    def state_dict(self) -> State:
        return {"guest": self._session.call("save")["state"]}

    def load_state_dict(self, state: State) -> None:
        self._session.call("load", state=state["guest"])


# ------------------------------------------------------------------------------------------------------------- recipes


def _own(recipe: Mapping[str, Any]) -> ViewRecipe | None:
    """The recipe if it is one of ours, which its name and fields say; a guest's own is drawn by the guest."""
    if recipe["source"]:
        return None
    try:
        ours = parse_recipe(recipe["name"])
    except UsageError:
        return None
    return ours if repr(ours) == recipe["repr"] else None


class _Rendering(NamedTuple):
    process: int  # whose it is: a worker has its own
    session: Session


@dataclass(repr=False, eq=False)
class GuestRecipe:
    """Views that the plugin draws itself, in yet another process: the one that adapts sees no image before its turn."""

    role: str
    name: str
    count: int
    seeded: bool
    text: str
    origin: Origin
    open_session: Any
    _rendering: _Rendering | None = None

    def __repr__(self) -> str:
        return self.text  # as the plugin's own, so that the store's key is the same

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        if self._rendering is None or self._rendering.process != os.getpid():
            self._rendering = _Rendering(os.getpid(), self.open_session())
        pixels = torch.from_numpy(np.array(image.convert("RGB")))
        try:
            views: Tensor = self._rendering.session.call(
                "render", role=self.role, pixels=pixels, image_id=image_id, seed=seed, preprocess=asdict(preprocess)
            )["views"]
        except Raised as error:
            raise PluginError(f"recipe {self.name}, image {image_id}: {error}") from None
        return views
