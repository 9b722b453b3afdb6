"""Zero-shot mAP of `tiny` on `scenes`: the whole image alone, and the mean over image and region crops.

python training/evaluate_tiny.py [--split validation] [--regions 50]
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import Random

import numpy as np
import torch
from PIL import Image
from sklearn.metrics import average_precision_score
from torch import Tensor

from tta_bench.backbones.tiny import WEIGHTS, Tiny
from tta_bench.datasets._scenes_layout import CLASS_NAMES
from tta_bench.datasets.scenes import VARIANTS, labels_of, layout_of, picture

PROMPT = "a photo of a {}."


def evaluate(
    weights: Path, split: str, variants: Sequence[str], count: int, regions: int
) -> dict[str, tuple[float, float]]:
    """mAP (%) of the image alone and of image and regions, per variant."""
    tiny = Tiny.load("cpu", weights)
    text = tiny.encode_texts([PROMPT.format(name) for name in CLASS_NAMES])  # [C, D]
    labels = np.stack([labels_of(layout_of(split, i)) for i in range(count)])
    scores: dict[str, tuple[float, float]] = {}
    for variant in variants:
        views = [look(picture(variant, split, i), regions, f"{split}/{i}", tiny.image_size) for i in range(count)]
        features = torch.cat([tiny.encode_images(v) for v in torch.split(torch.cat(views), 512)])
        logits = (tiny.logit_scale * features @ text.T).view(count, 1 + regions, -1)  # [N, 1 + Q, C]
        pooled = logits.softmax(-1).mean(1).log()
        scores[variant] = mean_ap(logits[:, 0], labels), mean_ap(pooled, labels)
    return scores


def look(image: Image.Image, regions: int, seed: str, size: int) -> Tensor:
    """The image and random squares of half to four fifths of its side, [1 + Q, 3, size, size] in [0, 1]."""
    rng, whole = Random(seed), image.width
    boxes: list[tuple[float, float, float, float]] = [(0, 0, whole, whole)]
    for _ in range(regions):
        side = whole * rng.uniform(0.5, 0.8)
        x, y = rng.uniform(0, whole - side), rng.uniform(0, whole - side)
        boxes.append((x, y, x + side, y + side))
    crops = [np.asarray(image.resize((size, size), Image.Resampling.BICUBIC, box)) for box in boxes]
    return torch.from_numpy(np.stack(crops)).permute(0, 3, 1, 2).float() / 255


def mean_ap(scores: Tensor, labels: np.ndarray[tuple[int, int], np.dtype[np.int8]]) -> float:
    return 100 * float(average_precision_score(labels, scores.numpy(), average="macro"))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weights", type=Path, default=WEIGHTS)
    parser.add_argument("--split", default="test", choices=("test", "validation"))
    parser.add_argument("--images", type=int, default=600)
    parser.add_argument("--regions", type=int, default=50)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for shift, (alone, pooled) in evaluate(
        arguments.weights, arguments.split, VARIANTS, arguments.images, arguments.regions
    ).items():
        print(f"{shift:8} image {alone:5.1f}   regions {pooled:5.1f}", flush=True)
