"""The three identities of a run: what was measured, how, and which repetition of it (docs/protocol.md).

Tables group by them, and a run is skipped as done only if all three are known: what would change a number is in one.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tta_bench import records
from tta_bench.features.source import encoding_source, replaced_part
from tta_bench.metrics import AP_CONVENTIONS
from tta_bench.records import Identity
from tta_bench.runs import hyperparameters
from tta_bench.system.code import origin_of, told
from tta_bench.system.described import described
from tta_bench.system.files import digest
from tta_bench.system.sources import OURS, own_source
from tta_bench.views import Original

SHARED = {
    "prompts": ("tta_bench.prompts.sets",),
    "stream": ("tta_bench.features.orders", "tta_bench.features.stream"),
    "metrics": ("tta_bench.metrics", "tta_bench.metrics.along", "tta_bench.metrics.single_label"),
}

if TYPE_CHECKING:
    from tta_bench.features.source import Source
    from tta_bench.runs.run import Run


def identities_of(run: Run) -> dict[str, Identity]:
    return {"protocol": _protocol(run), "config": _config(run), "replicate": _replicate(run)}


def _protocol(run: Run) -> Identity:
    in_dataset_order = np.argsort(run.stream.indices)
    parts = {
        "dataset": run.source.dataset_name,
        "images": run.source.dataset.fingerprint,
        "image_ids": digest([run.stream.ids[i] for i in in_dataset_order]),
        "n": len(run.stream),
        "labels": digest(run.stream.labels[in_dataset_order].astype(np.int8).tobytes()),
        "class_names": list(run.source.dataset.class_names),
        **run.source.prompts.identity,
        "backbone": run.source.backbone_name,
        "backbone_digest": run.source.backbone.fingerprint,
        "precision": run.source.precision,
        "features": run.source.features,
        "average_precision": AP_CONVENTIONS[run.spec.ties],
        "empty_classes": run.spec.empty_classes,
    }
    parts |= run.source.packed  # of whose images and weights, where the fingerprint is the pack's
    if sources := _data_sources(run.source):
        parts["sources"] = sources
    return Identity(parts | _outside(run.source) | replaced_part(run.source.replaced))


def _outside(source: Source) -> dict[str, Any]:
    """A built-in dataset or backbone has told all of itself in its fingerprint; others may not."""
    parts: dict[str, Any] = {f"{role}_source": o.source for role, o in source.origins.items() if not o.built_in}
    if "backbone_source" in parts:
        parts |= {"logit_scale": float(source.backbone.logit_scale), "logit_bias": float(source.backbone.logit_bias)}
    return parts | ({"backbone_weights": source.weights} if source.weights else {})


def _name_of(value: object, content: str) -> str:
    """Of a file, wherever it lies. Of something that is none, as a model on a hub, all that is said."""
    try:
        is_file = bool(content) and Path(str(value)).expanduser().exists()
    except (OSError, ValueError, RuntimeError):
        is_file = False
    return Path(str(value)).name if is_file else str(value)


def _config(run: Run) -> Identity:
    files = dict(run.method.digests())
    values = {k: v for k, v in run.configured.values.items() if k not in files}
    parts: dict[str, Any] = {
        "method": run.method.name,
        "version": run.method.version,
        "hyper_parameters": records.as_plain(values),  # of a file counts what is in it, not where it lies
        "recipes": {role: told(recipe) for role, recipe in sorted(run.recipes.items())},
    }
    if files:
        parts["files"] = files
        if not run.origin.built_in:  # it may go by the name
            given = {field: run.configured.values.get(field, "") for field in files}
            parts["file_names"] = {field: _name_of(value, files[field]) for field, value in given.items()}
    if run.reward is not None:
        parts["second_backbone"] = {
            "name": run.reward.backbone_name,
            "digest": run.reward.backbone.fingerprint,
            **_outside(run.reward),
        }
    parts["source"] = run.origin.source  # a version that its author would have to raise is not enough
    recipes = {"image": Original(), **run.recipes}
    parts["recipe_sources"] = {role: origin_of(recipe).source for role, recipe in sorted(recipes.items())}
    parts["shared_sources"] = _shared_sources(run)
    if run.replaced:
        parts["replaced"] = digest(described(run.replaced, [OURS]))
    if run.spec.protocol_preset is not None:  # so that a record says whose protocol it was meant to be
        parts["protocol_preset"] = run.spec.protocol_preset
    named = isinstance(run.spec.method, str)
    # Of the copy that runs, which has had its `validate`: it may have read a file there.
    if carried := run.configured.carried if named else hyperparameters.attributes_digest(run.method):
        parts["attributes"] = carried
    if sys.flags.optimize:  # an `assert` may have called what a number depends on
        parts["optimize"] = sys.flags.optimize
    return Identity(parts)


def _data_sources(source: Source) -> dict[str, str]:
    """The code from images to features. It is in the protocol: a method is one row over all datasets and backbones."""
    built_in = {role: origin.source for role, origin in source.origins.items() if origin.built_in}
    return built_in | ({"encoding": encoding_source()} if source.origins else {})


def _shared_sources(run: Run) -> dict[str, str]:
    """The code that all methods share from there on to the number."""
    shared = {role: digest([own_source(module) for module in modules]) for role, modules in SHARED.items()}
    second = {} if run.reward is None else _data_sources(run.reward)
    return shared | ({"second_backbone": second["backbone"]} if "backbone" in second else {})


def _replicate(run: Run) -> Identity:
    return Identity({"seed": run.spec.seed, "order": run.spec.order})
