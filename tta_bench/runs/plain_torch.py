"""torch as a command has it, in a process that is somebody's own: a notebook may have switched something on."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import torch
from torch.backends import cuda, mha
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils._device import DeviceContext
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from tta_bench.errors import UsageError
from tta_bench.runs.forked import refuse_lost_threads
from tta_bench.system.together import Together
from tta_bench.system.whose import package_of

KERNELS: list[tuple[Any, Any]] = [  # of attention: whether each is on, and what switches it
    (cuda.flash_sdp_enabled, cuda.enable_flash_sdp),
    (cuda.mem_efficient_sdp_enabled, cuda.enable_mem_efficient_sdp),
    (cuda.math_sdp_enabled, cuda.enable_math_sdp),
    (cuda.cudnn_sdp_enabled, cuda.enable_cudnn_sdp),
    (mha.get_fastpath_enabled, mha.set_fastpath_enabled),
]
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
    with ExitStack() as stack, _switches(), np.errstate(**NUMPY), _no_device_modes():
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        for kind in ("cpu", "cuda"):
            if torch.is_autocast_enabled(kind):
                stack.enter_context(torch.autocast(kind, enabled=False))
        yield


@contextmanager
def _no_device_modes() -> Iterator[None]:
    """`set_default_device("cpu")` and `with torch.device("cpu")` change nothing but that every operation goes through a
    mode, for which some kernels make way to others."""
    modes: list[Any] = []
    while (stack := _get_current_function_mode_stack()) and isinstance(stack[-1], DeviceContext):  # type: ignore[no-untyped-call]
        modes.append(_pop_mode())  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        for mode in reversed(modes):
            _push_mode(mode)  # type: ignore[no-untyped-call]


@contextmanager
def _switched() -> Iterator[None]:
    """What all threads of a process have in common; the rest is each one's own."""
    before, products = torch.get_default_dtype(), torch.get_float32_matmul_precision()
    threads = torch.get_num_threads()
    mkldnn: Any = torch.backends.mkldnn  # its own context manager says something about TF32 each time
    kernels, mkldnn.enabled = mkldnn.enabled, True
    others = [(switch, asked()) for asked, switch in KERNELS]
    for switch, _ in others:
        switch(True)
    torch.set_default_dtype(torch.float32)
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        torch.set_default_dtype(before)
        torch.set_float32_matmul_precision(products)
        mkldnn.enabled = kernels
        for switch, was_on in others:
            switch(was_on)


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
