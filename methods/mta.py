"""MTA: a mean shift over the views of an image, each weighted by how well it fits the others.

Zanella and Ben Ayed, "On the Test-Time Zero-Shot Generalization of Vision-Language Models: Do We Really Need Prompt
Learning?", CVPR 2024. As the released code computes it, in double precision: its own distances come from a product in
single precision, which is off by as much as 1e-3.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import dot, stack_views
from tta_bench.functional.prototypes import unit
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import Plain

ROUNDS = 5  # T  of both steps, and the limit of steps within each
TOLERANCE = 1e-6
NEIGHBOURS = 0.3  # share of the other views that sets a view's bandwidth


class Cloud(NamedTuple):
    """The views of an image."""

    features: Tensor  # f  [V, D]
    squares: Tensor  # |f_v|²  [V]
    bandwidths: Tensor  # h_v²  [V]


class Mode(NamedTuple):
    """Where the views of an image gather."""

    inlierness: Tensor  # y  [V] sums to 1
    feature: Tensor  # m  [D] unit


@dataclass
class MTA(Method):
    """final = scale ⟨m, t⟩: the mode m of the views, found in turns with the inlierness y of each view."""

    name: ClassVar[str] = "mta"
    title: ClassVar[str] = "MTA"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "episodic"
    paper: ClassVar[Paper | None] = Paper(
        "On the Test-Time Zero-Shot Generalization of Vision-Language Models: Do We Really Need Prompt Learning?",
        "CVPR 2024",
        "https://arxiv.org/abs/2405.02266",
    )
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": Plain(63)}

    lambda_y: float = 0.2  # λ_y  weight of the inliernesses' entropy: the smaller, the fewer views count
    lambda_q: float = 4.0  # λ_q  weight of the agreement between the views' predictions

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(self.lambda_y > 0, "lambda_y is above 0")

    def start(self, task: Task) -> None:
        self.scale = task.scale
        self.text = task.text.double()  # [C, D]

    def step(self, x: Observation) -> Tensor:
        views = stack_views(x.image, x.views.get("views")).double()  # [V, D]
        neighbours = int(NEIGHBOURS * (len(views) - 1))
        # Official: NaN without a neighbour. Too few views have no density, so the image stands for itself.
        feature = self.seek(views, neighbours).feature if neighbours else views[0]
        return (self.scale * (self.text @ feature)).to(x.image.dtype)

    def seek(self, views: Tensor, neighbours: int) -> Mode:
        """y and m in turns, ROUNDS times; both go on from where they were."""
        probs = (self.scale * (views @ self.text.T)).softmax(1)  # [V, C]
        agreement = probs @ probs.T  # W  [V, V], its diagonal included
        cloud = gather(views, neighbours)
        mode = Mode(views.new_full((len(views),), 1 / len(views)), views[0])
        for _ in range(ROUNDS):
            inlierness = self.weigh(mode.inlierness, log_kernel(cloud, mode.feature).exp_(), agreement)
            mode = Mode(inlierness, shift(cloud, mode.feature, inlierness))
        return mode

    def weigh(self, y: Tensor, density: Tensor, agreement: Tensor) -> Tensor:
        """y ← softmax_v((g + λ_q W y) / λ_y), the density g at the mode held fixed."""
        for _ in range(ROUNDS):
            before, y = y, ((density + self.lambda_q * (agreement @ y)) / self.lambda_y).softmax(0)
            if (y - before).norm() < TOLERANCE:
                break
        return y


def gather(views: Tensor, neighbours: int) -> Cloud:
    """h_v² = ½ mean of the squared distances to the nearest other views."""
    squares = dot(views, views)
    distances = (squares[:, None] + squares - 2 * views @ views.T).clamp_min_(0)  # [V, V]
    distances.fill_diagonal_(-1)  # first in every row, and dropped there
    nearest = distances.topk(1 + neighbours, largest=False, sorted=True)[0][:, 1:]
    return Cloud(views, squares, nearest.mean(1) / 2 + 1e-12)  # identical views are no reason to divide by 0


def log_kernel(cloud: Cloud, mode: Tensor) -> Tensor:
    """ln g_v = −|f_v − m|² / 2h_v², with each view's own bandwidth: [V]."""
    squared_distances = cloud.squares + mode.dot(mode) - 2 * (cloud.features @ mode)
    return squared_distances / (-2 * cloud.bandwidths)


def shift(cloud: Cloud, mode: Tensor, inlierness: Tensor) -> Tensor:
    """m ← unit(Σ_v w_v f_v / Σ_v w_v), w_v = y_v g_v(m), until it rests."""
    log_inlierness = inlierness.log()
    for _ in range(ROUNDS):
        weights = (log_inlierness + log_kernel(cloud, mode)).softmax(0)  # far from every view, all w_v would be 0
        before, mode = mode, unit(weights @ cloud.features)
        if (mode - before).norm() < TOLERANCE:
            break
    return mode


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [MTA]
