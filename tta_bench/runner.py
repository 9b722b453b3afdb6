"""Runs: (method, dataset, backbone, seed, order) -> RunRecord.

A `Bench` keeps what a grid of runs shares: loaded backbones, opened datasets, encoded prompts and the feature store.
"""

from __future__ import annotations

import datetime
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import filelock
import numpy as np
import torch
from torch import Tensor

from tta_bench import hyperparameters, metrics, provenance, records
from tta_bench.adaptation import Adaptation, adapt, columns, finished
from tta_bench.encoding import EncodedViews, EncodingOptions
from tta_bench.errors import UnknownName, UsageError
from tta_bench.features import FeatureStore
from tta_bench.files import digest, disk_errors, file_digest
from tta_bench.interfaces import Backbone, Dataset, Method, Observation, PromptTunable, Task, Views
from tta_bench.plugins import Registry
from tta_bench.progress import Reporter
from tta_bench.prompts import PromptSet
from tta_bench.records import Identity, RunRecord
from tta_bench.stream import Stream, observations
from tta_bench.views import Original, parse_recipe

AP_CONVENTION = "non-interpolated; ties by the dataset's order"


@dataclass(frozen=True)
class RunSpec:
    """One run as the user asks for it."""

    method: str
    dataset: str = "scenes"  # NAME or NAME:PROTOCOL
    backbone: str = "tiny"
    prompt: str = "photo"
    seed: int = 0
    order: str = "shuffled"
    limit: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    preset: str | None = None
    recipes: Mapping[str, str] = field(default_factory=dict)  # role -> recipe name
    precision: str = "fp32"
    checkpoint: Path | None = None  # weights for the backbone
    empty_classes: metrics.Empty = "skip"


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


class Bench:
    """Everything that runs share. `data_root` is where datasets look for their files."""

    def __init__(
        self,
        registry: Registry,
        runs: Path,
        store: Path,
        data_root: Path,
        reporter: Reporter,
        device: str = "auto",
        encoding: EncodingOptions | None = None,
        checkpoint_seconds: float = 10.0,
    ) -> None:
        self.registry, self.runs, self.data_root, self.reporter = registry, runs, data_root, reporter
        self.store = FeatureStore(store)
        self.device = _device(device)
        self.encoding = encoding or EncodingOptions()
        self.checkpoint_seconds = checkpoint_seconds
        self._backbones: dict[tuple[str, str, Path | None], Backbone] = {}
        self._datasets: dict[str, Dataset] = {}

    def backbone(self, name: str, precision: str, checkpoint: Path | None = None) -> Backbone:
        key = (name, precision, checkpoint)
        if key not in self._backbones:
            self._backbones[key] = self.registry.backbone(name).load(self.device, checkpoint, precision)
        return self._backbones[key]

    def dataset(self, spec: str) -> Dataset:
        if spec not in self._datasets:
            self._datasets[spec] = open_dataset(self.registry, spec, self.data_root)
        return self._datasets[spec]

    def run(self, spec: RunSpec, force: bool = False) -> tuple[RunRecord, bool]:
        """The run's record, and whether it was there already (then nothing was done)."""
        run = _Run(self, spec)
        folder = self.runs / records.run_id(spec.method, spec.dataset, spec.backbone, run.identities)
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(self.runs / f".{folder.name}.lock"):  # a second process waits and then finds the record
            if force:
                shutil.rmtree(folder)
                folder.mkdir()
            elif (folder / "run.json").exists():
                return records.load(folder), True
            return run.execute(folder), False


class _Run:
    """One run in the making."""

    def __init__(self, bench: Bench, spec: RunSpec) -> None:
        self.bench, self.spec, self.counts = bench, spec, Counts()
        cls = bench.registry.method(spec.method)
        self.method, self.tag = hyperparameters.build(cls, spec.settings, spec.preset)
        self.recipes = _recipes(self.method, spec.recipes)
        self.backbone = bench.backbone(spec.backbone, spec.precision, spec.checkpoint)  # weights before data
        if self.method.tunes_prompts and not isinstance(self.backbone, PromptTunable):
            raise UsageError(f"{spec.method} tunes prompts, which backbone '{spec.backbone}' does not offer")
        second = self.method.second_backbone()
        self.reward = None if second is None else bench.backbone(second, spec.precision)
        self.dataset = bench.dataset(spec.dataset)
        self.stream = Stream.of(self.dataset, spec.order, spec.seed, spec.limit)
        self.prompts = PromptSet.named(spec.prompt, self.dataset.class_names)

    # -------------------------------------------------------------------------------------------- identities

    @property
    def identities(self) -> dict[str, Identity]:
        return {"protocol": self.protocol, "config": self.config, "replicate": self.replicate}

    @property
    def protocol(self) -> Identity:
        in_dataset_order = np.argsort(self.stream.indices)
        return Identity(
            {
                "dataset": self.spec.dataset,
                "images": self.dataset.fingerprint,
                "image_ids": digest([self.stream.ids[i] for i in in_dataset_order]),
                "n": len(self.stream),
                "labels": digest(self.stream.labels[in_dataset_order].astype(np.int8).tobytes()),
                "class_names": list(self.dataset.class_names),
                "prompt": self.spec.prompt,
                "prompt_texts": digest(records.as_plain(self.prompts.texts)),
                "backbone": self.spec.backbone,
                "backbone_digest": self.backbone.fingerprint,
                "precision": self.spec.precision,
                "features": self.bench.encoding.dtype,
                "average_precision": AP_CONVENTION,
                "empty_classes": self.spec.empty_classes,
            }
        )

    @property
    def config(self) -> Identity:
        parts: dict[str, Any] = {
            "method": self.method.name,
            "version": self.method.version,
            "hyper_parameters": records.as_plain(hyperparameters.values_of(self.method)),
            "recipes": {role: repr(recipe) for role, recipe in sorted(self.recipes.items())},
        }
        if self.reward is not None:
            parts["second_backbone"] = {"name": self.reward.name, "digest": self.reward.fingerprint}
        plugin = self.bench.registry.find("methods", self.spec.method)
        if not plugin.distribution:  # a loose file has no version that its author would raise, so its text counts
            parts["source"] = file_digest(Path(plugin.origin))
        return Identity(parts)

    @property
    def replicate(self) -> Identity:
        return Identity({"seed": self.spec.seed, "order": self.spec.order})

    # ----------------------------------------------------------------------------------------------- running

    def execute(self, folder: Path) -> RunRecord:
        image, views, reward = self._encode()
        task = self._task()
        adaptation = adapt(
            self.method,
            task,
            self.stream,
            lambda start: self._observe(start, image, views, reward),
            folder / "checkpoint.pt",
            self.bench.checkpoint_seconds,
            self.bench.reporter,
        )
        record = self._save(folder, adaptation)
        (folder / "checkpoint.pt").unlink(missing_ok=True)
        return record

    def _encode(self) -> tuple[EncodedViews, dict[str, EncodedViews], list[EncodedViews]]:
        """All features that the method will ask for, encoded now unless the store has them."""
        spec, reporter = self.spec, self.bench.reporter

        def encoded(backbone: Backbone, recipe: Views) -> EncodedViews:
            features = EncodedViews(self.bench.store, self.dataset, backbone, recipe, spec.seed, self.bench.encoding)
            self.counts.encoder_forwards += features.ensure(self.stream.indices, reporter)
            return features

        image = encoded(self.backbone, Original())
        views = {role: encoded(self.backbone, recipe) for role, recipe in self.recipes.items()}
        reward = []
        if self.reward is not None:
            reward = [encoded(self.reward, recipe) for recipe in (Original(), self.recipes["views"])]
        reporter.line(f"{self.counts.encoder_forwards} encoder forwards")
        return image, views, reward

    def _observe(
        self, start: int, image: EncodedViews, views: Mapping[str, EncodedViews], reward: Sequence[EncodedViews]
    ) -> Iterator[Observation]:
        return observations(self.stream, image, views, reward, start, self.bench.device)

    def _task(self) -> Task:
        device = self.bench.device
        bank, text = self.prompts.encode(self.backbone)
        self.counts.text_forwards += self.prompts.count
        reward_text = None
        if self.reward is not None:
            reward_text = self.prompts.encode(self.reward)[1].to(device)
            self.counts.text_forwards += self.prompts.count
        tunable = self.backbone if self.method.tunes_prompts and isinstance(self.backbone, PromptTunable) else None
        return Task(
            class_names=self.dataset.class_names,
            text=text.to(device),
            text_bank=bank.to(device),
            scale=self.backbone.logit_scale,
            bias=self.backbone.logit_bias,
            encode_texts=self._encode_texts,
            prompts=None if tunable is None else CountedPrompts(tunable, self.counts),
            rng=torch.Generator(device).manual_seed(int(digest(f"method/{self.spec.seed}")[:15], 16)),
            device=device,
            reward_text=reward_text,
        )

    def _encode_texts(self, texts: Sequence[str]) -> Tensor:
        self.counts.text_forwards += len(texts)
        return self.backbone.encode_texts(texts)

    # ---------------------------------------------------------------------------------------------- recording

    def _save(self, folder: Path, adaptation: Adaptation) -> RunRecord:
        spec, outputs, labels = self.spec, adaptation.outputs, self.stream.labels
        assert outputs is not None  # the stream is not empty
        scores = finished(self.method, outputs).float().numpy()
        by_index = np.argsort(self.stream.indices)  # so that ties don't depend on the stream's order
        ap = metrics.average_precision(scores[by_index], labels[by_index])
        seconds = adaptation.seconds
        record = RunRecord(
            **self.identities,
            method=spec.method,
            dataset=spec.dataset,
            backbone=spec.backbone,
            prompt=spec.prompt,
            seed=spec.seed,
            order=spec.order,
            n=len(self.stream),
            hyper_parameters=records.as_plain(hyperparameters.values_of(self.method)),
            tag=self.tag,
            changes={**({"preset": spec.preset} if spec.preset else {}), **spec.settings, **spec.recipes},
            metrics=_defined(metrics.summary(scores[by_index], labels[by_index], spec.empty_classes)),
            per_class_ap=_defined(dict(zip(self.dataset.class_names, ap.tolist(), strict=True))),
            counts=vars(self.counts).copy(),
            speed={
                "images_per_s": len(self.stream) / seconds,
                "seconds": seconds,
                "peak_memory_mb": provenance.peak_memory_mb(self.bench.device),
            },
            hardware={**provenance.hardware(self.bench.device), "batch_size": self.bench.encoding.batch_size},
            provenance={**provenance.git_state(), "versions": provenance.versions()},
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            folder=folder,
        )
        index = np.asarray(self.stream.indices, dtype=np.int64)
        diagnostics = columns(adaptation.diagnostics)
        records.save(record, folder, outputs.numpy(), scores, labels, index, self.stream.ids, diagnostics)
        return record


def open_dataset(registry: Registry, spec: str, data_root: Path) -> Dataset:
    """NAME or NAME:PROTOCOL."""
    name, _, protocol = spec.partition(":")
    return registry.dataset(name).open(data_root, protocol or "default")


def _recipes(method: Method, substitutes: Mapping[str, str]) -> dict[str, Views]:
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


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"--device {name} can't be used here: {reason}") from error
    return name
