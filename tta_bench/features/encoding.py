"""From images to the store: render the views of what is missing, encode them in batches, write them block by block."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data import Dataset as TorchDataset

from tta_bench.errors import PluginError, StoreError, TTABenchError
from tta_bench.features.options import EncodingOptions
from tta_bench.features.store import FeatureKey, FeatureStore, check_free_space
from tta_bench.interfaces import Backbone, Dataset, Preprocess, ViewRecipe
from tta_bench.system.code import origin_of
from tta_bench.system.files import digest
from tta_bench.system.progress import Reporter

FLUSH_SECONDS = 1.0  # at most this much work is lost to a kill -9
FEW_BLOCKS = 4  # starting workers takes longer than rendering these


class EncodedViews:
    """One recipe of one dataset under one backbone: encodes what is missing, then reads from the store."""

    def __init__(
        self,
        store: FeatureStore,
        dataset: Dataset,
        backbone: Backbone,
        recipe: ViewRecipe,
        seed: int,
        options: EncodingOptions,
        code: str = "",
    ) -> None:
        """`code` stands for a dataset or backbone that is not built in: edited, it may encode something else. So may a
        recipe of somebody's own."""
        self.dataset, self.backbone, self.recipe, self.options = dataset, backbone, recipe, options
        self.seed = seed if recipe.seeded else 0
        recipe_code = origin_of(recipe).source
        outside = [part for part in (code, recipe_code) if part]
        images = digest([dataset.fingerprint, *outside]) if outside else dataset.fingerprint
        key = FeatureKey(images, backbone.fingerprint, repr(recipe), self.seed, options.dtype)
        self.entry = store.entry(key, (len(dataset), recipe.count, backbone.embed_dim), options.batch_size)

    def ensure(self, indices: Sequence[int], reporter: Reporter) -> int:
        """Encodes whatever `indices` still lack and returns the number of encoder forwards (views) that it took."""
        if not self._missing(indices, reporter):
            return 0
        name = f"{self.recipe.name} with {self.backbone.name}"
        with self.entry.writing(lambda: reporter.line(f"another process is encoding {name}: waiting for it")) as writer:
            blocks = self.entry.missing(indices)  # again: the other process may have done the work
            check_free_space(self.entry.folder, self.entry.bytes_for(blocks))
            images = sum(len(self.entry.images_of(b)) for b in blocks)
            flushed = time.monotonic()
            with reporter.task(f"encoding {self.recipe.name}", images, "images") as advance:
                for block, pixels in self._rendered(blocks):
                    features = self.backbone.encode_images(pixels)
                    if not torch.isfinite(features).all():  # what is stored is never looked at again
                        ids = [self.dataset[i].id for i in self.entry.images_of(block)]
                        raise PluginError(
                            f"backbone '{self.backbone.name}' gave features that are not finite: {ids[0]} …"
                        )
                    writer.write(block, features.view(-1, self.recipe.count, self.backbone.embed_dim))
                    if time.monotonic() - flushed > FLUSH_SECONDS:
                        writer.flush()
                        flushed = time.monotonic()
                    advance(len(self.entry.images_of(block)))
        return images * self.recipe.count

    def _missing(self, indices: Sequence[int], reporter: Reporter) -> list[int]:
        missing = self.entry.missing(indices)
        if self.entry.damaged:
            reporter.line(f"store: {self.entry.damaged} damaged blocks of {self.recipe.name} will be encoded again")
        return missing

    def _rendered(self, blocks: Sequence[int]) -> Iterator[tuple[int, Tensor]]:
        """The blocks' pixels [images * V, 3, S, S], in order, rendered ahead by worker processes."""
        work = [self.entry.images_of(b) for b in blocks]
        jobs = _Rendering(self.dataset, work, self.recipe, self.seed, self.backbone.preprocess)
        workers = 0 if len(blocks) <= FEW_BLOCKS else self.options.workers
        loader = DataLoader(jobs, batch_size=None, shuffle=False, num_workers=workers)
        try:
            for block, rendered in zip(blocks, loader, strict=True):
                if isinstance(rendered, TTABenchError):
                    raise rendered
                yield block, rendered
        except RuntimeError as error:
            if "DataLoader worker" not in str(error):
                raise
            raise StoreError("a rendering process died (out of memory or shared memory?): try --workers 0") from error

    @property
    def preprocess(self) -> Preprocess:
        return self.backbone.preprocess

    def read(self, index: int) -> Tensor:
        """Unit-norm features [V, D] of image `index`."""
        return self.entry.read(index)


class _Rendering(TorchDataset[Tensor | TTABenchError]):
    """One item = the pixels of one block; an error travels as a value, so that its message stays one line."""

    def __init__(
        self, dataset: Dataset, work: Sequence[range], recipe: ViewRecipe, seed: int, preprocess: Preprocess
    ) -> None:
        self.dataset, self.work, self.recipe, self.seed, self.preprocess = dataset, work, recipe, seed, preprocess

    def __len__(self) -> int:
        return len(self.work)

    def __getitem__(self, job: int) -> Tensor | TTABenchError:
        try:
            return torch.cat([render(self.dataset, i, self.recipe, self.seed, self.preprocess) for i in self.work[job]])
        except TTABenchError as error:
            return error


def render(dataset: Dataset, index: int, recipe: ViewRecipe, seed: int, preprocess: Preprocess) -> Tensor:
    """Pixels [V, 3, S, S] of one image."""
    sample = dataset[index]
    return recipe.render(sample.image, sample.id, seed, preprocess)
