"""One run: its three identities, its features, the adaptation, the record."""

from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tta_bench import metrics, records
from tta_bench.errors import BackboneChanged, BadData
from tta_bench.features.pack_source import PackedViews
from tta_bench.features.source import PackSource, Source, StoredViews
from tta_bench.features.stream import Stream, observations
from tta_bench.interfaces import (
    BackboneExtras,
    DatasetExtras,
    Method,
    Observation,
    PromptTunable,
    Task,
    TextEncoder,
    ViewRecipe,
)
from tta_bench.metrics import along, single_label
from tta_bench.records import Identity, RunRecord
from tta_bench.runs import alarms, cost, global_rngs, known
from tta_bench.runs.guest_method import GuestMethod
from tta_bench.runs.hyperparameters import Configured
from tta_bench.runs.identity import identities_of
from tta_bench.runs.presets import ProtocolPreset
from tta_bench.runs.replay import Adaptation, Checkpoints, adapt, adapting_threads, columns, finished
from tta_bench.runs.spec import RunSpec
from tta_bench.runs.watched_instances import InstanceWatch
from tta_bench.system import provenance
from tta_bench.system.code import Origin, origin_of, overridden
from tta_bench.system.described import forget_caches, own_packages
from tta_bench.system.files import digest
from tta_bench.system.live import replaced
from tta_bench.system.progress import Reporter, Silent
from tta_bench.system.stamps import Read
from tta_bench.views import Original

_changed: set[type] = set()  # classes of instances that a run in this process was seen to change


@dataclass
class Run:
    """A run that is ready to go: all that it needs has been found."""

    spec: RunSpec
    configured: Configured
    origin: Origin  # of the method
    recipes: Mapping[str, ViewRecipe]  # role -> views
    source: Source
    reward: Source | None  # as the method's second backbone sees the images
    device: str  # of the encoders
    adapt_device: str  # of the method
    batch_size: int
    encoder_forwards: int = field(default=0, init=False)  # views through an image encoder
    encoding_seconds: float = field(default=0.0, init=False)
    notes: list[str] = field(default_factory=list, init=False)  # what makes the numbers suspect

    def __post_init__(self) -> None:
        self._watch: InstanceWatch  # while a method is in hand
        self.stream = Stream.of(self.source.dataset, self.spec.order, self.spec.seed, self.spec.limit)

    @property
    def method(self) -> Method:
        return self.configured.method

    @property
    def run_id(self) -> str:
        return records.run_id(self.method.name, self.source.dataset_name, self.source.backbone_name, self.identities)

    @cached_property
    def replaced(self) -> dict[str, Any]:
        """What of our own code is not ours in this process, or in this instance."""
        own = overridden(self.method) if self.origin.built_in else {}
        return {**replaced(), **own, **self.source.overridden}

    @cached_property
    def identities(self) -> dict[str, Identity]:
        return identities_of(self)

    # ----------------------------------------------------------------------------------------------- running

    def execute(self, folder: Path, checkpoint_seconds: float, reporter: Reporter) -> RunRecord:
        """Encodes what is missing, adapts, and leaves the record in `folder`."""
        for note in self._forewarnings():  # before hours of encoding, not after
            reporter.warn(f"{self.method.name}: {note}")
        observe = self._encode(reporter)
        self.notes += [*self._unlike_preset(), *alarms.not_ours(list(self.replaced))]
        task = self._task()
        checkpoint = folder / "checkpoint.pt"
        if isinstance(self.method, GuestMethod):
            self.method.log_to(folder)
        before = self._probe()
        checkpoints = Checkpoints(checkpoint, checkpoint_seconds, self._writer(), proven=not self.origin.built_in)
        with self._in_hand(task) if self._in_callers_process else nullcontext():
            adaptation = adapt(self.method, task, self.stream, observe, checkpoints, reporter, self.spec.ties)
            weight = cost.weigh(self.method)
            self.notes += self._suspicions(task, adaptation, weight)
            if not torch.allclose(self._probe(), before, atol=1e-4):  # an accelerator may round otherwise
                raise BackboneChanged(
                    f"method '{self.method.name}' has changed the backbone {self.source.backbone_name}, and with it "
                    "the numbers of all others: its own is not recorded"
                )
            self._refuse_changed_files(checkpoint)
            record = self._save(folder, adaptation, self._counts(task, adaptation, weight))
        for note in record.notes[len(self._of_the_data()) + len(self._forewarnings()) :]:
            reporter.warn(f"{self.method.name}: {note}")
        checkpoint.unlink(missing_ok=True)
        return record

    @contextmanager
    def _in_hand(self, task: Task) -> Iterator[None]:
        """While an instance has the caller's process: what it may find there is as in a new one, and it is watched."""
        forget_caches([type(self.method), vars(self.method)], own_packages(type(self.method).__module__))
        with global_rngs.seeded(task.rng.get_state()), InstanceWatch(self.method) as self._watch:
            yield

    @property
    def _in_callers_process(self) -> bool:
        """Whether the method is an instance of somebody's own class; guests have their own process."""
        return not self.origin.built_in and not isinstance(self.method, GuestMethod)

    @property
    def read_from(self) -> Read | None:
        """The files that the run was read from, as they were then; None if that can't be told."""
        return Read.all_of([self.source.read_from] + ([] if self.reward is None else [self.reward.read_from]))

    def _refuse_changed_files(self, checkpoint: Path) -> None:
        """What was read before a change and after it belongs to no identity. (An image that has changed is refused by
        its dataset; labels and weights are read once.)"""
        changed = [str(self.spec.pack)] if self.spec.pack and self.read_from and self.read_from.changed() else []
        before, now = self.identities["config"].parts.get("files", {}), dict(self.method.digests())
        changed += [f"{field}={getattr(self.method, field, '')}" for field in now if now[field] != before.get(field)]
        if changed:
            checkpoint.unlink(missing_ok=True)
            raise BadData(f"{', '.join(changed)} was changed while the run read it: nothing is recorded; run it again")

    def begin(self, reporter: Reporter) -> Iterator[Observation]:
        """Encodes what is missing and starts the method: what it is then to step through, for who looks on."""
        observe = self._encode(reporter)
        with torch.no_grad():
            self.method.start(self._task())
        return observe(0)

    def finish_again(self, outputs: Tensor) -> np.ndarray[Any, Any]:
        """Scores [N, C] that a method which has only been started makes of outputs [N, B, C] of an earlier run."""
        with torch.no_grad():
            self.method.start(self._task())
            return finished(self.method, outputs).detach().float().numpy()

    def taught(self, outputs: Tensor) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """As above after the whole stream, and what the steps gave: [N', B, C]."""
        with torch.no_grad():
            given = [self.method.step(x).detach().float().cpu() for x in self.begin(Silent())]
            stepped = torch.stack([one if one.dim() == 2 else one[None] for one in given])
            return finished(self.method, outputs).detach().float().numpy(), stepped.numpy()

    def _probe(self) -> Tensor:
        """What the backbone makes of a fixed picture and text, [2, D]; nothing where no method can have changed it."""
        if not self._in_callers_process or self.spec.pack is not None:
            return torch.empty(0)
        backbone, size = self.source.backbone, self.source.backbone.preprocess.size
        picture = torch.linspace(0, 1, 3 * size * size).square_().view(1, 3, size, size)
        return torch.cat([backbone.encode_images(picture), backbone.encode_texts(["a photo of a dog."])]).cpu()

    def _writer(self) -> str:
        """Who may go on from this run's checkpoint: the same run under the same code and libraries, on the same kind of
        device with as many threads."""
        outside = {role: origin.source for role, origin in {"method": self.origin, **self.source.origins}.items()}
        place = [self.adapt_device, adapting_threads(self.method)]
        return digest([self.run_id, known.code_digest(), provenance.versions(), outside, place])

    def _encode(self, reporter: Reporter) -> Callable[[int], Iterator[Observation]]:
        """Has all features ready that the method will ask for. Returns what it sees from a position on."""

        def stored(source: Source, recipe: ViewRecipe) -> StoredViews:
            began = time.perf_counter()
            views, forwards = source.views(recipe, self.stream.indices)
            if forwards:  # otherwise it has looked into the store, or waited for another process
                self.encoding_seconds += time.perf_counter() - began
            self.encoder_forwards += forwards
            if isinstance(views, PackedViews):
                views.lends = not self._in_callers_process
            return views

        image = stored(self.source, Original())
        looked_at = [self.stream.indices[i] for i in alarms.spread_over(len(self.stream))]
        self.notes += alarms.no_spread(torch.cat([image.read(index) for index in looked_at]), "the images")
        views = {role: stored(self.source, recipe) for role, recipe in self.recipes.items()}
        reward: list[StoredViews] = []
        if self.reward is not None:
            reward = [stored(self.reward, recipe) for recipe in (Original(), self.recipes["views"])]
        reporter.line(f"{self.encoder_forwards} encoder forwards")
        return lambda start: observations(self.stream, image, views, reward, start, self.adapt_device)

    def _task(self) -> Task:
        """What the method may know. Tensors are its own copies; every object in it leads to no label."""
        backbone, device = self.source.backbone, self.adapt_device
        bank, text = self.source.prompts.encode(backbone)
        reward_text = None
        if self.reward is not None:
            reward_text = self.reward.prompts.encode(self.reward.backbone)[1].clone().to(device)
        tunable = backbone if self.method.tunes_prompts and isinstance(backbone, PromptTunable) else None
        return Task(
            class_names=tuple(self.source.dataset.class_names),
            text=text.clone().to(device),
            text_bank=bank.clone().to(device),
            scale=backbone.logit_scale,
            bias=backbone.logit_bias,
            encode_texts=TextEncoder(backbone.encode_texts, device, BackboneExtras.of(backbone).too_long),
            prompts=None if tunable is None else cost.CountedPrompts(tunable),
            rng=torch.Generator(device).manual_seed(int(digest(f"method/{self.spec.seed}")[:15], 16)),
            device=device,
            reward_text=reward_text,
        )

    # ---------------------------------------------------------------------------------------------- recording

    def _process(self) -> str:
        """Where the method ran. Python hides nothing within a process; in its own one there is nothing to find."""
        if self._in_callers_process:
            return "the caller's: an instance, not fenced off"
        return "the runner's" if self.origin.built_in else "its own, without labels and later images"

    def _counts(self, task: Task, adaptation: Adaptation, weight: cost.Weight) -> dict[str, int]:
        """What the run cost besides time. `forwards_per_image` is what the method asks for, `encoder_forwards` what was
        left to do: the store may have had all of it."""
        texts = self.source.prompts.count + (0 if self.reward is None else self.reward.prompts.count)
        if isinstance(task.encode_texts, TextEncoder):
            texts += task.encode_texts.count
        tuned = task.prompts if isinstance(task.prompts, cost.CountedPrompts) else None
        views = 1 + sum(recipe.count for recipe in self.recipes.values())
        rewarded = 0 if self.reward is None else 1 + self.recipes["views"].count
        return {
            "forwards_per_image": views + rewarded,
            "encoder_forwards": self.encoder_forwards,
            "text_forwards": texts + (0 if tuned is None else tuned.texts),
            "backward_passes": 0 if tuned is None else tuned.backward_passes,
            "state_bytes": weight.bytes,
            "step_flops": adaptation.step_flops,
        }

    def _suspicions(self, task: Task, adaptation: Adaptation, weight: cost.Weight) -> list[str]:
        """What the features and the method's last state give reason to say."""
        episodic = self.method.setting == "episodic"
        return [
            *alarms.no_spread(task.text, "the class texts"),
            *self._cut_prompts(),
            *self._cut_texts(task),
            *alarms.logarithmic_scale(task.scale),
            *self._changed_class(),
            *alarms.uncopied(self.method.name, self.configured.uncopied),
            *alarms.unchanged_state(adaptation.first_state, weight.digest, len(self.stream), episodic),
        ]

    def _cut_prompts(self) -> list[str]:
        notes = []
        for source in [self.source] + ([] if self.reward is None else [self.reward]):
            cut = source.prompts.too_long(source.backbone)
            notes += alarms.cut_prompts(cut, source.prompts.count, source.backbone_name)
        return notes

    def _cut_texts(self, task: Task) -> list[str]:
        """Of those that the method has encoded itself."""
        encoder = task.encode_texts
        if not isinstance(encoder, TextEncoder):
            return []
        return alarms.cut_prompts(encoder.cut, encoder.count, self.source.backbone_name, "text")

    def _changed_class(self) -> list[str]:
        """What an instance of somebody's own class has left in it, or found there."""
        said = alarms.left_by_another(self.method.name) if type(self.method) in _changed else []
        if origin_of(self.method) != self.origin:
            _changed.add(type(self.method))
            said += alarms.changed_class(self.method.name)
        return said

    def _unlike_preset(self) -> list[str]:
        """In what the run does not follow the protocol that it was meant to."""
        if self.spec.protocol_preset is None:
            return []
        preset = ProtocolPreset.named(self.spec.protocol_preset)
        values, single_label = self.configured.values, self.stream.single_label
        return preset.deviations(self.spec, self.source.dataset_name, self.recipes, values, single_label)

    def _of_the_data(self) -> list[str]:
        """What its dataset or pack said when it was opened."""
        return list(DatasetExtras.of(self.source.dataset).warnings)

    def _forewarnings(self) -> list[str]:
        """What is wrong with the numbers whatever the method does."""
        known_to = BackboneExtras.of(self.source.backbone).made_for
        return [
            *self._one_draw(),
            *alarms.strangers(self.source.backbone_name, known_to, self.source.dataset_name),
            *alarms.nothing_absent(self.stream.labels),
        ]

    def _one_draw(self) -> list[str]:
        if not isinstance(self.source, PackSource):
            return []
        seeded = [recipe.name for recipe in self.recipes.values() if recipe.seeded]
        return alarms.one_draw(self.spec.seed, self.source.pack.provenance.get("seed"), seeded)

    def _unknown_code(self) -> list[str]:
        method = self.method
        if isinstance(method, GuestMethod):
            return alarms.unknown(method.unknown_code, method.reached())
        return alarms.unknown([], self._watch.reached()) if self._in_callers_process else []

    def _unlike_published(self, value: float) -> list[str]:
        """Of zero-shot CLIP on a complete dataset with trained weights: with anything else there is nothing to say."""
        source = self.source
        whole = len(self.stream) >= (DatasetExtras.of(source.dataset).full_size or len(source.dataset))
        frozen = self.origin.built_in and self.method.name == "clip"
        if not frozen or not whole or BackboneExtras.of(source.backbone).random_weights:
            return []
        return alarms.far_from_published(source.backbone_name, source.prompts.name, source.dataset_name, value)

    def _save(self, folder: Path, adaptation: Adaptation, counts: Mapping[str, int]) -> RunRecord:
        spec, source, outputs, labels = self.spec, self.source, adaptation.outputs, self.stream.labels
        assert outputs is not None  # the stream is not empty
        scores = finished(self.method, outputs).detach().float().numpy()
        by_index = np.argsort(self.stream.indices)  # so that no kind of ties depends on the stream's order
        ap = metrics.average_precision(scores[by_index], labels[by_index], spec.ties)
        summary = metrics.summary(scores[by_index], labels[by_index], spec.empty_classes, ap, spec.ties)
        if self.stream.single_label:
            summary |= single_label.summary(scores, labels)
        index = np.asarray(self.stream.indices, dtype=np.int64)
        scored = along.ScoredStream(scores, labels, index, spec.empty_classes, spec.ties)
        parts = along.summary(scored, self.stream.domains)
        changes = {"protocol_preset": spec.protocol_preset} if spec.protocol_preset else {}
        changes |= {"preset": spec.preset} if spec.preset else {}
        usual = self.method.recipes
        changes |= self.configured.changes
        other = {role: self.recipes[role].name for role in spec.recipes if self.recipes[role] != usual[role]}
        fields = self.configured.values
        changes |= {f"recipe.{role}" if role in fields else role: name for role, name in other.items()}
        origins = {"method": self.origin, **source.origins}
        record = RunRecord(
            **self.identities,  # type: ignore[arg-type]  # mypy takes ** for all fields
            method=self.method.name,
            dataset=source.dataset_name,
            backbone=source.backbone_name,
            prompt=source.prompts.name,
            seed=spec.seed,
            order=spec.order,
            n=len(self.stream),
            dataset_size=max(DatasetExtras.of(source.dataset).full_size or 0, len(source.dataset)),
            hyper_parameters=records.as_plain(self.configured.values),
            tag=self.configured.tag,
            random_weights=BackboneExtras.of(source.backbone).random_weights,
            changes=changes,
            setting=self.method.setting,
            status=self.method.status,
            notes=[
                *self._of_the_data(),
                *self._forewarnings(),
                *self.notes,
                *metrics.oddities(scores),
                *self._unlike_published(summary["mAP"]),
                *self._unknown_code(),
            ],
            metrics=_defined(summary),
            per_class_ap=_defined(dict(zip(source.dataset.class_names, ap.tolist(), strict=True))),
            along={name: _defined(values) for name, values in parts.items()},
            counts=counts,
            speed={
                "images_per_s": len(self.stream) / adaptation.seconds,
                "seconds": adaptation.seconds,
                "encoding_seconds": self.encoding_seconds,
                "peak_memory_mb": provenance.peak_memory_mb(self.device),
            },
            hardware={
                **provenance.hardware(self.device),
                "adapt_device": self.adapt_device,
                "adapting_threads": adapting_threads(self.method),
                "batch_size": self.batch_size,
            },
            provenance={
                **provenance.git_state(),
                "versions": {**provenance.versions(), "ttabench": known.version()},
                "code": {role: origin.label for role, origin in origins.items()},
                "process": self._process(),
                **({"resumed_at": adaptation.resumed_at} if adaptation.resumed_at else {}),
            },
            created=datetime.datetime.now(datetime.UTC).isoformat(timespec="microseconds"),
            folder=folder,
        )
        diagnostics = columns(adaptation.diagnostics)
        return records.save(record, folder, outputs.numpy(), scores, labels, index, self.stream.ids, diagnostics)


def _defined(values: Mapping[str, float]) -> dict[str, float | None]:
    """NaN has no place in JSON."""
    return {name: None if np.isnan(value) else value for name, value in values.items()}
