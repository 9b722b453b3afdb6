"""`--protocol-preset NAME`: the protocol of another suite or paper, where the user says nothing else.

The values are in data/protocol_presets.toml. Those that hold for all runs of a grid are filled in first, those that
depend on method and dataset (views, hyper-parameters) cell by cell. What a user's own option changed is said by
`deviations`, from the run itself: a record can't claim a protocol that it does not follow.
"""

from __future__ import annotations

import functools
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from importlib import resources
from typing import TYPE_CHECKING, Any, Literal

from tta_bench.errors import UnknownName
from tta_bench.runs.spec import RunOptions, RunSpec

if TYPE_CHECKING:
    from tta_bench import metrics
    from tta_bench.interfaces import ViewRecipe
    from tta_bench.runs.hyperparameters import Configured, Offer

FILE = "protocol_presets.toml"
SHARED = ("prompt", "precision", "empty_classes", "ties")  # options that all runs of a grid have in common
ROLE = "views"  # the role of views that presets speak of
OTHERS = "*"  # in place of a method


@dataclass(frozen=True, kw_only=True)
class ProtocolPreset:
    """What a suite fixes. The file says what the fields mean."""

    name: str
    prompt: str
    order: str
    seed: int
    precision: str
    score: Literal["native", "logits"]
    metric: Literal["top1", "mAP"]
    hyper_parameters: Literal["one", "per-dataset"]
    views: Mapping[str, str]
    imagenet_views: str | None = None
    tabled: Collection[str] = ()
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    empty_classes: metrics.Empty = "skip"
    ties: metrics.Ties = "threshold"

    @classmethod
    def named(cls, name: str) -> ProtocolPreset:
        known = _read()
        if name not in known:
            raise UnknownName("protocol preset", name, known, f"There are: {', '.join(known)}.")
        return cls(name=name, **known[name])

    # ------------------------------------------------------------------------------------------------- filling in

    def fill(self, options: RunOptions, given: Collection[str]) -> RunOptions:
        """The options of a grid with this protocol's, except those that the user gave."""
        own = {name: getattr(self, name) for name in SHARED if name not in given}
        return replace(options, **own, protocol_preset=self.name)

    def adjust(self, spec: RunSpec, dataset: str, offer: Offer) -> RunSpec:
        """One run with the views and hyper-parameters that this protocol has for its method and dataset."""
        method, key = spec.method_name, _key(dataset)
        recipes: dict[str, Any] = {ROLE: self.views_of(method, key)} if ROLE in offer.roles else {}
        settings: dict[str, Any] = {"score": self.score} if "score" in offer.fields else {}
        if not isinstance(spec.method, str):
            settings = {}  # an instance has its settings already
        elif spec.preset is None:
            settings |= self.settings.get(method, {})
        preset = spec.preset or (key if self._tabled(method) and key in offer.presets else None)
        return replace(
            spec, recipes=recipes | dict(spec.recipes), settings=settings | dict(spec.settings), preset=preset
        )

    def views_of(self, method: str, dataset: str) -> str:
        if self.imagenet_views is not None and dataset.startswith("imagenet"):
            return self.imagenet_views
        return self.views.get(method, self.views[OTHERS])

    def _tabled(self, method: str) -> bool:
        return self.hyper_parameters == "per-dataset" and method in self.tabled

    # ------------------------------------------------------------------------------------------ what was left of it

    def tagged(self, configured: Configured) -> Configured:
        """Published by the suite, not tuned by the user, if nothing differs but what the suite sets."""
        published = {"score": self.score, **self.settings.get(configured.method.name, {})}
        ours = configured.changes and all(configured.values[k] == published.get(k) for k in configured.changes)
        return configured._replace(tag="paper") if ours else configured

    def deviations(
        self,
        spec: RunSpec,
        dataset: str,
        recipes: Mapping[str, ViewRecipe],
        values: Mapping[str, Any],
        single_label: bool,
    ) -> list[str]:
        """A sentence for each thing in which a run is not as the protocol has it; `values` are its hyper-parameters."""
        names = ("order", "seed", *(name for name in SHARED if spec.pack is None or name != "precision"))
        wanted = {name: (getattr(self, name), getattr(spec, name)) for name in names}
        if ROLE in recipes:
            wanted[ROLE] = (self.views_of(spec.method_name, _key(dataset)), recipes[ROLE].name)
        if "score" in values:
            wanted["score"] = (self.score, values["score"])
        for name, value in self.settings.get(spec.method_name, {}).items():
            wanted[name] = (value, values.get(name))
        found = [f"{name} is {here} and not {there}" for name, (there, here) in wanted.items() if here != there]
        if self._tabled(spec.method_name) and spec.preset != _key(dataset):
            here = f"of {spec.preset}" if spec.preset else "its defaults: it has none published for this dataset"
            found.append(f"its hyper-parameters are {here}")
        if self.metric == "top1" and not single_label:
            found.append("top-1, which it reports, is for images with exactly one label")
        return [f"not the protocol {self.name} in full: {what}" for what in found]


def names() -> list[str]:
    return list(_read())


@functools.cache
def _read() -> dict[str, Any]:
    return tomllib.loads(resources.files("tta_bench").joinpath("data", FILE).read_text(encoding="utf-8"))


def _key(dataset: str) -> str:
    """What a dataset is called in published tables: "folder:/data/imagenet-a" is imagenet-a."""
    name, _, variant = dataset.partition(":")
    return (variant if name == "folder" else name).rpartition("/")[2].lower()
