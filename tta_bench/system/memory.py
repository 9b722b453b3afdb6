"""Which arrays are on one piece of memory: tied weights, a view of a tensor, one array under two names.

Arrays that are equal and arrays that are one learn differently as soon as a step writes into them. Neither numpy nor
torch is imported for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

# What a sparse tensor is made of, by its layout.
PARTS = {
    "torch.sparse_coo": ("_indices", "_values"),
    **dict.fromkeys(("torch.sparse_csr", "torch.sparse_bsr"), ("crow_indices", "col_indices", "values")),
    **dict.fromkeys(("torch.sparse_csc", "torch.sparse_bsc"), ("ccol_indices", "row_indices", "values")),
}


class Memory:
    """Of the arrays that were noted."""

    def __init__(self) -> None:
        self._users: dict[int, list[list[int]]] = {}  # address -> which arrays, from where in it, in which steps
        self._noted: list[Any] = []  # with the arrays themselves: memory of what is freed is used again

    def note(self, array: Any) -> None:
        """Every time that it is met: two arrays on one piece of memory are the same as one array twice."""
        self._noted.append(array)
        with suppress(RuntimeError):  # some tensors are of no memory that could be asked for
            for part in _dense(array):
                start, address = _place(part)
                self._users.setdefault(address, []).append([len(self._noted), start - address, *strides(part)])

    def shared(self) -> list[list[list[int]]]:
        """For each piece of memory that several arrays use: which ones, from where, in which steps."""
        return [users for users in self._users.values() if len(users) > 1]


def _dense(array: Any) -> Iterator[Any]:
    """The array, or what it is made of; nothing of one that has no memory, or hides it."""
    if _is_torchs(array) and (array.is_nested or array.is_meta):
        return
    if _is_torchs(array) and str(array.layout) != "torch.strided":
        for name in PARTS.get(str(array.layout), ()):
            yield from _dense(getattr(array, name)())
    elif (_is_torchs(array) or hasattr(array, "ctypes")) and array.nbytes:  # numpy's numbers have no memory
        yield array


def _place(array: Any) -> tuple[int, int]:
    """Where it starts, and where the memory begins that it is a part of."""
    if _is_torchs(array):
        return array.data_ptr(), array.untyped_storage().data_ptr()
    owner = array
    while hasattr(owner.base, "ctypes"):
        owner = owner.base
    return array.ctypes.data, owner.ctypes.data


def strides(array: Any) -> list[int]:
    """Of an axis of one element they say nothing; sparse and nested tensors have none."""
    if _is_torchs(array):
        if array.is_nested or str(array.layout) != "torch.strided":
            return []
        steps = array.stride()
    else:
        steps = array.strides
    return [stride for stride, size in zip(steps, array.shape, strict=True) if size > 1]


def _is_torchs(array: Any) -> bool:
    return hasattr(array, "untyped_storage")
