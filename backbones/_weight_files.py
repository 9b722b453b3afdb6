"""Weights files: reading them without running anything that is in them, and filling a model with what they hold."""

from __future__ import annotations

import logging
import pickle
import warnings
import zipfile
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from tta_bench.errors import BadData, UsageError
from tta_bench.interfaces import LARGEST_SCALE
from tta_bench.system.tensors import refuse_damaged, refuse_special

log = logging.getLogger(__name__)

Weights = dict[str, Tensor]

TORCH_SUFFIXES = (".pt", ".pth", ".bin")
NOT_WEIGHTS = ("input_resolution", "context_length", "vocab_size", "attn_mask", "position_ids")  # in OpenAI's files
DEEPEST, MOST_MODULES = 100, 100_000  # of a TorchScript file; CLIP's modules are 5 deep and some hundreds
SMALL_MATRIX, SHORTEST_HOLE = 1000, 1024  # numbers
COUNTERS = "num_batches_tracked"  # of batch norms: no feature depends on them, and not every file has them


def read_weights(file: Path) -> Weights:
    """The tensors of a weights file by name, whatever wraps them."""
    if not file.is_file():
        raise UsageError(f"weights {file}: no such file")
    content: Any
    if file.suffix == ".safetensors":
        content = _read_safetensors(file)
    elif file.suffix in TORCH_SUFFIXES:
        refuse_damaged(file)
        content = _read_torchscript(file) if _is_torchscript(file) else _read_torch(file)
    else:
        raise UsageError(f"weights {file}: its name must end with .safetensors, {', '.join(TORCH_SUFFIXES)}")
    for wrapper in ("state_dict", "model"):  # training scripts keep the epoch and the optimiser beside the weights
        if isinstance(content, dict) and isinstance(content.get(wrapper), dict):
            _refuse_two(content, wrapper, file)
            content = content[wrapper]
    weights = {str(k): v for k, v in content.items() if isinstance(v, Tensor)} if isinstance(content, dict) else {}
    if not weights:
        raise BadData(f"{file} holds no weights: a weights file is a table of tensors by name")
    if all(name.startswith("module.") for name in weights):  # saved from within DistributedDataParallel
        weights = {name.removeprefix("module."): tensor for name, tensor in weights.items()}
    return {name: tensor for name, tensor in weights.items() if name.rpartition(".")[2] not in NOT_WEIGHTS}


def _refuse_two(content: dict[str, Any], wrapper: str, file: Path) -> None:
    """Averaged weights beside the last ones: numbers of either would be taken for the other's."""
    names = _names_of_tensors(content[wrapper])
    other = next((key for key in content if key != wrapper and names & _names_of_tensors(content[key])), None)
    if other is not None:
        raise BadData(
            f"{file} holds weights twice, as '{wrapper}' and as '{other}': save those alone that are meant, best as "
            ".safetensors"
        )


def _names_of_tensors(table: object) -> set[str]:
    if not isinstance(table, dict):
        return set()
    return {str(name).removeprefix("module.") for name, value in table.items() if isinstance(value, Tensor)}


def _read_safetensors(file: Path) -> Weights:
    try:
        weights: Weights = load_file(file)
    except (SafetensorError, OSError, ValueError) as error:
        raise BadData(f"{file} is not a whole safetensors file: {_one_line(error)}") from error
    return weights


def _read_torch(file: Path) -> Any:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch explains a plain pickle at length; the lines below say enough
            return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:  # what a broken file raises depends on the byte that is broken
        with file.open("rb") as content:
            known = content.read(2) in (b"PK", b"\x80\x02", b"\x80\x03", b"\x80\x04", b"\x80\x05")
        if isinstance(error, pickle.UnpicklingError) and (known or "global" in str(error).lower()):
            raise BadData(
                f"{file} holds more than tensors, and loading it could run any code: refused. "
                "Save the model's state_dict() alone, best as .safetensors"
            ) from error
        # Torch's own advice is to switch its protection off, so it is not repeated here.
        advises = isinstance(error, pickle.UnpicklingError) or "weights_only" in str(error)
        reason = "a table of tensors by name is wanted" if advises else _one_line(error)
        raise BadData(f"{file} is not a whole PyTorch file: {reason}") from error


def fill(model: Any, weights: Weights, file: Path, architecture: str) -> None:
    """Puts the weights into the model. Raises `BadData` unless they are exactly those of its architecture."""
    from open_clip.convert import convert_state_dict  # late, for the sake of those who have no weights
    from open_clip.model import convert_to_custom_text_state_dict

    for name, tensor in weights.items():  # before anything is done with them
        refuse_special(tensor, f"{file}: its tensor {name}")
    weights = convert_state_dict(model, weights)
    if "positional_embedding" in weights and not hasattr(model, "positional_embedding"):
        weights = convert_to_custom_text_state_dict(weights)  # of before the text tower was a module of its own
    wanted = model.state_dict()
    for name in ("logit_scale", "logit_bias"):  # a number in some files, a list of one number in others
        if name in weights and name in wanted and weights[name].numel() == wanted[name].numel():
            weights[name] = weights[name].reshape(wanted[name].shape)
    missing = [name for name in wanted if name not in weights and not name.endswith(COUNTERS)]
    unknown = [name for name in weights if name not in wanted]
    misshapen = [n for n in wanted if n in weights and weights[n].shape != wanted[n].shape]
    faults = {"missing": missing, "of another shape": misshapen, "unknown": unknown}
    if any(faults.values()):
        counts = "; ".join(f"{len(names)} {fault} ({_some(names)})" for fault, names in faults.items() if names)
        raise BadData(f"{file} does not hold the weights of {architecture}: of its tensors {counts}")
    for name, tensor in weights.items():
        _refuse_values(tensor, wanted[name], f"{file}: its tensor {name}")
    _refuse_scale(weights["logit_scale"], file)
    model.load_state_dict(weights, strict=False)  # only counters can be missing by now
    _point_out_zeros({name: wanted[name] for name in weights}, file)


def _refuse_values(tensor: Tensor, wanted: Tensor, what: str) -> None:
    """torch copies any numbers into a model, also those of a quantised one, whose scales are elsewhere."""
    if not wanted.is_floating_point():
        return
    if not tensor.is_floating_point():
        raise BadData(
            f"{what} is {_short(tensor.dtype)}, where the model has floating-point numbers: "
            "save the state_dict() of the model before it was quantised"
        )
    if not tensor.to(wanted.dtype).isfinite().all():  # as the model will have them
        raise BadData(f"{what} holds values that are not finite: no number can come of these weights; take others")


def _refuse_scale(logarithm: Tensor, file: Path) -> None:
    logged = float(logarithm.detach().double())
    scale = float(torch.tensor(logged, dtype=torch.float64).exp())
    if scale > LARGEST_SCALE:
        raise BadData(
            f"{file}: its tensor logit_scale is {logged:.4g}, so that the scale would be {scale:.2g}, more "
            f"than any backbone's ({LARGEST_SCALE:g} at most): weights hold the logarithm of the scale; save that"
        )


def _point_out_zeros(weights: Weights, file: Path) -> None:
    """A copy that was cut short may be as long as it should be. It runs, and its features are of another model."""
    if not any(tensor.any() for tensor in weights.values() if tensor.dim() > 1):
        log.warning("ttabench: warning: %s: its weights are all zero, so its numbers mean nothing", file)
        return
    first, *others = [name for name, tensor in weights.items() if has_a_hole(tensor)] or [""]
    if first:
        extent = "is zero in a long stretch" if weights[first].any() else "is all zero"
        more = f" (so {'is' if len(others) == 1 else 'are'} {len(others)} more of its tensors)" if others else ""
        log.warning(
            "ttabench: warning: %s: its tensor %s %s%s, as in a damaged copy: compare its checksum with the original's",
            *(file, first, extent, more),
        )


def has_a_hole(tensor: Tensor) -> bool:
    """Whether a matrix is all zero, or more than 1 % of it in one stretch. Biases start as zeros, and some stay so.

    A stretch of that many covers one of the numbers that are as far apart: only around those that are zero the others
    are looked at.
    """
    size = tensor.numel()
    if tensor.dim() < 2 or size <= SMALL_MATRIX:
        return False
    numbers = tensor.flatten()
    least = min(size, max(SHORTEST_HOLE, size // 100 + 1))
    return any(_zeros_around(numbers, place, least) >= least for place in range(0, size, least))


def _zeros_around(numbers: Tensor, place: int, reach: int) -> int:
    """How many zeros there are in one stretch with the one at that place, as far as it reaches on either side."""
    if numbers[place]:
        return 0
    behind, ahead = numbers[max(0, place - reach) : place].nonzero(), numbers[place : place + reach].nonzero()
    first = max(0, place - reach) + int(behind[-1]) + 1 if len(behind) else max(0, place - reach)
    return (place + int(ahead[0]) if len(ahead) else min(len(numbers), place + reach)) - first


def _short(kind: object) -> str:
    return str(kind).removeprefix("torch.")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:2]) + (", …" if len(names) > 2 else "")


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__


# ------------------------------------------------------------------------------------------------------ TorchScript
# OpenAI publishes its models as TorchScript: a zip of code, of the storages' bytes and of a pickle of the objects that
# hold the tensors. We want the tensors alone, so the code is never looked at and the objects become plain containers.


def _is_torchscript(file: Path) -> bool:
    try:
        with zipfile.ZipFile(file) as archive:
            return any(name.endswith("/constants.pkl") for name in archive.namelist())
    except Exception:  # then torch will say what is wrong with it
        return False


def _read_torchscript(file: Path) -> Weights:
    try:
        with zipfile.ZipFile(file) as archive:
            root = next(name for name in archive.namelist() if name.endswith("/data.pkl")).removesuffix("data.pkl")
            with archive.open(f"{root}data.pkl") as objects:
                module = _TensorUnpickler(objects, archive, f"{root}data/").load()
            return dict(_named_tensors(module))
    except Exception as error:  # see _read_torch
        raise BadData(f"{file} is a TorchScript file that can't be read: {_one_line(error)}") from error


class _Module:
    """Stands in for whatever class a TorchScript object has."""


def _named_tensors(root: Any) -> Iterator[tuple[str, Tensor]]:
    if not isinstance(root, _Module):
        raise pickle.UnpicklingError("it holds no module")
    waiting, seen = [(root, "")], 0
    while waiting:
        module, prefix = waiting.pop()
        seen += 1
        if prefix.count(".") > DEEPEST or seen > MOST_MODULES:
            raise pickle.UnpicklingError("its modules hold each other without end")
        for name, value in vars(module).items():
            if isinstance(value, Tensor):
                yield prefix + name, value
            elif isinstance(value, _Module):
                waiting.append((value, f"{prefix}{name}."))


def _rebuild(storage: Tensor, offset: int, size: Sequence[int], stride: Sequence[int], *_: Any) -> Tensor:
    return storage.as_strided(size, stride, offset)  # checks that it stays within the storage


_CONTAINERS: dict[tuple[str, str], Any] = {
    ("torch._utils", "_rebuild_tensor_v2"): _rebuild,
    ("collections", "OrderedDict"): OrderedDict,
    ("torch.jit._pickle", "build_intlist"): list,
    ("torch.jit._pickle", "build_tensorlist"): list,
    ("torch.jit._pickle", "build_doublelist"): list,
    ("torch.jit._pickle", "build_boollist"): list,
    ("torch", "FloatStorage"): torch.float32,
    ("torch", "HalfStorage"): torch.float16,
    ("torch", "BFloat16Storage"): torch.bfloat16,
    ("torch", "DoubleStorage"): torch.float64,
    ("torch", "LongStorage"): torch.int64,
    ("torch", "IntStorage"): torch.int32,
    ("torch", "BoolStorage"): torch.bool,
}


class _TensorUnpickler(pickle.Unpickler):
    """Knows tensors and containers, and nothing that could run."""

    def __init__(self, objects: Any, archive: zipfile.ZipFile, storages: str) -> None:
        super().__init__(objects)
        self.archive, self.storages = archive, storages

    def find_class(self, module: str, name: str) -> Any:
        if module.startswith("__torch__"):
            return _Module
        if (module, name) not in _CONTAINERS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is not a tensor")
        return _CONTAINERS[module, name]

    def persistent_load(self, reference: Any) -> Tensor:
        _, dtype, key, *_ = reference
        return torch.frombuffer(bytearray(self.archive.read(f"{self.storages}{key}")), dtype=dtype)
