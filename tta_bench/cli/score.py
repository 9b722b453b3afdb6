"""`ttabench score`: other labels, metrics and rules for stored outputs. The records stay as they are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tta_bench.cli.found import find_run
from tta_bench.cli.options import (
    DataPaths,
    DataRoot,
    PluginFiles,
    Results,
    Weights,
    choice,
    complain,
    data_paths,
    names,
    pairs,
    registry,
)
from tta_bench.errors import UnknownName

if TYPE_CHECKING:
    from tta_bench import metrics
    from tta_bench.runs.rescoring import Rescored

FORMATS = ("table", "md", "csv", "json")
SHOWN = ("mAP", "mAP_centered", "mAP_softmax")


def score(
    run: Annotated[list[str], typer.Argument(help="Runs' names (or beginnings), or folders.", metavar="RUN…")],
    variant: Annotated[
        str | None, typer.Option(help="The labels of another variant of the dataset.", metavar="NAME:VARIANT")
    ] = None,
    empty_classes: Annotated[
        str | None, typer.Option(help="A class without positives: skip, or zero.", show_default="as recorded")
    ] = None,
    ties: Annotated[
        str | None,
        typer.Option(help="Equal scores: threshold (one), or ranked by dataset order.", show_default="as recorded"),
    ] = None,
    metric: Annotated[
        list[str] | None,
        typer.Option(help="mAP, CF1, OF1@3 …; repeat it, or put commas.", show_default=", ".join(SHOWN)),
    ] = None,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", help="A hyper-parameter that `finish` alone uses.", metavar="KEY=VALUE"),
    ] = None,
    format_: Annotated[str, typer.Option("--format", help="table, md, csv or json.")] = "table",
    pack: Annotated[Path | None, typer.Option(help="With --set: the pack that it ran on.", metavar="FILE")] = None,
    weights: Weights = None,
    prompt: Annotated[str | None, typer.Option(help="With --set: its prompt, where that is a file.")] = None,
    device: Annotated[str, typer.Option(help="With --set: auto, cpu, cuda, cuda:1 …")] = "auto",
    data_root: DataRoot = None,
    data: DataPaths = None,
    results: Results = None,
    plugin: PluginFiles = None,
) -> None:
    """Score stored outputs anew, under other labels, rules or metrics. Overwrites nothing."""
    from tta_bench.runs.again import Elsewhere
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.rescoring import Change, rescore
    from tta_bench.system.progress import Terminal

    choice("--format", format_, FORMATS)
    change = Change(
        variant=variant,
        empty=cast(
            "metrics.Empty | None", empty_classes and choice("--empty-classes", empty_classes, ("skip", "zero"))
        ),
        ties=cast("metrics.Ties | None", ties and choice("--ties", ties, ("threshold", "dataset"))),
        settings=pairs(setting or [], "--set", "key=value"),
    )
    runs = [find_run(results, name) for name in run]
    fence = None
    if plugin:  # it imports torch
        from tta_bench.runs.fence import Fence

        fence = Fence()
    plugins = registry(plugin, None, fence)
    roots = data_paths(data)
    bench = Bench(None, data_root, device, data=roots, registry=plugins, fence=fence, progress=Terminal())
    found = [rescore(record, change, bench, Elsewhere(pack, weights, prompt)) for record in runs]
    for warning in dict.fromkeys(said for one in found for said in one.warnings):
        complain(f"warning: {warning}")
    shown = names(metric, "--metric") if metric else list(SHOWN)
    for name in shown:
        if name not in found[0].metrics:
            known = found[0].metrics
            raise UnknownName("metric", name, known, f"There are: {', '.join(known)}.")
    _show(found, shown, format_)


def _show(found: Sequence[Rescored], metrics: Sequence[str], format_: str) -> None:
    from tta_bench.report import rescored

    if format_ == "table":
        from rich.console import Console

        console = Console()
        for part in rescored.to_console(found, metrics, console.width):
            console.print(part)
    elif format_ == "md":
        print(rescored.to_markdown(found, metrics), end="")
    else:
        from tta_bench.report.formats import render

        print(render(rescored.to_frame(found, metrics), format_), end="")
