"""A suite: a YAML file that says which cells there are. Any two keys with several values make a product.

methods: [clip, tda, purf]        # or all
datasets: [voc2007, coco2014]     # default scenes; NAME or NAME:VARIANT
backbones: [vit-b16, vit-b32]     # default tiny
prompts: [photo, ensemble]        # default photo
seeds: 0-4                        # or [0, 1, 2]; default 0
orders: [shuffled, rarest]        # default shuffled
settings: {tda.shots: 3}          # as --set; a list of such mappings is one more dimension
sweep: {purf.delta: [100, 500]}   # every combination of the values
packs: [voc.safetensors]          # in place of datasets and backbones

limit, preset, recipes, precision, weights, random_weights, features, empty_classes and ties are those of
`ttabench run`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping, Sized
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from tta_bench.errors import UnknownName, UsageError
from tta_bench.features.options import FeatureType
from tta_bench.features.pack_addresses import HUB, WEB
from tta_bench.runs import grid
from tta_bench.runs.spec import RunOptions, RunSpec
from tta_bench.system.files import expanded
from tta_bench.system.names import same_setting

if TYPE_CHECKING:
    from tta_bench.runs.bench import Bench

CELLS_AT_MOST = 100_000
SEEDS_AT_MOST = 1000
CHOICES = {
    "precision": ("fp32", "fp16", "bf16"),
    "empty_classes": ("skip", "zero"),
    "ties": ("threshold", "dataset"),
    "features": ("float16", "float32"),
}


@dataclass(frozen=True)
class Suite:
    """What the file says, its values as a grid wants them."""

    methods: list[str]
    datasets: list[str] = field(default_factory=lambda: ["scenes"])
    backbones: list[str] = field(default_factory=lambda: ["tiny"])
    packs: list[Path | None] = field(default_factory=lambda: [None])
    prompts: list[str] = field(default_factory=lambda: ["photo"])
    seeds: list[int] = field(default_factory=lambda: [0])
    orders: list[str] = field(default_factory=lambda: ["shuffled"])
    settings: list[dict[str, Any]] = field(default_factory=lambda: [{}])
    sweep: dict[str, list[Any]] = field(default_factory=dict)
    features: FeatureType = "float16"
    options: RunOptions = field(default_factory=RunOptions)

    @property
    def lenient(self) -> bool:
        """Whether methods that do not run on something are left out of it: nobody named them."""
        return self.methods == [grid.ALL]

    def cells(self, bench: Bench) -> list[RunSpec]:
        """Every combination, each once."""
        dimensions: list[Sized] = [self.methods, self.datasets, self.backbones, self.packs, self.prompts, self.seeds]
        count = math.prod(len(d) for d in (*dimensions, self.orders, self.settings, *self.sweep.values()))
        if count > CELLS_AT_MOST:
            raise UsageError(f"the suite has {count:,} cells; {CELLS_AT_MOST:,} are the most")
        return grid.distinct(
            cell
            for pack in self.packs
            for prompt in self.prompts
            for fixed in self.settings
            for swept in grid.combinations(self.sweep)
            for cell in grid.plan(
                bench,
                self.methods,
                self.datasets,
                self.backbones,
                self.seeds,
                replace(self.options, pack=pack, prompt=prompt, settings={**fixed, **swept}),
                self.orders,
            )
        )


def read(file: Path) -> Suite:
    """The suite in a file. Whatever is not as it should be is refused with the file and the key."""
    try:
        content = yaml.load(file.read_text(encoding="utf-8"), Loader=_Strict)
    except FileNotFoundError:
        raise UsageError(f"{file}: no such file") from None
    except (OSError, ValueError, RecursionError, yaml.YAMLError) as error:
        raise UsageError(f"{file}: can't be read: {' '.join(str(error).split())}") from error
    if not isinstance(content, dict) or not content.get("methods"):
        raise UsageError(f"{file}: a suite is a mapping that names at least methods, for example methods: [clip, tda]")
    values: dict[str, Any] = {}
    for key, value in content.items():
        if key not in KEYS:
            raise UnknownName(f"key in {file}", str(key), KEYS, f"It takes {', '.join(KEYS)}.")
        try:
            values[key] = KEYS[key](value)
        except _Unlike as wanted:
            raise UsageError(f"{file}: {key}: {wanted} wanted, not {str(value)[:60]!r}") from None
        choices = CHOICES.get(key, (value,))
        if value not in choices:
            raise UnknownName(f"value of {key} in {file}", str(value), choices, f"Choose one of {', '.join(choices)}.")
    if "packs" in values:
        if named := {"datasets", "backbones"} & values.keys():
            raise UsageError(f"{file}: packs stand for datasets and backbones: leave {' and '.join(sorted(named))} out")
        for pack in [name for name in values["packs"] if name.lower().startswith((HUB, *WEB))]:
            raise UsageError(f"{file}: packs: files are wanted, not {pack}: download it, and name the file here")
        values["packs"] = [file.parent / pack for pack in values["packs"]]
    for swept in values.get("sweep", {}):
        if any(same_setting(swept, key) for settings in values.get("settings", []) for key in settings):
            raise UsageError(f"{file}: {swept} is in settings and in sweep: leave one of the two out")
    own = {key: values.pop(key) for key in [f.name for f in fields(RunOptions)] if key in values and key != "settings"}
    return Suite(**values, options=RunOptions(**own))


MERGED = "tag:yaml.org,2002:merge"


class _Strict(yaml.SafeLoader):
    """Plain data only, no key twice, of which YAML would drop the first in silence, and numbers as people write them:
    to YAML 1.1, 024 is 20 and 1:30 is 90."""

    def construct_yaml_int(self, node: yaml.ScalarNode) -> int:
        text = str(self.construct_scalar(node))
        if str(int(text) if text.lstrip("-+").isdecimal() else None) != text.removeprefix("+"):
            raise yaml.YAMLError(f"{text} is no plain whole number (line {node.start_mark.line + 1})")
        return int(text)

    def construct_yaml_float(self, node: yaml.ScalarNode) -> float:
        text = str(self.construct_scalar(node))
        if {"_", ":"} & set(text):
            raise yaml.YAMLError(f"{text} is no plain number (line {node.start_mark.line + 1})")
        return super().construct_yaml_float(node)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        seen: list[Any] = []  # a key may be anything that YAML can write
        for written, _ in node.value:
            if written.tag == MERGED:  # `<<: *other`, whose keys may be there again: the mapping's own count
                continue
            key = self.construct_object(written, deep=True)
            if key in seen:
                raise yaml.YAMLError(f"{key} is given twice (line {written.start_mark.line + 1})")
            seen.append(key)
        return super().construct_mapping(node, deep)


_Strict.add_constructor("tag:yaml.org,2002:int", _Strict.construct_yaml_int)
_Strict.add_constructor("tag:yaml.org,2002:float", _Strict.construct_yaml_float)


# -------------------------------------------------------------------------------------------------- what a key may hold


class _Unlike(Exception):
    """Says what is wanted."""


def _texts(value: object) -> list[str]:
    several = [value] if isinstance(value, str) else value
    if not isinstance(several, list) or not several or not all(isinstance(v, str) and v.strip() for v in several):
        raise _Unlike("a name or a list of names is")
    return list(dict.fromkeys(several))


def _seeds(value: object) -> list[int]:
    if isinstance(value, str):
        first, dash, last = value.partition("-")
        if dash and first.strip().isdecimal() and last.strip().isdecimal():
            low, high = int(first), int(last)
            if not low <= high < low + SEEDS_AT_MOST:
                raise _Unlike(f"a range that goes upwards and has at most {SEEDS_AT_MOST} seeds is")
            return list(range(low, high + 1))
    several = value if isinstance(value, list) else [value]
    if not several or not all(type(seed) is int and seed >= 0 for seed in several):
        raise _Unlike("a number, a list of numbers or a range such as 0-4 is")
    return list(dict.fromkeys(several))


def _settings(value: object) -> list[dict[str, Any]]:
    several: list[Any] = value if isinstance(value, list) else [value]
    if not several or not all(isinstance(one, Mapping) and all(isinstance(k, str) for k in one) for one in several):
        raise _Unlike("a mapping from hyper-parameters to values, or a list of such mappings, is")
    odd = [value for one in several for value in one.values() if not _plain(value)]
    if odd:
        raise _Unlike(f"plain numbers, texts and lists are, not a {type(odd[0]).__name__}: as a hyper-parameter, that")
    return [dict(one) for one in several]


def _plain(value: object) -> bool:
    """YAML also has dates, sets and mappings, which no method asks for."""
    if isinstance(value, list):
        return all(map(_plain, value))
    return value is None or isinstance(value, str | int | float | bool)


def _sweep(value: object) -> dict[str, list[Any]]:
    pairs = list(value.items()) if isinstance(value, Mapping) else []
    if not pairs or not all(isinstance(k, str) and isinstance(v, list) and v and _plain(v) for k, v in pairs):
        raise _Unlike("a mapping from hyper-parameters to lists of values is")
    return dict(pairs)


def _recipes(value: object) -> dict[str, str]:
    if not isinstance(value, Mapping) or not all(isinstance(k, str) and isinstance(v, str) for k, v in value.items()):
        raise _Unlike("a mapping from view roles to recipes is")
    return dict(value)


def _limit(value: object) -> int:
    if type(value) is not int or value < 1:
        raise _Unlike("a number of images is")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Unlike("a text is")
    return value


def _path(value: object) -> Path:
    return expanded(_text(value))


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise _Unlike("true or false is")
    return value


KEYS: Mapping[str, Callable[[object], Any]] = {
    "methods": _texts,
    "datasets": _texts,
    "backbones": _texts,
    "packs": _texts,
    "prompts": _texts,
    "seeds": _seeds,
    "orders": _texts,
    "settings": _settings,
    "sweep": _sweep,
    "limit": _limit,
    "preset": _text,
    "recipes": _recipes,
    "precision": _text,
    "weights": _path,
    "random_weights": _truth,
    "empty_classes": _text,
    "ties": _text,
    "features": _text,
}
