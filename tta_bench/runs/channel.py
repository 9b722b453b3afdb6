"""Messages between the runner and a method in a process of its own: plain data and tensors, never a pickle."""

from __future__ import annotations

import json
import select
import socket
import struct
import time
from typing import Any

import torch
from torch import Tensor

LENGTH = struct.Struct("<Q")
LONGEST_HEADER = 2**26  # bytes; a longer one is none of ours
TENSOR = "\0tensor"  # marks the place of a tensor in the header: its type and shape follow
TYPES = {str(dtype).removeprefix("torch."): dtype for dtype in vars(torch).values() if isinstance(dtype, torch.dtype)}


class Lost(Exception):
    """The other side is gone, or says nothing that can be understood."""


class Channel:
    """One end of a pair of sockets. A message is a JSON object, and after it the bytes of its tensors.

    Attributes:
        watched: descriptor that becomes readable when the process at the other end ends: a child of its own may hold
            the socket open for ever.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.watched: int | None = None

    def send(self, **content: Any) -> None:
        """Raises `TypeError` for what is neither plain data nor a tensor, `Lost` if nobody listens."""
        _check_keys(content)
        tensors: list[memoryview] = []

        def described(value: Any) -> Any:
            if not isinstance(value, Tensor):
                raise TypeError(f"{type(value).__name__} is neither plain data nor a tensor")
            tensors.append(_bytes_of(value.detach().resolve_conj().resolve_neg().cpu().contiguous()))
            return {TENSOR: [str(value.dtype).removeprefix("torch."), *value.shape]}

        header = json.dumps(content, default=described).encode()
        try:
            self.connection.settimeout(None)
            self.connection.sendall(LENGTH.pack(len(header)) + header)
            for tensor in tensors:
                self.connection.sendall(tensor)
        except OSError as error:
            raise Lost(str(error)) from error

    def receive(self, deadline: float | None = None) -> dict[str, Any]:
        """The next message. Raises `TimeoutError` if it is not there by `deadline` (`time.monotonic`), or `Lost`."""
        header = self._bytes(LENGTH.unpack(self._bytes(LENGTH.size, deadline))[0], deadline)
        places: list[list[Any]] = []

        def placed(value: dict[str, Any]) -> Any:
            if value.keys() != {TENSOR}:
                return value
            places.append([torch.empty(value[TENSOR][1:], dtype=TYPES[value[TENSOR][0]])])
            return places[-1]

        try:
            message = json.loads(header, object_hook=placed)
            for place in places:  # the order in which JSON closes objects is the order in which they were written
                self._into(_bytes_of(place[0]), deadline)
        except (ValueError, KeyError, TypeError, RuntimeError) as error:
            raise Lost(f"a message that makes no sense ({error})") from error
        found: dict[str, Any] = _filled(message, {id(place) for place in places})
        return found

    def _wait(self, deadline: float | None) -> None:
        rest = None if deadline is None else max(deadline - time.monotonic(), 0.0)
        sources: list[Any] = [self.connection] if self.watched is None else [self.connection, self.watched]
        readable = select.select(sources, [], [], rest)[0]
        if not readable:
            raise TimeoutError
        if self.connection not in readable:
            raise Lost("the other side has ended")

    def _bytes(self, count: int, deadline: float | None) -> bytearray:
        if count > LONGEST_HEADER:
            raise Lost("a message that makes no sense")
        content = bytearray(count)
        self._into(memoryview(content), deadline)
        return content

    def _into(self, rest: memoryview, deadline: float | None) -> None:
        while rest:
            try:
                self._wait(deadline)
                count = self.connection.recv_into(rest)
            except TimeoutError:
                raise
            except OSError as error:
                raise Lost(str(error)) from error
            if not count:
                raise Lost("the other side has ended")
            rest = rest[count:]


def _check_keys(value: Any) -> None:
    """JSON would make texts of other keys, and so another mapping."""
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str) or "\0" in key:
                raise TypeError(f"the key {key!r} is no plain text")
    if isinstance(value, dict | list | tuple):
        for inner in value.values() if isinstance(value, dict) else value:
            _check_keys(inner)


def _bytes_of(tensor: Tensor) -> memoryview:
    """The contiguous tensor's own memory."""
    content: Any = tensor.flatten().view(torch.uint8).numpy()
    return memoryview(content)


def _filled(value: Any, places: set[int]) -> Any:
    """The message with each place taken by its tensor."""
    if id(value) in places:
        return value[0]
    if isinstance(value, dict):
        return {key: _filled(inner, places) for key, inner in value.items()}
    if isinstance(value, list):
        return [_filled(inner, places) for inner in value]
    return value
