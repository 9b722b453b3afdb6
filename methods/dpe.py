"""DPE: dual prototype evolving (Zhang et al., NeurIPS 2024), as its official code computes it.

Text prototypes and visual prototypes (class means of a small cache of confident images) both receive a residual that
is learned for one image and thrown away; the text prototypes also evolve as a running average over confident images.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from tta_bench import hookimpl
from tta_bench.functional import low_entropy_pool, normalised_entropy, scaled_product, stack_views, uncertainty
from tta_bench.functional.class_cache import ClassCache
from tta_bench.functional.prototypes import entropy_and_slope, felt, in_inference_mode, info_nce
from tta_bench.interfaces import Method, Observation, Paper, Setting, Status, Task, ViewRecipe
from tta_bench.views import AugMix


def _preset(alpha: float, beta: float, lr: float, align: float) -> dict[str, float]:
    return {"alpha": alpha, "beta": beta, "lr_text": lr, "lr_image": lr, "align": align}


Pulls = tuple[float, Tensor, Tensor]  # the alignment loss, and its slopes downwards in both prototypes [D, C]

# Prototypes are unit columns here, [D, C], with their lengths beside them: the official code's layout, and with two
# prototypes per class and not three adjacent ones, products without a transposed operand gain more than norms lose.


def inverse_length(x: Tensor) -> Tensor:
    """1/‖x‖ of each column, [D, C] -> [C]; never quite infinite, so that a zero vector can stay zero."""
    return x.square().sum(0).clamp_min_(1e-24).rsqrt_()


def turn(x: Tensor, length: Tensor, down: Tensor, lr: float, eps: float, fp16_length: Tensor | None) -> Tensor:
    """Direction of length·x + R with R = lr·g / (|g| + eps) and g = down / length, the first AdamW step from R = 0.

    It is x + lr/eps · down / (length² + length·|down|/eps). Betas cancel and weight decay multiplies zero.
    """
    magnitude = felt(down, fp16_length)
    torch.addcmul(length.square(), magnitude, length, value=1 / eps, out=magnitude)
    return torch.addcdiv(x, down, magnitude, value=lr / eps, out=magnitude)


@dataclass
class DPE(Method):
    """Dual prototype evolving."""

    name: ClassVar[str] = "dpe"
    title: ClassVar[str] = "DPE"
    status: ClassVar[Status] = "official code matched"
    setting: ClassVar[Setting] = "online"
    paper: ClassVar[Paper | None] = Paper(
        "Dual Prototype Evolving for Test-Time Generalization of Vision-Language Models",
        "NeurIPS 2024",
        "https://arxiv.org/abs/2410.12790",
    )
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {"views": AugMix(63)}
    # The official code gives the ten fine-grained sets the original image alone.
    presets: ClassVar[Mapping[str, Mapping[str, object]]] = {
        "imagenet": _preset(6.0, 5.0, 6e-4, 0.5),
        "imagenet-a": _preset(6.0, 5.0, 3e-4, 2.5) | {"predict_from": "selected"},
        "imagenet-v2": _preset(3.0, 8.0, 5e-4, 0.5),
        "imagenet-r": _preset(3.0, 8.0, 6e-4, 0.0),
        "imagenet-s": _preset(7.0, 7.45, 6e-4, 0.2),
        "caltech101": _preset(15.0, 5.0, 6e-4, 0.2),
        "dtd": _preset(6.0, 3.0, 6e-4, 0.2),
        "eurosat": _preset(3.0, 8.0, 5e-5, 0.2),
        "aircraft": _preset(6.0, 2.0, 6e-4, 0.2),
        "food101": _preset(3.0, 1.0, 2e-4, 0.2),
        "flowers": _preset(2.5, 5.0, 1e-4, 0.2),
        "pets": _preset(4.0, 7.0, 5e-5, 0.2),
        "cars": _preset(3.0, 7.0, 1e-4, 1.5),
        "sun397": _preset(6.0, 3.0, 2e-4, 0.2),
        "ucf101": _preset(9.0, 8.0, 4e-4, 0.2),
    }

    shots: int = 3  # M: cached images per class
    alpha: float = 6.0  # α: weight of the cache
    beta: float = 5.0  # β: sharpness of the cache
    lr_text: float = 6e-4  # step length of the text residual
    lr_image: float = 6e-4  # step length of the visual residual
    align: float = 0.5  # λ: weight of the alignment loss
    gate: float = 0.1  # τ_t: the text evolves when the normalised entropy of the scores is below
    keep: float = 0.1  # share of the views that count as confident
    eps: float = 1e-3  # AdamW's; sets how small a gradient is still felt
    predict_from: Literal["original", "selected"] = "original"  # "selected": the mean of the confident views
    emulate_fp16: bool = False  # round the optimiser's second moment as the official half-precision run did

    def __post_init__(self) -> None:
        super().__post_init__()
        self.require(0 < self.keep <= 1, "keep is a share of the views, above 0 and at most 1")
        self.require(self.shots >= 1, "shots is at least 1")
        self.require(self.eps > 0, "eps is above 0")
        self.require(self.alpha >= 0, "alpha can't be negative")

    def start(self, task: Task) -> None:
        self.scale = task.scale
        self.text_updates = 0
        self.cache = ClassCache(task.text, self.shots, self.alpha, self.beta, dtype=torch.float64)
        self.text = task.text.T.clone(memory_format=torch.contiguous_format)  # [D, C] unit
        self.text_length = torch.ones_like(task.text[:, 0])  # [C] of the sum of the prompts and the accepted samples
        self.visual_length = torch.ones_like(task.text[:, 0])  # [C] of the plain class means; the cache's keys are unit
        self.pulls: Pulls | None = None
        self._normalise_text()

    @property
    def text_bank(self) -> Tensor:
        """The running average of the text prototypes [C, D]."""
        return (self.text * (self.text_length / (1 + self.text_updates))).T

    def _normalise_text(self) -> None:
        self.pulls = None
        inverse = inverse_length(self.text)
        self.text *= inverse
        self.text_length /= inverse

    @in_inference_mode
    def step(self, x: Observation) -> Tensor:
        views = stack_views(x.image, x.views.get("views"))  # [V, D]
        n_classes = len(self.text_length)
        seen = low_entropy_pool(views, scaled_product(views, self.text, self.scale), self.keep)
        label = int(seen.logits.argmax())
        h = normalised_entropy(seen.entropy, n_classes)
        self.store(label, seen.feature, h)  # before the prediction: the image sees itself in the cache

        text, visual = self.adapt(seen.feature, seen.logits)
        text_inverse = inverse_length(text)
        feature = x.image
        if self.predict_from == "selected":
            feature = low_entropy_pool(views, (views @ text).mul_(self.scale * text_inverse), self.keep).feature
        cached = self.cache.scores(feature @ visual * inverse_length(visual))
        scores = cached.addcmul_(feature @ text, text_inverse, value=self.scale)

        score_entropy = uncertainty(scores)
        updated = normalised_entropy(score_entropy, n_classes) < self.gate
        if updated:
            self.text_updates += 1
            self.text.addcmul_(text, text_inverse.div_(self.text_length))
            self._normalise_text()
        self.report(
            {"pseudo_label": label, "cache_entropy": h, "score_entropy": score_entropy, "text_updated": updated}
        )
        return scores

    def store(self, label: int, feature: Tensor, h: float) -> None:
        """Offer an image to its class's cache; the class's visual prototype is the plain mean of its entries."""
        count = self.cache.offer_by_entropy(label, feature, h)
        if count:
            self.pulls = None
            self.visual_length[label] = self.cache.features[label].sum(0).norm().clamp_min(1e-12) / count

    def adapt(self, feature: Tensor, logits: Tensor) -> tuple[Tensor, Tensor]:
        """Text and visual prototypes [D, C], of any length, after one step on H(z + cache(f)) + align·InfoNCE.

        A slope in a unit vector can only turn it: its part along the vector, known from the cosines, is taken out.
        """
        if self.pulls is None:
            self.pulls = self.align_prototypes()
        align, text_pull, visual_pull = self.pulls
        match = feature @ self.cache.keys  # [C]
        cached = self.cache.scores(match)  # 0 for absent classes
        h, slope = entropy_and_slope(logits + cached)
        self.report({"loss_entropy": h, "loss_align": align})

        down = torch.addcmul(text_pull, self.text, slope * logits).addr_(feature, slope, alpha=-self.scale)
        samples = 1 + self.text_updates  # a residual of their average counts so often in their sum
        fp16_length = self.text_length / samples if self.emulate_fp16 else None
        text = turn(self.text, self.text_length, down, self.lr_text * samples, self.eps / samples, fp16_length)
        del down  # its memory serves the next
        slope *= cached
        down = torch.addcmul(visual_pull, self.cache.keys, slope * match, value=self.beta)
        down.addr_(feature, slope, alpha=-self.beta)
        fp16_length = self.visual_length if self.emulate_fp16 else None
        return text, turn(self.cache.keys, self.visual_length, down, self.lr_image, self.eps, fp16_length)

    def align_prototypes(self) -> Pulls:
        """InfoNCE, and align times its downward slopes in text and visual prototypes: no image has a part in them, so
        they hold until a prototype moves."""
        keys = self.cache.keys
        cosine = self.text.mT @ keys  # [C, C]
        loss, slope = info_nce(cosine, self.cache.alignment)
        slope *= self.align
        agreement = slope * cosine
        text = (self.text * agreement.sum(1)).addmm_(keys, slope.mT, alpha=-1)
        visual = (keys * agreement.sum(0)).addmm_(self.text, slope, alpha=-1)
        return loss, text, visual


@hookimpl
def ttabench_methods() -> list[type[Method]]:
    return [DPE]
