"""One run: its three identities, its features, the adaptation, the record."""

from __future__ import annotations

import dataclasses
import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from tta_bench import metrics, records
from tta_bench.errors import UnknownName
from tta_bench.features.source import Source, StoredViews
from tta_bench.features.stream import Stream, observations
from tta_bench.interfaces import BackboneExtras, Method, Observation, PromptTunable, Task, ViewRecipe
from tta_bench.records import Identity, RunRecord
from tta_bench.runs import hyperparameters
from tta_bench.runs.replay import Adaptation, adapt, adapting_threads, columns, finished
from tta_bench.system import provenance
from tta_bench.system.files import digest, file_digest
from tta_bench.views import Original, parse_recipe

if TYPE_CHECKING:
    from tta_bench.runs.bench import Bench

AP_CONVENTION = "non-interpolated; ties by the dataset's order"


@dataclass(frozen=True)
class RunSpec:
    """One run as the user asks for it."""

    method: str
    dataset: str = "scenes"  # NAME or NAME:VARIANT
    backbone: str = "tiny"
    prompt: str = "photo"
    seed: int = 0
    order: str = "shuffled"
    limit: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    preset: str | None = None
    recipes: Mapping[str, str] = field(default_factory=dict)  # role -> recipe name
    precision: str = "fp32"
    weights: Path | None = None  # for the backbone, from this file
    random_weights: bool = False  # the backbone's architecture, untrained
    pack: Path | None = None  # features from a file, in place of dataset and backbone
    empty_classes: metrics.Empty = "skip"

    def __post_init__(self) -> None:
        name, _, variant = self.dataset.partition(":")
        if variant in ("", "default"):  # one variant must not stand in tables under three names
            object.__setattr__(self, "dataset", name)


@dataclass
class Counts:
    """What a run cost besides time."""

    encoder_forwards: int = 0  # views through an image encoder
    text_forwards: int = 0  # texts through a text encoder
    backward_passes: int = 0  # gradients through the text encoder


class CountedPrompts:
    """A backbone's prompt tuning, counted."""

    def __init__(self, inner: PromptTunable, counts: Counts) -> None:
        self.inner, self.counts = inner, counts

    def init_context(self, words: str) -> Tensor:
        return self.inner.init_context(words)

    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        self.counts.text_forwards += len(class_names)
        features = self.inner.encode_context(context, class_names)
        if features.requires_grad:
            features.register_hook(self._count_backward)  # type: ignore[no-untyped-call]
        return features

    def _count_backward(self, _: Tensor) -> None:
        self.counts.backward_passes += 1


class Run:
    """One run in the making."""

    def __init__(self, bench: Bench, spec: RunSpec) -> None:
        self.bench, self.spec, self.counts = bench, spec, Counts()
        cls = bench.registry.method(spec.method)
        self.method, self.tag = hyperparameters.build(cls, spec.settings, spec.preset)
        self.method.validate()  # refuses at once when a file or a second model is missing
        self.files = dict(self.method.digests())
        self.recipes = _recipes(self.method, {**cls.preset_recipes.get(spec.preset or "", {}), **spec.recipes})
        self.source = bench.source(spec)
        self.source.check(self.method, self.recipes)
        second = self.method.second_backbone()
        # A reward model reads the words, whatever context the student starts from.
        rewarding = dataclasses.replace(spec, backbone=second or "", weights=None, prompt="photo")
        self.reward = None if second is None else bench.source(rewarding)
        self.dataset = self.source.dataset
        self.stream = Stream.of(self.dataset, spec.order, spec.seed, spec.limit)

    @property
    def run_id(self) -> str:
        return records.run_id(self.spec.method, self.source.dataset_name, self.source.backbone_name, self.identities)

    # -------------------------------------------------------------------------------------------- identities

    @property
    def identities(self) -> dict[str, Identity]:
        return {"protocol": self.protocol, "config": self.config, "replicate": self.replicate}

    @property
    def protocol(self) -> Identity:
        in_dataset_order = np.argsort(self.stream.indices)
        return Identity(
            {
                "dataset": self.source.dataset_name,
                "images": self.dataset.fingerprint,
                "image_ids": digest([self.stream.ids[i] for i in in_dataset_order]),
                "n": len(self.stream),
                "labels": digest(self.stream.labels[in_dataset_order].astype(np.int8).tobytes()),
                "class_names": list(self.dataset.class_names),
                **self.source.prompts.identity,
                "backbone": self.source.backbone_name,
                "backbone_digest": self.source.backbone.fingerprint,
                "precision": self.source.precision,
                "features": self.source.features,
                "average_precision": AP_CONVENTION,
                "empty_classes": self.spec.empty_classes,
            }
        )

    @property
    def config(self) -> Identity:
        parts: dict[str, Any] = {
            "method": self.method.name,
            "version": self.method.version,
            "hyper_parameters": records.as_plain(
                {k: v for k, v in hyperparameters.values_of(self.method).items() if k not in self.files}
            ),  # of a file counts what is in it, not where it lies
            "recipes": {role: repr(recipe) for role, recipe in sorted(self.recipes.items())},
        }
        if self.files:
            parts["files"] = self.files
        if self.reward is not None:
            parts["second_backbone"] = {
                "name": self.reward.backbone_name,
                "digest": self.reward.backbone.fingerprint,
            }
        plugin = self.bench.registry.find("methods", self.spec.method)
        if not plugin.distribution:  # a loose file has no version that its author would raise, so its text counts
            parts["source"] = file_digest(Path(plugin.origin))
        return Identity(parts)

    @property
    def replicate(self) -> Identity:
        return Identity({"seed": self.spec.seed, "order": self.spec.order})

    # ----------------------------------------------------------------------------------------------- running

    def execute(self, folder: Path) -> RunRecord:
        observe = self._encode()
        adaptation = adapt(
            self.method,
            self._task(),
            self.stream,
            observe,
            folder / "checkpoint.pt",
            self.bench.checkpoint_seconds,
            self.bench.reporter,
        )
        record = self._save(folder, adaptation)
        (folder / "checkpoint.pt").unlink(missing_ok=True)
        return record

    def _encode(self) -> Callable[[int], Iterator[Observation]]:
        """Has all features ready that the method will ask for. Returns what it sees from a position on."""

        def stored(source: Source, recipe: ViewRecipe) -> StoredViews:
            views, forwards = source.views(recipe, self.stream.indices)
            self.counts.encoder_forwards += forwards
            return views

        image = stored(self.source, Original())
        views = {role: stored(self.source, recipe) for role, recipe in self.recipes.items()}
        reward: list[StoredViews] = []
        if self.reward is not None:
            reward = [stored(self.reward, recipe) for recipe in (Original(), self.recipes["views"])]
        self.bench.reporter.line(f"{self.counts.encoder_forwards} encoder forwards")
        return lambda start: observations(self.stream, image, views, reward, start, self.bench.device)

    def _task(self) -> Task:
        device, backbone = self.bench.device, self.source.backbone
        bank, text = self.source.prompts.encode(backbone)
        self.counts.text_forwards += self.source.prompts.count
        reward_text = None
        if self.reward is not None:
            reward_text = self.reward.prompts.encode(self.reward.backbone)[1].to(device)
            self.counts.text_forwards += self.reward.prompts.count
        tunable = backbone if self.method.tunes_prompts and isinstance(backbone, PromptTunable) else None
        return Task(
            class_names=self.dataset.class_names,
            text=text.to(device),
            text_bank=bank.to(device),
            scale=backbone.logit_scale,
            bias=backbone.logit_bias,
            encode_texts=self._encode_texts,
            prompts=None if tunable is None else CountedPrompts(tunable, self.counts),
            rng=torch.Generator(device).manual_seed(int(digest(f"method/{self.spec.seed}")[:15], 16)),
            device=device,
            reward_text=reward_text,
        )

    def _encode_texts(self, texts: Sequence[str]) -> Tensor:
        self.counts.text_forwards += len(texts)
        return self.source.backbone.encode_texts(texts)

    # ---------------------------------------------------------------------------------------------- recording

    def _save(self, folder: Path, adaptation: Adaptation) -> RunRecord:
        spec, outputs, labels = self.spec, adaptation.outputs, self.stream.labels
        assert outputs is not None  # the stream is not empty
        scores = finished(self.method, outputs).float().numpy()
        by_index = np.argsort(self.stream.indices)  # so that ties don't depend on the stream's order
        ap = metrics.average_precision(scores[by_index], labels[by_index])
        seconds = adaptation.seconds
        record = RunRecord(
            **self.identities,  # type: ignore[arg-type]  # mypy takes ** for all fields
            method=spec.method,
            dataset=self.source.dataset_name,
            backbone=self.source.backbone_name,
            prompt=self.source.prompts.name,
            seed=spec.seed,
            order=spec.order,
            n=len(self.stream),
            hyper_parameters=records.as_plain(hyperparameters.values_of(self.method)),
            tag=self.tag,
            random_weights=BackboneExtras.of(self.source.backbone).random_weights,
            changes={**({"preset": spec.preset} if spec.preset else {}), **spec.settings, **spec.recipes},
            metrics=_defined(metrics.summary(scores[by_index], labels[by_index], spec.empty_classes)),
            per_class_ap=_defined(dict(zip(self.dataset.class_names, ap.tolist(), strict=True))),
            counts=vars(self.counts).copy(),
            speed={
                "images_per_s": len(self.stream) / seconds,
                "seconds": seconds,
                "peak_memory_mb": provenance.peak_memory_mb(self.bench.device),
            },
            hardware={
                **provenance.hardware(self.bench.device),
                "adapting_threads": adapting_threads(self.method),
                "batch_size": self.bench.encoding.batch_size,
            },
            provenance={**provenance.git_state(), "versions": provenance.versions()},
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            folder=folder,
        )
        index = np.asarray(self.stream.indices, dtype=np.int64)
        diagnostics = columns(adaptation.diagnostics)
        records.save(record, folder, outputs.numpy(), scores, labels, index, self.stream.ids, diagnostics)
        return record


def _recipes(method: Method, substitutes: Mapping[str, str]) -> dict[str, ViewRecipe]:
    recipes = dict(method.recipes)
    for role, name in substitutes.items():
        if role not in recipes:
            hint = f"It has: {', '.join(recipes) or 'none'}."
            raise UnknownName(f"view role of {method.name}", role, recipes, hint)
        recipes[role] = parse_recipe(name)
    return recipes


def _defined(values: Mapping[str, float]) -> dict[str, float | None]:
    """NaN has no place in JSON."""
    return {name: None if np.isnan(value) else value for name, value in values.items()}
