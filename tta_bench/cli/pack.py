"""`ttabench pack`: feature packs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli.options import (
    AsJson,
    BackboneName,
    Command,
    DataPaths,
    DataRoot,
    DatasetName,
    PluginFiles,
    Precision,
    Weights,
    WithoutPlugins,
    complain,
    data_paths,
    located,
    names,
    registry,
)
from tta_bench.errors import BadData, Interrupted
from tta_bench.system.names import dataset_name
from tta_bench.system.text import counted

app = typer.Typer(help="Feature packs: others then need neither images nor weights.", no_args_is_help=True)

PackAddress = Annotated[
    str, typer.Argument(help="A path, hf:ORG/REPO/FILE[@REVISION] or https://…#sha256=…", metavar="PACK")
]
RECIPES = ["augmix63", "crops50"]
PROMPTS = ["photo", "ensemble"]


@app.command("export", cls=Command)
def export(
    file: Annotated[Path, typer.Argument(help="Where to write.", metavar="FILE.safetensors")],
    dataset: DatasetName = "scenes",
    backbone: BackboneName = "tiny",
    recipe: Annotated[list[str], typer.Option(help="View recipes; repeat it, or put commas.")] = RECIPES,
    prompt: Annotated[list[str], typer.Option(help="Prompts; repeat it, or put commas.")] = PROMPTS,
    seed: Annotated[int, typer.Option(help="Of the views.")] = 0,
    precision: Precision = "fp32",
    weights: Weights = None,
    data_root: DataRoot = None,
    data: DataPaths = None,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Write a dataset's features under a backbone into one file, encoding what the store lacks."""
    from tta_bench.features import looked_at, pack_export
    from tta_bench.features.source import code_of
    from tta_bench.prompts.sets import PromptSet
    from tta_bench.runs.bench import Bench
    from tta_bench.system.live import replaced
    from tta_bench.system.progress import Terminal
    from tta_bench.views import parse_recipe

    dataset = dataset_name(dataset)
    views = [parse_recipe(name) for name in names(recipe, "--recipe")]
    found = registry(plugin, no_plugin)
    bench = Bench(data_root=data_root, data=data_paths(data), registry=found, progress=Terminal())
    try:
        encoder, images = bench.backbone(backbone, precision, weights), bench.dataset(dataset)
        pack = pack_export.export(
            file,
            dataset=images,
            backbone=encoder,
            recipes=views,
            prompts=[PromptSet.named(name, images.class_names) for name in names(prompt, "--prompt")],
            store=bench.store,
            encoding=bench.encoding,
            reporter=bench.reporter,
            seed=seed,
            dataset_name=dataset,
            backbone_name=backbone,
            code=code_of(
                {
                    "dataset": looked_at.of_dataset(found.origin("datasets", dataset), images),
                    "backbone": looked_at.of_backbone(found.origin("backbones", backbone), encoder),
                },
                dataset,
                bench.unknown_weights(backbone, weights),
                replaced(),
            ),
            notes={"precision": precision},
        )
    except KeyboardInterrupt:
        raise Interrupted from None
    print(f"{file}: {counted(len(pack), 'image')}, {', '.join(pack.recipes)}")


@app.command("info", cls=Command)
def info(address: PackAddress, json: AsJson = False) -> None:
    """Show what a pack holds."""
    from tta_bench.cli.results import show_mapping
    from tta_bench.features import pack

    show_mapping(pack.info(located(address)), json)


@app.command("verify", cls=Command)
def verify(address: PackAddress) -> None:
    """Read every feature and label of a pack and say what is wrong."""
    from tta_bench.features import pack, packed_views

    file = located(address)
    faults = pack.verify(file)
    for fault in faults:
        complain(f"{file}: {fault}")
    if faults:
        raise BadData(f"{file}: {counted(len(faults), 'fault')}")
    opened = pack.Pack(file)
    oddities = (*packed_views.oddities(opened, opened.recipes), *packed_views.copies(opened, opened.prompts))
    for oddity in oddities:
        complain(f"warning: {file}: {oddity}")
    typer.echo(f"{file}: sound")
