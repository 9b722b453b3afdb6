"""`ttabench run`: a grid of runs, one line each."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, cast

import typer

from tta_bench.cli.executors import (
    LOCAL,
    PRINT,
    Address,
    Choice,
    ExecutorName,
    Failures,
    Gpus,
    Jobs,
    SlurmOptions,
    print_lines,
    sweep_values,
)
from tta_bench.cli.leaderboard import show_grid
from tta_bench.cli.means import images, show_sweep
from tta_bench.cli.options import (
    DataPaths,
    DataRoot,
    PluginFiles,
    Precision,
    Results,
    Weights,
    WithoutPlugins,
    choice,
    data_paths,
    located,
    names,
    pairs,
    registry,
    seeds,
)
from tta_bench.errors import Interrupted, UsageError
from tta_bench.system.names import same_setting
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    from tta_bench import metrics
    from tta_bench.features.options import FeatureType
    from tta_bench.records import RunRecord

SEVERAL = "repeat it, or put commas"
SINGLE_LABEL = {"top1": "top-1", "top5": "top-5", "ECE": "ECE"}  # metric -> its name in a line
NO_LABELS = "mAP undefined: no image of the stream has a label"


def run(
    ctx: typer.Context,
    method: Annotated[
        list[str] | None, typer.Option("--method", "-m", help=f"Names ({SEVERAL}), or `all`.", metavar="METHOD")
    ] = None,
    dataset: Annotated[
        list[str] | None,
        typer.Option(
            "--dataset", "-d", help=f"NAME or NAME:VARIANT; {SEVERAL}.", metavar="DATASET", show_default="scenes"
        ),
    ] = None,
    backbone: Annotated[
        list[str] | None,
        typer.Option("--backbone", "-b", help=f"Names; {SEVERAL}.", metavar="BACKBONE", show_default="tiny"),
    ] = None,
    prompt: Annotated[
        str,
        typer.Option(
            help="photo, ensemble, ensemble-photos, cupl:FILE.json, coop:FILE or maple:FILE.", metavar="PROMPT"
        ),
    ] = "photo",
    pack: Annotated[
        str | None,
        typer.Option(
            help="Features in place of dataset and backbone: a path, hf:ORG/REPO/FILE[@REVISION] or https://…#sha256=…",
            metavar="PACK",
        ),
    ] = None,
    seed: Annotated[
        list[str] | None,
        typer.Option(help=f"Numbers, or a range such as 0-4; {SEVERAL}.", metavar="N", show_default="0"),
    ] = None,
    order: Annotated[
        list[str] | None,
        typer.Option(
            help=f"shuffled, shuffled:K, sequential, rarest, bursts:B or domains; {SEVERAL}.",
            metavar="ORDER",
            show_default="shuffled",
        ),
    ] = None,
    orders: Annotated[
        int | None, typer.Option(help="So many shuffles of the same views: shuffled:0, shuffled:1 …", min=1, max=1000)
    ] = None,
    limit: Annotated[int | None, typer.Option(help="Only the first N images of the ordered stream.", min=1)] = None,
    setting: Annotated[
        list[str] | None, typer.Option("--set", help="A hyper-parameter.", metavar="KEY=VALUE or METHOD.KEY=VALUE")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(help="Values of a hyper-parameter; repeated, all combinations run.", metavar="KEY=A,B,…"),
    ] = None,
    preset: Annotated[str | None, typer.Option(help="Official values for a dataset, e.g. imagenet.")] = None,
    protocol_preset: Annotated[
        str | None,
        typer.Option(
            help="The protocol of another suite, where you say nothing else: tta-vlm-episodic, tta-vlm-online, ttabc, "
            "mltta or purf.",
            metavar="NAME",
        ),
    ] = None,
    recipe: Annotated[list[str] | None, typer.Option(help="Other views for a role.", metavar="ROLE=RECIPE")] = None,
    device: Annotated[str, typer.Option(help="Of the encoders: auto, cpu, cuda, cuda:1 …")] = "auto",
    adapt_device: Annotated[
        str, typer.Option(help="Of the methods; auto: the CPU, but for those that tune prompts as --device.")
    ] = "auto",
    precision: Precision = "fp32",
    weights: Weights = None,
    random_weights: Annotated[
        bool, typer.Option("--random-weights", help="The untrained backbone, to try a pipeline. Marked everywhere.")
    ] = False,
    features: Annotated[str, typer.Option(help="Stored features: float16 or float32.")] = "float16",
    empty_classes: Annotated[str, typer.Option(help="A class without positives: skip, or zero.")] = "skip",
    ties: Annotated[
        str, typer.Option(help="Equal scores: one threshold, or ranked by dataset order, as ML-TTA does.")
    ] = "threshold",
    batch_size: Annotated[int, typer.Option(help="Views per encoder forward.", min=1)] = 64,
    workers: Annotated[int, typer.Option(help="Processes that decode and render views.", min=0)] = min(
        8, os.cpu_count() or 1
    ),
    checkpoint_seconds: Annotated[float, typer.Option(help="Save the method's state this often.", min=0.0)] = 10.0,
    step_timeout: Annotated[
        float | None, typer.Option(help="Seconds after which a plugin's step counts as hanging.", min=0.001)
    ] = None,
    jobs: Jobs = None,
    executor: ExecutorName = LOCAL,
    address: Address = None,
    gpus: Gpus = 0,
    slurm: SlurmOptions = None,
    data_root: DataRoot = None,
    data: DataPaths = None,
    results: Results = None,
    plugin: PluginFiles = None,
    no_plugin: WithoutPlugins = None,
    force: Annotated[bool, typer.Option("--force", help="Run again even if the record exists.")] = False,
) -> None:
    """Adapt methods over a stream of test images and record how well they do."""
    if not method:
        raise UsageError("which method? Say for example --method purf, or --method all (`ttabench list methods`)")
    if pack is not None:
        if any(_typed(ctx, name) for name in ("dataset", "backbone")):
            raise UsageError("--pack stands for a dataset and a backbone: leave --dataset and --backbone out")
        dataset = backbone = None  # defaults of ttabench.toml
    if orders is not None and order and _typed(ctx, "order"):
        raise UsageError("--orders N stands for --order shuffled:0,shuffled:1 …: leave one of the two out")
    where = Choice.of(executor, jobs, address, gpus, slurm)
    swept = sweep_values(sweep)
    fixed = pairs(setting or [], "--set", "key=value, for example --set shots=5")
    for key, other in [(key, other) for key in swept for other in fixed if same_setting(key, other)]:
        raise UsageError(f"--sweep {key} and --set {other}: leave one of the two out")
    if precision == "bf16":
        # Processors that advertise AMX where the system does not allow it kill the process at the first bf16 product.
        os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_FP16")  # must stand before torch is imported
    from tta_bench.features.options import EncodingOptions
    from tta_bench.runs import grid
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.presets import SHARED, ProtocolPreset
    from tta_bench.runs.spec import RunOptions
    from tta_bench.system.progress import Terminal

    shared = RunOptions(
        prompt=prompt,
        limit=limit,
        settings=fixed,
        preset=preset,
        recipes=pairs(
            names(recipe, "--recipe") if recipe else [], "--recipe", "role=recipe, for example --recipe views=plain63"
        ),
        precision=choice("--precision", precision, ("fp32", "fp16", "bf16")),
        weights=weights,
        random_weights=random_weights,
        pack=None if pack is None else located(pack),
        empty_classes=cast("metrics.Empty", choice("--empty-classes", empty_classes, ("skip", "zero"))),
        ties=cast("metrics.Ties", choice("--ties", ties, ("threshold", "dataset"))),
    )
    suite = None if protocol_preset is None else ProtocolPreset.named(protocol_preset)
    if suite is not None:
        shared = suite.fill(shared, [name for name in SHARED if _given(ctx, name)])
        seed, order = seed or [str(suite.seed)], order or [suite.order]
    stored = cast("FeatureType", choice("--features", features, ("float16", "float32")))
    fence = None
    if plugin or step_timeout is not None:  # otherwise it comes with the first outside method: it imports torch
        from tta_bench.runs.fence import Fence

        fence = Fence(step_timeout)
    plugins, own_roots = registry(plugin, no_plugin, fence), data_paths(data)
    for name in own_roots:
        plugins.find("datasets", name)
    bench = Bench(
        data_root=data_root,
        device=device,
        adapt_device=adapt_device,
        results=results,
        data=own_roots,
        registry=plugins,
        encoding=EncodingOptions(stored, batch_size, workers),
        checkpoint_seconds=checkpoint_seconds,
        fence=fence,
        progress=Terminal(),
    )
    wanted = names(method, "--method")
    datasets, backbones = names(dataset or ["scenes"], "--dataset"), names(backbone or ["tiny"], "--backbone")
    streams = [f"shuffled:{k}" for k in range(orders)] if orders else names(order or ["shuffled"], "--order")
    done: dict[int, RunRecord] = {}  # by the cell's place in the grid
    failures = Failures([])
    try:
        cells = grid.distinct(
            cell
            for combination in grid.combinations(swept)
            for cell in grid.plan(
                bench,
                wanted,
                datasets,
                backbones,
                seeds(seed or ["0"]),
                replace(shared, settings={**fixed, **combination}),
                streams,
            )
        )
        if where.name == PRINT:
            print_lines(bench, cells, force)
            return
        lenient = wanted == [grid.ALL]
        for cell in grid.execute(bench, cells, force, lenient, where.executor(bench)):
            if cell.record is not None:
                done[cells.index(cell.spec)] = cell.record
                print(visible(line(cell.record, cell.already)), flush=True)
            else:
                failures.add(str(cell.spec), cell.failure, cell.exit_code)
    except KeyboardInterrupt:
        raise Interrupted from None
    if not swept:  # which has a table of its own
        show_grid([done[place] for place in sorted(done)])
    if len(streams) > 1 and done:
        _show_orders(list(done.values()))
    if swept and done:
        show_sweep([done[place] for place in sorted(done)], list(swept))
    failures.end(counted(len(cells), "run"))


def _show_orders(done: list[RunRecord]) -> None:
    from tta_bench.records import Results
    from tta_bench.report.orders import to_text

    print()
    for text in to_text(Results(done).orders()):
        print(visible(text))


def _typed(ctx: typer.Context, option: str) -> bool:
    source = ctx.get_parameter_source(option)
    return source is not None and source.name == "COMMANDLINE"


def _given(ctx: typer.Context, option: str) -> bool:
    """By the user, on the command line or in ttabench.toml."""
    source = ctx.get_parameter_source(option)
    return source is not None and source.name != "DEFAULT"


def line(record: RunRecord, already: bool) -> str:
    """What came out of one run."""
    value = record.metrics["mAP"]
    centred, softmax = record.metrics["mAP_centered"], record.metrics["mAP_softmax"]
    score = NO_LABELS if value is None else f"mAP {value:.2f} (centred {centred:.2f}, softmax {softmax:.2f})"
    single = [f"{words} {record.metrics[name]:.2f}" for name, words in SINGLE_LABEL.items() if name in record.metrics]
    score = ", ".join([*single, score])  # what single-label suites report goes first
    cost = "done before, nothing to do" if already else f"{record.speed['images_per_s']:,.0f} images/s"
    empty = int(record.metrics.get("classes_without_positives") or 0)
    treatment = {"skip": "left out", "zero": "counted as 0"}[record.protocol.parts["empty_classes"]]
    note = f", {counted(empty, 'class')} without positives {treatment}" if empty else ""
    untrained = " (untrained: the numbers mean nothing)" if record.random_weights else ""
    seen = "1 image" if (part := images(record)) == "1" else f"{part} images"
    order = "" if record.order == "shuffled" else f", order {record.order}"
    where = f"{record.method} on {record.dataset} with {record.backbone}{untrained}, seed {record.seed}{order}"
    return f"{where}: {score}{note}, {seen}, {cost} [{record.run_id}]"
