"""Copies of what a method holds, for its state: plain data, and tensors that stay together where they share memory."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor


def keeps_state(value: Any) -> bool:
    """Whether it is an object that saves and restores itself, as torch's modules and optimisers do."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


class Copies:
    """Deep copies of plain data, device kept. Tensors that share their memory share it in the copies, too."""

    def __init__(self, data: Mapping[str, Any]) -> None:
        self._memo: dict[int, Any] = {}
        self._shared = {storage for storage, times in Counter(storages(data)).items() if times > 1}

    def of(self, value: Any, where: str) -> Any:
        """Raises `TypeError` for what can't be put into a checkpoint."""
        if isinstance(value, Tensor):
            shared = _storage(value) in self._shared
            return copy.deepcopy(value.detach(), self._memo) if shared else value.detach().clone()
        if value is None or isinstance(value, bool | int | float | str):
            return value
        if type(value) in (list, tuple):  # a named tuple would come back from a checkpoint as something else
            return type(value)(self.of(v, where) for v in value)
        if isinstance(value, dict):
            return {k: self.of(v, where) for k, v in value.items()}
        raise TypeError(
            f"{where} is a {type(value).__name__}: state must be tensors, numbers, strings, lists, dicts or objects "
            "with a state_dict; what start() can make again belongs into an attribute with a leading underscore"
        )


def storages(value: Any) -> Iterator[int]:
    """What memory the tensors in it use, by address."""
    if isinstance(value, Tensor):
        yield _storage(value)
    elif isinstance(value, Mapping | list | tuple):
        for inner in value.values() if isinstance(value, Mapping) else value:
            yield from storages(inner)


def _storage(tensor: Tensor) -> int:
    return tensor.untyped_storage()._cdata if tensor.layout is torch.strided else id(tensor)
