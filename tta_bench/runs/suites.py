"""Suites: which runs make up a table or figure of a paper. data/suites/PAPER/NAME.yaml, one file each; no torch.

caption, notes        what the paper shows, and what to know about it
backbones, prompts, datasets
rows                  METHOD[FIELD=VALUE,…] as in data/published/PAPER.csv -> what the paper calls the row
average               the mean over all datasets is a column too; `average_only`: and the only one
settings              METHOD -> hyper-parameters that the paper's run of it has besides
unlike                METHOD -> FIELD -> what of the paper's run is not here, unless FIELD is set by the user
without               PROMPT -> methods that have no row with it
speed                 columns that are measured on this machine: `rate`, `memory`, and the paper's `hardware`
along                 diagnostics to show along the stream
figures               kinds of `ttabench plot` that --figures draws of the rows' runs, or of methods in mid-stream:
replayed              METHOD, … for `cache` and `regions`, after `step` images, with `shots` entries per class
not_run               why nothing of it can be run
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import resources
from itertools import product
from typing import Any, NamedTuple

import yaml

from tta_bench.errors import BadData, UnknownName, UsageError
from tta_bench.records import RunRecord
from tta_bench.runs.spec import RunOptions, RunSpec

ALL = "all"
NEEDS_FILE = ("coop", "maple", "cupl")  # prompts that are somebody's file


@dataclass(frozen=True)
class Speed:
    """Which published columns are a speed and a memory, and what the paper measured them on."""

    rate: str
    memory: str
    hardware: str


@dataclass(frozen=True)
class Suite:
    """One table or figure."""

    paper: str
    name: str
    caption: str
    backbones: Sequence[str] = ()
    prompts: Sequence[str] = ()
    datasets: Sequence[str] = ()
    rows: Mapping[str, str] = field(default_factory=dict)
    average: bool = False
    average_only: bool = False
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    unlike: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    without: Mapping[str, Sequence[str]] = field(default_factory=dict)
    speed: Speed | None = None
    along: Sequence[str] = ()
    figures: Sequence[str] = ()
    replayed: Sequence[str] = ()
    step: int | None = None
    shots: int | None = None
    notes: Sequence[str] = ()
    not_run: str = ""

    def __str__(self) -> str:
        return f"{self.paper}:{self.name}"


@dataclass(frozen=True)
class Choice:
    """What of a suite is wanted, and what stands in place of what the paper had."""

    methods: Sequence[str] = ()
    datasets: Sequence[str] = ()  # of the suite, or others in place of all of them
    backbones: Sequence[str] = ()
    prompt_files: Mapping[str, str] = field(default_factory=dict)  # coop -> coop:FILE
    settings: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # METHOD -> FIELD -> value
    seeds: Sequence[int] = (0,)
    shared: RunOptions = field(default_factory=RunOptions)


class Obstacle(NamedTuple):
    """Something that a run needs and that is not here."""

    kind: str  # weights, data, prompt …
    how: str  # what it is and how to get it
    exit_code: int = 0  # of a run that failed: what it alone would have ended with


@dataclass(frozen=True)
class SuiteCell:
    """One number of a suite: the runs that it is the mean of, or why there can be none."""

    suite: Suite
    row: str  # as in the published file: METHOD[FIELD=VALUE,…]
    backbone: str
    prompt: str  # coop, where the run's is coop:FILE
    dataset: str
    runs: Sequence[RunSpec] = ()  # one per seed
    unlike: Mapping[str, str] = field(default_factory=dict)  # in which fields it is not the paper's run, and how
    obstacles: Sequence[Obstacle] = ()  # that are known before anything is looked for

    @property
    def label(self) -> str:
        return self.suite.rows[self.row]

    @property
    def published_row(self) -> str:
        return f"{self.backbone} {self.prompt} {self.row}"


@dataclass(frozen=True)
class Attempt:
    """What became of one cell of a suite."""

    cell: SuiteCell
    records: Sequence[RunRecord] = ()  # one per seed that was run
    obstacles: Sequence[Obstacle] = ()  # why there is none, or not one for every seed

    @property
    def seeds(self) -> str:
        """As in "2 of 3 seeds"; empty for all or none."""
        some = 0 < len(self.records) < len(self.cell.runs)
        return f"{len(self.records)} of {len(self.cell.runs)} seeds" if some else ""


# ---------------------------------------------------------------------------------------------------------- loading


def load(target: str) -> list[Suite]:
    """Those of PAPER:NAME, or all of a paper for PAPER:all, tables first."""
    folder = resources.files("tta_bench") / "data" / "suites"
    papers = sorted(entry.name for entry in folder.iterdir() if entry.is_dir())
    paper, _, name = target.partition(":")
    if paper not in papers:
        raise UnknownName("paper", paper, papers, f"There are: {', '.join(papers)}. Write PAPER:TABLE.")
    names = sorted(file.name.removesuffix(".yaml") for file in (folder / paper).iterdir() if file.name[-5:] == ".yaml")
    names.sort(key=lambda n: not n.startswith("table"))
    if name != ALL and name not in names:
        raise UnknownName(f"table of {paper}", name, [*names, ALL], f"There are: {', '.join(names)}, {ALL}.")
    wanted = names if name == ALL else [name]
    return [parsed((folder / paper / f"{n}.yaml").read_text(encoding="utf-8"), paper, n) for n in wanted]


def parsed(text: str, paper: str, name: str) -> Suite:
    content = yaml.safe_load(text)
    known = {f.name for f in fields(Suite)} - {"paper", "name"}
    if not isinstance(content, dict) or not content.keys() <= known or "caption" not in content:
        raise BadData(f"{paper}/{name}.yaml: a suite has a caption and besides only {', '.join(sorted(known))}")
    speed = Speed(**content.pop("speed")) if "speed" in content else None
    return Suite(paper, name, speed=speed, **content)


# ------------------------------------------------------------------------------------------------------------ cells


def cells(suite: Suite, choice: Choice) -> list[SuiteCell]:
    """The suite's numbers in the paper's order, as far as they are wanted."""
    datasets, backbones = choice.datasets or suite.datasets, choice.backbones or suite.backbones
    found = []
    for backbone in backbones:
        for prompt in suite.prompts:
            for dataset in datasets:
                for row in suite.rows:
                    method, _ = method_of(row)
                    if (choice.methods and method not in choice.methods) or method in suite.without.get(prompt, ()):
                        continue
                    found.append(_cell(SuiteCell(suite, row, backbone, prompt, dataset), choice))
    return found


def _cell(cell: SuiteCell, choice: Choice) -> SuiteCell:
    suite, prompt = cell.suite, cell.prompt
    method, settings = method_of(cell.row)
    own = choice.settings.get(method, {})
    unlike = {field: how for field, how in suite.unlike.get(method, {}).items() if field not in own}
    if prompt in NEEDS_FILE and prompt not in choice.prompt_files and choice.shared.pack is None:
        how = f"{prompt} is somebody's file: --prompt {prompt}:FILE (docs/prompts.md has the formats)"
        return replace(cell, obstacles=[Obstacle("prompt", how)])
    shared = replace(
        choice.shared,
        prompt=choice.prompt_files.get(prompt, prompt),
        settings={**suite.settings.get(method, {}), **settings, **own},
    )
    dataset, backbone = ("pack", "pack") if shared.pack else (cell.dataset, cell.backbone)
    return replace(cell, runs=[shared.cell(method, dataset, backbone, seed) for seed in choice.seeds], unlike=unlike)


def replays(suite: Suite, choice: Choice) -> list[list[RunSpec]]:
    """What is to be looked at in mid-stream: the methods side by side, for each backbone, prompt and dataset."""
    methods = [method for method in suite.replayed if not choice.methods or method in choice.methods]
    asked = {method: choice.settings.get(method, {}) for method in methods}
    places = product(choice.backbones or suite.backbones, suite.prompts, choice.datasets or suite.datasets)
    return [
        [
            replace(choice.shared, prompt=prompt, settings=settings).cell(
                method, *(("pack", "pack") if choice.shared.pack else (dataset, backbone)), choice.seeds[0]
            )
            for method, settings in asked.items()
        ]
        for backbone, prompt, dataset in places
        if methods
    ]


def method_of(row: str) -> tuple[str, dict[str, str]]:
    """ "purf[rp=false,ep=true]" -> purf and its settings.

    >>> method_of("purf[rp=false,ep=true]")
    ('purf', {'rp': 'false', 'ep': 'true'})
    """
    method, bracket, rest = row.partition("[")
    if not bracket:
        return method, {}
    pairs = [pair.partition("=") for pair in rest.removesuffix("]").split(",")]
    if not rest.endswith("]") or not all(equals for _, equals, _ in pairs):
        raise UsageError(f"row {row}: write METHOD[FIELD=VALUE,…]")
    return method, {key: value for key, _, value in pairs}
