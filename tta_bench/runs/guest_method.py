"""A method, and views, of a plugin as the runner sees them: what they do happens in another process (see guest.py)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tta_bench.errors import PluginError, Raised, UsageError
from tta_bench.interfaces import Method, Observation, Preprocess, State, Task, ViewRecipe
from tta_bench.runs.cost import FlopCounter, Weight
from tta_bench.runs.replay import adapting_threads
from tta_bench.runs.session import Desk, Session
from tta_bench.runs.watched import Reached
from tta_bench.system.code import Origin
from tta_bench.views import parse_recipe

if TYPE_CHECKING:
    from PIL import Image

PATIENCE = 10  # times a step's time limit for all else that a method does
LOG = "log.txt"  # in the run's folder: what the plugin printed


def patience(step_timeout: float | None) -> float | None:
    """Seconds for anything but a step."""
    return None if step_timeout is None else PATIENCE * step_timeout


class GuestMethod(Method):
    """A method as the runner sees it; everything that it does, it does in its own process."""

    def __init__(
        self,
        session: Session,
        reopen: Callable[[], Session],
        about: Mapping[str, Any],
        recipes: Mapping[str, ViewRecipe],
        step_timeout: float | None,
    ) -> None:
        self.name = about["name"]  # type: ignore[misc]  # for other methods these belong to the class
        self.version = about["version"]  # type: ignore[misc]
        self.recipes = recipes  # type: ignore[misc]
        self.preset_recipes = about["preset_recipes"]  # type: ignore[misc]
        self.tunes_prompts = about["tunes_prompts"]  # type: ignore[misc]
        self.finish_only = frozenset(about["finish_only"])  # type: ignore[misc]
        self.status, self.setting = about["status"], about["setting"]  # type: ignore[misc]
        self.origin = Origin(**about["origin"])
        self._about, self._session, self._reopen, self._timeout = about, session, reopen, step_timeout
        self._desk = Desk()
        self._patience = patience(step_timeout)
        self.unknown_code: list[str] = []  # modules that it imported and that its identity does not know

    def second_backbone(self) -> str | None:
        second: str | None = self._about["second_backbone"]
        return second

    def validate(self) -> None:
        self._session.call("validate", timeout=self._patience)

    def digests(self) -> Mapping[str, str]:
        digests: Mapping[str, str] = self._about["digests"]
        return digests

    def digests_now(self) -> Mapping[str, str]:
        """Of the files as they are by now."""
        digests: Mapping[str, str] = self._session.call("digests", timeout=self._patience)["digests"]
        return digests

    def log_to(self, folder: Path) -> None:
        self._session.log = folder / LOG

    def start(self, task: Task) -> None:
        self._desk = Desk(task)
        if not self._session.alive:
            log, self._session = self._session.log, self._reopen()
            self._session.log = log
        self._session.call(
            "start",
            self._desk,
            self._patience,
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
        self._desk.present = x
        counter = FlopCounter.active
        answer = self._session.call(
            "step",
            self._desk,
            self._timeout,
            index=x.index,
            image=x.image,
            views=dict(x.views),
            counted=counter is not None,
        )
        if counter is not None:
            counter.total += answer["flops"]
        self._desk.present = None
        self._report = answer["report"]
        scores: Tensor = answer["scores"]
        return scores

    def take_report(self) -> dict[str, float]:
        report: dict[str, float] = self.__dict__.pop("_report", {})
        return report

    def finish(self, outputs: Tensor) -> Tensor:
        answer = self._session.call("finish", self._desk, self._patience, outputs=outputs)
        self.unknown_code = answer["unknown_code"]
        scores: Tensor = answer["scores"]
        return scores

    def reached(self) -> Reached:
        """What its code reached for besides what it was handed."""
        return Reached(**self._session.call("reached", timeout=self._patience))

    def state_dict(self) -> State:
        return {"guest": self._session.call("save", timeout=self._patience)["state"]}

    def weigh_remotely(self) -> Weight:
        answer = self._session.call("weigh", timeout=self._patience)
        return Weight(answer["digest"], answer["bytes"])

    def fingerprint_remotely(self) -> dict[str, str]:
        seen: dict[str, str] = self._session.call("fingerprint", timeout=self._patience)["seen"]
        return seen

    def leave_process(self) -> None:
        """The next start has another one, which knows nothing of what was tried in this."""
        self._session.stop()

    def load_state_dict(self, state: State) -> None:
        self._session.call("load", timeout=self._patience, checkpoint=state["guest"])


# ------------------------------------------------------------------------------------------------------------- recipes


def ours(recipe: Mapping[str, Any]) -> ViewRecipe | None:
    """The recipe if it is one of ours, which its name and fields say; a guest's own is drawn by the guest."""
    if not recipe["origin"]["built_in"]:
        return None
    try:
        found = parse_recipe(recipe["name"])
    except UsageError:
        return None
    return found if repr(found) == recipe["text"] else None


@dataclass(repr=False, eq=False)
class GuestRecipe:
    """Views that the plugin draws itself, in yet another process: the one that adapts sees no image before its turn."""

    role: str
    name: str
    count: int
    seeded: bool
    text: str  # the plugin's own `repr`
    origin: Any
    open_session: Callable[[], Session]
    patience: float | None  # seconds
    _sessions: dict[int, Session] = field(default_factory=dict)  # by process: a worker has its own

    def __post_init__(self) -> None:
        self.origin = Origin(**self.origin)

    def __repr__(self) -> str:
        return self.text  # so that the store's key is the same as for the recipe itself

    def anew(self) -> GuestRecipe:
        """The same in a process that has drawn nothing."""
        return replace(self, origin=asdict(self.origin), _sessions={})

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        if os.getpid() not in self._sessions:
            self._sessions[os.getpid()] = self.open_session()
        pixels = torch.from_numpy(np.array(image.convert("RGB")))
        try:
            views: Tensor = self._sessions[os.getpid()].call(
                "render",
                timeout=self.patience,
                role=self.role,
                pixels=pixels,
                image_id=image_id,
                seed=seed,
                preprocess=asdict(preprocess),
            )["views"]
        except Raised as error:
            raise PluginError(f"recipe {self.name}, image {image_id}: {error}") from None
        return views
