"""`ttabench captions`: caption corpora for ML-TTA."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tta_bench.cli.options import (
    BackboneName,
    Command,
    DataPaths,
    DataRoot,
    DatasetName,
    PluginFiles,
    Weights,
    WithoutPlugins,
    data_paths,
    registry,
)
from tta_bench.system.text import counted

app = typer.Typer(help="Caption corpora for ML-TTA.", no_args_is_help=True)


@app.command("build", cls=Command)
def build(
    output: Annotated[Path, typer.Option("--output", "-o", help="Where to write.", metavar="FILE.safetensors")],
    source: Annotated[
        str, typer.Option(help="A text file of captions, a COCO captions_*.json, or `template`.", metavar="SOURCE")
    ] = "template",
    dataset: DatasetName = "scenes",
    backbone: BackboneName = "tiny",
    weights: Weights = None,
    data_root: DataRoot = None,
    data: DataPaths = None,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Encode a caption corpus for a dataset's classes."""
    from tta_bench.prompts import captions
    from tta_bench.runs.bench import Bench
    from tta_bench.system.outputs import has_metadata, refuse_others
    from tta_bench.system.progress import Terminal

    refuse_others(output, "caption corpus", lambda file: has_metadata(file, "about"))
    found = registry(plugin, no_plugin)
    bench = Bench(data_root=data_root, data=data_paths(data), registry=found, progress=Terminal())
    encoder = bench.backbone(backbone, weights=weights)
    corpus, digest = captions.build(source, bench.dataset(dataset).class_names, encoder, output)
    for what in corpus.left_out:
        bench.reporter.warn(f"left out: {what}")
    count = counted(len(corpus.texts), "caption")
    print(f"{output}: {count}, digest {digest[:12]}; use it with --set captions={output}")
