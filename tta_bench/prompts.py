"""Class names -> prompt texts -> text bank [C, P, D] and class prototypes [C, D]."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tta_bench.errors import UnknownName
from tta_bench.interfaces import Backbone

TEMPLATES: dict[str, tuple[str, ...]] = {
    "photo": ("a photo of a {}.",),
    "ensemble": (
        "a photo of a {}.",
        "a photo of the {}.",
        "a blurry photo of a {}.",
        "a close-up photo of a {}.",
        "a photo of a small {}.",
        "a photo of a large {}.",
        "a drawing of a {}.",
    ),
}


@dataclass(frozen=True)
class PromptSet:
    """The texts of every class. All classes have the same number of them."""

    name: str
    texts: tuple[tuple[str, ...], ...]  # [C][P]

    @classmethod
    def named(cls, name: str, class_names: Sequence[str]) -> PromptSet:
        if name not in TEMPLATES:
            raise UnknownName("prompt", name, TEMPLATES, f"There are: {', '.join(TEMPLATES)}.")
        readable = [class_name.replace("_", " ") for class_name in class_names]
        return cls(name, tuple(tuple(t.format(class_name) for t in TEMPLATES[name]) for class_name in readable))

    @property
    def count(self) -> int:
        return sum(len(texts) for texts in self.texts)

    def encode(self, backbone: Backbone) -> tuple[Tensor, Tensor]:
        """Text bank [C, P, D] and prototypes unit(mean) [C, D]."""
        with torch.no_grad():
            features = backbone.encode_texts([text for texts in self.texts for text in texts])  # [C * P, D]
        bank = features.view(len(self.texts), -1, features.shape[-1])  # [C, P, D]
        return bank, torch.nn.functional.normalize(bank.mean(1), dim=-1)
