"""What the runs of a grid share: plugins, loaded backbones, opened datasets and packs, the feature store.

Making a `Bench` is quick: torch is imported when a run needs it, which one that was done before does not.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from tta_bench.errors import BackboneChanged, UsageError
from tta_bench.features.options import EncodingOptions
from tta_bench.plugins import Registry, default_registry
from tta_bench.records import RunRecord
from tta_bench.runs import devices, known
from tta_bench.runs.folder import RunFolder
from tta_bench.runs.presets import ProtocolPreset
from tta_bench.runs.roles import recipes_of
from tta_bench.runs.spec import RunSpec
from tta_bench.system import asked, config, paths
from tta_bench.system.code import BUILT_IN, blamed, origin_of
from tta_bench.system.progress import Quiet, Reporter, Terminal, patience
from tta_bench.system.stamps import Opened, Read, content
from tta_bench.system.together import Turns

if TYPE_CHECKING:
    from tta_bench.features.pack import Pack
    from tta_bench.features.source import Source
    from tta_bench.features.store import FeatureStore
    from tta_bench.interfaces import Backbone, Dataset, Method, ViewRecipe
    from tta_bench.runs.fence import Fence
    from tta_bench.runs.hyperparameters import Configured, Offer
    from tta_bench.runs.run import Run

__all__ = ["Bench", "Outcome", "RunSpec"]


_INSTANCES = Turns()  # one that can't be copied runs itself


class Outcome(NamedTuple):
    """A run's record, and whether it was there already: then nothing was done."""

    record: RunRecord
    already: bool


class Bench:
    """Everything that runs share.

    Args:
        home: where features (`store/`) and records (`runs/`) are kept; `$TTABENCH_HOME` by default.
        data_root: where datasets look for their files; `$TTABENCH_DATA` by default.
        device: of the encoders: auto, cpu, cuda, cuda:1 …
        adapt_device: of the methods; auto is the CPU, but the encoders' device for methods that tune prompts.
        results: where records are kept, if not in `home`.
        data: an own root for single datasets, by name.
        registry: the plugins to choose from; by default all that are installed.
        encoding: how to encode.
        checkpoint_seconds: how often a method's state is saved.
        fence: the processes of methods that are not built in; own ones by default.
        progress: whether to show lines and progress bars, or whom to tell.

    Example:
        >>> import tta_bench
        >>> bench = tta_bench.Bench()
        >>> bench.backbone("tiny").embed_dim
        128
    """

    def __init__(
        self,
        home: Path | str | None = None,
        data_root: Path | str | None = None,
        device: str = "auto",
        *,
        adapt_device: str = devices.AUTO,
        results: Path | str | None = None,
        data: Mapping[str, Path] | None = None,
        registry: Registry | None = None,
        encoding: EncodingOptions | None = None,
        checkpoint_seconds: float = 10.0,
        fence: Fence | None = None,
        progress: bool | Reporter = False,
    ) -> None:
        self.home = paths.home() if home is None else paths.absolute(home)
        self.runs = self.home / "runs" if results is None else paths.absolute(results)
        if (self.runs / "run.json").is_file():
            raise UsageError(f"--results {self.runs} is one run: name the folder that it is in, {self.runs.parent}")
        self.data_root = paths.data() if data_root is None else paths.absolute(data_root)
        roots = config.load().data if data is None else data
        self.data = {name: paths.absolute(root) for name, root in roots.items()}
        self.registry = default_registry() if registry is None else registry
        self.encoding = EncodingOptions() if encoding is None else encoding
        self.checkpoint_seconds = checkpoint_seconds
        self.reporter: Reporter = (Terminal() if progress else Quiet()) if isinstance(progress, bool) else progress
        self.asked_device, self.asked_adapt_device, self._fence = device, adapt_device, fence
        self._backbones: Opened[Backbone] = Opened(_weights_of)
        self._datasets: Opened[Dataset] = Opened(_data_of)
        self._handed_out = False  # a dataset or backbone, to somebody who may have changed it
        self._packs: Opened[Pack] = Opened(lambda pack: (pack.file,))

    @cached_property
    def device(self) -> str:
        return devices.usable(self.asked_device, "--device")

    @cached_property
    def fence(self) -> Fence:
        from tta_bench.runs.fence import Fence

        return Fence() if self._fence is None else self._fence

    @property
    def step_timeout(self) -> float | None:
        return None if self._fence is None else self._fence.step_timeout

    @cached_property
    def store(self) -> FeatureStore:
        from tta_bench.features.store import FeatureStore

        return FeatureStore(self.home / "store", lambda text: self.reporter.warn(text))

    # ------------------------------------------------------------------------------------------- what runs need

    def backbone(
        self, name: str, precision: str = "fp32", weights: Path | None = None, random_weights: bool = False
    ) -> Backbone:
        """The backbone of that name, loaded once. Whoever has it may change it, so that no run of this bench is known
        without a look at it from then on."""
        self._handed_out = True
        return self.loaded(name, precision, weights, random_weights)

    def loaded(self, name: str, precision: str, weights: Path | None, random_weights: bool) -> Backbone:
        """The same for who only looks."""

        request = (name, precision, weights, self.unknown_weights(name, weights), random_weights)

        def load() -> Backbone:
            from tta_bench.features.global_rngs import untouched
            from tta_bench.interfaces import BackboneExtras
            from tta_bench.runs.one_request import refuse_another

            cls = self.registry.backbone(name)
            if not random_weights:
                with untouched():
                    loaded = cls.load(self.device, weights, precision)
                refuse_another(name, loaded, (*request, self.device))
                return loaded
            random = BackboneExtras.of(cls).random
            if random is None:
                raise UsageError(f"backbone '{name}' can't be had with random weights")
            untrained: Backbone = random(self.device, precision)
            return untrained

        return self._backbones.get(request, load)

    def unknown_weights(self, backbone: str, weights: Path | None) -> str:
        """Digest of a file of weights, if the fingerprint may not know it: a built-in's does."""
        if weights is None or self.registry.origin("backbones", backbone).built_in:
            return ""
        return content(weights)

    def dataset(self, spec: str) -> Dataset:
        """The dataset of NAME or NAME:VARIANT, opened once; as for `backbone`."""
        self._handed_out = True
        return self.opened(spec)

    def opened(self, spec: str) -> Dataset:
        """The same for who only looks."""

        def open_it() -> Dataset:
            from tta_bench.features.labels import check_class_names
            from tta_bench.interfaces import DatasetExtras

            name, _, variant = spec.partition(":")
            with patience(self.reporter, f"opening {spec}: pictures that were not seen before are read once"):
                dataset = self.registry.dataset(name).open(self.root_of(spec), variant or "default")
            check_class_names(dataset)
            for warning in DatasetExtras.of(dataset).warnings:
                self.reporter.warn(warning)
            return dataset

        return self._datasets.get(spec, open_it)

    def root_of(self, dataset: str) -> Path:
        """Where a dataset looks for its files."""
        return self.data.get(dataset.partition(":")[0], self.data_root)

    def pack(self, file: Path) -> Pack:
        from tta_bench.features.pack import Pack

        return self._packs.get(file, lambda: Pack(file))

    def files_behind(self, thing: Backbone | Dataset | Pack) -> Read | None:
        """Those of something that was opened here, as they were then; None if that can't be told."""
        shelves: tuple[Opened[Any], ...] = (self._backbones, self._datasets, self._packs)
        return next((read for shelf in shelves if (read := shelf.read(thing)) is not None), None)

    def dataset_name(self, spec: RunSpec) -> str:
        """As it stands in tables; a pack says it itself."""
        if spec.pack is not None:
            return self.pack(spec.pack).dataset
        return spec.dataset if isinstance(spec.dataset, str) else spec.dataset.name

    def configure(self, spec: RunSpec) -> Configured:
        """The run's method with its hyper-parameters."""
        from tta_bench.runs import hyperparameters

        if not isinstance(spec.method, str):
            return hyperparameters.of_instance(spec.method)
        plugin = self.registry.find("methods", spec.method)
        if plugin.distribution == BUILT_IN:
            configured = hyperparameters.build(self.registry.method(spec.method), spec.settings, spec.preset)
        else:
            configured = self.fence.configure(plugin, spec.settings, spec.preset)
        suite = spec.protocol_preset
        return configured if suite is None else ProtocolPreset.named(suite).tagged(configured)

    def offer(self, method: str | Method) -> Offer:
        """What a method can be asked for."""
        from tta_bench.runs.hyperparameters import Offer

        if not isinstance(method, str):
            return Offer(frozenset(), frozenset(), frozenset(method.recipes))  # it has its settings
        plugin = self.registry.find("methods", method)
        return Offer.of(self.registry.method(method)) if plugin.distribution == BUILT_IN else self.fence.offer(plugin)

    def source(self, spec: RunSpec) -> Source:
        """Where the run's features come from."""
        from tta_bench.runs.sourcing import source_of

        return source_of(self, spec)

    # ---------------------------------------------------------------------------------------------------- runs

    def check(self, spec: RunSpec) -> None:
        """Refuses what can be seen to be wrong before a backbone is loaded or a dataset opened."""
        from tta_bench.prompts.sets import check_name

        if spec.pack is None:
            check_name(spec.prompt)
        with blamed(str(spec)):
            self.method_and_recipes(spec)

    def method_and_recipes(self, spec: RunSpec) -> tuple[Method, dict[str, ViewRecipe]]:
        """The method with its settings, and the views that it will see, by role."""
        method = self.configure(spec).method
        return method, recipes_of(method, spec)

    def prepare(self, spec: RunSpec) -> Run:
        """The run with all that it needs, before anything is encoded."""
        from tta_bench.runs.run import Run

        configured = self.configure(spec)
        method = configured.method
        method.validate()  # refuses at once when a file or a second model is missing
        recipes = recipes_of(method, spec)
        source = self.source(spec)
        source.check(method, recipes)
        second = method.second_backbone()
        # A reward model reads the words, whatever context the student starts from.
        rewarding = dataclasses.replace(spec, backbone=second or "", weights=None, prompt="photo")
        return Run(
            spec=spec,
            configured=configured,
            origin=origin_of(method),
            recipes=recipes,
            source=source,
            reward=None if second is None else self.source(rewarding),
            device=self.device,
            adapt_device=devices.of_adaptation(self.asked_adapt_device, self.device, method),
            batch_size=self.encoding.batch_size,
        )

    def find(self, spec: RunSpec) -> RunRecord | None:
        """The record of a run that was asked for before and has not changed since, found without torch."""
        return None if self._handed_out else known.find(self.home, self.runs, spec, self.surroundings(spec))

    def can_find(self, spec: RunSpec) -> bool:
        """Whether `find` would know such a run: with outside code it can't tell."""
        return not self._handed_out and known.can_be_told(spec, self.surroundings(spec))

    def run(self, spec: RunSpec, force: bool = False) -> Outcome:
        """Runs it, unless its record is there."""
        found = None if force else self.find(spec)
        if found is not None:
            return self._found(found)
        from tta_bench.runs.plain_torch import plain_torch

        try:
            turn = nullcontext() if isinstance(spec.method, str) else _INSTANCES.of(spec.method)
            with plain_torch(), blamed(str(spec)), turn:
                return self._run(spec, force)
        except BackboneChanged:
            self._backbones.clear()  # the next run loads its own again
            raise

    def _run(self, spec: RunSpec, force: bool) -> Outcome:
        run = self.prepare(spec)
        folder = RunFolder(self.runs, run.run_id)
        record, _ = (None, "") if force or folder.untidy else folder.state()  # without a lock: it may be read-only
        if record is not None and (unlike := self._second_look(run, record)) is not None:
            run.notes += unlike
            record, force = None, True
        already = record is not None
        if record is None:
            record, already = self._locked(folder, run, force)
        if not self._handed_out:
            known.remember(self.home, spec, self.surroundings(spec), run.run_id, run.read_from)
        return self._found(record) if already else Outcome(record, already)

    def _second_look(self, run: Run, record: RunRecord) -> list[str] | None:
        """What to say if an instance does not give what its record says; None if it does."""
        from tta_bench.runs.second_look import unlike_record

        return unlike_record(run, record, self.configure)

    def _locked(self, folder: RunFolder, run: Run, force: bool) -> Outcome:
        """A second process waits, and then finds the record."""
        with folder.locked(lambda: self.reporter.line(f"another process is running {run.run_id}: waiting for it")):
            folder.recover()
            record, damage = folder.state()
            if record is not None and not force:
                folder.tidy()
                return Outcome(record, True)
            if damage and not force:
                self.reporter.warn(f"{damage}: running again")
            if damage and (aside := folder.spare_another()) is not None:
                self.reporter.warn(f"{aside.name}: there the other run is now")
            replacing = force or bool(damage)
            record = run.execute(folder.begin(replacing), self.checkpoint_seconds, self.reporter)
            if replacing:
                folder.publish()
            run.say_notes(record, self.reporter)
            return Outcome(dataclasses.replace(record, folder=folder.final), False)

    def _found(self, record: RunRecord) -> Outcome:
        """What makes the numbers mean less than they seem to is said again when they are shown again."""
        if record.folder is not None and (unnoted := asked.note(record.folder)):
            self.reporter.warn(f"{record.method}: {unnoted}")
        for note in record.notes:
            self.reporter.warn(f"{record.method}: {note}")
        by, now = record.provenance.get("versions", {}).get("ttabench", "unknown"), known.version()
        if by != now:
            said = f"recorded by other code of ttabench ({by}, and this is {now}): --force runs it again"
            self.reporter.warn(f"{record.method}: {said}")
        return Outcome(record, True)

    def surroundings(self, spec: RunSpec) -> known.Surroundings:
        """What beside the request decides which run it is."""
        root = self.root_of(spec.dataset) if isinstance(spec.dataset, str) else self.data_root
        return known.Surroundings(self.registry, root, self.encoding.dtype)


def _data_of(dataset: Dataset) -> Sequence[Path] | None:
    from tta_bench.interfaces import DatasetExtras

    return DatasetExtras.of(dataset).sources


def _weights_of(backbone: Backbone) -> Sequence[Path] | None:
    from tta_bench.interfaces import BackboneExtras

    return BackboneExtras.of(backbone).sources
