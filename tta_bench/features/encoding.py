"""From images to the store: render the views of what is missing, encode them in batches, write them block by block."""

from __future__ import annotations

import itertools
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence

import torch
from torch import Tensor

from tta_bench.errors import PluginError
from tta_bench.features import looked_at
from tta_bench.features.chance import other_views, refuse_chance
from tta_bench.features.encoder import Encoder, pace
from tta_bench.features.options import EncodingOptions
from tta_bench.features.rendering import Rendering, WorkersLost, is_loss, loss, render
from tta_bench.features.store import FeatureKey, FeatureStore, check_free_space
from tta_bench.features.store_writing import Writer
from tta_bench.interfaces import Backbone, BackboneExtras, Dataset, Preprocess, ViewRecipe
from tta_bench.pixels.resize import to_floats
from tta_bench.prompts.encoded import COMPANY_TOLERANCE, ROUNDED
from tta_bench.system.code import origin_of, told
from tta_bench.system.files import digest
from tta_bench.system.progress import Advance, Reporter, Silent

NORM_TOLERANCE = 0.01  # half precision is within 0.001
IN_TRAINING_TOLERANCE = 1e-4  # of a feature's length: the rounding of fp32
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
        """`code` stands for that of dataset and backbone: edited, they may encode something else. So may a recipe."""
        self.dataset, self.backbone, self.recipe, self.options = dataset, backbone, recipe, options
        self.seed = seed if recipe.seeded else 0
        self._ours = origin_of(backbone).built_in
        self._recipe_is_ours = origin_of(recipe).built_in
        self._last: tuple[int, Tensor] | None = None  # image that was rendered, and its views
        self._workers = options.workers
        recipe_code = origin_of(recipe).source
        codes = [part for part in (code, recipe_code) if part]
        images = digest([dataset.fingerprint, *codes]) if codes else dataset.fingerprint
        key = FeatureKey(images, backbone.fingerprint, told(recipe), self.seed, options.dtype)
        self.entry = store.entry(key, (len(dataset), recipe.count, backbone.embed_dim), options.batch_size)

    def ensure(self, indices: Sequence[int], reporter: Reporter) -> int:
        """Encodes whatever `indices` still lack and returns the number of encoder forwards (views) that it took.

        Other processes may encode the same: each claims ranges of blocks, and waits only when all that are left are
        others'.
        """
        blocks = self.entry.missing(indices)
        if not blocks:
            return 0
        if self.entry.damaged:
            reporter.line(f"store: {self.entry.damaged} damaged blocks of {self.recipe.name} will be encoded again")
        check_free_space(self.entry.folder, self.entry.bytes_for(blocks))
        images = [image for block in blocks for image in self.entry.images_of(block)]
        shares = refuse_chance(self.dataset, self.recipe, images, self.seed, self.preprocess)
        self._workers = 0 if shares else self.options.workers
        if shares and self.options.workers:
            reporter.line(f"{self.dataset.name} reads from a file that it keeps open: rendering in this process")
        encoded, waited = 0, False
        views = self._rendered(images[0])
        before = None if self._ours else looked_at.probed(self.backbone)
        task = reporter.task(f"encoding {self.recipe.name}", self._images(blocks), "images")
        with self.entry.writing() as writer, task as advance:
            while blocks:
                done = self._encode(blocks, writer, advance, reporter)
                writer.flush()
                if not done:
                    if not waited:
                        name = f"{self.recipe.name} with {self.backbone.name}"
                        reporter.line(f"another process is encoding {name}: waiting for it")
                        waited = True
                    writer.wait(blocks[0])
                left = self.entry.missing(indices)
                advance(self._images(blocks) - done - self._images(left))  # what others have done
                blocks, encoded = left, encoded + done
        if changed := looked_at.changed_since(self.backbone, before):
            self.entry.forget()
            raise PluginError(changed)
        drawn = [(images[0], views), *([self._last] if self._last is not None else [])]  # the last one by a worker
        if not all(torch.equal(before, self._rendered(image)) for image, before in drawn):
            self.entry.forget()
            raise other_views(self.recipe)
        return encoded * self.recipe.count

    def _rendered(self, index: int) -> Tensor:
        """Views of a recipe of somebody's own, to see whether they are the same later on; nothing of ours."""
        if self._recipe_is_ours:
            return torch.empty(0)
        return render(self.dataset, index, self.recipe, self.seed, self.preprocess)

    def _images(self, blocks: Iterable[int]) -> int:
        return sum(len(self.entry.images_of(b)) for b in blocks)

    def _encode(self, blocks: Sequence[int], writer: Writer, advance: Advance, reporter: Reporter) -> int:
        """Encodes those of the blocks that no other process has claimed, and returns how many images they are.

        Rendered ahead by worker processes; if they are lost, the rest is rendered here.
        """
        work = [self.entry.images_of(b) for b in blocks]
        rendering = Rendering(self.dataset, work, self.recipe, self.seed, self.preprocess)
        workers = rendering.usable(self._workers, reporter)
        encoder = Encoder(self.backbone, self.options.batch_size, reporter)
        images, began = 0, time.monotonic()
        flushed = began
        rendered_next: deque[int] = deque()  # jobs that are claimed but not encoded yet

        def free() -> Iterator[int]:
            """Jobs, claimed range by range as they are asked for."""
            job_of = {block: job for job, block in enumerate(blocks)}
            for _, range_ in itertools.groupby(blocks, self.entry.range_of):
                for block in writer.claim(list(range_)):
                    rendered_next.append(job_of[block])
                    yield job_of[block]

        def keep(rendered: Iterable[Tensor]) -> None:
            nonlocal images, flushed
            for pixels in rendered:
                job = rendered_next[0]
                features = encoder(pixels)
                if not images and not self._ours:
                    self._refuse_company(pixels, features)
                if not self._recipe_is_ours:
                    self._last = (work[job][-1], to_floats(pixels[-self.recipe.count :]))
                writer.write(blocks[job], self._features(blocks[job], features))
                rendered_next.popleft()
                images += len(work[job])
                now = time.monotonic()
                if now - flushed > FLUSH_SECONDS:
                    writer.flush()
                    flushed = now
                advance(len(work[job]), pace(encoder.seconds, now - began))

        jobs = free()
        if workers:
            try:
                keep(rendering.from_workers(workers, jobs))
                return images
            except (RuntimeError, WorkersLost) as error:
                if not is_loss(error):
                    raise
                reporter.line(f"{loss(error)}: rendering the rest in this process")
        keep(rendering.from_here(itertools.chain(tuple(rendered_next), jobs)))
        return images

    def _refuse_company(self, pixels: Tensor, features: Tensor) -> None:
        """Features are read by whoever asks for the image, so they may not depend on what was encoded with it."""
        alone = Encoder(self.backbone, 1, Silent())(pixels[-1:])
        tolerance = COMPANY_TOLERANCE.get(BackboneExtras.of(self.backbone).precision or "unknown", ROUNDED)
        if looked_at.is_in_training(self.backbone):  # then it is not precision that makes the difference
            tolerance = IN_TRAINING_TOLERANCE
        beside = features[-1:].float()  # if there is a nan in it, others say so
        if beside.isfinite().all() and not (alone.float() - beside).norm() <= tolerance:  # nor is a nan alone
            raise PluginError(
                f"backbone '{self.backbone.name}' gives a picture other features when it is encoded alone: it must not "
                "depend on the batch or on chance (call eval() in load)"
            )

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

    def expect(self, index: int) -> None:
        self.entry.expect(index)
