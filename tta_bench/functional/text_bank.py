"""The text of the methods that let it evolve: ReTA and PuRF."""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

from tta_bench.functional import dot
from tta_bench.functional.prototypes import adamw_step, inverse_length, sum_unit


class Directions(NamedTuple):
    """Unit vectors as vectors of any length with their inverse lengths: to divide them takes a pass of its own."""

    vectors: Tensor  # [C, M, D]
    inverse: Tensor  # [C, M, 1]

    def mean(self) -> Tensor:
        """mean_m x_m/‖x_m‖, which is not a unit vector: [C, D]."""
        return sum_unit(self.vectors, self.inverse / self.vectors.shape[1])

    def last(self) -> Tensor:
        """x_M/‖x_M‖ [C, D]."""
        return self.vectors[:, -1] * self.inverse[:, -1]


class TextBank:
    """E_m^c: each class's adjacent embeddings [C, M, D], which evolve as a running average over accepted samples.

    E ← n/(n+1) · E + 1/(n+1) · unit(E + R) for the n-th accepted sample, not normalised: the prompts count as one
    sample, so the first accepted one weighs 1/2. It is kept as the sum of 1 + n samples, which takes one pass less to
    update; then a residual R of the average counts 1 + n times.
    """

    def __init__(self, embeddings: Tensor, eps: float, emulate_fp16: bool = False) -> None:
        """`eps` is AdamW's; `emulate_fp16` rounds its second moment, see `felt`."""
        self.sum = embeddings.clone()  # [C, M, D]
        self.updates = 0  # n
        self.eps, self.emulate_fp16 = eps, emulate_fp16
        self._measure()

    def _measure(self) -> None:
        self.directions = Directions(self.sum, inverse_length(self.sum))
        self.lengths = self.directions.inverse.reciprocal().div_(1 + self.updates)  # ‖E_m‖ [C, M, 1]
        self.floor = self.eps * self.lengths

    @property
    def average(self) -> Tensor:
        """E [C, M, D]."""
        return self.sum / (1 + self.updates)

    def adapted(self, slope: Tensor, lr: float) -> Directions:
        """unit(E + R) with R = −lr·g/(|g| + eps), one AdamW step from R = 0, from the slope dLoss/d unit(E_m) [C, M, D]
        or, where it is the same for all m, [C, 1, D].

        A slope s in a unit vector u can only turn it, so that g = (s − u (u·s)) / ‖E‖.
        """
        x, inverse = self.directions
        inner = x @ slope.mT if slope.shape[1] == 1 else dot(x, slope)[..., None]  # x·s  [C, M, 1]
        along = inner.mul_(inverse.square())  # (u·s) / ‖sum‖
        turning = slope.addcmul(x, along, value=-1)  # g · ‖E‖
        fp16_norm = self.lengths if self.emulate_fp16 else None
        moved = adamw_step(x, turning, self.floor, (1 + self.updates) * lr, fp16_norm)
        return Directions(moved, inverse_length(moved))

    def accept(self, adapted: Directions) -> None:
        """Average the adapted embeddings in as one more sample."""
        self.updates += 1
        self.sum.addcmul_(adapted.vectors, adapted.inverse)
        self._measure()

    def state_dict(self) -> dict[str, Any]:
        return {"sum": self.sum.clone(), "updates": self.updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.sum, self.updates = state["sum"].clone(), state["updates"]
        self._measure()
