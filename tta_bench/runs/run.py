"""One run: its three identities, its features, the adaptation, the record."""

from __future__ import annotations

import math
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

from tta_bench import records
from tta_bench.errors import BackboneChanged, BadData, TTABenchError
from tta_bench.features import global_rngs, looked_at
from tta_bench.features.encoding import EncodedViews
from tta_bench.features.pack_source import PackedViews
from tta_bench.features.source import Source, StoredViews
from tta_bench.features.stream import Stream, observations
from tta_bench.interfaces import (
    BackboneExtras,
    Method,
    Observation,
    PromptTunable,
    Task,
    TextEncoder,
    ViewRecipe,
)
from tta_bench.records import Identity, RunRecord
from tta_bench.runs import alarms, cost, known, recording, suspicions
from tta_bench.runs.guest_method import GuestMethod
from tta_bench.runs.hyperparameters import Configured, flat_enough, given_back
from tta_bench.runs.identity import identities_of
from tta_bench.runs.left_behind import LeftBehind
from tta_bench.runs.replay import Checkpoints, adapt, adapting_threads, finished, first_steps
from tta_bench.runs.roles import REWARDED
from tta_bench.runs.spec import RunSpec
from tta_bench.runs.watched_instances import InstanceWatch, WatchedRecipe
from tta_bench.system import provenance
from tta_bench.system.code import Origin, origin_of, overridden
from tta_bench.system.described import forget_caches
from tta_bench.system.files import digest
from tta_bench.system.progress import Reporter, Silent
from tta_bench.system.stamps import Read, content_or_gone
from tta_bench.system.whose import own_packages
from tta_bench.views import Original


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
    encoded_by: set[str] = field(default_factory=set, init=False)  # kinds of machine, as the store knows them
    notes: list[str] = field(default_factory=list, init=False)  # what makes the numbers suspect

    def __post_init__(self) -> None:
        self.watch: InstanceWatch  # while a method is in hand
        self.left: LeftBehind  # likewise
        self.stream = Stream.of(self.source.dataset, self.spec.order, self.spec.seed, self.spec.limit)

    @property
    def method(self) -> Method:
        return self.configured.method

    @property
    def run_id(self) -> str:
        return records.run_id(self.method.name, self.source.dataset_name, self.source.backbone_name, self.identities)

    @cached_property
    def replaced(self) -> dict[str, Any]:
        """What of our own code, or the libraries', is somebody else's in this process, or in this instance."""
        own = overridden(self.method) if self.origin.built_in else {}
        return {**self.source.replaced, **own}

    @cached_property
    def identities(self) -> dict[str, Identity]:
        with flat_enough(self.spec.method):
            return identities_of(self)

    # ----------------------------------------------------------------------------------------------- running

    def execute(self, folder: Path, checkpoint_seconds: float, reporter: Reporter) -> RunRecord:
        """Encodes what is missing, adapts, and leaves the record in `folder`."""
        for note in suspicions.forewarnings(self):  # before hours of encoding, not after
            reporter.warn(f"{self.method.name}: {note}")
        observe = self._encode(reporter)
        self.notes += [*suspicions.unlike_preset(self), *alarms.not_ours(list(self.replaced))]
        task = self._task()
        checkpoint = folder / "checkpoint.pt"
        tried = self._tried(observe) if not checkpoint.exists() else []
        if isinstance(self.method, GuestMethod):
            self.method.log_to(folder)
        before = self._probe()
        # What somebody's own code keeps inside of ours is in no state of ours, and nothing there proves it.
        seconds = math.inf if self.replaced else checkpoint_seconds
        checkpoints = Checkpoints(checkpoint, seconds, self._writer(), proven=not self.origin.built_in)
        with self._in_hand(task) if self.in_callers_process else nullcontext():
            checkpoints.watch = self.watch if self.in_callers_process else None
            shown = self._shown(observe, task)
            adaptation = adapt(self.method, task, self.stream, shown, checkpoints, reporter, self.spec.ties)
            weight = cost.weigh(self.method)
            self.notes += alarms.other_each_time(self.method.name, tried, adaptation.outputs)
            self.notes += suspicions.after_the_stream(self, task, adaptation, weight)
            if not torch.allclose(self._probe(), before, atol=1e-4):  # an accelerator may round otherwise
                raise BackboneChanged(
                    f"method '{self.method.name}' has changed the backbone {self.source.backbone_name}, and with it "
                    "the numbers of all others: its own is not recorded"
                )
            self._refuse_changed_files(checkpoint)
            record = recording.record(self, folder, task, adaptation, weight)
        checkpoint.unlink(missing_ok=True)
        return record

    def _tried(self, observe: Callable[[int], Iterator[Observation]]) -> list[Tensor]:
        """What a plugin's method makes of the first images in a process that is left again: it has to be the same the
        next time. An instance would keep what it learns there, in the caller's process."""
        if not isinstance(self.method, GuestMethod):
            return []
        try:
            return first_steps(self.method, self._task(), self.stream, observe)
        except TTABenchError:  # the run says it, and has a log
            return []
        finally:
            self.method.leave_process()

    def say_notes(self, record: RunRecord, reporter: Reporter) -> None:
        """When the record is in its place: a caller may have made errors of warnings."""
        said = len(suspicions.of_the_data(self)) + len(suspicions.forewarnings(self))
        for note in record.notes[said:]:
            reporter.warn(f"{self.method.name}: {note}")

    @contextmanager
    def _in_hand(self, task: Task) -> Iterator[None]:
        """While an instance has the caller's process: what it may find there is as in a new one, and it is watched."""
        forget_caches([type(self.method), vars(self.method)], own_packages(type(self.method).__module__))
        alone, seeded = given_back(self.configured), global_rngs.seeded(task.rng.get_state())
        with alone, seeded, LeftBehind(self.method) as self.left, InstanceWatch(self.method) as self.watch:
            yield

    def _shown(
        self, observe: Callable[[int], Iterator[Observation]], task: Task
    ) -> Callable[[int], Iterator[Observation]]:
        """What an instance sees, each image with OpenCV's random numbers as a guest would have them."""

        def seeded(start: int) -> Iterator[Observation]:
            for x in observe(start):
                global_rngs.seed_opencv(task.rng, x.index)
                yield x

        return seeded if self.in_callers_process else observe

    @property
    def in_callers_process(self) -> bool:
        """Whether somebody's own code adapts in this process: an instance's class, or what stands for a part of ours.
        Guests have their own."""
        ours = self.origin.built_in and not self.replaced
        return not ours and not isinstance(self.method, GuestMethod)

    @property
    def read_from(self) -> Read | None:
        """The files that the run was read from, as they were then; None if that can't be told."""
        return Read.all_of([self.source.read_from] + ([] if self.reward is None else [self.reward.read_from]))

    def _refuse_changed_files(self, checkpoint: Path) -> None:
        """What was read before a change and after it belongs to no identity. (An image that has changed is refused by
        its dataset; labels and weights are read once.)"""
        pack = self.spec.pack
        looks_other = pack is not None and self.read_from is not None and self.read_from.changed()
        # A backup links it, somebody touches it: only other bytes are another pack.
        another = looks_other and content_or_gone(Path(str(pack))) != self.source.dataset.fingerprint
        changed = [str(pack)] if another else []
        before, method = self.identities["config"].parts.get("files", {}), self.method
        now = method.digests_now() if isinstance(method, GuestMethod) else method.digests()
        values = self.configured.values
        changed += [f"{field}={values.get(field, '')}" for field in now if now[field] != before.get(field)]
        if changed:
            checkpoint.unlink(missing_ok=True)
            raise BadData(f"{', '.join(changed)} was changed while the run read it: nothing is recorded; run it again")

    def steps(self) -> Tensor:
        """What an instance's steps return, [N, B, C]; nothing is recorded."""
        task, observe = self._task(), self._encode(Silent())
        never = Checkpoints(Path("never written"), math.inf, "", proven=False)
        with self._in_hand(task):
            shown = self._shown(observe, task)
            outputs = adapt(self.method, task, self.stream, shown, never, Silent(), self.spec.ties).outputs
        assert outputs is not None  # the stream is not empty
        return outputs

    def finished(self, outputs: Tensor) -> Tensor:
        """What its `finish` makes of outputs [N, B, C] after these steps: [N, C]."""
        with self._in_hand(self._task()), torch.no_grad():
            return finished(self.method, outputs).detach().float().cpu()

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
            return finished(self.method, outputs).detach().float().resolve_neg().numpy()

    def taught(self, outputs: Tensor) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """As above after the whole stream, and what the steps gave: [N', B, C]."""
        with torch.no_grad():
            given = [self.method.step(x).detach().float().cpu() for x in self.begin(Silent())]
            stepped = torch.stack([one if one.dim() == 2 else one[None] for one in given])
            return finished(self.method, outputs).detach().float().resolve_neg().numpy(), stepped.numpy()

    def _probe(self) -> Tensor:
        """What the backbone makes of a fixed picture and text, [2, D]; nothing where no method can have changed it."""
        if not self.in_callers_process or self.spec.pack is not None:
            return torch.empty(0)
        return looked_at.probe(self.source.backbone)

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
            if self.in_callers_process and not origin_of(recipe).built_in:
                recipe = WatchedRecipe(recipe, self.method)
            views, forwards = source.views(recipe, self.stream.indices)
            if forwards:  # otherwise it has looked into the store, or waited for another process
                self.encoding_seconds += time.perf_counter() - began
            self.encoder_forwards += forwards
            if isinstance(views, EncodedViews):
                self.encoded_by.update(views.entry.makers())
            if isinstance(views, PackedViews):
                views.lends = not self.in_callers_process
            return views

        image = stored(self.source, Original())
        looked_at = [self.stream.indices[i] for i in alarms.spread_over(len(self.stream))]
        self.notes += alarms.no_spread(torch.cat([image.read(index) for index in looked_at]), "the images")
        views = {role: stored(self.source, recipe) for role, recipe in self.recipes.items()}
        reward: list[StoredViews] = []
        if self.reward is not None:
            reward = [stored(self.reward, recipe) for recipe in (Original(), self.recipes[REWARDED])]
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
            prompts=None if tunable is None else cost.CountedPrompts(tunable, self.source.dataset.class_names),
            rng=torch.Generator(device).manual_seed(int(digest(f"method/{self.spec.seed}")[:15], 16)),
            device=device,
            reward_text=reward_text,
        )
