"""`ttabench preview`: contact sheets of a dataset's images and of what each view recipe makes of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw
from torch import Tensor

from tta_bench.features.orders import stream_order
from tta_bench.interfaces import Dataset, Preprocess, Sample, ViewRecipe
from tta_bench.pixels.resize import to_floats
from tta_bench.system.files import disk_errors
from tta_bench.system.outputs import refuse_others

GAP = 4
PAPER = (250, 250, 250)
INK = (30, 30, 30)
CAPTION_LINES = 2
LINE_HEIGHT = 12


def write_sheets(
    dataset: Dataset, name: str, recipes: Sequence[ViewRecipe], folder: Path, images: int, side: int, seed: int
) -> list[Path]:
    """One sheet of images with their labels, and one per recipe: a row per image, the original first."""
    ids = [dataset[i].id for i in range(len(dataset))]
    samples = [dataset[i] for i in stream_order(ids, "shuffled", seed)[:images]]
    safe = name.replace(":", "-").replace("/", "-")
    written = [_save(_image_sheet(samples, dataset.class_names, side), folder / f"preview-{safe}.png")]
    for recipe in recipes:
        sheet = _recipe_sheet(samples[:8], recipe, side, seed)
        written.append(_save(sheet, folder / f"preview-{safe}-{recipe.name}.png"))
    return written


def _image_sheet(samples: Sequence[Sample], class_names: Sequence[str], side: int) -> Image.Image:
    columns = min(8, len(samples))
    height = side + CAPTION_LINES * LINE_HEIGHT + GAP
    rows = -(-len(samples) // columns)
    sheet = Image.new("RGB", (columns * (side + GAP) + GAP, rows * (height + GAP) + GAP), PAPER)
    pen = ImageDraw.Draw(sheet)
    for i, sample in enumerate(samples):
        x, y = GAP + (i % columns) * (side + GAP), GAP + (i // columns) * (height + GAP)
        image = sample.image
        image.thumbnail((side, side))
        sheet.paste(image, (x + (side - image.width) // 2, y + (side - image.height) // 2))
        present = ", ".join(class_names[c] for c in np.flatnonzero(sample.labels == 1).tolist()) or "(no label)"
        lines = textwrap.wrap(present, width=max(8, side // 6), max_lines=CAPTION_LINES, placeholder=" …")
        pen.multiline_text((x, y + side + 1), "\n".join(lines), fill=INK, spacing=1)
    return sheet


def _recipe_sheet(samples: Sequence[Sample], recipe: ViewRecipe, side: int, seed: int) -> Image.Image:
    shown = min(10, recipe.count)
    step = side + GAP
    sheet = Image.new("RGB", ((shown + 1) * step + 2 * GAP, len(samples) * step + GAP), PAPER)
    for row, sample in enumerate(samples):
        original = sample.image
        views = to_floats(recipe.render(original, sample.id, seed, Preprocess(side))[:shown])
        original.thumbnail((side, side))
        sheet.paste(original, (GAP, GAP + row * step))
        for column, view in enumerate(views):
            sheet.paste(_to_image(view), (2 * GAP + (column + 1) * step, GAP + row * step))
    return sheet


def _to_image(pixels: Tensor) -> Image.Image:
    """[3, S, S] in [0, 1]."""
    return Image.fromarray((pixels.clamp(0, 1) * 255).round().byte().permute(1, 2, 0).numpy())


def _save(sheet: Image.Image, file: Path) -> Path:
    refuse_others(file, "PNG", lambda there: there.read_bytes().startswith(b"\x89PNG"))
    with disk_errors(file):
        file.parent.mkdir(parents=True, exist_ok=True)
        sheet.save(file)
    return file
