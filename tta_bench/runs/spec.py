"""RunSpec: one run as it is asked for, by the command line or from Python. An option exists once, here."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any

from tta_bench.errors import UsageError
from tta_bench.system import names
from tta_bench.system.record_form import LARGEST

if TYPE_CHECKING:
    from tta_bench import metrics
    from tta_bench.interfaces import Backbone, Dataset, Method, ViewRecipe


def _whole(value: object, what: str, least: int) -> int:
    """Whole numbers of any library; one seed must not have several names."""
    try:
        number = operator.index(value)  # type: ignore[arg-type]  # that is what is asked here
    except TypeError:
        number = least - 1
    if isinstance(value, bool) or not least <= number <= LARGEST:
        raise UsageError(f"{what} {value!r}: a whole number is wanted, from {least} to {LARGEST}")
    return number


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """What the runs of a grid have in common."""

    prompt: str = "photo"
    order: str = "shuffled"
    limit: int | None = None  # the first so many images of the ordered stream
    settings: Mapping[str, Any] = field(default_factory=dict)  # hyper-parameter -> value, or its text
    preset: str | None = None
    recipes: Mapping[str, str | ViewRecipe] = field(default_factory=dict)  # role -> other views
    precision: str = "fp32"  # of the encoders
    weights: Path | None = None  # for the backbone, from this file
    random_weights: bool = False  # the backbone's architecture, untrained
    pack: Path | None = None  # features from a file, in place of dataset and backbone
    empty_classes: metrics.Empty = "skip"
    ties: metrics.Ties = "threshold"  # what equal scores are to average precision
    protocol_preset: str | None = None  # whose protocol this is meant to be: `runs.presets`

    def cell(self, method: str | Method, dataset: str | Dataset, backbone: str | Backbone, seed: int) -> RunSpec:
        return RunSpec(method, dataset, backbone, seed, **{f.name: getattr(self, f.name) for f in fields(RunOptions)})


@dataclass(frozen=True)
class RunSpec(RunOptions):
    """One run. Method, dataset and backbone are names of plugins, or objects that were made elsewhere."""

    method: str | Method
    dataset: str | Dataset = "scenes"  # a name may be NAME or NAME:VARIANT
    backbone: str | Backbone = "tiny"
    seed: int = 0

    def __post_init__(self) -> None:
        if isinstance(self.dataset, str):
            object.__setattr__(self, "dataset", names.dataset_name(self.dataset))
        object.__setattr__(self, "seed", _whole(self.seed, "seed", 0))
        if self.limit is not None:
            object.__setattr__(self, "limit", _whole(self.limit, "limit", 1))
        object.__setattr__(self, "order", names.order_name(self.order, self.seed))
        for role, thing in (("method", self.method), ("dataset", self.dataset), ("backbone", self.backbone)):
            odd = isinstance(thing, type | PurePath)  # a path has a name, too
            if odd or not isinstance(getattr(thing, "name", thing), str):
                hint = f"{thing.__name__}()" if isinstance(thing, type) else f"not {thing!r}"
                raise UsageError(f"a {role} is a name or an instance: {hint}")
            if not isinstance(thing, str) and not thing.name:
                raise UsageError(f"a {role} without a name can't stand in tables: give it a `name`")
        if not isinstance(self.prompt, str) or not isinstance(self.settings, Mapping):
            raise UsageError("prompt is a text, and settings are a mapping from hyper-parameters to values")
        if self.pack is not None and (self.weights or self.random_weights or self.precision != "fp32"):
            raise UsageError(f"{self.pack} holds features: weights and precision are those that it was made with")
        if self.ties not in ("threshold", "dataset"):
            raise UsageError(f"ties {self.ties!r}: threshold or dataset is wanted")
        if not isinstance(self.method, str) and (self.settings or self.preset):
            raise UsageError(f"{self.method.name}: an instance has its settings already")
        if not isinstance(self.backbone, str) and (self.weights or self.random_weights):
            raise UsageError(f"{self.backbone.name}: an instance has its weights already")

    @property
    def method_name(self) -> str:
        return self.method if isinstance(self.method, str) else self.method.name

    def __str__(self) -> str:
        """As in "tda on scenes with tiny, seed 0, order rarest"."""
        dataset = self.dataset if isinstance(self.dataset, str) else self.dataset.name
        backbone = self.backbone if isinstance(self.backbone, str) else self.backbone.name
        where = f"{self.pack}" if self.pack else f"{dataset} with {backbone}"
        order = "" if self.order == names.SHUFFLED else f", order {self.order}"
        return f"{self.method_name} on {where}, seed {self.seed}{order}"
