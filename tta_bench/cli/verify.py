"""`ttabench verify`: are a run's files and numbers what they should be, and do they come out again?"""

from __future__ import annotations

import datetime
from collections.abc import Callable
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
    complain,
    data_paths,
    registry,
)
from tta_bench.errors import BadData, Interrupted, StoreError, TTABenchError
from tta_bench.system import outcome
from tta_bench.system.text import visible

if TYPE_CHECKING:
    from tta_bench.features.options import FeatureType
    from tta_bench.records import RunRecord
    from tta_bench.runs.again import Elsewhere, Replay

SOUND = "files as written, numbers follow from the scores"
SHOWN = 3  # of the files that a method reached for

Replayer = Callable[["RunRecord"], "Replay"]


def verify(
    run: Annotated[list[str], typer.Argument(help="Runs' names (or beginnings), or folders.", metavar="RUN…")],
    replay: Annotated[bool, typer.Option("--replay", help="Run it again and compare bit for bit.")] = False,
    blind: Annotated[
        bool, typer.Option("--blind", help="Run it again where there are no labels and no later images.")
    ] = False,
    pack: Annotated[Path | None, typer.Option(help="The pack that it ran on.", metavar="FILE")] = None,
    weights: Weights = None,
    prompt: Annotated[str | None, typer.Option(help="Its prompt, where that is a file: coop:FILE …")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1 …")] = "auto",
    data_root: DataRoot = None,
    data: DataPaths = None,
    results: Results = None,
    plugin: PluginFiles = None,
) -> None:
    """Check that files are as written and numbers follow from the scores; with --replay or --blind, run it again."""
    replayer: Replayer | None = None
    if replay or blind:
        from tta_bench.runs.again import Elsewhere

        replayer = _replayer(Elsewhere(pack, weights, prompt), blind, device, data_root, data, plugin)
    failed = 0
    for record in [_record(results, name) for name in run]:  # a misspelt name is said before anything is run
        try:
            holds, line = (False, record) if isinstance(record, str) else _verified(record, replayer)
        except KeyboardInterrupt:
            raise Interrupted from None
        failed += not holds
        print(visible(f"{'✓' if holds else '✗'} {line}"), flush=True)
    if failed:
        raise typer.Exit(1)


def _record(results: Path | None, name: str) -> RunRecord | str:
    """The run of that name, or what is wrong with its record."""
    try:
        return find_run(results, name)
    except BadData as error:
        return f"{name}: {error}"


def _replayer(
    given: Elsewhere,
    blind: bool,
    device: str,
    data_root: Path | None,
    data: list[str] | None,
    plugin: list[Path] | None,
) -> Replayer:
    """Who runs a record again. Loose plugins are not run in this process."""
    from tta_bench.features.options import EncodingOptions
    from tta_bench.runs.again import BlindBench, replay
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.fence import Fence
    from tta_bench.system.progress import Terminal

    fence = Fence()
    plugins, roots, reporter = registry(plugin, None, fence), data_paths(data), Terminal()

    def replayed(record: RunRecord) -> Replay:
        features = record.protocol.parts.get("features")
        stored = cast("FeatureType", features if features in ("float16", "float32") else "float16")
        bench = (BlindBench if blind else Bench)(
            data_root=data_root,
            device=device,
            data=roots,
            registry=plugins,
            encoding=EncodingOptions(stored, int(record.hardware.get("batch_size", 64))),
            fence=fence,
            progress=reporter,
        )
        return replay(record, bench, given)

    return replayed


def _verified(record: RunRecord, replayer: Replayer | None) -> tuple[bool, str]:
    """Whether all holds that was looked at, and the line that says so."""
    from tta_bench.runs.soundness import faults

    found = faults(record)
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        return False, f"{record.run_id}: {found[0]}{more}"
    if replayer is None:
        return True, f"{record.run_id}: {SOUND}"
    try:
        again = replayer(record)
    except TTABenchError as error:
        return False, f"{record.run_id}: {SOUND}; can't be run again: {error}"
    _keep(record, again)
    return again.holds, f"{record.run_id}: {SOUND}; {_in_words(again)}"


def _keep(record: RunRecord, again: Replay) -> None:
    from tta_bench.runs.again import details

    assert record.folder is not None
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    try:
        outcome.write(record.folder, record.files, again.kind, again.holds, {"date": date, **details(again)})
    except StoreError as error:
        complain(f"the outcome can't be kept beside the run: {error}")


def _in_words(again: Replay) -> str:
    how = "run again without labels and later images" if again.kind == "blind" else "run again"
    said = []
    if again.largest == 0:
        said.append(f"{how}, the same bit for bit")
    else:
        recorded, now = ("–" if value is None else f"{value:.2f}" for value in again.mean_ap)
        apart = f"scores differ by up to {again.largest:.3g} ({again.where})"
        said.append(f"{how}, {apart}: mAP {recorded} recorded, {now} now")
        if again.elsewhere:
            said.append(f"other surroundings: {', '.join(again.elsewhere)}")
    if again.changed:
        said.append(f"the method's code has changed since ({', '.join(again.changed)})")
    if again.outside:
        reached = ", ".join(again.outside[:SHOWN]) + (" …" if len(again.outside) > SHOWN else "")
        said.append(f"it reached for what it was not handed: {reached}")
    return "; ".join(said)
