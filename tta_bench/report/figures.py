"""The figures of the field: records -> matplotlib figures. Every function takes runs and returns a `Figure`.

`KINDS` holds them by the name that `ttabench plot` knows them by.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from tta_bench.errors import UsageError
from tta_bench.metrics import Floats
from tta_bench.records import RunRecord
from tta_bench.report.along import BASELINE, baseline_of, curve, is_frozen_clip
from tta_bench.report.comparison import ProtocolStatistics
from tta_bench.report.figure_style import (
    COLOURS,
    SHAPES,
    by_row,
    drawn,
    headed,
    label_points,
    legend_below,
    name_of,
    one_protocol,
    styles,
    title,
    unusual_order,
)
from tta_bench.report.frame import MACHINE, THREADS, rules_of
from tta_bench.system import published
from tta_bench.system.names import kind_of
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TURNOVER = {"entries_in": "put in", "entries_out": "thrown out"}  # what a method with a cache reports
LARGEST_WINDOW = 50  # images over which what a method reports is averaged, so that a line can be seen
MOST_CLASSES = 40
WIDEST = 1.5  # of the largest difference: how far its axis goes, and intervals are shown
LONG_RANGE = 20  # from the smallest to the largest value of a sweep: beyond, the axis is logarithmic
MOST_NUMBERS = 36  # cells of a map that have room for their number


def stream(runs: Sequence[RunRecord]) -> Figure:
    """mAP of all images so far, mean over replicates; frozen CLIP is one of the rows."""
    group = one_protocol(runs)
    rows = by_row(group)
    with drawn(2.3 + 0.05 * len(rows)) as (figure, (axes,)):
        for (name, replicates), style in zip(rows.items(), styles(), strict=False):
            curves = [curve(run, baseline_of(run, group)) for run in replicates]
            axes.plot(curves[0].ends, np.mean([c.own for c in curves], axis=0), label=name, **style)
        axes.set(xlabel="images seen", ylabel="mAP so far (%)")
        headed(figure, title(group))
        legend_below(figure, axes)
        return figure


def turnover(runs: Sequence[RunRecord]) -> Figure:
    """What enters and leaves a cache per image, in a moving mean."""
    group = [run for run in one_protocol(runs) if TURNOVER.keys() <= run.diagnostics().keys()]
    if not group:
        raise UsageError("none of these runs reported what its cache took in and threw out (purf does)")
    with drawn(2.4) as (figure, (axes,)):
        rows = by_row(group)
        for place, (name, replicates) in enumerate(rows.items()):
            look = {"color": COLOURS[place % len(COLOURS)], "linewidth": 1.0 + 0.8 * (place < len(rows) - 1)}
            for (column, words), dash in zip(TURNOVER.items(), ("-", "--"), strict=True):
                values = np.mean([run.diagnostics()[column] for run in replicates], axis=0)
                axes.plot(*_moving_mean(values), label=f"{name}: {words}", linestyle=dash, **look)
        axes.set(xlabel="images seen", ylabel="entries per image", ylim=(0, None))
        headed(figure, title(group))
        legend_below(figure, axes, 2)
        return figure


def diagnostics(runs: Sequence[RunRecord]) -> Figure:
    """All that one method reported, one axis for each."""
    group = [run for run in one_protocol(runs) if run.diagnostics()]
    methods = {run.method for run in group}
    if len(methods) != 1:
        reported = ", ".join(sorted(map(visible, methods))) or "none of these"
        raise UsageError(f"diagnostics are of one method's runs; those that reported something: {reported}")
    rows, names = by_row(group), list(group[0].diagnostics())
    with drawn(0.6 + 0.65 * len(names), len(names)) as (figure, all_axes):
        for axes, name in zip(all_axes, names, strict=True):
            for (label, replicates), style in zip(rows.items(), styles(), strict=False):
                values = [run.diagnostics()[name] for run in replicates if name in run.diagnostics()]
                if values:
                    axes.plot(*_moving_mean(np.mean(values, axis=0)), label=label, **style)
            axes.set_title(visible(name), loc="left", fontsize=7)
            axes.tick_params(labelbottom=axes is all_axes[-1], labelsize=7)
        headed(figure, f"{visible(group[0].method)}: {title(group)}")
        all_axes[-1].set_xlabel(f"images seen; mean of the last {_window(group[0].n)}")
        if len(rows) > 1:
            legend_below(figure, all_axes[0], 1)
        return figure


def sweep(runs: Sequence[RunRecord]) -> Figure:
    """mAP over one hyper-parameter, with 95 % intervals, or over two, as a map. Runs are of one method."""
    group = one_protocol(runs)
    statistics = ProtocolStatistics(group)
    configs = {config: statistics.runs[config] for config in statistics.cells()}
    keys = dict.fromkeys(key for run in configs.values() for key in run.hyper_parameters)
    varied = [key for key in keys if len({str(run.hyper_parameters.get(key)) for run in configs.values()}) > 1]
    numeric = all(isinstance(run.hyper_parameters.get(key), int | float) for run in configs.values() for key in varied)
    if len({run.method for run in group}) != 1 or not 1 <= len(varied) <= 2 or not numeric:
        said = ", ".join(map(visible, varied)) or "nothing"
        raise UsageError(f"a sweep is of one method's runs in which one or two numbers differ; here differ: {said}")
    found = {
        tuple(configs[c].hyper_parameters[k] for k in varied): cell.estimate for c, cell in statistics.cells().items()
    }
    if len(found) < len(configs):
        raise UsageError(
            f"a sweep is of runs that differ in {', '.join(map(visible, varied))} alone, and some of these differ in "
            "views, presets or code as well: name runs"
        )
    with drawn(2.4) as (figure, (axes,)):
        headed(figure, f"{visible(group[0].method)}: {title(group)}")
        axes.set_xlabel(visible(varied[0]))
        if len(varied) == 1:
            places = sorted(found)
            reach = [[found[p].value - found[p].low for p in places], [found[p].high - found[p].value for p in places]]
            values = [found[p].value for p in places]
            axes.errorbar(
                [p[0] for p in places], values, yerr=reach, fmt="o-", markersize=3, capsize=2, color=COLOURS[0]
            )
            axes.set_ylabel("mAP (%)")
            if places[0][0] > 0 and places[-1][0] >= LONG_RANGE * places[0][0]:
                axes.set_xscale("log")
            axes.set_xticks([p[0] for p in places], [f"{p[0]:g}" for p in places], minor=False)
            axes.set_xticks([], minor=True)
            return figure
        first, second = (sorted({place[axis] for place in found}) for axis in (0, 1))
        grid = np.array([[found[x, y].value if (x, y) in found else np.nan for x in first] for y in second])
        figure.colorbar(axes.imshow(grid, origin="lower", aspect="auto", cmap="cividis"), ax=axes, label="mAP (%)")
        axes.set_xticks(range(len(first)), [f"{value:g}" for value in first])
        axes.set_yticks(range(len(second)), [f"{value:g}" for value in second])
        axes.set_ylabel(visible(varied[1]))
        axes.grid(visible=False)
        middle = (np.nanmin(grid) + np.nanmax(grid)) / 2
        for (y, x), value in np.ndenumerate(grid) if grid.size <= MOST_NUMBERS else ():
            if not np.isnan(value):
                ink = "black" if value > middle else "white"
                axes.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=6.5, color=ink)
        return figure


def classes(runs: Sequence[RunRecord]) -> Figure:
    """What one method gains over frozen CLIP in each class, with 95 % intervals."""
    group = one_protocol(runs)
    statistics = ProtocolStatistics(group)
    pairs = [pair for pair in statistics.against(BASELINE) if is_frozen_clip(statistics.runs[pair.baseline])]
    if len(pairs) != 1:
        names = ", ".join(name_of(statistics.runs[pair.config]) for pair in pairs) or "no method with the same seeds"
        raise UsageError(f"classes are of one method beside {BASELINE}; here are: {names}")
    found = statistics.classes(pairs[0].config, pairs[0].baseline)
    ordered = sorted(found.items(), key=lambda item: item[1].estimate.value)
    left_out = len(ordered) - MOST_CLASSES
    if left_out > 0:  # the ends are what is looked at
        ordered = ordered[: MOST_CLASSES // 2] + ordered[-MOST_CLASSES // 2 :]
    values = np.array([change.estimate.value for _, change in ordered])
    reach = np.array([[c.estimate.value - c.estimate.low, c.estimate.high - c.estimate.value] for _, c in ordered]).T
    with drawn(0.8 + 0.14 * len(ordered)) as (figure, (axes,)):
        colours = [COLOURS[0] if value >= 0 else COLOURS[1] for value in values]
        axes.barh(range(len(ordered)), values, color=colours, height=0.7)
        axes.errorbar(values, range(len(ordered)), xerr=reach, fmt="none", ecolor="#333333", elinewidth=0.7)
        marks = [f"{visible(name)}{' *' if change.p_adjusted < 0.05 else ''}" for name, change in ordered]
        axes.set_yticks(range(len(ordered)), marks)
        axes.axvline(0, color="#333333", linewidth=0.6)
        axes.grid(axis="y", visible=False)
        method = name_of(statistics.runs[pairs[0].config])
        axes.set_xlabel("Δ AP (points); *: Holm, p < 0.05")
        between = (
            f"\n({counted(left_out, 'class')} between the upper and the lower half left out)" if left_out > 0 else ""
        )
        headed(figure, f"{method} − {BASELINE}: {title(group)}{between}")
        axes.margins(y=0.02)
        low, high = axes.get_xlim()  # an interval from one photo would leave nothing to see of the others
        most = WIDEST * max(1.0, float(np.abs(values).max()))
        axes.set_xlim(max(low, -most), min(high, most))
        return figure


def pareto(runs: Sequence[RunRecord]) -> Figure:
    """mAP against images per second; joined are the rows that no other beats in both."""
    group = [run for run in one_protocol(runs) if run.metrics.get("mAP") is not None and "images_per_s" in run.speed]
    if not group:
        raise UsageError("none of these runs has both an mAP and a speed")
    points = {
        name: (
            float(np.median([run.speed["images_per_s"] for run in those])),
            float(np.mean([run.metrics["mAP"] for run in those])),
        )
        for name, those in by_row(group).items()
    }
    front: list[tuple[float, float]] = []
    for point in sorted(points.values(), reverse=True):
        if not front or point[1] > front[-1][1]:
            front.append(point)
    with drawn(2.6) as (figure, (axes,)):
        axes.plot(*zip(*front, strict=True), color=COLOURS[0], linewidth=0.8)
        for point in points.values():
            axes.plot(*point, "o", markersize=4, color=COLOURS[0] if point in front else "#888888")
        axes.set(xscale="log", xlabel="images per second (adapting)", ylabel="mAP (%)")
        machines = {tuple(str(run.hardware.get(key)) for key in (*MACHINE, THREADS)) for run in group}
        headed(figure, title(group) + (f", {len(machines)} kinds of machine" if len(machines) > 1 else ""))
        axes.xaxis.set_major_formatter("{x:,g}")  # powers would be set as formulas, which are switched off
        axes.xaxis.set_minor_formatter("")
        axes.margins(x=0.18, y=0.1)
        label_points(figure, axes, points, spared=_between(front))
        return figure


def orders(runs: Sequence[RunRecord]) -> Figure:
    """Every run by its kind of order: how far they spread."""
    defined = [run for run in runs if run.metrics.get("mAP") is not None]
    if len({(run.protocol.digest) for run in defined}) != 1:
        raise UsageError("orders are of one protocol: filter by dataset, backbone and prompt, or name runs")
    rows, kinds = by_row(defined), sorted({kind_of(run.order) for run in defined})
    with drawn(0.9 + 0.25 * len(rows)) as (figure, (axes,)):
        for number, kind in enumerate(kinds):
            places, values = [], []
            for place, those in enumerate(rows.values()):
                own = [run.metrics["mAP"] for run in those if kind_of(run.order) == kind]
                values += own
                places += [place + 0.5 * ((number + 1) / (len(kinds) + 1) - 0.5)] * len(own)
            style = {"color": COLOURS[number % len(COLOURS)], "marker": SHAPES[number % len(SHAPES)]}
            axes.plot(values, places, linestyle="none", markersize=3.5, alpha=0.8, label=kind, **style)
        axes.set_yticks(range(len(rows)), list(rows))
        axes.invert_yaxis()
        axes.set_xlabel("mAP of each run (%)")
        headed(figure, title(defined))
        legend_below(figure, axes)
        return figure


def agreement(runs: Sequence[RunRecord]) -> Figure:
    """Measured against published, for complete runs with a method's defaults."""
    pairs: dict[str, list[tuple[float, float]]] = {}
    usable = [
        run for run in runs if not run.changes and run.n == run.dataset_size and run.metrics.get("mAP") is not None
    ]
    rows: dict[tuple[str, str, str, str], list[RunRecord]] = {}
    for run in usable:
        rows.setdefault((run.backbone, run.prompt, run.method, run.dataset), []).append(run)
    for key, those in rows.items():
        cell = published.find(*key)
        if cell is not None:
            if len({(run.protocol.digest, run.config.digest, kind_of(run.order)) for run in those}) > 1:
                named = visible(f"{key[2]} on {key[3]} with {key[0]}")
                raise UsageError(f"{named} was run under several protocols, orders or configurations: name runs")
            label = ", ".join(part for part in (key[-1], unusual_order(those[0]), rules_of(those[0])) if part)
            pairs.setdefault(label, []).append((cell.value, float(np.mean([run.metrics["mAP"] for run in those]))))
    if not pairs:
        raise UsageError("no paper prints a number for these runs (`ttabench published` lists what there is)")
    with drawn(3.2) as (figure, (axes,)):
        for place, (dataset, found) in enumerate(sorted(pairs.items())):
            look = {"color": COLOURS[place % len(COLOURS)], "marker": SHAPES[place % len(SHAPES)], "markersize": 3.5}
            axes.plot(*zip(*found, strict=True), linestyle="none", label=visible(dataset), **look)
        values = [value for found in pairs.values() for pair in found for value in pair]
        axes.axline((min(values), min(values)), slope=1, color="#888888", linestyle="--", linewidth=0.7)
        axes.set(xlabel="published mAP (%)", ylabel="measured mAP (%)", aspect="equal")
        legend_below(figure, axes)
        return figure


def _between(corners: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """Places along a line over a logarithmic axis, so that no label lies on it."""
    return [
        place
        for (x, y), (x_next, y_next) in pairwise(corners)
        for place in zip(np.geomspace(x, x_next, 20).tolist(), np.linspace(y, y_next, 20).tolist(), strict=True)
    ]


def _window(images: int) -> int:
    return max(1, min(LARGEST_WINDOW, images // 10))


def _moving_mean(values: Floats) -> tuple[Floats, Floats]:
    """Images seen, and the mean of the last ones."""
    width = _window(len(values))
    return np.arange(width, len(values) + 1, dtype=np.float64), np.convolve(values, np.ones(width) / width, "valid")


KINDS: Mapping[str, Callable[[Sequence[RunRecord]], Figure]] = {
    "stream": stream,
    "turnover": turnover,
    "sweep": sweep,
    "classes": classes,
    "pareto": pareto,
    "orders": orders,
    "diagnostics": diagnostics,
    "agreement": agreement,
}
