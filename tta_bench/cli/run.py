"""`ttabench run`: a grid of runs, one line each."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli.options import (
    DataRoot,
    PluginFiles,
    Results,
    Weights,
    WithoutPlugins,
    choice,
    names,
    registry,
    seeds,
)
from tta_bench.errors import Interrupted


def run(
    method: Annotated[str, typer.Option("--method", "-m", help="Names with commas between them, or `all`.")],
    dataset: Annotated[
        str, typer.Option("--dataset", "-d", help="NAME or NAME:VARIANT; commas for several.")
    ] = "scenes",
    backbone: Annotated[str, typer.Option("--backbone", "-b", help="Names with commas between them.")] = "tiny",
    prompt: Annotated[
        str, typer.Option(help="photo, ensemble, cupl:FILE.json, coop:FILE or maple:FILE.", metavar="PROMPT")
    ] = "photo",
    pack: Annotated[
        Path | None, typer.Option(help="A feature pack in place of dataset and backbone.", metavar="FILE")
    ] = None,
    seed: Annotated[str, typer.Option(help="Numbers with commas, or a range such as 0-4.")] = "0",
    order: Annotated[str, typer.Option(help="shuffled, shuffled:K or sequential.")] = "shuffled",
    limit: Annotated[int | None, typer.Option(help="Only the first N images of the ordered stream.", min=1)] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A hyper-parameter.", metavar="KEY=VALUE or METHOD.KEY=VALUE")
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Official values for a dataset, e.g. imagenet.")] = None,
    recipe: Annotated[list[str] | None, typer.Option(help="Other views for a role.", metavar="ROLE=RECIPE")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    precision: Annotated[str, typer.Option(help="Of the encoders: fp32, fp16 or bf16.")] = "fp32",
    weights: Weights = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="The untrained backbone, to try a pipeline. Marked in records.")
    ] = False,
    features: Annotated[str, typer.Option(help="Stored features: float16 or float32.")] = "float16",
    empty_classes: Annotated[str, typer.Option(help="A class without positives: skip, or zero.")] = "skip",
    batch_size: Annotated[int, typer.Option(help="Views per encoder forward.", min=1)] = 64,
    workers: Annotated[int, typer.Option(help="Processes that decode and render views.", min=0)] = min(
        8, os.cpu_count() or 1
    ),
    checkpoint_seconds: Annotated[float, typer.Option(help="Save the method's state this often.", min=0.0)] = 10.0,
    data_root: DataRoot = None,
    results: Results = None,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
    force: Annotated[bool, typer.Option("--force", help="Run again even if the record exists.")] = False,
) -> None:
    """Adapt methods over a stream of test images and record how well they do."""
    if precision == "bf16":
        # Processors that advertise AMX where the system does not allow it kill the process at the first bf16 product.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")  # must stand before torch is imported
    try:
        from tta_bench.runs.grid import run_grid

        run_grid(
            registry=registry(plugin, no_plugin),
            pack=pack,
            random_weights=random_weights,
            results=results,
            data_root=data_root,
            methods=names(method, "--method"),
            datasets=names(dataset, "--dataset"),
            backbones=names(backbone, "--backbone"),
            seeds=seeds(seed),
            prompt=prompt,
            order=order,
            limit=limit,
            settings=setting or [],
            preset=preset,
            recipes=recipe or [],
            device=device,
            precision=choice("--precision", precision, ("fp32", "fp16", "bf16")),
            weights=weights,
            features=choice("--features", features, ("float16", "float32")),
            empty_classes=choice("--empty-classes", empty_classes, ("skip", "zero")),
            batch_size=batch_size,
            workers=workers,
            checkpoint_seconds=checkpoint_seconds,
            force=force,
        )
    except KeyboardInterrupt:
        raise Interrupted from None
