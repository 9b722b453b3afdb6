"""The command line. Nothing heavy is imported before a command needs it: `--help` answers at once."""

from __future__ import annotations

import io
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from tta_bench import __version__
from tta_bench.cli.data import captions_app, data_app, pack_app
from tta_bench.cli.options import (
    AsJson,
    DataRoot,
    PluginFiles,
    Results,
    WithoutPlugins,
    choice,
    complain,
    names,
    registry,
    seeds,
)
from tta_bench.errors import Interrupted, TTABenchError

app = typer.Typer(
    help="Benchmark multi-label test-time adaptation of vision-language models.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(data_app, name="data")
app.add_typer(pack_app, name="pack")
app.add_typer(captions_app, name="captions")


@app.callback(invoke_without_command=True)
def root(
    version: Annotated[bool, typer.Option("--version", help="Show the version.", is_eager=True)] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the whole traceback of an error.")] = False,
) -> None:
    if version:
        typer.echo(f"ttabench {__version__}")
        raise typer.Exit
    _ = debug  # read from the command line in main(), so that it works behind the command's name too


@app.command()
def run(
    method: Annotated[str, typer.Option("--method", "-m", help="Names with commas between them, or `all`.")],
    dataset: Annotated[
        str, typer.Option("--dataset", "-d", help="NAME or NAME:PROTOCOL; commas for several.")
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
    checkpoint: Annotated[Path | None, typer.Option(help="Weights file for the backbone.", metavar="FILE")] = None,
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
        from tta_bench.cli import run as commands

        commands.run(
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
            checkpoint=checkpoint,
            features=choice("--features", features, ("float16", "float32")),
            empty_classes=choice("--empty-classes", empty_classes, ("skip", "zero")),
            batch_size=batch_size,
            workers=workers,
            checkpoint_seconds=checkpoint_seconds,
            force=force,
        )
    except KeyboardInterrupt:
        raise Interrupted from None


@app.command("list")
def list_(
    kind: Annotated[str, typer.Argument(help="methods, datasets, backbones or plugins.")],
    json: AsJson = False,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Show what can be named in the other commands."""
    from tta_bench.cli import results as listing

    listing.show_plugins(registry(plugin, no_plugin), kind, json)


@app.command()
def leaderboard(
    format_: Annotated[str, typer.Option("--format", help="console, md, csv, latex or json.")] = "console",
    dataset: Annotated[str | None, typer.Option(help="Only these, with commas between them.")] = None,
    backbone: Annotated[str | None, typer.Option(help="Only these, with commas between them.")] = None,
    method: Annotated[str | None, typer.Option(help="Only these, with commas between them.")] = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="Show runs of untrained backbones as well.")
    ] = False,
    results: Results = None,
) -> None:
    """Tables of all runs: methods × datasets, one per backbone and prompt."""
    from tta_bench.cli import results as listing

    wanted = {
        name: names(value, f"--{name}")
        for name, value in (("dataset", dataset), ("backbone", backbone), ("method", method))
        if value
    }
    listing.show_leaderboard(
        results, choice("--format", format_, ("console", "md", "csv", "latex", "json")), wanted, random_weights
    )


@app.command()
def show(
    run: Annotated[str, typer.Argument(help="A run's name (or its beginning), or its folder.", metavar="RUN")],
    json: AsJson = False,
    results: Results = None,
) -> None:
    """Everything that is known of one run."""
    from tta_bench.cli import results as listing

    listing.show_run(results, run, json)


@app.command()
def check(
    target: Annotated[
        str, typer.Argument(help="A method's name, or a plugin file: all its methods.", metavar="METHOD|FILE.py")
    ],
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Put a method through the conformance kit: shapes, determinism, restarts, edge cases."""
    from tta_bench.cli import run as commands

    files = list(plugin or [])
    if target.endswith(".py"):
        files.append(Path(target))
    commands.check(registry(files, no_plugin), target)


@app.command()
def preview(
    dataset: Annotated[str, typer.Option("--dataset", "-d", help="NAME or NAME:PROTOCOL.")] = "scenes",
    recipe: Annotated[
        list[str] | None, typer.Option(help="View recipes to show; all four kinds by default.", metavar="RECIPE")
    ] = None,
    images: Annotated[int, typer.Option(help="How many images.", min=1)] = 32,
    size: Annotated[int, typer.Option(help="Pixels per side of a picture.", min=16)] = 128,
    seed: Annotated[int, typer.Option(help="Of the choice of images and of the views.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder for the PNG files.", metavar="DIR")] = Path(),
    data_root: DataRoot = None,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Write contact sheets of a dataset's images and of each view recipe."""
    from tta_bench.cli import run as commands

    recipes = recipe or ["augmix63", "plain63", "holistic63", "crops50"]
    commands.preview(registry(plugin, no_plugin), dataset, recipes, output, images, size, seed, data_root)


@app.command()
def doctor(
    backbone: Annotated[str, typer.Option(help="Backbones whose features to check, with commas.")] = "tiny",
    json: AsJson = False,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
) -> None:
    """Check the installation: versions, plugins, folders, device, disk, and a backbone's features."""
    from tta_bench.checks import doctor as examination

    examination.examine(registry(plugin, no_plugin), json, names(backbone, "--backbone"))


def main() -> None:
    """Entry point: errors that a user can mend become one line and an exit code."""
    # Two OpenMP threads that spin for each other on a busy machine encode twenty times slower; sleeping ones don't.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # must stand before torch is imported
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal without ± should not lose the whole table for it
    debug = "--debug" in sys.argv
    arguments = [a for a in sys.argv[1:] if a != "--debug"]
    try:
        app(arguments, prog_name="ttabench", standalone_mode=True)
    except TTABenchError as error:
        if debug:
            raise
        complain(str(error), error.several_lines)
        sys.exit(error.exit_code)
    except BrokenPipeError:  # `ttabench … | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if debug:
            raise
        complain(f"unexpected {type(error).__name__}: {error} (--debug shows where)")
        sys.exit(1)
