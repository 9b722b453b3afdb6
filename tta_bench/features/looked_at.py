"""What datasets and backbones of others give, looked at before a run.

Their fingerprints may leave something out, and what they keep in private attributes nobody can tell from a memory that
fills up. So of a dataset count all ids and a few pictures, and of a backbone its weights and what it makes of a fixed
picture and text. What can't be looked at is left to the run, which says what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from tta_bench.errors import PluginError
from tta_bench.interfaces import Backbone, BackboneExtras, Dataset
from tta_bench.system.code import DEPTH, Origin
from tta_bench.system.data import PLAIN
from tta_bench.system.described import ADDRESS
from tta_bench.system.files import digest
from tta_bench.system.objects import attributes_of

PICTURES = 4
TEXT = "a photo of a dog."
# Of what is compared of a feature: other hardware rounds otherwise, half precision by some thousandths.
STEP, HALF_STEP = 0.01, 0.05
FLOATS = (torch.float32, torch.float64)
REPEATED = 0.01  # of a feature's length; an accelerator may round otherwise
DIRECTIONS = 4  # in which a feature is looked at: the fewer, the less often it lies where rounding decides
TILES = 9  # of the fixed picture, in a row
PARTS = 64  # of a tensor that are summed up
SWITCHED_BY_EVAL = (torch.nn.modules.batchnorm._BatchNorm, torch.nn.modules.dropout._DropoutNd)
WHOLE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def of_dataset(origin: Origin, dataset: Dataset) -> Origin:
    return origin if origin.built_in else origin.with_more([_ids(dataset), _pictures(dataset)])


def of_backbone(origin: Origin, backbone: Backbone) -> Origin:
    if origin.built_in:
        return origin
    answers = _answers(backbone)  # first: it may load a part of itself when it is asked
    if changed := changed_since(backbone, probed(backbone)):
        raise PluginError(changed)
    # Two of one file may have the fingerprint of the weights that they share.
    name = [type(backbone).__qualname__, backbone.name, BackboneExtras.of(backbone).precision]
    return origin.with_more([answers, _weights(backbone), name, ADDRESS.sub("", repr(backbone.preprocess))])


def _ids(dataset: Dataset) -> str:
    try:
        return digest([str(dataset[i].id) for i in range(len(dataset))])
    except Exception as error:  # of somebody else's code
        return type(error).__name__


def _pictures(dataset: Dataset) -> list[str]:
    count = len(dataset)
    return [_picture(dataset, i) for i in sorted({count * k // PICTURES for k in range(PICTURES)}) if i < count]


def _picture(dataset: Dataset, index: int) -> str:
    """One that can't be decoded is named by the run, if it comes to it."""
    try:
        image = dataset[index].image
        return digest(f"{image.mode} {image.size} {image.getpalette()} ".encode() + image.tobytes())
    except Exception as error:
        return type(error).__name__


def probe(backbone: Backbone) -> Tensor:
    """What it makes of a fixed picture and text: [2, D]."""
    picture = _picture_of(backbone.preprocess.size)
    return torch.cat([backbone.encode_images(picture), backbone.encode_texts([TEXT])]).cpu()


def _picture_of(size: int) -> Tensor:
    """Tiles of many colours over a shade from one corner to the other, [1, 3, S, S]: turned, mirrored, sharpened or in
    other colours it is another picture."""
    place = torch.arange(size)
    tile = place * TILES // size
    colour = torch.arange(3)[:, None, None]
    tiles = (tile[:, None] * 5 + tile * 11 + colour * 7 + tile[:, None] * tile * 3) * 37 % 17 / 16  # [3, S, S]
    shade = (place[:, None] * 2 + place) / (3 * size)  # [S, S]
    return (tiles * 0.7 + shade * 0.3)[None]


def changed_since(backbone: Backbone, before: Tensor | None) -> str:
    """What to say if it makes something else of the same picture or text than it did."""
    now = probed(backbone)
    if before is None or now is None or not (now - before).norm(dim=-1).max() > REPEATED:
        return ""
    what = "picture" if (now - before)[0].norm() > REPEATED else "text"
    return (
        f"backbone '{backbone.name}' gives the same {what} other features later on: it must not depend on chance or on "
        "what it has encoded before (call eval() in load)"
    )


@torch.no_grad()
def probed(backbone: Backbone) -> Tensor | None:
    try:
        return probe(backbone).float()
    except Exception:  # the run says what is wrong
        return None


@torch.no_grad()
def _answers(backbone: Backbone) -> list[int] | str:
    try:
        features = probe(backbone).double()  # [2, D]
        positions, numbers = torch.arange(features.shape[1]), torch.arange(1, DIRECTIONS + 1)
        directions = torch.cos(torch.outer(positions, numbers).double())  # [D, DIRECTIONS]
        step = STEP if _is_precise(backbone) else HALF_STEP
        return [round(value / step) for value in (features @ directions).flatten().tolist()]
    except Exception as error:
        return type(error).__name__


def _is_precise(backbone: Backbone) -> bool:
    tensors = (t for module in _modules(backbone, DEPTH) for t in module.state_dict().values() if isinstance(t, Tensor))
    weights = {tensor.dtype for tensor in tensors if tensor.is_floating_point()}
    return BackboneExtras.of(backbone).precision in ("", "fp32") and weights.issubset(FLOATS)


def _weights(backbone: Backbone) -> list[Any]:
    """Exact, on every machine: bits are summed up as whole numbers, in any order."""
    return [
        [name, str(tensor.dtype), list(tensor.shape), _sums(tensor)]
        for module in _modules(backbone, DEPTH)
        for name, tensor in module.state_dict().items()
        if isinstance(tensor, Tensor)
    ]


def _modules(thing: object, depth: int) -> Iterator[torch.nn.Module]:
    if isinstance(thing, torch.nn.Module):
        yield thing
    elif depth and isinstance(thing, list | tuple | Mapping):
        for value in thing.values() if isinstance(thing, Mapping) else thing:
            yield from _modules(value, depth - 1)
    elif depth and type(thing) not in PLAIN and not isinstance(thing, type):
        for _, value in sorted(attributes_of(thing), key=lambda named: str(named[0])):
            yield from _modules(value, depth - 1)


def is_in_training(backbone: Backbone) -> bool:
    """Whether a layer of it takes what it needs from the batch, or draws: `eval()` was forgotten."""
    layers = (layer for module in _modules(backbone, DEPTH) for layer in module.modules())
    return any(layer.training and isinstance(layer, SWITCHED_BY_EVAL) for layer in layers)


def _sums(tensor: Tensor) -> list[int]:
    """Of parts, so that an order counts as well."""
    if tensor.layout != torch.strided or tensor.is_quantized or tensor.is_meta:
        return []
    plain = torch.view_as_real(tensor) if tensor.is_complex() else tensor
    flat = plain.detach().contiguous().flatten()
    numbers = flat.view(WHOLE[flat.element_size()])
    even = len(numbers) // PARTS * PARTS
    parts = numbers[:even].view(PARTS, -1).sum(1, dtype=torch.int64).tolist()
    return [*parts, *numbers[even:].tolist()]
