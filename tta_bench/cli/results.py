"""`ttabench show` and `diff`: what one record says, and two. Neither imports torch."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any

import typer

from tta_bench import records
from tta_bench.cli.found import find_run
from tta_bench.cli.options import AsJson, Results
from tta_bench.errors import BadData, TTABenchError
from tta_bench.records import SCORES, RunRecord
from tta_bench.system.text import visible

Parts = Mapping[str, Mapping[str, float | None]]  # "halves" -> "first" -> mAP


# ----------------------------------------------------------------------------------------------------------- show

IN_HEADLINE = (
    "method",
    "dataset",
    "backbone",
    "prompt",
    "seed",
    "order",
    "n",
    "dataset_size",
    "random_weights",
    "along",
)
SETTINGS = ("tag", "changes", "hyper_parameters")
AS_ASKED = (*SETTINGS, "identities")
SHOWN_POINTS = 10  # of the curve along the stream
PROVENANCE = ("hardware", "provenance", "created", "files", "schema", "run_id", "identities")


def show(
    run: Annotated[str, typer.Argument(help="A run's name (or its beginning), or its folder.", metavar="RUN")],
    json: AsJson = False,
    results: Results = None,
) -> None:
    """Everything that is known of one run."""
    record = find_run(results, run)
    if json:
        show_mapping(record.to_json(), as_json=True)
        return
    for line in [*_headline(record), "", *_along(record), ""]:
        print(visible(line))
    content = record.to_json()
    first = [name for name in SETTINGS if name in content]
    last = [name for name in PROVENANCE if name in content]
    between = [name for name in content if name not in (*first, *last, *IN_HEADLINE)]
    show_mapping({name: content[name] for name in (*first, *between, *last)}, as_json=False)


def _headline(record: RunRecord) -> Iterator[str]:
    """The numbers, and what they are of."""
    from tta_bench.report import frame
    from tta_bench.report.board import UNTRAINED

    for metric, label in frame.SCORES.items():
        value = record.metrics.get(metric)
        undefined = "undefined: no image of the stream has a label"
        yield _field(label, undefined if value is None else f"{value:.2f}")
    yield _field("images", _images(record.n, record.dataset_size))
    yield _field("method", record.method)
    yield _field("dataset", record.dataset)
    yield _field("backbone", f"{record.backbone} ({UNTRAINED})" if record.random_weights else record.backbone)
    yield _field("prompt", record.prompt)
    yield _field("seed", f"{record.seed}, order {record.order}")
    yield from _cost(record)


def _cost(record: RunRecord) -> Iterator[str]:
    """What an image costs: first where the hardware plays no part, then on that of the run."""
    counts = record.counts
    if "forwards_per_image" in counts:
        yield _field("views per image", f"{counts['forwards_per_image']:,} through the image encoder")
    if counts.get("backward_passes"):
        yield _field("backward passes", f"{counts['backward_passes'] / record.n:,.1f} per image")
    if "step_flops" in counts:
        yield _field("operations of a step", f"{_scaled(counts['step_flops'])}FLOP in matrix products")
    if "state_bytes" in counts:
        yield _field("state at the end", f"{_scaled(counts['state_bytes'])}B")
    if "images_per_s" in record.speed:
        hardware = record.hardware.get("accelerator") or record.hardware.get("processor")
        yield _field("images/s", f"{record.speed['images_per_s']:,.0f}" + (f" on {hardware}" if hardware else ""))


def _scaled(count: float) -> str:
    """1234567 -> "1.23 M"; the unit follows."""
    for prefix in ("", "k", "M", "G"):
        if count < 1000:
            return f"{count:.3g} {prefix}"
        count /= 1000
    return f"{count:,.3g} T"


def _along(record: RunRecord) -> list[str]:
    """mAP along the stream, beside frozen CLIP's on the same images if that was run."""
    from tta_bench.report.along import BASELINE, baseline_of, baseline_parts, curve, is_frozen_clip, to_text

    if record.folder is None or not (record.folder / SCORES).is_file():
        return _parts(record.along, {}, "")
    others = []
    for file in sorted(record.folder.parent.glob(f"{BASELINE}-*/run.json")):
        with suppress(TTABenchError):  # somebody else's damage
            others.append(records.load(file.parent))
    baseline = baseline_of(record, others)
    try:
        beside = {} if baseline is None else baseline_parts(record, baseline)
        table = to_text(curve(record, baseline, SHOWN_POINTS))
    except BadData as error:
        return [*_parts(record.along, {}, ""), f"mAP along the stream can't be told: {error}"]
    alone = baseline is None and not is_frozen_clip(record)
    missing = [f"{BASELINE} was not run on these images: nothing to hold it against"] if alone else []
    lines = (f"  {line}" for line in [*table, *missing])
    return [*_parts(record.along, beside, BASELINE), "mAP along the stream", *lines]


def _parts(own: Parts, beside: Parts, name: str) -> list[str]:
    """A line per half and domain, with the baseline's mAP where it is known."""
    lines = []
    for part, values in own.items():
        lines.append(f"mAP of {part} alone")
        for label, value in values.items():
            other = beside.get(part, {}).get(label)
            against = "" if other is None else f"  ({name} {other:.2f})"
            lines.append(f"  {_field(label, '–' if value is None else f'{value:.2f}')}{against}")
    return lines


def _images(n: int, size: int | None) -> str:
    if size is None:
        return f"{n:,} (of how many, the record does not say)"
    return f"{n:,}, all of the dataset" if n == size else f"{n:,} of {size:,}: a part of the dataset"


def diff(
    first: Annotated[str, typer.Argument(help="A run's name (or its beginning), or its folder.", metavar="RUN")],
    second: Annotated[str, typer.Argument(help="The other run.", metavar="RUN")],
    json: AsJson = False,
    results: Results = None,
) -> None:
    """Every field in which two runs differ: identities, hyper-parameters, versions, code, hardware."""
    from tta_bench.report.diff import differences, to_text

    one, other = find_run(results, first), find_run(results, second)
    if json:
        from tta_bench.report.formats import json_text

        print(json_text([asdict(difference) for difference in differences(one, other)]))
        return
    for line in to_text(one, other):
        print(visible(line))


def show_mapping(content: Mapping[str, Any], as_json: bool) -> None:
    if as_json:
        from tta_bench.report.formats import json_text

        print(json_text(content))
        return
    for line in _readable(content):
        print(visible(line))


def _readable(value: Mapping[str, Any], indent: int = 0, rounded: bool = True) -> list[str]:
    """Nested JSON as indented lines; what was measured is rounded, and what was asked for is not."""
    pad = "  " * indent
    lines: list[str] = []
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            lines += [f"{pad}{key}", *_readable(item, indent + 1, rounded and key not in AS_ASKED)]
        elif isinstance(item, float):
            lines.append(pad + _field(key, f"{item:.4g}" if rounded else item))
        elif isinstance(item, Mapping | list):
            lines.append(pad + _field(key, ", ".join(map(str, item)) or "none"))
        else:
            lines.append(pad + _field(key, "–" if item is None else item))
    return lines


def _field(name: str, value: object) -> str:
    return f"{name:<24} {value}"
