"""Files with prompts: CuPL's sentences, CoOp's and MaPLe's checkpoints. Nothing in them is ever run.

Layouts are those of the projects' own files; docs/prompts.md tells where to get them.
"""

from __future__ import annotations

import logging
import pickle
import re
import warnings
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tta_bench.errors import BadData, UsageError
from tta_bench.interfaces import BackboneExtras
from tta_bench.prompts.texts_named import texts_of_another
from tta_bench.system.files import file_digest, parse_json, read_utf8
from tta_bench.system.tensors import refuse_damaged, refuse_special
from tta_bench.system.text import is_text, plain_name

# For a name that nobody will fill in. Sentences have none of these characters; "[sic]" and "$5" may be meant.
PLACE = re.compile(r"[{}]|%s|%\(|<[^<>]*>|\[[^\[\]]*(class|name|categor|object)[^\[\]]*\]|\$[a-z]|__", re.IGNORECASE)
BUFFERS = {"token_prefix", "token_suffix"}  # of a learner's checkpoint: embeddings of words that are no part of it
log = logging.getLogger(__name__)

# ---------------------------------------------------------------------------------------------------------- CuPL


def read_cupl(file: Path, class_names: Sequence[str]) -> list[tuple[str, ...]]:
    """CuPL's json, class -> sentences: those of every class, in the classes' order."""
    check_exists(file)
    try:
        content = parse_json(read_utf8(file))
    except ValueError as error:
        raise BadData(f"{file}: not a json file ({error})") from error
    if not isinstance(content, dict):
        raise BadData(f"{file}: not a table of sentences by class")
    by_class = {plain_name(name): sentences for name, sentences in content.items()}
    if len(by_class) < len(content):
        spelt = [plain_name(name) for name in content]
        twice = next(name for name in spelt if spelt.count(name) > 1)
        raise BadData(f"{file}: class '{twice}' is in it twice, in two spellings")
    missing = [name for name in class_names if not by_class.get(plain_name(name))]
    if missing:
        more = f" and for {len(missing) - 1} more" if len(missing) > 1 else ""
        raise BadData(f"{file}: no sentences for class '{missing[0]}'{more}")
    found = []
    for name in class_names:
        sentences = by_class[plain_name(name)]
        if not isinstance(sentences, list) or not all(isinstance(s, str) and s.strip() for s in sentences):
            raise BadData(f"{file}: class '{name}' needs a list of sentences")
        if not all(map(is_text, sentences)):
            raise BadData(f"{file}: a sentence of class '{name}' holds half a character (a lone surrogate)")
        if open_place := next((sentence for sentence in sentences if PLACE.search(sentence)), None):
            raise BadData(
                f"{file}: class '{name}' has the sentence '{open_place}', with a place for a name: write the name there"
            )
        found.append(tuple(sentences))
    if swapped := texts_of_another(class_names, found):
        raise BadData(f"{file}: every sentence of class '{swapped[0]}' names '{swapped[1]}' instead")
    if len(found) > 1 and (of_all := set.intersection(*map(set, found))):
        _point_out_sentence(file, min(of_all))
    return found


@cache  # said once, however many runs of a grid read the file
def _point_out_sentence(file: Path, sentence: str) -> None:
    log.warning(
        "ttabench: warning: %s: every class has the sentence '%s', which tells none from the others", file, sentence
    )


# --------------------------------------------------------------------------------------------------- checkpoints


@dataclass(frozen=True)
class Coop:
    """CoOp's learned context."""

    file: Path
    digest: str
    context: Tensor  # [n, E]
    start: Tensor | None  # [E] embedding of the start token in the text tower that it was learned with


@dataclass(frozen=True)
class Maple:
    """MaPLe's learned prompts of both towers. The prompts of the image tower are projections of those of the text."""

    file: Path
    digest: str
    context: Tensor  # [n, E]
    start: Tensor | None  # [E]
    text: tuple[Tensor, ...]  # [n, E] before block 1, 2, …
    vision: tuple[Tensor, ...]  # [n, E'] before block 0, 1, 2, …


COMPOUND_PROMPTS = 2  # of MaPLe's cross-dataset checkpoints


def read_coop(file: Path) -> Coop:
    """`state_dict.ctx` [n, E]; of its buffers only the start token's embedding, `token_prefix` [C, 1, E], is used."""
    weights = _read_state_dict(file)
    context = _tensor(weights, "ctx", file, "CoOp")
    start = _start(weights, "token_prefix", file)
    _refuse_more({*map(str, weights)} - {"ctx"}, "CoOp", file)
    if context.dim() == 3:
        raise BadData(f"{file}: class-specific contexts {tuple(context.shape)}; only a context for all classes is used")
    if context.dim() != 2:
        raise BadData(f"{file}: ctx has shape {tuple(context.shape)}, not [n, width]")
    _point_out_constant(context, file)
    return Coop(file, file_digest(file), context, start)


def read_maple(file: Path) -> Maple:
    """In `state_dict`, behind `prompt_learner.`: ctx, proj, compound_prompts_text.i, compound_prompt_projections.i."""
    prefix = "prompt_learner."
    weights = {k.removeprefix(prefix): v for k, v in _read_state_dict(file).items() if str(k).startswith(prefix)}
    context = _tensor(weights, "ctx", file, "MaPLe")
    depth = sum(name.startswith("compound_prompts_text.") for name in weights)
    if depth != COMPOUND_PROMPTS:
        _point_out_depth(file, depth)
    text = tuple(_tensor(weights, f"compound_prompts_text.{i}", file, "MaPLe") for i in range(depth))
    projections = ["proj", *(f"compound_prompt_projections.{i}" for i in range(depth))]
    vision = []
    for prompt, name in zip((context, *text), projections, strict=True):
        weight, bias = (_tensor(weights, f"{name}.{part}", file, "MaPLe") for part in ("weight", "bias"))
        if prompt.shape != context.shape or prompt.dim() != 2 or weight.shape != (bias.numel(), prompt.shape[1]):
            raise BadData(f"{file}: the shapes of ctx, its compound prompts and {name} don't fit")
        vision.append(_finite(prompt @ weight.T + bias, name, file))
    names = {f"{name}.{part}" for name in projections for part in ("weight", "bias")}
    names |= {"ctx", *(f"compound_prompts_text.{i}" for i in range(depth))}
    _refuse_more(weights.keys() - names, "MaPLe", file)
    _point_out_constant(context, file)
    return Maple(file, file_digest(file), context, _start(weights, "token_prefix", file), text, tuple(vision))


@cache
def _point_out_depth(file: Path, depth: int) -> None:
    log.warning(
        "ttabench: warning: %s has %d compound prompts; the published cross-dataset checkpoint has %d (depth 3). "
        "Those of depth 9 are for base-to-novel: on other classes their numbers are not MaPLe's",
        file,
        depth,
        COMPOUND_PROMPTS,
    )


def check_start(learned: Coop | Maple, backbone: object, name: str) -> None:
    """Contexts of one width fit many backbones. The start token's embedding tells whose they are."""
    own = BackboneExtras.of(backbone).start_embedding
    if learned.start is None or own is None:
        return
    theirs = learned.start.to(own.device)
    if theirs.shape != own.shape or (theirs - own).norm() > 0.02 * own.norm():  # they were saved in half precision
        raise BadData(f"{learned.file}: learned with another backbone than '{name}' (its start token is another one)")


def _point_out_constant(context: Tensor, file: Path) -> None:
    if (context == context.flatten()[0]).all():
        _say_constant(file, float(context.flatten()[0]))


@cache
def _say_constant(file: Path, value: float) -> None:
    log.warning("ttabench: warning: %s: every number of its context is %g: it has learned nothing", file, value)


class _Inert:
    """Stands for an optimiser or schedule that a training script left in its checkpoint. It takes and does nothing."""

    def __setstate__(self, state: object) -> None: ...


_LEFT_BEHIND = (
    *(f"torch.optim.lr_scheduler.{n}" for n in ("CosineAnnealingLR", "MultiStepLR", "StepLR", "LambdaLR")),
    *("torch.optim.sgd.SGD", "torch.optim.adam.Adam", "torch.optim.adamw.AdamW"),
    *(f"dassl.optim.lr_scheduler.{n}" for n in ("ConstantWarmupScheduler", "LinearWarmupScheduler")),
)


def _read_state_dict(file: Path) -> Mapping[str, Any]:
    check_exists(file)
    refuse_damaged(file)
    allowed: list[Any] = [defaultdict, dict, *((_Inert, name) for name in _LEFT_BEHIND)]
    try:
        with torch.serialization.safe_globals(allowed), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch explains a plain pickle at length; the line below says enough
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if not any(word in str(error).lower() for word in ("global", "unsupported", "weights_only")):
            raise BadData(f"{file}: not a whole PyTorch file") from error
        raise BadData(f"{file}: holds more than tensors, and loading it could run any code: refused") from error
    except Exception as error:  # what a broken file raises depends on the byte that is broken
        raise BadData(f"{file}: not a whole PyTorch file ({type(error).__name__})") from error
    weights = content.get("state_dict") if isinstance(content, dict) else None
    if not isinstance(weights, dict):
        raise BadData(f"{file}: no state_dict in it")
    return weights


def _tensor(weights: Mapping[str, Any], name: str, file: Path, kind: str) -> Tensor:
    if not isinstance(weights.get(name), Tensor):
        raise BadData(f"{file}: not a {kind} checkpoint: its state_dict has no '{name}'")
    tensor: Tensor = weights[name].detach()
    _refuse_unusable(tensor, f"{file}: its tensor {name}")
    if not tensor.is_floating_point() or not tensor.numel():
        raise BadData(f"{file}: '{name}' must hold finite numbers, and at least one")
    return _finite(tensor.float(), name, file)


def _refuse_more(names: Collection[str], kind: str, file: Path) -> None:
    """A method that builds on another one learns more than it, and is not the other without that."""
    more = sorted(set(names) - BUFFERS)
    if more:
        raise BadData(f"{file}: not a {kind} checkpoint: it has learned '{more[0]}' too, which {kind} has not")


def _refuse_unusable(tensor: Tensor, what: str) -> None:
    refuse_special(tensor, what)
    if tensor.nbytes > tensor.untyped_storage().nbytes():  # a small file could ask for any amount of memory
        raise BadData(f"{what} repeats numbers instead of holding them (expand): save its clone()")


def _finite(tensor: Tensor, name: str, file: Path) -> Tensor:
    """Also of numbers that are too large for float32, or whose product is."""
    if not torch.isfinite(tensor).all():
        raise BadData(f"{file}: '{name}' must hold finite numbers, and at least one")
    return tensor


def _start(weights: Mapping[str, Any], name: str, file: Path) -> Tensor | None:
    prefix = weights.get(name)
    if not isinstance(prefix, Tensor):
        return None
    _refuse_unusable(prefix, f"{file}: its tensor {name}")
    if prefix.dim() != 3 or not prefix.numel():
        return None
    return _finite(prefix[0, 0].float(), name, file)


def check_exists(file: Path) -> None:
    if not file.is_file():
        raise UsageError(f"--prompt: {file}: no such file")
