"""The three hooks. A plugin implements any of them in a module that an entry point of the group `ttabench` names."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pluggy

if TYPE_CHECKING:
    from tta_bench.interfaces import Backbone, Dataset, Method

hookspec = pluggy.HookspecMarker("ttabench")


@hookspec
def ttabench_methods() -> list[type[Method]]:  # type: ignore[empty-body]  # a hookspec has no body
    """The adaptation methods of this plugin."""


@hookspec
def ttabench_datasets() -> list[type[Dataset]]:  # type: ignore[empty-body]
    """The datasets of this plugin."""


@hookspec
def ttabench_backbones() -> list[type[Backbone]]:  # type: ignore[empty-body]
    """The backbones of this plugin."""
