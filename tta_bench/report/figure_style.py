"""What all figures share: one look, the width of a paper's column, and which runs may stand in one figure."""

from __future__ import annotations

import io
import textwrap
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle
from typing import TYPE_CHECKING, Any

from tta_bench.errors import UsageError
from tta_bench.metrics import Floats
from tta_bench.records import RunRecord
from tta_bench.report.comparison import by_protocol
from tta_bench.report.frame import rules_of
from tta_bench.system.names import SHUFFLED, kind_of
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMN = 3.4  # inches: a column of a two-column article
PAGE = 7.0  # both of them
CHARACTERS_PER_INCH = 16  # of a title
# Okabe and Ito's colours, told apart by the colour-blind; without their yellow, which is lost on paper.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#000000", "#56B4E9", "#E69F00")
DASHES = ("-", "--", ":")
SHAPES = "osD^vPX"
RULES = {
    "font.size": 8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.linewidth": 0.4,
    "grid.color": "#dddddd",
    "lines.linewidth": 1.2,
    "legend.frameon": False,
    "text.parse_math": False,  # names come from anywhere: a dollar is a dollar
    "svg.fonttype": "none",
    "pdf.fonttype": 42,
}
BESIDE = ((4, 3), (-4, 3), (4, -9), (-4, -9), (4, 11), (-4, 11), (4, -17), (-4, -17))  # points from a mark to its label


@contextmanager
def drawn(height: float, rows: int = 1, columns: int = 1, width: float = COLUMN) -> Iterator[tuple[Figure, list[Axes]]]:
    """A figure with `rows` × `columns` axes, row by row; the look holds inside the block."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError("figures need matplotlib: pip install 'ttabench[plots]'") from error
    with matplotlib.rc_context(RULES):
        figure = Figure(figsize=(width, height), layout="constrained")
        yield figure, list(figure.subplots(rows, columns, squeeze=False).flat)


def saved(figure: Figure, kind: str, dpi: int = 300) -> bytes:
    """As png, svg or pdf; `dpi` is a png's. The same figure is the same file: no date in it."""
    import matplotlib

    content = io.BytesIO()
    dateless = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}.get(kind, {})
    with matplotlib.rc_context({**RULES, "svg.hashsalt": "ttabench"}):
        figure.savefig(content, format=kind, metadata=dateless, dpi=dpi)
    return content.getvalue()


def label_points(
    figure: Figure,
    axes: Axes,
    points: Mapping[str, tuple[float, float]],
    size: float = 6.5,
    spared: Sequence[Sequence[float]] | Floats = (),
    colours: Mapping[str, str] | None = None,
) -> None:
    """A name beside each point, on the first side where it covers no other, none of the `spared` places, and stays
    within the axes; what finds no room stays without one."""
    colours = colours or {}
    from matplotlib.transforms import Bbox

    figure.draw_without_rendering()  # places are known only then
    marks = [axes.transData.transform(point) for point in (*points.values(), *spared)]
    taken, room = [Bbox.from_bounds(x - 4, y - 4, 8, 8) for x, y in marks], axes.get_window_extent()
    for name, point in points.items():
        for dx, dy in BESIDE:
            side = "left" if dx > 0 else "right"
            look = {"fontsize": size, "ha": side, "color": colours.get(name, "black")}
            text = axes.annotate(name, point, xytext=(dx, dy), textcoords="offset points", **look)
            box = text.get_window_extent()
            inside = room.x0 <= box.x0 and box.x1 <= room.x1 and room.y0 <= box.y0 and box.y1 <= room.y1
            if inside and not any(box.overlaps(other) for other in taken):
                taken.append(box)
                break
            text.remove()


def styles() -> Iterator[dict[str, Any]]:
    """Colours first, then the same colours dashed."""
    return cycle([{"color": colour, "linestyle": dash} for dash in DASHES for colour in COLOURS])


def headed(figure: Figure, text: str) -> None:
    """Over the middle of the figure, where there is more room than over axes with long names beside them."""
    figure.suptitle(textwrap.fill(text, int(CHARACTERS_PER_INCH * figure.get_figwidth())), fontsize=8)


def legend_below(figure: Figure, axes: Axes, columns: int = 3) -> None:
    """Where it covers nothing."""
    figure.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=columns, fontsize=7)


def one_protocol(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """The runs, if all are of one protocol and kind of order: a figure of several would compare what can't be."""
    groups = by_protocol(runs)
    if not groups:
        raise UsageError("no runs to draw: `ttabench run --method clip` makes the first")
    if len(groups) > 1:
        first = (group[0] for group in groups)
        named = sorted({visible(f"{r.dataset} × {r.backbone}, {r.prompt}, n={r.n}, {kind_of(r.order)}") for r in first})
        what = f"{counted(len(groups), 'protocol')} ({'; '.join(named[:6])}{' …' if len(named) > 6 else ''})"
        raise UsageError(f"a figure is of one protocol, and these runs are of {what}: filter them, or name runs")
    return groups[0]


def title(runs: Sequence[RunRecord]) -> str:
    """What all of them share, as far as it is not the usual; and that rows are not of the same seeds, if so."""
    run, size = runs[0], runs[0].dataset_size
    part = f"{run.n:,} of {size:,} images" if size is not None and size != run.n else f"{run.n:,} images"
    prompt = "" if run.prompt == "photo" else f"prompt {run.prompt}"
    rows: dict[str, set[str]] = {}
    for each in runs:
        rows.setdefault(each.config.digest, set()).add(each.replicate.digest)
    uneven = "rows over other seeds" if len(set(map(frozenset, rows.values()))) > 1 else ""
    order = unusual_order(run) if len(set(map(unusual_order, runs))) == 1 else ""
    parts = (run.dataset, run.backbone, prompt, order, rules_of(run), part, uneven)
    return visible(", ".join(part for part in parts if part))


def unusual_order(run: RunRecord) -> str:
    return "" if kind_of(run.order) == SHUFFLED else f"order {run.order}"


def name_of(run: RunRecord) -> str:
    """The method and what was changed."""
    changes = " ".join(f"{key}={value}" for key, value in run.changes.items())
    return visible(f"{run.method} [{changes}]" if changes else run.method)


def by_row(runs: Sequence[RunRecord]) -> dict[str, list[RunRecord]]:
    """Runs that differ in seed and order only, under the name of their row; the digest tells apart what names don't."""
    rows: dict[str, list[RunRecord]] = {}
    for run in runs:
        rows.setdefault(run.config.digest, []).append(run)
    names = Counter(name_of(those[0]) for those in rows.values())
    return {
        f"{name} #{config[:6]}" if names[name := name_of(those[0])] > 1 else name: those
        for config, those in rows.items()
    }
