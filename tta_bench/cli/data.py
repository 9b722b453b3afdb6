"""`ttabench data`, `pack` and `captions`: commands about files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli.options import AsJson, DataRoot, PluginFiles, WithoutPlugins, complain, names, registry
from tta_bench.errors import BadData, Interrupted

data_app = typer.Typer(help="Which datasets are here, and how to get the others.", no_args_is_help=True)
pack_app = typer.Typer(help="Feature packs: others then need neither images nor weights.", no_args_is_help=True)
captions_app = typer.Typer(help="Caption corpora for ML-TTA.", no_args_is_help=True)

DatasetName = Annotated[str, typer.Option("--dataset", "-d", help="NAME or NAME:PROTOCOL.")]
BackboneName = Annotated[str, typer.Option("--backbone", "-b", help="The backbone's name.")]


@data_app.command("status")
def data_status(data_root: DataRoot = None, json: AsJson = False) -> None:
    """Show which datasets are found, how complete they are, and how to get the rest."""
    from tta_bench.datasets import _download as downloads
    from tta_bench.system import paths

    downloads.show_status(data_root or paths.data(), json)


@data_app.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="voc2007, voc2012, coco2014 or coco2017.", metavar="NAME")],
    data_root: DataRoot = None,
) -> None:
    """Download a dataset from its official address; the same command resumes."""
    from tta_bench.datasets import _download as downloads
    from tta_bench.system import paths
    from tta_bench.system.progress import Terminal

    try:
        downloads.get(name, data_root or paths.data(), Terminal())
    except KeyboardInterrupt:
        raise Interrupted from None


@pack_app.command("export")
def pack_export(
    file: Annotated[Path, typer.Argument(help="Where to write.", metavar="FILE.safetensors")],
    dataset: DatasetName = "scenes",
    backbone: BackboneName = "tiny",
    recipe: Annotated[str, typer.Option(help="View recipes, with commas.")] = "augmix63,crops50",
    prompt: Annotated[str, typer.Option(help="Prompts, with commas.")] = "photo,ensemble",
    seed: Annotated[int, typer.Option(help="Of the views.")] = 0,
    precision: Annotated[str, typer.Option(help="Of the encoder: fp32, fp16 or bf16.")] = "fp32",
    checkpoint: Annotated[Path | None, typer.Option(help="Weights file for the backbone.", metavar="FILE")] = None,
    data_root: DataRoot = None,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Write a dataset's features under a backbone into one file, encoding what the store lacks."""
    from tta_bench.cli import run as commands

    chosen = (names(recipe, "--recipe"), names(prompt, "--prompt"))
    found = registry(plugin, no_plugin)
    try:
        commands.export_pack(found, file, dataset, backbone, *chosen, seed, precision, checkpoint, data_root)
    except KeyboardInterrupt:
        raise Interrupted from None


@pack_app.command("info")
def pack_info(file: Annotated[Path, typer.Argument(metavar="FILE")], json: AsJson = False) -> None:
    """Show what a pack holds."""
    from tta_bench.cli import results as listing
    from tta_bench.features import pack as packs

    listing.show_mapping(packs.info(file), json)


@pack_app.command("verify")
def pack_verify(file: Annotated[Path, typer.Argument(metavar="FILE")]) -> None:
    """Read every feature and label of a pack and say what is wrong."""
    from tta_bench.features import pack as packs

    faults = packs.verify(file)
    for fault in faults:
        complain(f"{file}: {fault}")
    if faults:
        raise BadData(f"{file}: {len(faults)} fault{'s' if len(faults) > 1 else ''}")
    typer.echo(f"{file}: sound")


@captions_app.command("build")
def captions_build(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write.", metavar="FILE.safetensors")],
    source: Annotated[
        str, typer.Option(help="A text file of captions, a COCO captions_*.json, or `template`.", metavar="SOURCE")
    ] = "template",
    dataset: DatasetName = "scenes",
    backbone: BackboneName = "tiny",
    checkpoint: Annotated[Path | None, typer.Option(help="Weights file for the backbone.", metavar="FILE")] = None,
    data_root: DataRoot = None,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Encode a caption corpus for a dataset's classes."""
    from tta_bench.cli import run as commands

    found = registry(plugin, no_plugin)
    commands.build_captions(found, source, dataset, backbone, output, checkpoint, data_root)
