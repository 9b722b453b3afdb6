"""A run that has seen its stream -> its numbers and its record."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tta_bench import metrics, records
from tta_bench.interfaces import BackboneExtras, DatasetExtras, Task, TextEncoder
from tta_bench.metrics import along, single_label
from tta_bench.records import RunRecord
from tta_bench.runs import cost, known, suspicions
from tta_bench.runs.replay import Adaptation, adapting_threads, columns, finished
from tta_bench.system import provenance
from tta_bench.system.code import told

if TYPE_CHECKING:
    from tta_bench.runs.run import Run


def record(run: Run, folder: Path, task: Task, adaptation: Adaptation, weight: cost.Weight) -> RunRecord:
    """Has the method finish, scores what it gives and leaves the record in `folder`."""
    spec, source, outputs, labels = run.spec, run.source, adaptation.outputs, run.stream.labels
    assert outputs is not None  # the stream is not empty
    scores = finished(run.method, outputs).detach().float().resolve_neg().numpy()
    by_index = np.argsort(run.stream.indices)  # so that no kind of ties depends on the stream's order
    ap = metrics.average_precision(scores[by_index], labels[by_index], spec.ties)
    summary = metrics.summary(scores[by_index], labels[by_index], spec.empty_classes, ap, spec.ties)
    if run.stream.single_label:
        summary |= single_label.summary(scores, labels)
    index = np.asarray(run.stream.indices, dtype=np.int64)
    scored = along.ScoredStream(scores, labels, index, spec.empty_classes, spec.ties)
    parts = along.summary(scored, run.stream.domains)
    made = RunRecord(
        **run.identities,  # type: ignore[arg-type]  # mypy takes ** for all fields
        method=run.method.name,
        dataset=source.dataset_name,
        backbone=source.backbone_name,
        prompt=source.prompts.name,
        seed=spec.seed,
        order=spec.order,
        n=len(run.stream),
        dataset_size=max(DatasetExtras.of(source.dataset).full_size or 0, len(source.dataset)),
        hyper_parameters=records.as_plain(run.configured.values),
        tag=run.configured.tag,
        random_weights=BackboneExtras.of(source.backbone).random_weights,
        changes=_changes(run),
        setting=run.method.setting,
        status=run.method.status,
        notes=[
            *suspicions.of_the_data(run),
            *suspicions.forewarnings(run),
            *run.notes,
            *metrics.oddities(scores),
            *suspicions.unlike_published(run, summary["mAP"]),
            *suspicions.unknown_code(run),
        ],
        metrics=_defined(summary),
        per_class_ap=_defined(dict(zip(source.dataset.class_names, ap.tolist(), strict=True))),
        along={name: _defined(values) for name, values in parts.items()},
        counts=_counts(run, task, adaptation, weight),
        speed={
            "images_per_s": len(run.stream) / adaptation.seconds,
            "seconds": adaptation.seconds,
            "encoding_seconds": run.encoding_seconds,
            "peak_memory_mb": provenance.peak_memory_mb(run.device),
        },
        hardware={
            **provenance.hardware(run.device),
            "adapt_device": run.adapt_device,
            "adapting_threads": adapting_threads(run.method),
            "batch_size": run.batch_size,
            **({"encoded_by": "; ".join(sorted(run.encoded_by))} if run.encoded_by else {}),
        },
        provenance={
            **provenance.git_state(),
            "versions": {**provenance.versions(), "ttabench": known.version()},
            "code": {role: origin.label for role, origin in {"method": run.origin, **source.origins}.items()},
            "process": _process(run),
            **({"resumed_at": adaptation.resumed_at} if adaptation.resumed_at else {}),
        },
        created=datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds"),
        folder=folder,
    )
    diagnostics = columns(adaptation.diagnostics)
    return records.save(made, folder, outputs.numpy(), scores, labels, index, run.stream.ids, diagnostics)


def _changes(run: Run) -> dict[str, str]:
    """What is other than the method's defaults, as rows are named by it."""
    spec, usual, fields = run.spec, run.method.recipes, run.configured.values
    presets = {"protocol_preset": spec.protocol_preset, "preset": spec.preset}
    other = {role: run.recipes[role].name for role in spec.recipes if told(run.recipes[role]) != told(usual[role])}
    return {
        **{name: preset for name, preset in presets.items() if preset},
        **run.configured.changes,
        **{f"recipe.{role}" if role in fields else role: name for role, name in other.items()},
    }


def _process(run: Run) -> str:
    """Where the method ran. Python hides nothing within a process; in its own one there is nothing to find."""
    if run.in_callers_process:
        what = "parts of ours were replaced" if run.origin.built_in else "an instance"
        return f"{records.CALLERS}: {what}, not fenced off"
    return "the runner's" if run.origin.built_in else "its own, without labels and later images"


def _counts(run: Run, task: Task, adaptation: Adaptation, weight: cost.Weight) -> dict[str, int]:
    """What the run cost besides time. `forwards_per_image` is what the method asks for, `encoder_forwards` what was
    left to do: the store may have had all of it."""
    texts = run.source.prompts.count + (0 if run.reward is None else run.reward.prompts.count)
    if isinstance(task.encode_texts, TextEncoder):
        texts += task.encode_texts.count
    tuned = task.prompts if isinstance(task.prompts, cost.CountedPrompts) else None
    views = 1 + sum(recipe.count for recipe in run.recipes.values())
    rewarded = 0 if run.reward is None else 1 + run.recipes["views"].count
    return {
        "forwards_per_image": views + rewarded,
        "encoder_forwards": run.encoder_forwards,
        "text_forwards": texts + (0 if tuned is None else tuned.texts),
        "backward_passes": 0 if tuned is None else tuned.backward_passes,
        "state_bytes": weight.bytes,
        "step_flops": adaptation.step_flops,
    }


def _defined(values: Mapping[str, float]) -> dict[str, float | None]:
    """NaN has no place in JSON."""
    return {name: None if np.isnan(value) else value for name, value in values.items()}
