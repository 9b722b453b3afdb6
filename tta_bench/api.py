"""The Python door: `tta_bench.run`, `grid` and `load_results`. The command line is a thin layer over it."""

from __future__ import annotations

import reprlib
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tta_bench import records
from tta_bench.errors import UsageError
from tta_bench.features.pack_addresses import locate
from tta_bench.records import Results, RunRecord
from tta_bench.runs import grid as grids
from tta_bench.runs.bench import Bench
from tta_bench.runs.executors.local import LocalExecutor
from tta_bench.runs.executors.work import Workplace
from tta_bench.runs.presets import ProtocolPreset
from tta_bench.runs.spec import RunOptions
from tta_bench.system.text import visible

if TYPE_CHECKING:
    from tta_bench.interfaces import Backbone, Dataset, Method, ViewRecipe

PROMPT = "photo"  # what every suite has, too: one that is asked for can't be told from the default


def run(
    method: str | Method,
    dataset: str | Dataset = "scenes",
    backbone: str | Backbone = "tiny",
    *,
    prompt: str = PROMPT,
    seed: int | None = None,
    order: str | None = None,
    limit: int | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str | None = None,
    protocol_preset: str | None = None,
    recipes: Mapping[str, str | ViewRecipe] | None = None,
    pack: Path | str | None = None,
    bench: Bench | None = None,
    force: bool = False,
) -> RunRecord:
    """Adapts one method over one stream of test images. What was done before is not repeated.

    Args:
        method: a method's name, or an instance: a class of your own needs no file and no plugin.
        dataset: NAME or NAME:VARIANT, or an instance.
        backbone: a name, or an instance.
        prompt: photo, ensemble, cupl:FILE.json, coop:FILE or maple:FILE.
        seed: of the views and of the stream's order; 0 by default.
        order: shuffled (the default), shuffled:K, sequential, rarest, bursts:B or domains (docs/protocol.md).
        limit: only the first so many images of the ordered stream.
        settings: hyper-parameters that differ from the defaults.
        preset: published hyper-parameters by name.
        protocol_preset: the protocol of another suite, where you say nothing else: see docs/protocol.md.
        recipes: other views for a role, e.g. {"views": "plain63"}.
        pack: a feature pack in place of dataset and backbone: a path, or an address as docs/packs.md has them.
        bench: what several calls are to share (folders, device, loaded backbones); a new one by default.
        force: run again even if the record is there.

    Example:
        >>> import tta_bench
        >>> record = tta_bench.run("clip", "scenes:clean", limit=20)
        >>> record.n, record.dataset_size
        (20, 600)
        >>> record.scores().shape
        (20, 24)
    """
    bench = _checked(bench, settings, recipes)
    options = RunOptions(
        prompt=prompt,
        limit=limit,
        settings=settings or {},
        preset=preset,
        recipes=recipes or {},
        pack=_pack(pack, dataset, backbone, bench),
    )
    options, first_seed, first_order = _as_protocol(options, protocol_preset)
    options = replace(options, order=first_order if order is None else order)
    spec = options.cell(method, dataset, backbone, first_seed if seed is None else seed)
    return bench.run(grids.as_preset(bench, spec), force).record


def grid(
    methods: str | Method | Iterable[str | Method],
    datasets: str | Dataset | Iterable[str | Dataset] = ("scenes",),
    backbones: str | Backbone | Iterable[str | Backbone] = ("tiny",),
    *,
    prompt: str = PROMPT,
    seeds: int | Iterable[int] | None = None,
    order: str | Iterable[str] | None = None,
    limit: int | None = None,
    settings: Mapping[str, Any] | None = None,
    preset: str | None = None,
    protocol_preset: str | None = None,
    recipes: Mapping[str, str | ViewRecipe] | None = None,
    pack: Path | str | None = None,
    bench: Bench | None = None,
    force: bool = False,
    jobs: int = 1,
) -> Results:
    """Runs every combination; what was done before is not repeated, and one that fails does not stop the others.

    Arguments are those of `run`; there may be several orders, too. Of the settings each method takes those that it
    has; "tda.shots" means TDA alone. "all" in place of methods takes every one that can run here. The results'
    `failures` name the cells that have no record, and why. With `jobs` so many run at a time, each in a process of its
    own; instances can't go there.

    Example:
        >>> import tta_bench
        >>> results = tta_bench.grid(["clip", "regions"], "scenes:clean", seeds=range(2), limit=20)
        >>> len(results)
        4
        >>> list(results.to_frame().columns[:4])
        ['method', 'dataset', 'backbone', 'prompt']
    """
    if isinstance(seeds, str):
        raise UsageError(f"seeds {seeds!r}: give whole numbers, for example range(5)")
    named, images, encoders = (
        _several(methods, "method"),
        _several(datasets, "dataset"),
        _several(backbones, "backbone"),
    )
    bench = _checked(bench, settings, recipes)
    shared = RunOptions(
        prompt=prompt,
        limit=limit,
        settings=settings or {},
        preset=preset,
        recipes=recipes or {},
        pack=_pack(pack, images[0], encoders[0], bench),
    )
    shared, first_seed, first_order = _as_protocol(shared, protocol_preset)
    replicates = _several(first_seed if seeds is None else seeds, "seed")
    streams = _several(first_order if order is None else order, "order")
    cells = grids.plan(bench, named, images, encoders, replicates, shared, streams)
    executor = LocalExecutor(Workplace.of(bench), jobs, bench.reporter.line) if jobs > 1 else None
    done = list(grids.execute(bench, cells, force, named == [grids.ALL], executor))
    found = {cell.record.run_id: cell.record for cell in done if cell.record is not None}  # two cells may be one run
    return Results(
        list(found.values()), failures=[f"{cell.spec}: {cell.failure}" for cell in done if cell.record is None]
    )


def load_results(folder: Path | str | None = None) -> Results:
    """The records below a folder, by default those of this user.

    Example:
        >>> import tta_bench
        >>> _ = tta_bench.run("clip", "scenes:clean", limit=20)
        >>> tta_bench.load_results().filter(method="clip")[0].backbone
        'tiny'
    """
    from tta_bench.system import paths

    if folder == "":
        raise UsageError("an empty path is not the working folder: write load_results('.')")
    root = paths.runs() if folder is None else paths.absolute(folder)
    if not root.is_dir():
        raise UsageError(f"{root}: no such folder")
    found, problems = records.load_all(root)
    if (root / "run.json").is_file():
        raise UsageError(f"{root} is one run: name the folder that it is in, load_results({str(root.parent)!r})")
    if not found and not problems and (root / "runs").is_dir():
        raise UsageError(f"{root}: no runs in it, but it has a folder of them: load_results({str(root / 'runs')!r})")
    return Results(found, problems=problems)


def _as_protocol(options: RunOptions, name: str | None) -> tuple[RunOptions, int, str]:
    """The options as a suite has them, except the caller's own, and the suite's seed and order."""
    if name is None:
        return options, 0, options.order
    suite = ProtocolPreset.named(name)
    return suite.fill(options, [] if options.prompt == PROMPT else ["prompt"]), suite.seed, suite.order


def _checked(bench: object, settings: object, recipes: object) -> Bench:
    """The bench, by default a new one. Arguments of another kind are refused before anything is made of them."""
    wanted = {
        "settings": (settings, "hyper-parameters' names to values", {"shots": 5}),
        "recipes": (recipes, "roles to view recipes", {"views": "plain63"}),
    }
    for what, (given, words, example) in wanted.items():
        if given is not None and not (isinstance(given, Mapping) and all(isinstance(key, str) for key in given)):
            raise UsageError(f"{what} are a mapping from {words}, such as {example}, not {_short(given)}")
    if bench is not None and not isinstance(bench, Bench):
        raise UsageError(f"bench {_short(bench)}: a tta_bench.Bench() is wanted")
    return Bench() if bench is None else bench


def _short(given: object) -> str:
    return visible(reprlib.repr(given))


def _several(given: Any, what: str) -> list[Any]:
    """One thing or many, each once; a text is one name."""
    alone = isinstance(given, str | type) or hasattr(given, "name") or not isinstance(given, Iterable)
    dimensions = getattr(given, "ndim", None)  # a column of pandas has a name, too, and an array may be a number
    found = [given] if dimensions == 0 or (alone and dimensions is None) else list(given)
    if not found:
        raise UsageError(f"no {what} to run")
    return [thing for i, thing in enumerate(found) if not any(_same(thing, other) for other in found[:i])]


def _same(one: Any, other: Any) -> bool:
    """Instances may be equal in their fields and differ in what they hold besides."""
    return one is other or (isinstance(one, str | int) and isinstance(other, str | int) and one == other)


def _pack(pack: Path | str | None, dataset: object, backbone: object, bench: Bench) -> Path | None:
    """A pack stands for dataset and backbone: one of these beside it would be ignored in silence."""
    if pack is None:
        return None
    if (dataset, backbone) != ("scenes", "tiny"):
        raise UsageError(f"{pack} stands for a dataset and a backbone: don't name others beside it")
    return locate(pack, bench.home, bench.reporter)
