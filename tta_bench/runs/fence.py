"""Methods that are not built in, each plugin in processes of its own: this is the runner's side of it (see guest.py).

The labels, the metrics, the other methods and every image but the present one are here; the plugin's code is there.
"""

from __future__ import annotations

import math
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tta_bench.errors import PluginError, UsageError
from tta_bench.plugins import Kind, Plugin
from tta_bench.runs import known, reading
from tta_bench.runs.channel import Channel, Lost
from tta_bench.runs.guest_method import GuestMethod, GuestRecipe, ours, patience
from tta_bench.runs.hyperparameters import Configured, Offer
from tta_bench.runs.session import FORKING, STARTING, Session, check
from tta_bench.system.stamps import content_or_gone


class Root:
    """The process that has torch and nothing else, from which all guests are forked."""

    def __init__(self) -> None:
        self.owner = os.getpid()
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "tta_bench.runs.guest", str(theirs.fileno())],  # -P: not from this folder
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # what a plugin does to its group of processes stays there
                stdin=subprocess.DEVNULL,
                env=os.environ
                | {
                    "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                    "PYTHONHASHSEED": "0",  # a set of names has one order in all guests, or one run several numbers
                    "PYTHONOPTIMIZE": str(sys.flags.optimize),  # it is part of the identity
                },
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
        if step_timeout is not None and not math.isfinite(step_timeout):
            raise UsageError(
                f"--step-timeout {step_timeout}: a number of seconds is wanted; without it nothing is limited"
            )
        self.step_timeout = step_timeout
        self.patience = patience(step_timeout)
        self._hosts: dict[str, Channel] = {}
        self._began: dict[str, Began] = {}
        self._former: list[Channel] = []  # hosts of code that was edited since: runs may be under way there
        self._alone: set[str] = set()  # plugins that no session can be forked for

    def offers(self, file: Path) -> list[tuple[Kind, str]]:
        """What a loose file offers, found without running it here."""
        return [(kind, name) for kind, name in self._start_host(str(file), [str(file)], [], [])]

    def offer(self, plugin: Plugin) -> Offer:
        """What the method of a plugin can be asked for."""
        self._leave_edited(plugin)
        session = self._session(plugin)
        described = session.call("describe", timeout=self.patience, name=plugin.name)
        return Offer(frozenset(described["fields"]), frozenset(described["presets"]), frozenset(described["roles"]))

    def configure(self, plugin: Plugin, settings: Mapping[str, Any], preset: str | None) -> Configured:
        """The method, in a session of its own, with its hyper-parameters."""

        def configured() -> tuple[Session, dict[str, Any]]:
            session = self._session(plugin)
            asked: dict[str, Any] = {"name": plugin.name, "settings": dict(settings), "preset": preset}
            try:
                return session, session.call("configure", timeout=self.patience, **asked)
            except TypeError as error:
                raise UsageError(
                    f"{plugin.name}: settings of a plugin's method must be plain data ({error}); "
                    "in Python, pass an instance of the method instead"
                ) from error

        def again() -> Session:
            another, now = configured()
            if (now["origin"], now["recipes"]) != (about["origin"], about["recipes"]):
                raise PluginError(f"plugin {plugin.origin} was edited while its run was under way: run it again")
            return another

        self._leave_edited(plugin)
        session, about = configured()
        recipes = {
            role: ours(recipe) or GuestRecipe(role=role, open_session=again, patience=self.patience, **recipe)
            for role, recipe in about["recipes"].items()
        }
        method = GuestMethod(session, again, about, recipes, self.step_timeout)
        return Configured(method, about["tag"], about["changes"], about["values"], carried=about["carried"])

    def _leave_edited(self, plugin: Plugin) -> None:
        """A host whose files or surroundings are others by now makes no method any more."""
        key = _key(plugin)
        if key in self._hosts and not self._began[key].still_so():
            self._former.append(self._hosts.pop(key))

    def _session(self, plugin: Plugin) -> Session:
        key, loose = _key(plugin), not plugin.distribution
        files, only = ([plugin.origin], []) if loose else ([], [plugin.distribution])
        for _ in range(2):  # a host that is gone is started again, once
            if key not in self._hosts and key not in self._alone:
                self._start_host(key, files, only, [plugin.name])
            try:
                if key in self._alone:
                    return Session(_host(files, only, [plugin.name], alone=True)[0], STARTING)
                return Session(_fork(self._hosts[key].connection), FORKING)
            except (Lost, TimeoutError):
                self._hosts.pop(key, None)
        raise PluginError(
            f"plugin {plugin.entry_point} ({plugin.origin}): its process ends or hangs before a method is made"
        )

    def _start_host(self, key: str, files: list[str], only: list[str], load: list[str]) -> list[Any]:
        surroundings = _surroundings()
        channel, answer = _host(files, only, load, alone=False)
        began = Began(surroundings, answer["contents"], answer["read"])
        if answer["forks"]:
            self._hosts[key], self._began[key] = channel, began
        else:
            self._alone.add(key)
        offers: list[Any] = answer["offers"]
        return offers


@dataclass(frozen=True)
class Began:
    """What a host has begun with, so that its variables may hold it."""

    surroundings: Mapping[str, Any]
    code: Mapping[str, str]  # file -> digest
    read: Mapping[str, str]  # files besides code, as `reading.present` has them

    def still_so(self) -> bool:
        same = all(content_or_gone(Path(file)) == seen for file, seen in self.code.items())
        return same and self.surroundings == _surroundings() and self.read == reading.present(self.read)


def _surroundings() -> dict[str, Any]:
    return {"environment": dict(os.environ), "path": list(sys.path), "folder": str(Path.cwd())}


def _key(plugin: Plugin) -> str:
    return plugin.module if plugin.distribution else plugin.origin


def _host(files: list[str], only: list[str], load: list[str], alone: bool) -> tuple[Channel, dict[str, Any]]:
    """A process that has loaded a plugin, and what it says about it."""
    what = ", ".join([*files, *load])
    if not _root or not _root[0].usable:
        _root[:] = [Root()]
    try:
        channel = _fork(_root[0].control)
        channel.send(
            **_surroundings(),
            files=files,
            only=only,
            load=load,
            alone=alone,
        )
        answer = channel.receive(time.monotonic() + STARTING)
    except (Lost, TimeoutError) as error:
        raise PluginError(f"plugin {what}: its process ended or hung while the code was loaded") from error
    check(answer)
    if answer["code"] != known.code_digest():
        raise PluginError(f"plugin {what}: another ttabench is found by its process than by this one")
    return channel, answer
