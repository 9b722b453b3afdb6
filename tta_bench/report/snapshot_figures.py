"""Figures of one moment of a method: what its cache holds, and what it makes of one photo's regions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tta_bench.errors import UsageError
from tta_bench.metrics import Floats
from tta_bench.report.figure_style import COLOURS, PAGE, SHAPES, drawn, headed, label_points
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

    from tta_bench.runs.snapshots import CacheSnapshot, RegionSnapshot

FEWEST = 5  # entries that can be laid out in a plane
PERPLEXITY = 10  # neighbours that t-SNE looks at: a class has a handful of entries
MOST_CLASSES = 3  # rows of the regions' figure
MANY = 8  # regions whose frames would hide the photo if they were thick
MAP_SIDE = 120  # cells along the longer side of a class map
PANEL = 0.9  # inches: the width of one
PIXELS = 360  # of a photo's longer side: enough for that width in print
KEPT, DROPPED = COLOURS[5], "#ffffff"  # on a dimmed photo


# --------------------------------------------------------------------------------------------------------------- cache


def cache(snapshots: Sequence[CacheSnapshot]) -> Figure:
    """t-SNE of the entries of class caches, one method beside the other. Entries of a class are joined to their mean:
    no palette has a colour for each of eighty classes."""
    for snapshot in snapshots:
        if len(snapshot.features) < FEWEST:
            found = f"{snapshot.method} holds {len(snapshot.features)} after {counted(snapshot.step, 'image')}"
            raise UsageError(f"t-SNE needs {FEWEST} cached features at least, and {found}: take a later --step")
    first = snapshots[0]
    width = PAGE * min(1.0, (len(snapshots) + 0.4) / 3.4)
    with drawn(2.6, columns=len(snapshots), width=width) as (figure, all_axes):
        for axes, snapshot in zip(all_axes, snapshots, strict=True):
            _draw_cache(figure, axes, snapshot)
        where = (
            f"{first.dataset}, {first.backbone}, after {first.step:,} images, {first.shots} entries per class at most"
        )
        headed(figure, visible(where))
        return figure


def _draw_cache(figure: Figure, axes: Axes, snapshot: CacheSnapshot) -> None:
    places, classes = _in_the_plane(snapshot.features), snapshot.classes
    named: dict[str, tuple[float, float]] = {}
    colours: dict[str, str] = {}
    for number, own in enumerate(np.unique(classes)):
        entries = places[classes == own]  # [k, 2]
        mean = entries.mean(axis=0)
        colour, shape = COLOURS[number % len(COLOURS)], SHAPES[number // len(COLOURS) % len(SHAPES)]
        spokes = np.stack([np.broadcast_to(mean, entries.shape), entries, np.full_like(entries, np.nan)], axis=1)
        axes.plot(*spokes.reshape(-1, 2).T, color=colour, linewidth=0.4, alpha=0.45)
        axes.plot(*entries.T, shape, color=colour, markersize=2.6, markeredgewidth=0)
        x, y = entries[np.square(entries - mean).sum(axis=1).argmin()].tolist()
        name = visible(snapshot.class_names[own])
        named[name], colours[name] = (x, y), colour
    axes.set(xticks=[], yticks=[])
    axes.spines[["top", "right"]].set_visible(True)
    axes.margins(0.12)
    said = f"{visible(snapshot.method)}: {len(classes):,} entries, {counted(len(named), 'class')}"
    axes.set_title(said, fontsize=7.5)
    axes.set_xlabel(f"silhouette {_silhouette(snapshot):+.2f}", fontsize=7)
    label_points(figure, axes, named, size=5.5, spared=places, colours=colours)


def _in_the_plane(features: Floats) -> Floats:
    """[n, D] -> [n, 2]."""
    try:
        from sklearn.manifold import TSNE
    except ImportError as error:
        raise UsageError("this figure needs scikit-learn: pip install 'ttabench[plots]'") from error
    neighbours = min(PERPLEXITY, (len(features) - 1) / 3)
    places: Floats = TSNE(init="pca", perplexity=neighbours, random_state=0).fit_transform(features)
    return places


def _silhouette(snapshot: CacheSnapshot) -> float:
    """How much nearer entries are to their own class than to the next one, by cosine in the features' own space: what
    t-SNE shows is not to be measured with a ruler."""
    from sklearn.metrics import silhouette_score

    if not 1 < len(np.unique(snapshot.classes)) < len(snapshot.classes):
        return float("nan")
    return float(silhouette_score(snapshot.features, snapshot.classes, metric="cosine"))


# ------------------------------------------------------------------------------------------------------------- regions


def regions(snapshot: RegionSnapshot) -> Figure:
    """One photo: for each class that has votes its regions, kept and not, and how probable it is where, to frozen CLIP
    by all regions and to the method by those that it kept."""
    photo = snapshot.photo.copy()
    photo.thumbnail((PIXELS, PIXELS))
    snapshot = replace(snapshot, photo=photo)
    shown, everything = _classes_with_most_votes(snapshot), np.ones_like(snapshot.kept)
    with drawn(0.95 + len(shown) * (0.1 + PANEL * photo.height / photo.width), len(shown), 3) as (figure, all_axes):
        for number, own in enumerate(shown):
            votes, frozen, purified = all_axes[3 * number : 3 * number + 3]
            _draw_votes(votes, snapshot, own)
            _draw_map(frozen, snapshot, snapshot.frozen[:, own], everything)
            image = _draw_map(purified, snapshot, snapshot.own[:, own], snapshot.kept)
        for axes, heading in zip(
            all_axes, ("votes\n(dotted: dropped)", "frozen CLIP", visible(snapshot.method)), strict=False
        ):
            axes.set_title(heading, fontsize=7)
        bar = figure.colorbar(image, ax=all_axes, location="bottom", shrink=0.6, aspect=40, pad=0.02)
        bar.set_label("probability of the class by the regions there (%)", fontsize=6.5)
        bar.ax.tick_params(labelsize=6)
        bar.solids.set_alpha(1)
        figure.suptitle(_said(snapshot, len(shown)), fontsize=7)
        return figure


def _classes_with_most_votes(snapshot: RegionSnapshot) -> list[int]:
    """Pseudo-labels first: those are what the method goes on with."""
    votes = Counter(snapshot.votes.tolist())
    ranked = sorted(votes, key=lambda own: (not snapshot.pseudo_labels[own], -votes[own], own))
    return ranked[:MOST_CLASSES]


def _said(snapshot: RegionSnapshot, rows: int) -> str:
    kept, count = int(snapshot.kept.sum()), len(snapshot.kept)
    others = len(np.unique(snapshot.votes)) - rows
    more = f"; {counted(others, 'class')} not shown" if others else ""
    where = visible(f"{snapshot.dataset}, {snapshot.backbone}, image {snapshot.image_id}")
    return f"{where}\n{snapshot.step:,} images seen; {kept} of {count} regions kept{more}"


def _draw_votes(axes: Axes, snapshot: RegionSnapshot, own: int) -> None:
    from matplotlib.patches import Rectangle

    width, height = snapshot.photo.size
    axes.imshow(snapshot.photo)
    axes.imshow(np.zeros((1, 1, 3)), extent=(0, width, height, 0), alpha=0.35)  # so that the frames can be seen
    mine = snapshot.votes == own
    line, faint = (0.9, 1.0) if mine.sum() <= MANY else (0.45, 0.6)
    for kept in (False, True):  # the kept ones above
        for left, top, right, bottom in snapshot.boxes[mine & (snapshot.kept == kept)]:
            look = {"edgecolor": KEPT, "linewidth": line} if kept else {"edgecolor": DROPPED, "linewidth": 0.7 * line}
            corner, size = (left * width, top * height), ((right - left) * width, (bottom - top) * height)
            axes.add_patch(Rectangle(corner, *size, fill=False, linestyle="-" if kept else ":", alpha=faint, **look))
    name = visible(snapshot.class_names[own])
    label = f"{name}\n{int((mine & snapshot.kept).sum())} of {int(mine.sum())} kept"
    axes.set_ylabel(f"{label}\npseudo-label" if snapshot.pseudo_labels[own] else label, fontsize=6.5)
    _bare(axes, snapshot)


def _draw_map(axes: Axes, snapshot: RegionSnapshot, values: Floats, used: npt.NDArray[np.bool_]) -> AxesImage:
    width, height = snapshot.photo.size
    axes.imshow(snapshot.photo.convert("L"), cmap="gray")
    found, coverage = class_map(snapshot.boxes[used], values[used], width / height)
    image = axes.imshow(
        100 * found,
        extent=(0, width, height, 0),
        cmap="viridis",
        alpha=0.65 * np.minimum(1, coverage),  # what one region's edge says is faint
        vmin=0,
        vmax=100,
        interpolation="bilinear",
    )
    _bare(axes, snapshot)
    return image


def _bare(axes: Axes, snapshot: RegionSnapshot) -> None:
    width, height = snapshot.photo.size
    axes.set(xticks=[], yticks=[], xlim=(0, width), ylim=(height, 0))
    axes.spines[:].set_visible(False)
    axes.grid(visible=False)


def class_map(boxes: Floats, values: Floats, aspect: float) -> tuple[Floats, Floats]:
    """Mean of the values [Q] of the regions that cover a place, [H, W], and by how many it is covered.

    A region says more about its middle than about its edge, so it counts by a cosine's arch: without it the map would
    show the frames.
    """
    width, height = (MAP_SIDE, round(MAP_SIDE / aspect)) if aspect >= 1 else (round(MAP_SIDE * aspect), MAP_SIDE)
    x, y = (np.arange(width) + 0.5) / width, (np.arange(height) + 0.5) / height
    left, top, right, bottom = boxes.T[:, :, None]  # [Q, 1] each
    weights = _arch(y, top, bottom)[:, :, None] * _arch(x, left, right)[:, None, :]  # [Q, H, W]
    coverage: Floats = weights.sum(axis=0)
    total = np.einsum("q,qhw->hw", values, weights)
    means: Floats = np.divide(total, coverage, out=np.zeros_like(total), where=coverage > 0)
    return means, coverage


def _arch(places: Floats, begin: Floats, end: Floats) -> Floats:
    """1 in the middle, 0 at the edges and beyond: [Q, n]."""
    share = (places - begin) / (end - begin)
    arch: Floats = np.where((share > 0) & (share < 1), np.sin(np.pi * share) ** 2, 0.0)
    return arch
