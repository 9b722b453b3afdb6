"""A method's state into a checkpoint, and back into the same objects.

A tensor that `start` made and the method changes in place may be held by others: an optimiser, a view. After a restart
they must hold it again. One that the method has replaced since is replaced again. Which is which is seen by comparing
the attributes with what they were right after `start`.
"""

from __future__ import annotations

import io
import weakref
from typing import Any

import torch
from torch import Tensor

from tta_bench.copies import keeps_state, storages
from tta_bench.interfaces import Method


class Started:
    """What a method's attributes were when it had just been started."""

    def __init__(self, method: Method) -> None:
        self._tensors = {name: weakref.ref(v) for name, v in vars(method).items() if isinstance(v, Tensor)}
        self._objects = {name: v for name, v in vars(method).items() if keeps_state(v)}

    def save(self, method: Method) -> dict[str, Any]:
        """Raises `TypeError` for a state that could not be brought back."""
        now = vars(method)
        for name, value in now.items():
            anew = keeps_state(value) and value is not self._objects.get(name) and not name.startswith("_")
            if anew and method.setting != "episodic":
                raise TypeError(
                    f"{method.name}.{name} was made after start, so a run that goes on could not bring it back: "
                    "make it in start(), or give it a leading underscore if the next image does not need it"
                )
        kept = [name for name, tensor in self._tensors.items() if now.get(name) is tensor()]
        return {"state": method.state_dict(), "kept": [name for name in kept if name in now]}


def load(method: Method, saved: dict[str, Any]) -> None:
    """Into a method that has just been started."""
    started = {name: vars(method).get(name) for name in saved["kept"]}
    method.load_state_dict(saved["state"])
    replaced = {name: value for name, value in vars(method).items() if name not in started}
    elsewhere = set(storages(replaced))  # memory that a tensor made since shares
    for name, tensor in started.items():
        now = vars(method).get(name)
        if not isinstance(tensor, Tensor) or not isinstance(now, Tensor) or tensor.shape != now.shape:
            continue
        if elsewhere.intersection(storages(now)):
            tensor.data = now
        else:
            with torch.no_grad():
                tensor.copy_(now)
        setattr(method, name, tensor)


def can_be_loaded(checkpoint: io.BytesIO) -> bool:
    """True. Raises `TypeError` for a checkpoint that could be written but not be read."""
    try:
        torch.load(io.BytesIO(checkpoint.getvalue()), weights_only=True)
    except Exception as error:
        raise TypeError(
            "its state holds what a checkpoint can't bring back: tensors, numbers, texts, lists and dicts can be"
        ) from error
    return True
