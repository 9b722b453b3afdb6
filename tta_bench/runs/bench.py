"""A grid of runs and what its runs share: loaded backbones, opened datasets and packs, the feature store."""

from __future__ import annotations

import shutil
from pathlib import Path

import filelock
import torch

from tta_bench import records
from tta_bench.errors import UsageError
from tta_bench.features.encoding import EncodingOptions
from tta_bench.features.pack import Pack
from tta_bench.features.source import ImageSource, PackSource, Source
from tta_bench.features.store import FeatureStore
from tta_bench.interfaces import Backbone, Dataset
from tta_bench.plugins import Registry
from tta_bench.prompts.sets import PromptSet
from tta_bench.records import RunRecord
from tta_bench.runs.run import Run, RunSpec
from tta_bench.system.files import disk_errors
from tta_bench.system.progress import Reporter

__all__ = ["Bench", "RunSpec", "open_dataset"]


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
        self._backbones: dict[tuple[str, str, Path | None, bool], Backbone] = {}
        self._datasets: dict[str, Dataset] = {}
        self._packs: dict[Path, Pack] = {}

    def backbone(self, spec: RunSpec) -> Backbone:
        key = (spec.backbone, spec.precision, spec.weights, spec.random_weights)
        if key not in self._backbones:
            cls = self.registry.backbone(spec.backbone)
            if spec.random_weights:
                random = getattr(cls, "random", None)
                if random is None:
                    raise UsageError(f"backbone '{spec.backbone}' can't be had with random weights")
                self._backbones[key] = random(self.device, spec.precision)
            else:
                self._backbones[key] = cls.load(self.device, spec.weights, spec.precision)
        return self._backbones[key]

    def dataset(self, spec: str) -> Dataset:
        if spec not in self._datasets:
            self._datasets[spec] = open_dataset(self.registry, spec, self.data_root)
            for warning in getattr(self._datasets[spec], "warnings", ()):
                self.reporter.line(f"ttabench: warning: {warning}")
        return self._datasets[spec]

    def source(self, spec: RunSpec) -> Source:
        """Where the run's features come from. Weights are looked for before data: they are more often missing."""
        if spec.pack is not None:
            if spec.pack not in self._packs:
                self._packs[spec.pack] = Pack(spec.pack)
            return PackSource(self._packs[spec.pack], spec.prompt)
        backbone = self.backbone(spec)
        dataset = self.dataset(spec.dataset)
        prompts = PromptSet.named(spec.prompt, dataset.class_names)
        return ImageSource(
            dataset,
            prompts.adapt(backbone),
            prompts,
            spec.dataset,
            spec.backbone,
            spec.precision,
            self.store,
            self.encoding,
            spec.seed,
            self.reporter,
        )

    def run(self, spec: RunSpec, force: bool = False) -> tuple[RunRecord, bool]:
        """The run's record, and whether it was there already (then nothing was done)."""
        run = Run(self, spec)
        folder = self.runs / run.run_id
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True)
        with filelock.FileLock(self.runs / f".{folder.name}.lock"):  # a second process waits and then finds the record
            done = (folder / "run.json").exists()
            damage = records.damage(folder) if done and not force else ""
            if damage:
                self.reporter.line(f"ttabench: warning: {damage}: running again")
            if force or damage:
                shutil.rmtree(folder)
                folder.mkdir()
            elif done:
                return records.load(folder), True
            return run.execute(folder), False


def open_dataset(registry: Registry, spec: str, data_root: Path) -> Dataset:
    """NAME or NAME:VARIANT."""
    name, _, variant = spec.partition(":")
    return registry.dataset(name).open(data_root, variant or "default")


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        torch.empty(0, device=name)
    except (RuntimeError, AssertionError) as error:
        reason = str(error).partition("\n")[0]
        raise UsageError(f"--device {name} can't be used here: {reason}") from error
    return name
