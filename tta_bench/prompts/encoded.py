"""Whether features of texts are what a method takes them for."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tta_bench.errors import PluginError
from tta_bench.interfaces import Backbone, BackboneExtras
from tta_bench.system.code import origin_of

NORM_TOLERANCE = 0.01  # half precision is within 0.001
COMPANY_TOLERANCE = {"fp32": 0.01}  # of a feature's length; in half precision another batch may round otherwise:
ROUNDED = 0.1


def refuse_odd_features(backbone: Backbone, texts: Sequence[str], features: Tensor) -> None:
    """Raises `PluginError` for features [T, D] that are not of length 1, or that depend on the batch: a text would be
    another one beside other texts."""
    name, wanted = backbone.name, (len(texts), backbone.embed_dim)
    if not isinstance(features, Tensor) or features.shape != wanted:
        got = tuple(features.shape) if isinstance(features, Tensor) else type(features).__name__
        raise PluginError(f"backbone '{name}': encode_texts must return {wanted}, not {got}")
    if not (torch.linalg.vector_norm(features.float(), dim=-1) - 1).abs().max() <= NORM_TOLERANCE:  # nor is a nan
        raise PluginError(f"backbone '{name}' gave features of texts that are not of length 1: normalise them")
    if origin_of(backbone).built_in:
        return
    shortest = min(range(len(texts)), key=lambda place: len(texts[place]))
    alone = backbone.encode_texts([texts[shortest]])[0].to(features.device)
    tolerance = COMPANY_TOLERANCE.get(BackboneExtras.of(backbone).precision or "fp32", ROUNDED)
    if not (alone.float() - features[shortest].float()).norm() <= tolerance:
        raise PluginError(
            f"backbone '{name}' gives '{texts[shortest]}' other features when it is encoded alone: a text must not "
            "depend on those beside it (mask what pads it)"
        )
