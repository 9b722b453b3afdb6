"""`ttabench reproduce`: the tables of a paper, run as far as they can be run here, beside the printed numbers."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tta_bench.cli import published as published_command
from tta_bench.cli import suite_figures
from tta_bench.cli.executors import LOCAL, Choice, Failures, Jobs
from tta_bench.cli.explaining import explained
from tta_bench.cli.options import (
    DataPaths,
    DataRoot,
    PluginFiles,
    Results,
    Weights,
    WithoutPlugins,
    choice,
    complain,
    data_paths,
    names,
    pairs,
    registry,
    seeds,
)
from tta_bench.cli.published import OwnFile
from tta_bench.errors import Interrupted, TTABenchError, UnknownName, UsageError
from tta_bench.system.text import counted

if TYPE_CHECKING:
    from tta_bench.report.reproduction import Line
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.reproducing import Reproduction
    from tta_bench.runs.speed import Machine
    from tta_bench.runs.suites import Attempt, Suite, SuiteCell
    from tta_bench.runs.suites import Choice as Asked
    from tta_bench.system.published import PublishedCell

FORMATS = ("console", "md", "csv", "json")
DEEP = "deep"
EXPLAIN_HELP = (
    "For numbers that differ: which other score space, label variant or empty-class rule comes nearest. "
    "`--explain deep` runs other prompts, views, precisions and orders besides."
)


def reproduce(
    target: Annotated[list[str], typer.Argument(help="PAPER:TABLE, for example purf:table6, or purf:all.")],
    dataset: Annotated[
        list[str] | None, typer.Option("--dataset", "-d", help="Only these, or others in place of the paper's.")
    ] = None,
    backbone: Annotated[
        list[str] | None, typer.Option("--backbone", "-b", help="Only these, or others in place of the paper's.")
    ] = None,
    method: Annotated[list[str] | None, typer.Option("--method", "-m", help="Only the rows of these.")] = None,
    pack: Annotated[
        Path | None, typer.Option(help="A feature pack in place of datasets and backbones.", metavar="FILE")
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N images of each stream.", min=1)] = None,
    jobs: Jobs = None,
    seed: Annotated[list[str] | None, typer.Option(help="Numbers, or a range such as 0-4.", metavar="N")] = None,
    prompt: Annotated[
        list[str] | None, typer.Option(help="The file of a learned prompt: coop:FILE, maple:FILE or cupl:FILE.json.")
    ] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="For what only you have.", metavar="METHOD.KEY=VALUE")
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help=EXPLAIN_HELP)] = False,
    figures: Annotated[
        Path | None, typer.Option(help="Draw what the paper draws, as .pdf into this folder.", metavar="DIR")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show every number and its state; run nothing.")] = False,
    format_: Annotated[str, typer.Option("--format", help=", ".join(FORMATS))] = "console",
    published: OwnFile = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    weights: Weights = None,
    data_root: DataRoot = None,
    data: DataPaths = None,
    results: Results = None,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Run a paper's tables and set what comes out beside what is printed."""
    deep = explain and DEEP in target  # the parser has no option that may stand with and without a value
    if deep:
        # Processors that advertise AMX where the system does not allow it kill the process at the first bf16 product.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")  # must stand before torch is imported
    from tta_bench.runs import suites
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.reproducing import Reproduction
    from tta_bench.runs.spec import RunOptions
    from tta_bench.runs.speed import Machine
    from tta_bench.system.progress import Terminal

    choice("--format", format_, FORMATS)
    wanted = [suite for name in names(target, "TARGET") if not (deep and name == DEEP) for suite in suites.load(name)]
    if pack is not None and (dataset or backbone):
        raise UsageError("--pack stands for a dataset and a backbone: leave --dataset and --backbone out")
    replicates = seeds(seed or ["0"])
    if limit is not None and len(replicates) > 1:
        raise UsageError("with --limit every seed means other images, over which there is no mean: give one --seed")
    plugins, own_roots, numbers = registry(plugin, no_plugin), data_paths(data), published_command.read(published)
    bench = Bench(None, data_root, device, results=results, data=own_roots, registry=plugins, progress=Terminal())
    asked = suites.Choice(
        methods=names(method, "--method") if method else (),
        datasets=names(dataset, "--dataset") if dataset else (),
        backbones=names(backbone, "--backbone") if backbone else (),
        prompt_files=_prompt_files(prompt),
        settings=_settings(setting),
        seeds=replicates,
        shared=RunOptions(limit=limit, weights=weights, pack=pack),
    )
    asked = _checked(asked, bench, wanted)
    machine = None if dry_run else Machine(bench.data_root, device, own_roots, tuple(plugin or ()))
    reproduction = Reproduction(bench, Choice.of(LOCAL, jobs, None, 0, None).executor(bench))
    lines: list[Line] = []
    failures, runs = Failures([]), 0
    try:
        for suite in wanted:
            cells = suites.cells(suite, asked)
            attempts = list(reproduction.look(cells) if dry_run else reproduction.run(cells))
            runs += sum(len(cell.runs) for cell in cells)
            _note(failures, attempts)
            own = _lines(suite, attempts, numbers, reproduction, machine)
            lines += own
            if format_ in ("console", "md"):
                _show(suite, own, format_)
                _show_along(suite, attempts)
            if figures is not None and not dry_run:
                suite_figures.draw(suite, asked, attempts, bench, figures)
            if explain and not dry_run:
                for text in explained(bench, own, attempts, deep):
                    _say(text, format_)
    except KeyboardInterrupt:
        raise Interrupted from None
    if format_ in ("csv", "json"):
        _show_facts(lines, format_)
    elif format_ == "console" and len(lines) > 1:
        _sum_up(lines)
    failures.end(counted(runs, "run"))


# --------------------------------------------------------------------------------------------------------- choosing


def _prompt_files(values: list[str] | None) -> dict[str, str]:
    from tta_bench.runs.suites import NEEDS_FILE

    found: dict[str, str] = {}
    for text in names(values, "--prompt") if values else []:
        kind, colon, _ = text.partition(":")
        if kind not in NEEDS_FILE or not colon:
            raise UsageError(f"--prompt {text}: write KIND:FILE with one of {', '.join(NEEDS_FILE)}")
        found[kind] = text
    return found


def _settings(values: list[str] | None) -> dict[str, dict[str, str]]:
    example = "METHOD.KEY=VALUE, for example --set mltta.captions=FILE"
    found: dict[str, dict[str, str]] = {}
    for key, value in pairs(values or [], "--set", example).items():
        method, dot, field = key.rpartition(".")
        if not dot:
            raise UsageError(f"--set {key}={value}: write {example}")
        found.setdefault(method, {})[field] = value
    return found


def _checked(asked: Asked, bench: Bench, wanted: Sequence[Suite]) -> Asked:
    """What is misspelt fails before anything runs; a pack is known by its own names."""
    for name in asked.datasets:
        bench.registry.find("datasets", name.partition(":")[0])
    for name in asked.backbones:
        bench.registry.find("backbones", name.partition(":")[0])
    for method in (*asked.methods, *asked.settings):
        bench.registry.find("methods", method)
    if asked.shared.weights is not None and len(asked.backbones) != 1:
        raise UsageError("--weights FILE is for one backbone: name it with --backbone")
    from tta_bench.runs.suites import method_of

    rows = {method for suite in wanted for method in (*(method_of(row)[0] for row in suite.rows), *suite.replayed)}
    for method in asked.methods:
        if method not in rows:
            raise UnknownName(
                "method in what is to be reproduced", method, rows, f"There are: {', '.join(sorted(rows))}."
            )
    if asked.shared.pack is None:
        return asked
    pack = bench.pack(asked.shared.pack)
    return replace(asked, datasets=[pack.dataset], backbones=[pack.backbone])


# ---------------------------------------------------------------------------------------------------------- showing


def _lines(
    suite: Suite,
    attempts: Sequence[Attempt],
    numbers: Sequence[PublishedCell],
    reproduction: Reproduction,
    machine: Machine | None,
) -> list[Line]:
    """The suite's numbers; without a machine nothing is measured."""
    from tta_bench.report.reproduction import lines

    found = lines(attempts, numbers)
    if suite.speed is None:
        return found
    by_method: dict[tuple[str, str, str], list[SuiteCell]] = {}
    for attempt in attempts:
        cell = attempt.cell
        by_method.setdefault((cell.backbone, cell.prompt, cell.row), []).append(cell)
    for cells in by_method.values():
        found += _speed(cells, numbers, reproduction, machine)
    return found


def _speed(
    cells: Sequence[SuiteCell],
    numbers: Sequence[PublishedCell],
    reproduction: Reproduction,
    machine: Machine | None,
) -> list[Line]:
    """Of one method, on the first dataset that is here."""
    from tta_bench.report.reproduction import MEMORY, RATE, speed_lines
    from tta_bench.runs.speed import measure
    from tta_bench.runs.suites import Obstacle

    lacking = [reproduction.obstacles(cell, load=machine is not None) for cell in cells]
    obstacles, cell = min(zip(lacking, cells, strict=True), key=lambda pair: len(pair[0]))
    if cell.runs and cell.runs[0].pack is not None:
        obstacles = [*obstacles, Obstacle("encoder", "a pack holds features, and the speed is to include the encoder")]
    if obstacles or machine is None:
        return speed_lines(cell, numbers, {}, "", obstacles)
    reproduction.bench.reporter.line(f"measuring the speed of {cell.label}")
    try:
        found = measure(cell.runs[0], machine)
    except TTABenchError as error:
        return speed_lines(cell, numbers, {}, "", [Obstacle("failed", str(error))])
    return speed_lines(cell, numbers, {RATE: found.images_per_s, MEMORY: found.memory_gb}, found.hardware)


def _show(suite: Suite, lines: Sequence[Line], format_: str) -> None:
    from rich.console import Console

    from tta_bench.report.reproduction_text import print_lines, to_markdown

    if format_ == "md":
        print(to_markdown(suite, lines))
    else:
        print_lines(suite, lines, Console(highlight=False))


def _say(text: str, format_: str) -> None:
    """A line of an explanation; csv and json have stdout for themselves."""
    from rich.console import Console

    from tta_bench.report.reproduction_text import list_item, print_wrapped

    if format_ == "console":
        print_wrapped(Console(highlight=False), text)
    elif format_ == "md":
        print(list_item(text))
    else:
        complain(text)


def _show_along(suite: Suite, attempts: Sequence[Attempt]) -> None:
    from tta_bench.report.turnover import turnover

    for attempt in attempts if suite.along else ():
        for run in attempt.records:
            print(f"{attempt.cell.label}, seed {run.seed}")
            print("\n".join(turnover(run, suite.along)) + "\n")


def _note(failures: Failures, attempts: Sequence[Attempt]) -> None:
    for attempt in attempts:
        cell = attempt.cell
        for obstacle in attempt.obstacles:
            if obstacle.exit_code:
                where = f"{cell.label} on {cell.dataset} with {cell.backbone}"
                failures.add(where, obstacle.how, obstacle.exit_code)


def _show_facts(lines: Sequence[Line], format_: str) -> None:
    from tta_bench.report.formats import json_text
    from tta_bench.report.reproduction_text import facts, to_csv

    print(json_text(facts(lines)) if format_ == "json" else to_csv(lines).rstrip("\n"))


def _sum_up(lines: Sequence[Line]) -> None:
    kinds = (replace(line, verdict=line.verdict.partition(":")[0]) for line in lines)
    counts = Counter(line.said for line in kinds)
    print(f"{counted(len(lines), 'number')}: " + ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items()))
