"""A backbone's image encoder, fed in batches that its memory has room for."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from tta_bench.errors import PluginError
from tta_bench.interfaces import Backbone
from tta_bench.pixels.resize import to_floats
from tta_bench.system.progress import Reporter


class Encoder:
    """Rendered pixels [n, 3, S, S] -> features [n, D]. Batches become smaller, for good, when memory runs out."""

    def __init__(self, backbone: Backbone, batch_size: int, reporter: Reporter) -> None:
        self.backbone, self.batch_size, self.reporter = backbone, batch_size, reporter
        self.seconds = 0.0  # spent in here so far
        size = backbone.preprocess.size
        self._floats = torch.empty(0, 3, size, size)  # used again: fresh memory costs more than filling it

    def __call__(self, pixels: Tensor) -> Tensor:
        began = time.monotonic()
        batches: list[Tensor] = []
        done = 0
        while done < len(pixels):
            batch = self._encoded(pixels[done : done + self.batch_size])
            if batch is None:
                self.batch_size = (min(self.batch_size, len(pixels) - done) + 1) // 2
                self.reporter.line(f"memory is full: encoding {self.batch_size} views at a time from here on")
                continue
            views = len(pixels[done : done + self.batch_size])
            wanted = (views, self.backbone.embed_dim)
            if not isinstance(batch, Tensor) or batch.shape != wanted:
                got = tuple(batch.shape) if isinstance(batch, Tensor) else type(batch).__name__
                raise PluginError(f"backbone '{self.backbone.name}': encode_images must return {wanted}, not {got}")
            batches.append(batch.detach().clone())  # it may be memory that the next batch is written to
            done += views
        self.seconds += time.monotonic() - began
        return torch.cat(batches)

    def _encoded(self, pixels: Tensor) -> Tensor | None:
        """Features of one batch; None if it has to be a smaller one."""
        if len(self._floats) < len(pixels):
            self._floats = torch.empty(pixels.shape)
        try:
            return self.backbone.encode_images(to_floats(pixels, out=self._floats[: len(pixels)]))
        except (RuntimeError, MemoryError) as error:
            if len(pixels) == 1 or not is_full(error):
                raise
            return None


def is_full(error: Exception) -> bool:
    """Whether it says that there is no memory left, on an accelerator or here."""
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "can't allocate memory" in str(error)


def pace(encoder_seconds: float, all_seconds: float) -> str:
    """What encoding waits for: the encoder runs in this process, and the rest of the time it has no views."""
    return "the encoder sets the pace" if encoder_seconds > all_seconds / 2 else "rendering views sets the pace"
