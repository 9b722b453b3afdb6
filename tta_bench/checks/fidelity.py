"""Is a backbone here what it should be? Similarities of bundled images and texts against stored ones."""

from __future__ import annotations

import json
from importlib import resources
from pathlib import Path

import torch
from torch import Tensor

from tta_bench.interfaces import Backbone
from tta_bench.pixels.resize import to_floats
from tta_bench.plugins import Registry
from tta_bench.views import Original

IMAGES = 6
TOLERANCE = 2e-3  # cosine; another processor's float32 stays far below it, a wrong resize or mean far above


def similarities(backbone: Backbone, registry: Registry) -> Tensor:
    """Cosines [IMAGES, C] of the first clean scenes with all class prompts, through its own preprocessing."""
    scenes = registry.dataset("scenes").open(Path(), "clean")
    samples = [scenes[i] for i in range(IMAGES)]
    pixels = torch.cat([Original().render(s.image, s.id, 0, backbone.preprocess) for s in samples])
    texts = backbone.encode_texts([f"a photo of a {name}." for name in scenes.class_names])
    return backbone.encode_images(to_floats(pixels)) @ texts.T


def stored() -> dict[str, list[list[float]]]:
    """Backbone name -> similarities, as measured when the weights were first used here."""
    content = resources.files("tta_bench").joinpath("data/references.json").read_text(encoding="utf-8")
    references: dict[str, list[list[float]]] = json.loads(content)
    return references


def deviation(backbone: Backbone, registry: Registry) -> float | None:
    """Largest difference to the stored similarities; None where there are none."""
    reference = stored().get(backbone.name)
    if reference is None:
        return None
    return float((similarities(backbone, registry) - torch.tensor(reference)).abs().max())
