"""The cache of the methods that learn class prototypes: DPE, ReTA and PuRF."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor

from tta_bench.functional import insert_by_entropy
from tta_bench.functional.prototypes import alignment_of, unit


class Entered(NamedTuple):
    """Which of the offered items a cache has taken."""

    classes: Tensor  # [n]
    slots: Tensor  # [n]
    replaced: int  # how many of them took the place of another


class ClassCache:
    """M^c: up to L features per class with their entropies. F_cache^c is the unit mean of class c's features."""

    def __init__(self, text: Tensor, shots: int, alpha: float, beta: float, dtype: torch.dtype | None = None) -> None:
        """Empty; C, D and device are those of the text [C, D]. `dtype` is that of the entropies that are offered."""
        n_classes, dim = text.shape
        self.alpha, self.beta = alpha, beta
        self.features = text.new_zeros(n_classes, shots, dim)  # a free slot is zero
        self.entropies = text.new_full((n_classes, shots), math.inf, dtype=dtype)  # a free slot's is infinite
        self.keys = text.new_zeros(dim, n_classes)  # F_cache, in columns
        self._note_present()

    def _note_present(self) -> None:
        self.present = self.entropies[:, 0] < math.inf  # [C] mask L_p: slots fill from the front
        present = self.present.to(self.keys.dtype)
        self.log_amplitude = (self.alpha * present).log_().sub_(self.beta)  # [C] ln(α L_p) − β
        self.alignment = alignment_of(present)

    def offer(self, classes: Tensor, features: Tensor, entropies: Tensor, log_priorities: Tensor) -> Entered:
        """Each class [n] takes the feature [n, D] that is offered to it in place of the entry of the largest H', if
        its entropy [n] is below that H'; ln H' [n, L] is given, and infinite where a slot is free."""
        worst, slots = log_priorities.max(-1)  # the first of equals
        entering = (entropies.log() < worst).nonzero()[:, 0]
        classes, slots = classes[entering], slots[entering]
        if len(entering):
            self.features[classes, slots] = features[entering]
            self.entropies[classes, slots] = entropies[entering]
            self.keys[:, classes] = unit(self.features[classes].sum(1)).mT
            if not self.present[classes].all():
                self._note_present()
        return Entered(classes, slots, int((worst[entering] < math.inf).sum()))

    def offer_by_entropy(self, c: int, feature: Tensor, h: float) -> int:
        """Class c keeps its L entries of lowest entropy, in ascending order, of equal ones the older.

        Returns:
            How many entries the class has now if the new one [D] entered, otherwise 0.
        """
        count = insert_by_entropy(self.entropies, c, h, (self.features, feature))
        if count:
            self.keys[:, c] = unit(self.features[c].sum(0))
        if count == 1:
            self._note_present()
        return count

    def scores(self, cosine: Tensor) -> Tensor:
        """A(x) L_p with A(x) = α e^{−β(1−x)}, from cosines x with F_cache [..., C]; 0 for classes without an entry."""
        return torch.add(self.log_amplitude, cosine, alpha=self.beta).exp_()

    def state_dict(self) -> dict[str, Any]:
        return {"features": self.features.clone(), "entropies": self.entropies.clone(), "keys": self.keys.clone()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.features, self.entropies, self.keys = (state[key].clone() for key in ("features", "entropies", "keys"))
        self._note_present()
