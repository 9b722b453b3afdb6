"""What a method costs whatever the hardware: the size of its state, the arithmetic of a step, the texts it encodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, ClassVar, NamedTuple, Protocol, Self, runtime_checkable

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from tta_bench.interfaces import BackboneExtras, Method, PromptTunable
from tta_bench.system.described import described
from tta_bench.system.files import digest


class Weight(NamedTuple):
    """A method's state from outside."""

    digest: str  # equal for equal states; empty for a method without one
    bytes: int


@runtime_checkable
class Remote(Protocol):
    """A method whose state is in another process, where it is weighed. The name is one that no method has by chance."""

    def weigh_remotely(self) -> Weight: ...


def weigh(method: Method) -> Weight:
    """The method's state; nothing if it has none, or one that can't be put into a checkpoint."""
    if isinstance(method, Remote):
        return method.weigh_remotely()
    try:
        state = method.state_dict()
    except Exception:  # said when a checkpoint is due, which a short run never reaches
        state = {}
    return Weight(digest(described(state)) if state else "", state_bytes(state))


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


class FlopCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types there
    """Floating-point operations of what runs within it; every operation is passed on as it is.

    torch has formulas for matrix products, convolutions and attention, forward and backward, and we add products with
    a vector: a multiplication and an addition are two. Elementwise functions, sorting and decompositions count nothing.
    torch's own `FlopCounterMode` replaces some operations by others, and takes seconds to import a compiler.
    """

    active: ClassVar[FlopCounter | None] = None  # for a method that has to count elsewhere

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.total = 0

    def __enter__(self) -> Self:
        FlopCounter.active = self
        return super().__enter__()  # type: ignore[no-untyped-call,no-any-return]

    def __exit__(self, *error: object) -> None:
        FlopCounter.active = None
        super().__exit__(*error)  # type: ignore[no-untyped-call]

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # nothing is compiled here; keeping the compiler off would import it

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        operation = func._overloadpacket
        with suppress(Exception):  # a formula that does not know this call must not end a run
            if operation in (torch.ops.aten.mv, torch.ops.aten.dot):  # which torch has no formulas for
                self.total += 2 * args[0].numel()
            elif operation in flop_registry:
                self.total += int(flop_registry[operation](*args, **(kwargs or {}), out_val=out))
        return out


class CountedPrompts:
    """A backbone's prompt tuning, counted. Like everything that a method is handed, it leads to no label."""

    __slots__ = ("_inner", "_looked_at", "_own", "_too_long", "backward_passes", "cut", "texts")

    def __init__(self, inner: PromptTunable, class_names: Sequence[str] = ()) -> None:
        """`class_names` are the dataset's own, which are looked at with its prompts."""
        self._inner, self.texts, self.backward_passes = inner, 0, 0
        self._too_long, self._own = BackboneExtras.of(inner).too_long, frozenset(class_names)
        self._looked_at: set[tuple[int, str]] = set()
        self.cut: list[str] = []  # names that are not read to their end behind so many words of context

    def init_context(self, words: str) -> Tensor:
        return self._inner.init_context(words)

    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        self.texts += len(class_names)
        self._look_at(len(context), class_names)
        features = self._inner.encode_context(context, class_names)
        if features.requires_grad:
            features.register_hook(self._count_backward)  # type: ignore[no-untyped-call]
        return features

    def _look_at(self, words: int, names: Sequence[str]) -> None:
        new = {(words, name) for name in names if name not in self._own} - self._looked_at
        self._looked_at |= new
        if new and self._too_long is not None:
            texts = {f"{'a ' * words}{name.replace('_', ' ')}.": f"<context> {name}." for _, name in sorted(new)}
            self.cut += [texts[text] for text in self._too_long(list(texts))]

    def _count_backward(self, _: Tensor) -> None:
        self.backward_passes += 1
