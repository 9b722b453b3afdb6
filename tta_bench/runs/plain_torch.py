"""torch as a command has it, in a process that is somebody's own: a notebook may have switched something on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch

from tta_bench.errors import UsageError


@contextmanager
def plain_torch() -> Iterator[None]:
    """No autocast and float32 by default, or features and scores would be others under the same names. Both are given
    back, whatever a method has done to them."""
    device = torch.get_default_device()
    if device.type != "cpu":  # to switch it off would slow down every operation
        raise UsageError(f"torch's default device is {device} here: leave it alone, and choose with `device`")
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with ExitStack() as stack:
            for kind in ("cpu", "cuda"):
                if torch.is_autocast_enabled(kind):
                    stack.enter_context(torch.autocast(kind, enabled=False))
            yield
    finally:
        torch.set_default_dtype(before)
