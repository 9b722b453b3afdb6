"""Prompt tuning in a process of its own: the text tower stays with the runner, and gradients come from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor


class RemotePrompts:
    """A backbone's prompt tuning, which stays with the runner: features come from there, and so do their gradients."""

    def __init__(self, ask: Callable[..., dict[str, Any]]) -> None:
        self._ask = ask
        self._unused: list[int] = []  # tickets of features whose gradients nobody can ask for any more

    def init_context(self, words: str) -> Tensor:
        context: Tensor = self._ask("words", words=words)["context"]
        return context

    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        tuned = torch.is_grad_enabled() and context.requires_grad
        features: Tensor = _RemoteFeatures.apply(context, list(class_names), tuned, self)
        return features

    def features(self, context: Tensor, names: list[str], tuned: bool) -> tuple[Tensor, Ticket]:
        unused = self._unused.copy()
        self._unused.clear()  # in place: every ticket knows this list
        answer = self._ask("context", context=context, names=names, tuned=tuned, unused=unused)
        return answer["features"].to(context.device), Ticket(answer["ticket"], self._unused if tuned else [])

    def gradient(self, ticket: Ticket, gradient: Tensor) -> Tensor:
        found: Tensor = self._ask("gradient", ticket=ticket.number, gradient=gradient)["gradient"]
        return found.to(gradient.device)


class Ticket:
    """Stands for features that the runner keeps the graph of, for as long as somebody holds it."""

    def __init__(self, number: int, unused: list[int]) -> None:
        self.number, self._unused = number, unused

    def __del__(self) -> None:
        self._unused.append(self.number)


class _RemoteFeatures(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, context: Tensor, names: list[str], tuned: bool, prompts: RemotePrompts) -> Tensor:
        features, ctx.ticket = prompts.features(context, names, tuned)
        ctx.prompts = prompts
        return features

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        # With create_graph=True: the graph is with the runner, so they would be wrong in silence.
        if torch.is_grad_enabled():
            raise RuntimeError("second derivatives of prompts can't be had in a process of its own")
        return ctx.prompts.gradient(ctx.ticket, gradients[0]), None, None, None
