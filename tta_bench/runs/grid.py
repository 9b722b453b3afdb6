"""Many runs: which cells a grid has, and running them so that one that fails does not stop the others."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

from tta_bench import records
from tta_bench.errors import PluginError, TTABenchError, UnknownName, UsageError
from tta_bench.records import RunRecord
from tta_bench.runs.bench import Bench
from tta_bench.runs.executors.schedule import drive
from tta_bench.runs.executors.work import Executor, Task, is_refusal, refuse_objects, words
from tta_bench.runs.needs import Needs
from tta_bench.runs.presets import ProtocolPreset
from tta_bench.runs.spec import RunOptions, RunSpec
from tta_bench.system.code import blamed
from tta_bench.system.live import replaced

if TYPE_CHECKING:
    from tta_bench.interfaces import Backbone, Dataset, Method, ViewRecipe
    from tta_bench.runs.hyperparameters import Offer

ALL = "all"  # in place of methods: every one that can run here


@dataclass(frozen=True)
class Cell:
    """What became of one cell: its record, or why there is none."""

    spec: RunSpec
    record: RunRecord | None = None
    already: bool = False  # the record was there before
    failure: str = ""
    exit_code: int = 0  # what the failure alone would have ended with
    refused: bool = False  # the method does not run on this; nothing is broken


def plan(
    bench: Bench,
    methods: Sequence[str | Method],
    datasets: Sequence[str | Dataset],
    backbones: Sequence[str | Backbone],
    seeds: Sequence[int],
    shared: RunOptions,
    orders: Sequence[str] = (),
) -> list[RunSpec]:
    """The grid's cells, with each of the orders if there are any. Of the shared settings, preset and views each method
    takes those that it has; what concerns none of them is a mistake."""
    named = list(bench.registry.names("methods")) if list(methods) == [ALL] else list(methods)
    if shared.pack is not None:
        datasets, backbones = ["pack"], ["pack"]  # the pack knows its own names
    else:
        for dataset in datasets:
            if isinstance(dataset, str):
                bench.registry.find("datasets", dataset.partition(":")[0])
        for backbone in backbones:
            if isinstance(backbone, str):
                bench.registry.find("backbones", backbone.partition(":")[0])
    for method in named:
        if isinstance(method, str):
            bench.registry.find("methods", method)
    own = [shared] * len(named)
    chosen = shared.settings or shared.recipes or shared.preset
    if chosen and (len(named) > 1 or any("." in key for key in shared.settings)):
        own = _shares(bench, named, shared)
    cells = itertools.product(backbones, datasets, seeds, orders or [shared.order], zip(named, own, strict=True))
    specs = [
        replace(options, order=order).cell(method, dataset, backbone, seed)
        for backbone, dataset, seed, order, (method, options) in cells
    ]
    return [as_preset(bench, spec) for spec in specs]


def as_preset(bench: Bench, spec: RunSpec) -> RunSpec:
    """The cell with what its protocol preset, if it has one, has for its method and dataset. A plugin that can't be
    loaded fails later, with its own words."""
    if spec.protocol_preset is None:
        return spec
    preset = ProtocolPreset.named(spec.protocol_preset)
    try:
        return preset.adjust(spec, bench.dataset_name(spec), bench.offer(spec.method))
    except PluginError:
        return spec


def combinations(sweep: Mapping[str, Sequence[Any]]) -> list[dict[str, Any]]:
    """Every combination of the values that hyper-parameters are to take; one without any if there are none."""
    return [dict(zip(sweep, values, strict=True)) for values in itertools.product(*sweep.values())]


def distinct(cells: Iterable[RunSpec]) -> list[RunSpec]:
    """Each cell once: a method that lacks a swept hyper-parameter has one cell for all of its values."""
    return list({repr(spec): spec for spec in cells}.values())


def execute(
    bench: Bench,
    cells: Sequence[RunSpec],
    force: bool = False,
    lenient: bool = False,
    executor: Executor | None = None,
) -> Iterator[Cell]:
    """Runs the cells, here one after the other or wherever the executor does. Whatever is misspelt fails at once,
    before anything is loaded; what can't be had or crashes fails its own cells only. `lenient`: a method that refuses
    a cell is left out of it in silence."""
    new = cells if force else [spec for spec in cells if bench.find(spec) is None]
    if new:
        _check(bench, new, lenient)
    if executor is not None:
        yield from _elsewhere(bench, cells, force, lenient, executor)
        return
    for spec in cells:
        try:
            record, already = bench.run(spec, force)
        except TTABenchError as failure:
            if lenient and is_refusal(failure):
                bench.reporter.line(f"ttabench: {spec.method_name} left out: {failure}")
                continue
            if len(cells) == 1:
                raise
            yield Cell(spec, failure=words(failure, spec), exit_code=failure.exit_code, refused=is_refusal(failure))
        else:
            yield Cell(spec, record, already)


def _elsewhere(
    bench: Bench, cells: Sequence[RunSpec], force: bool, lenient: bool, executor: Executor
) -> Iterator[Cell]:
    """What is known to be done is told here; only the rest is sent."""
    tasks = [Task(number, spec, force) for number, spec in enumerate(cells) if force or bench.find(spec) is None]
    for task in tasks:
        refuse_objects(task.spec)
    if tasks and (places := list(replaced())):
        raise UsageError(f"{places[0]} is not as our files have it, and other processes would not know: use jobs=1")
    sent = {task.number for task in tasks}
    for spec in (spec for number, spec in enumerate(cells) if number not in sent):
        yield Cell(spec, *bench.run(spec))
    needs = Needs(bench)
    for task, answer in drive(executor, tasks, lambda task: needs.of(task.spec), bench.reporter.line):
        if answer.folder is not None:
            yield Cell(task.spec, records.load(answer.folder), answer.already)
        elif lenient and answer.refused:
            bench.reporter.line(f"ttabench: {task.spec.method_name} left out: {answer.failure}")
        else:
            yield Cell(task.spec, failure=answer.failure, exit_code=answer.exit_code, refused=answer.refused)


def _check(bench: Bench, cells: Sequence[RunSpec], lenient: bool) -> None:
    """Refuses what is misspelt in any of the cells. A plugin that can't be loaded fails its own cells later."""
    for spec in {(_key(s.method), repr(s.settings), s.order, s.prompt): s for s in cells}.values():
        try:
            bench.check(spec)
        except PluginError:
            if not lenient and len(cells) == 1:
                raise


def _key(method: str | Method) -> str | int:
    return method if isinstance(method, str) else id(method)


def _shares(bench: Bench, methods: Sequence[str | Method], shared: RunOptions) -> list[RunOptions]:
    """What each method takes of the shared settings, preset and recipes."""
    from tta_bench.runs import hyperparameters

    offers: dict[str | int, Offer] = {}
    for method in methods:
        if not isinstance(method, str):
            _refuse_for_instance(method, shared)
        with suppress(PluginError), blamed(str(method)):  # said when its turn comes
            offers[_key(method)] = bench.offer(method)
    _refuse_strangers({name: offer for name, offer in offers.items() if isinstance(name, str)}, shared.settings)
    known = sorted({role for offer in offers.values() for role in offer.roles})
    for role in shared.recipes:
        if role not in known:
            raise UnknownName("view role", role, known, f"The methods to run have: {', '.join(known) or 'none'}.")
    there = {preset for offer in offers.values() for preset in offer.presets}
    if shared.preset is not None and shared.preset not in there:
        raise UnknownName("preset", shared.preset, there, "None of the methods to run has it.")

    def share(method: str | Method) -> RunOptions:
        offer = offers.get(_key(method))
        if offer is None:
            return replace(shared, settings={}, preset=None, recipes={})
        recipes: Mapping[str, str | ViewRecipe] = {role: v for role, v in shared.recipes.items() if role in offer.roles}
        settings = hyperparameters.settings_for(str(method), offer.fields, shared.settings)
        preset = shared.preset if shared.preset in offer.presets else None
        return replace(shared, settings=settings if isinstance(method, str) else {}, preset=preset, recipes=recipes)

    return [share(method) for method in methods]


def _refuse_for_instance(method: Method, shared: RunOptions) -> None:
    """As a single run does, what it would have to drop; what others alone have is theirs."""
    own = {f.name for f in fields(method)}
    asked = [key.rpartition(".")[2] for key in shared.settings if key.rpartition(".")[0] in ("", method.name)]
    found = [name for name in asked if name in own]
    found += [f"the preset {shared.preset}"] if shared.preset in method.presets else []
    if found:
        raise UsageError(f"{method.name}: an instance has its settings already, and it has {', '.join(found)}, too")


def _refuse_strangers(offers: Mapping[str, Offer], settings: Mapping[str, Any]) -> None:
    from tta_bench.runs import hyperparameters

    own = {name: hyperparameters.settings_for(name, offer.fields, settings) for name, offer in offers.items()}
    used = {key for name, chosen in own.items() for field in chosen for key in (field, f"{name}.{field}")}
    for key in settings:
        method, dot, _ = key.rpartition(".")
        if dot and method not in offers:
            raise UnknownName("method in --set", method, offers, "It is not among those to run.")
        if key not in used:
            raise UsageError(f"--set {key}: none of the methods to run has such a hyper-parameter")
