"""torch as a command has it, in a process that is somebody's own: a notebook may have switched something on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from tta_bench.errors import UsageError
from tta_bench.runs.forked import refuse_lost_threads
from tta_bench.system.together import Together
from tta_bench.system.whose import package_of

NUMPY: dict[str, Any] = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}  # its own defaults


@contextmanager
def plain_torch() -> Iterator[None]:
    """No autocast, float32 by default and in products, by the usual kernels, or features and scores would be others
    under the same names; gradients can be had; numpy raises nothing. All are given back, whatever a method has done to
    them."""
    device = torch.get_default_device()
    if device.type != "cpu":  # to switch it off would slow down every operation
        raise UsageError(f"torch's default device is {device} here: leave it alone, and choose with `device`")
    _refuse_modes()
    refuse_lost_threads()
    with ExitStack() as stack, _switches(), np.errstate(**NUMPY):
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def _switched() -> Iterator[None]:
    """What all threads of a process have in common; the rest is each one's own."""
    before, products = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    threads = torch.get_num_threads()
    mkldnn: Any = torch.backends.mkldnn  # its own context manager says something about TF32 each time
    kernels, mkldnn.enabled = mkldnn.enabled, True
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(before)
        torch.set_float32_matmul_precision(products)
        mkldnn.enabled = kernels


_switches = Together(_switched)


def _refuse_modes() -> None:
    """Whatever is computed within goes through them. torch's own count or watch, and so do ours."""
    functions = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    for mode in (*functions, *_get_current_dispatch_mode_stack()):
        if package_of(type(mode).__module__) not in ("torch", "tta_bench"):
            raise UsageError(
                f"{type(mode).__qualname__} is switched on around this run, and may change all that torch computes in "
                "it: run outside of its `with`"
            )
