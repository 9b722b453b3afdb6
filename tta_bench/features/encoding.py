"""From images to the store: render the views of what is missing, encode them in batches, write them block by block."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from tta_bench.errors import PluginError
from tta_bench.features.encoder import Encoder, pace
from tta_bench.features.options import EncodingOptions
from tta_bench.features.rendering import Rendering, WorkersLost, is_loss, loss
from tta_bench.features.store import FeatureKey, FeatureStore, Writer, check_free_space
from tta_bench.interfaces import Backbone, Dataset, Preprocess, ViewRecipe
from tta_bench.system.code import origin_of
from tta_bench.system.files import digest
from tta_bench.system.progress import Advance, Reporter

NORM_TOLERANCE = 0.01  # half precision is within 0.001
FLUSH_SECONDS = 1.0  # at most this much work is lost to a kill -9


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
            with reporter.task(f"encoding {self.recipe.name}", images, "images") as advance:
                self._encode(blocks, writer, advance, reporter)
        return images * self.recipe.count

    def _missing(self, indices: Sequence[int], reporter: Reporter) -> list[int]:
        missing = self.entry.missing(indices)
        if self.entry.damaged:
            reporter.line(f"store: {self.entry.damaged} damaged blocks of {self.recipe.name} will be encoded again")
        return missing

    def _encode(self, blocks: Sequence[int], writer: Writer, advance: Advance, reporter: Reporter) -> None:
        """Rendered ahead by worker processes; if they are lost, the rest is rendered here."""
        work = [self.entry.images_of(b) for b in blocks]
        jobs = Rendering(self.dataset, work, self.recipe, self.seed, self.preprocess)
        workers = jobs.usable(self.options.workers, reporter)
        encoder = Encoder(self.backbone, self.options.batch_size, reporter)
        done, began = 0, time.monotonic()
        flushed = began

        def keep(rendered: Iterable[Tensor]) -> None:
            nonlocal done, flushed
            for pixels in rendered:
                writer.write(blocks[done], self._features(blocks[done], encoder(pixels)))
                done += 1
                now = time.monotonic()
                if now - flushed > FLUSH_SECONDS:
                    writer.flush()
                    flushed = now
                advance(len(work[done - 1]), pace(encoder.seconds, now - began))

        if workers:
            try:
                return keep(jobs.from_workers(workers))
            except (RuntimeError, WorkersLost) as error:
                if not is_loss(error):
                    raise
                reporter.line(f"{loss(error)}: rendering the rest in this process")
        return keep(jobs.from_here(done))

    def _features(self, block: int, features: Tensor) -> Tensor:
        """A block's features [images * V, D] as [images, V, D]; refused if they are no numbers."""
        lengths = torch.linalg.vector_norm(features.float(), dim=-1)  # of what is stored nothing is looked at again
        if not (lengths - 1).abs().max() <= NORM_TOLERANCE:  # nor is a nan; in float16 small ones would vanish
            first = self.dataset[self.entry.images_of(block)[0]].id
            why = "not of length 1" if torch.isfinite(features).all() else "not finite"
            raise PluginError(f"backbone '{self.backbone.name}' gave features that are {why}: {first} …")
        return features.view(-1, self.recipe.count, self.backbone.embed_dim)

    @property
    def preprocess(self) -> Preprocess:
        return self.backbone.preprocess

    def read(self, index: int) -> Tensor:
        """Unit-norm features [V, D] of image `index`."""
        return self.entry.read(index)
