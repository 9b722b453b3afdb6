"""What a method costs whatever the hardware: the size of its state, and the arithmetic of a step."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from tta_bench.interfaces import Method, Observation, State, Task
from tta_bench.system.described import described
from tta_bench.system.files import digest


def state_of(method: Method) -> State:
    """The method's state; empty if it has none, or one that can't be put into a checkpoint."""
    try:
        return method.state_dict()
    except Exception:  # said when a checkpoint is due, which a short run never reaches
        return {}


def state_digest(state: Mapping[str, Any]) -> str:
    """Equal for equal states; empty for a method without one."""
    return digest(described(state)) if state else ""


def state_bytes(value: Any) -> int:
    """Tensors by their elements, numbers as 8 bytes each, texts in UTF-8; containers themselves weigh nothing."""
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    if isinstance(value, Mapping):
        return sum(map(state_bytes, value.values()))
    if isinstance(value, list | tuple):
        return sum(map(state_bytes, value))
    if isinstance(value, str):
        return len(value.encode())
    return 0 if value is None else 8


Observe = Callable[[int], Iterator[Observation]]


def of_method(method: Method, task: Task, observe: Observe, images: int) -> dict[str, int]:
    """Size of the state that a stream of so many images leaves behind, and the arithmetic of its last step."""
    flops = step_flops(method, task, observe, images)
    return {"state_bytes": state_bytes(state_of(method))} | ({} if flops is None else {"step_flops": flops})


def step_flops(method: Method, task: Task, observe: Observe, images: int) -> int | None:
    """Floating-point operations of one more step on the last image, when all outputs are there: no number can depend
    on the counter. The method's state and random numbers are put back.

    torch has formulas for matrix products, convolutions and attention, forward and backward, and we add products with
    a vector: a multiplication and an addition are two. Elementwise functions, sorting and decompositions count nothing.
    None if the method can't take the step twice.
    """
    state, rng = state_of(method), task.rng.get_state()
    counter = FlopCounter()
    try:
        x = next(observe(images - 1))
        with torch.no_grad(), counter:
            method.step(x)
    except Exception:  # a method may raise anything, and its run is complete
        return None
    finally:
        method.take_report()
        with suppress(Exception):
            method.load_state_dict(state)
        task.rng.set_state(rng)
    return counter.total


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types there
    """Adds up torch's own formulas. Its `FlopCounterMode` would do, but takes seconds to import torch's compiler."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here; keeping the compiler off would import it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        operation = func._overloadpacket
        if operation in (torch.ops.aten.mv, torch.ops.aten.dot):  # which torch has no formulas for
            self.total += 2 * args[0].numel()
        elif operation in flop_registry:
            self.total += int(flop_registry[operation](*args, **(kwargs or {}), out_val=out))
        return out
