"""What `reproduce --explain` needs besides stored scores: other label variants, and runs that differ in one thing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np

from tta_bench.errors import TTABenchError
from tta_bench.interfaces import DatasetExtras
from tta_bench.metrics import Labels
from tta_bench.records import RunRecord
from tta_bench.runs.bench import Bench
from tta_bench.runs.spec import RunSpec

WORDINGS = ("ensemble", "ensemble-photos")
VIEWS: Mapping[str, tuple[str, ...]] = {  # role -> other recipes for it
    "views": ("holistic63", "plain63"),
    "regions": ("crops50@0.4-0.9", "plain50"),
}
PRECISIONS = ("fp16", "bf16")
ORDERS = ("sequential", "shuffled:1")


def other_labels(bench: Bench, run: RunRecord) -> Iterator[tuple[str, list[int], Labels]]:
    """NAME:VARIANT, rows of the run in dataset order, and their labels [rows, C], where any of these differ."""
    name = run.dataset.partition(":")[0]
    try:
        variants = DatasetExtras.of(bench.registry.dataset(name)).variants
    except TTABenchError:  # a pack: it has the labels that it has
        return
    order = run.index().argsort(kind="stable")
    ids = [run.ids()[i] for i in order]
    own = run.labels()[order]
    for variant in variants:
        spec = f"{name}:{variant}"
        try:
            dataset = bench.opened(spec)
        except TTABenchError:  # its list of images is not here
            continue
        if list(dataset.class_names) != list(run.protocol.parts.get("class_names", ())):
            continue
        samples = (dataset[i] for i in range(len(dataset)))
        theirs = {sample.id: sample.labels for sample in samples}
        rows = [row for row, image in enumerate(ids) if image in theirs]
        labels = np.stack([theirs[ids[row]] for row in rows]) if rows else own[:0]
        if rows and not (len(rows) == len(own) and np.array_equal(labels, own)):
            yield spec, rows, labels


def single_changes(bench: Bench, spec: RunSpec) -> Iterator[tuple[str, RunSpec]]:
    """The run with one thing changed at a time: prompt wording, view recipe, precision, order."""
    roles = bench.offer(spec.method).roles
    for prompt in WORDINGS:
        if prompt != spec.prompt:
            yield f"prompt {prompt}", replace(spec, prompt=prompt)
    for role, recipes in VIEWS.items():
        for recipe in recipes if role in roles else ():
            yield f"{role} {recipe}", replace(spec, recipes={**spec.recipes, role: recipe})
    if spec.pack is None:
        for precision in PRECISIONS:
            if precision != spec.precision:
                yield f"precision {precision}", replace(spec, precision=precision)
    for order in ORDERS:
        if order != spec.order:
            yield f"order {order}", replace(spec, order=order)
