"""What a method answers, looked at: a wrong shape, a NaN or a lost digit must not become a number in a table."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from tta_bench.errors import PluginError
from tta_bench.interfaces import Method

RESERVED = "__metadata__"  # of the file format in which reports are kept
LARGEST = float(np.finfo(np.float64).max)  # of whole numbers in a report, which is kept as float64
FINEST = 1e-4  # of the spread of scores; float32 keeps logits to a millionth of it


def unusable_scores(scores: object, classes: int) -> str:
    """What is wrong with what `step` returned; empty if nothing is."""
    wanted = f"step must return scores [{classes}] or [branches, {classes}]"
    if not isinstance(scores, Tensor) or _odd_kind(scores):
        return _not_plain(scores, wanted)
    if scores.dim() not in (1, 2) or scores.shape[-1] != classes or len(scores) == 0:
        return f"{wanted}, not {tuple(scores.shape)}"
    as_recorded = scores.detach().float()
    plain = as_recorded.cpu().resolve_neg()
    if not np.isfinite(plain.numpy()).all():  # numpy takes a third of torch's time for a few numbers
        return "scores are not finite"
    return _lost_in_float32(scores, as_recorded)


def unusable_results(scores: object, outputs: Tensor) -> str:
    """What is wrong with what `finish` returned for outputs [N, B, C]; empty if nothing is."""
    wanted = f"finish must return a tensor {(outputs.shape[0], outputs.shape[2])}"
    if not isinstance(scores, Tensor) or _odd_kind(scores):
        return _not_plain(scores, wanted)
    if scores.shape != (outputs.shape[0], outputs.shape[2]):
        return f"{wanted}, not {tuple(scores.shape)}"
    as_recorded = scores.detach().float()
    if not as_recorded.isfinite().all():
        return "what finish returns is not finite"
    return _lost_in_float32(scores, as_recorded)


def reported(method: Method) -> dict[str, float]:
    """The step's diagnostics, checked: a method may have a `take_report` of its own."""
    report: object = method.take_report()
    if not isinstance(report, dict):
        raise PluginError(f"method '{method.name}': take_report must return a dict, not {type(report).__name__}")
    for name, value in report.items():
        if name == RESERVED:
            raise PluginError(f"method '{method.name}': a report may not be called {RESERVED}")
        if isinstance(value, int) and abs(value) > LARGEST:
            raise PluginError(f"method '{method.name}': the report {name!r} is too large a number")
        if not isinstance(name, str) or not isinstance(value, int | float):
            raise PluginError(
                f"method '{method.name}': take_report must return numbers by name, not {type(value).__name__} for "
                f"{name!r}"
            )
    return report


def _lost_in_float32(scores: Tensor, as_recorded: Tensor) -> str:
    """A large offset in float64 would round differences away, and with them the ranking; so would tiny scores and large
    whole numbers."""
    if scores.dtype.itemsize <= (4 if scores.is_floating_point() else 2):
        return ""
    if ((as_recorded == 0) & (scores != 0)).any():
        return "scores are recorded as float32, in which some of these become 0: return their logarithms"
    exact = scores.detach().double()
    lost, spread = (as_recorded.double() - exact).abs().max(), exact.max() - exact.min()
    if not lost > FINEST * spread:
        return ""
    return f"scores are recorded as float32, which rounds these by up to {lost:.2g}: take their large offset away"


def _not_plain(answer: object, wanted: str) -> str:
    if not isinstance(answer, Tensor):
        return f"{wanted}, not {type(answer).__name__}"
    return f"{wanted} of plain real numbers, not a {_odd_kind(answer)} tensor"


def _odd_kind(tensor: Tensor) -> str:
    """Tensors that would lose something, or everything, on the way to float32."""
    if tensor.is_nested or tensor.layout is not torch.strided:
        return "nested" if tensor.is_nested else "sparse"
    if tensor.is_complex() or tensor.is_quantized:
        return "complex" if tensor.is_complex() else "quantised"
    return "meta" if tensor.is_meta else ""
