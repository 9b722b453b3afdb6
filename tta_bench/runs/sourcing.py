"""Where a run's features come from: what it names is opened, and looked at as far as it is not ours."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from tta_bench.features import looked_at
from tta_bench.features.labels import check_class_names
from tta_bench.features.source import ImageSource, PackSource, Source
from tta_bench.interfaces import Backbone, BackboneExtras, Dataset
from tta_bench.prompts.sets import PromptSet
from tta_bench.runs.spec import RunSpec
from tta_bench.system.code import Origin, origin_of_made, overridden
from tta_bench.system.live import replaced
from tta_bench.system.stamps import Read

if TYPE_CHECKING:
    from tta_bench.runs.bench import Bench


def source_of(bench: Bench, spec: RunSpec) -> Source:
    """Weights are looked for before data: they are more often missing."""
    if spec.pack is not None:
        pack = bench.pack(spec.pack)
        return PackSource(pack, spec.prompt, bench.files_behind(pack), replaced(), _official_size(bench, pack.dataset))
    weights = bench.unknown_weights(spec.backbone, spec.weights) if isinstance(spec.backbone, str) else ""
    backbone, backbone_name, precision, of_backbone = _backbone(bench, spec)
    dataset, dataset_name, of_dataset = _dataset(bench, spec)
    origins = {
        "backbone": looked_at.of_backbone(of_backbone, backbone),
        "dataset": looked_at.of_dataset(of_dataset, dataset),
    }
    changed = overridden(backbone) if origins["backbone"].built_in else {}
    if changed:  # its features are not what its fingerprint says
        origins["backbone"] = origins["backbone"].with_more(list(changed.values()))
    began, prompt_file = time.time_ns(), spec.prompt.partition(":")[2]
    prompts = PromptSet.named(spec.prompt, dataset.class_names)
    read = [bench.files_behind(dataset), bench.files_behind(backbone)]
    read.append(Read.since(began, [Path(prompt_file)] if prompt_file else []))
    return ImageSource(
        dataset,
        prompts.adapt(backbone),
        prompts,
        dataset_name,
        backbone_name,
        precision,
        bench.store,
        bench.encoding,
        spec.seed,
        bench.reporter,
        origins,
        weights,
        Read.all_of(read),
        {**replaced(), **changed},
    )


def _official_size(bench: Bench, dataset: str) -> int | None:
    """Of one of our datasets of that name, as far as it is known."""
    if dataset not in bench.registry.names("datasets") or not bench.registry.origin("datasets", dataset).built_in:
        return None
    return getattr(bench.registry.dataset(dataset), "official_size", None)


def _backbone(bench: Bench, spec: RunSpec) -> tuple[Backbone, str, str, Origin]:
    """With its name, its precision, and whose code it is."""
    if isinstance(spec.backbone, str):
        backbone = bench.loaded(spec.backbone, spec.precision, spec.weights, spec.random_weights)
        return backbone, spec.backbone, spec.precision, bench.registry.origin("backbones", spec.backbone)
    precision = BackboneExtras.of(spec.backbone).precision or "as loaded"
    return spec.backbone, spec.backbone.name, precision, origin_of_made(spec.backbone)


def _dataset(bench: Bench, spec: RunSpec) -> tuple[Dataset, str, Origin]:
    """With its name, and whose code it is."""
    if isinstance(spec.dataset, str):
        return bench.opened(spec.dataset), spec.dataset, bench.registry.origin("datasets", spec.dataset)
    check_class_names(spec.dataset)
    return spec.dataset, spec.dataset.name, origin_of_made(spec.dataset)
