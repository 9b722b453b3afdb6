"""Feature packs: a dataset seen by a backbone, in one .safetensors file that replaces both.

Tensors, for N images, C classes and D features:

    labels           [N, C]     int8: 1, 0, -1 = ignore
    image            [N, D]     the original images
    views/RECIPE     [N, V, D]  one draw of a view recipe
    boxes/RECIPE     [N, V, 4]  optional: where the views lie, as shares of width and height
    text/PROMPT      [C, P, D]  the classes' prompts

Metadata: `ttabench_pack` = "1", `ids` and `class_names` (JSON lists), `dataset`, `backbone`, `logit_scale`; and where
known `logit_bias`, `prompt_texts` (JSON: prompt -> [C][P] texts) and `provenance` (JSON).

`pack_export` writes a pack, `pack_source` runs on one: no images, no weights.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from tta_bench.errors import BadData, UsageError
from tta_bench.features.pack_rows import NORM_TOLERANCE, Rows, unit
from tta_bench.interfaces import LARGEST_SCALE, ViewRecipe
from tta_bench.prompts.texts_named import texts_of_another
from tta_bench.system.code import origin_of
from tta_bench.system.files import file_digest
from tta_bench.system.text import is_text
from tta_bench.views import Original, parse_recipe

ROUNDING = 1e-6  # of a text encoder's own float32 features, which keep their bits

FORMAT = "1"
CHUNK = 256  # images that `verify` looks at in one go
LONGEST_FAULT = 600  # characters
REGIONS = ("crops",)  # families that show parts of the image; the others show it as a whole

Labels = np.ndarray[Any, np.dtype[np.int8]]


# -------------------------------------------------------------------------------------------------------------- a pack


class Pack:
    """An open pack. Features are read from the file when they are asked for."""

    def __init__(self, file: Path) -> None:
        """Raises `BadData` for a file that is not a sound pack; its features are not looked at."""
        self.file = file
        self._tensors = _open(file)
        self._rows = Rows(file)
        self._metadata: dict[str, str] = self._tensors.metadata() or {}
        names: list[str] = self._tensors.keys()
        self.shapes: dict[str, tuple[int, ...]] = {n: tuple(self._tensors.get_slice(n).get_shape()) for n in names}
        faults = [*_metadata_faults(self._metadata), *_missing_tensors(self.shapes)]
        if not faults:
            self._read_metadata()
            faults = list(self._shape_faults()) or list(self._label_faults())
        if faults:
            raise BadData(f"{file} is not a sound feature pack: {_in_short('; '.join(faults))}")

    def _read_metadata(self) -> None:
        self.ids: tuple[str, ...] = tuple(json.loads(self._metadata["ids"]))
        self.class_names: tuple[str, ...] = tuple(json.loads(self._metadata["class_names"]))
        self.dataset = self._metadata["dataset"]
        self.backbone = self._metadata["backbone"]
        self.logit_scale = float(self._metadata["logit_scale"])
        self.logit_bias = float(self._metadata.get("logit_bias", 0.0))
        self.prompt_texts: dict[str, list[list[str]]] = _json(self._metadata.get("prompt_texts"), {})
        self.provenance: dict[str, Any] = _json(self._metadata.get("provenance"), {})
        self.recipes = _names(self.shapes, "views/")
        self.prompts = _names(self.shapes, "text/")

    def __len__(self) -> int:
        return len(self.ids)

    @cached_property
    def fingerprint(self) -> str:
        """Of the whole file: features, labels and names."""
        return file_digest(self.file)

    @cached_property
    def labels(self) -> Labels:
        labels: Labels = self._tensors.get_tensor("labels").clone().numpy()  # [N, C]; not where it lies in the file
        return labels

    @property
    def embed_dim(self) -> int:
        return self.shapes["image"][1]

    def image(self, index: int, lent: bool = False) -> Tensor:
        """The original image's unit-norm features, [1, D]: a copy, or lent to somebody who does not change them."""
        return self._rows.unit("image", index, lent=lent)

    def views(self, recipe: str, index: int, count: int | None = None, lent: bool = False) -> Tensor:
        """Unit-norm features of the image's views, or of the first `count`, [V, D]."""
        return self._rows.unit(f"views/{recipe}", index, count, lent)

    def boxes(self, recipe: str, index: int) -> Tensor | None:
        """Where the image's views lie, [V, 4] left, top, right, bottom as shares of width and height, if it says so."""
        name = f"boxes/{recipe}"
        return self._tensors.get_slice(name)[index] if name in self.shapes else None

    def text(self, prompt: str) -> Tensor:
        """The prompt's text bank, [C, P, D]. In float32 it is what the text encoder gave, bit for bit."""
        if prompt not in self.prompts:
            raise UsageError(f"prompt '{prompt}' is not in {self.file}; it has {', '.join(self.prompts)}")
        bank: Tensor = self._tensors.get_tensor(f"text/{prompt}").clone()
        of_length_1 = unit(bank, f"{self.file}, text/{prompt}")
        exact = bank.dtype == torch.float32 and (bank - of_length_1).abs().max() < ROUNDING
        return bank if exact else of_length_1

    # ------------------------------------------------------------------------------------------------ recipes

    def source_of(self, recipe: ViewRecipe) -> str | None:
        """The packed recipe that has these views. View i doesn't depend on their number, so a longer one does too."""
        if of_ours(recipe.name) and not origin_of(recipe).built_in:  # whoever inherits one has its name, too
            return None
        family, count = _family(recipe.name)
        longer = [name for name in self.recipes if _family(name)[0] == family and _family(name)[1] >= count]
        return min(longer, key=lambda name: (name != recipe.name, _family(name)[1]), default=None)

    def require(self, method: str, recipes: Mapping[str, ViewRecipe]) -> None:
        """Raises `UsageError` for the first recipe that the pack lacks, with those that could stand in."""
        for role, recipe in recipes.items():
            if not isinstance(recipe, Original) and self.source_of(recipe) is None:
                raise UsageError(
                    f"{method} needs the views {recipe.name} ({role}), which {self.file} does not have; "
                    f"it has {', '.join(self.recipes) or 'none'}. {self._stand_ins(role, recipe.name)}"
                )

    def _stand_ins(self, role: str, wanted: str) -> str:
        """Recipes of the same family first, then those that show as much of the image."""
        family = _family(wanted)[0]
        regions = family.startswith(REGIONS)
        fitting = [name for name in self.recipes if name.startswith(REGIONS) == regions]
        fitting.sort(key=lambda name: (_family(name)[0] != family, -_family(name)[1]))
        if not fitting:
            return "None of them could stand in."
        return f"Could stand in: {' or '.join(f'--recipe {role}={name}' for name in fitting)}"

    # ------------------------------------------------------------------------------------------------- faults

    def _shape_faults(self) -> Iterator[str]:
        n, c, d = len(self.ids), len(self.class_names), self.shapes["image"][-1]
        expected: dict[str, tuple[int | None, ...]] = {"labels": (n, c), "image": (n, d)}
        expected |= {f"views/{name}": (n, _family(name)[1] or None, d) for name in self.recipes}  # as many as it says
        expected |= {f"boxes/{name}": (n, _family(name)[1] or None, 4) for name in _names(self.shapes, "boxes/")}
        expected |= {f"text/{name}": (c, None, d) for name in self.prompts}
        for name, shape in expected.items():
            found = self.shapes[name]
            same = len(found) == len(shape) and all(
                want in (None, have) for want, have in zip(shape, found, strict=True)
            )
            if not same or 0 in found:
                wanted = ", ".join("any" if want is None else str(want) for want in shape)
                yield f"{name} has the shape {list(found)} and should have [{wanted}]"
        for name in self.shapes:
            kind = self._tensors.get_slice(name).get_dtype()
            if name == "labels" and kind != "I8":
                yield f"labels are {kind} and should be I8"
            elif name in expected and name != "labels" and kind not in ("F16", "BF16", "F32"):
                yield f"{name} is {kind} and should be F16, BF16 or F32"

    def _label_faults(self) -> Iterator[str]:
        odd = sorted(set(np.unique(self.labels).tolist()) - {-1, 0, 1})
        if odd:
            yield f"labels hold {', '.join(map(str, odd))}: only 1, 0 and -1 (ignore) have a meaning"
        for kind, names in (("ids", self.ids), ("class_names", self.class_names)):
            twice, count = Counter(names).most_common(1)[0]
            if count > 1:
                yield f"{kind} has '{twice}' twice"
        for prompt in set(self.prompt_texts) & set(self.prompts):
            counts = {len(texts) for texts in self.prompt_texts[prompt]}
            if (len(self.prompt_texts[prompt]), *counts) != self.shapes[f"text/{prompt}"][:2]:
                yield f"`prompt_texts` and text/{prompt} are not of the same number"
            elif swapped := texts_of_another(self.class_names, self.prompt_texts[prompt]):
                of, named = swapped
                yield f"`prompt_texts` of '{of}' in text/{prompt} name '{named}': they are in another order"

    def feature_faults(self) -> Iterator[str]:
        """What is wrong with the features and boxes; reads all of them."""
        for name in self.shapes:
            if name == "image" or name.startswith(("views/", "text/")):
                yield from self._feature_faults(name)
            elif name.startswith("boxes/"):
                yield from self._box_faults(name)

    def chunks(self, name: str) -> Iterator[Tensor]:
        """A tensor as the file has it, [n, …] at a time."""
        rows = self._tensors.get_slice(name)
        for start in range(0, self.shapes[name][0], CHUNK):
            yield rows[start : start + CHUNK]

    def _feature_faults(self, name: str) -> Iterator[str]:
        for start, rows in zip(range(0, self.shapes[name][0], CHUNK), self.chunks(name), strict=True):
            chunk = rows.float()
            where = f"{name}, row {{}}"
            if not chunk.isfinite().all():
                yield f"{where.format(start + _first(~chunk.isfinite()))}: not a number"
                return
            off = (chunk.norm(dim=-1) - 1).abs() > NORM_TOLERANCE
            if off.any():
                yield f"{where.format(start + _first(off))}: the length is not 1"
                return

    def _box_faults(self, name: str) -> Iterator[str]:
        boxes = self._tensors.get_tensor(name).float()  # [N, V, 4]
        inside = (boxes >= 0).all(-1) & (boxes <= 1).all(-1) & (boxes[..., :2] < boxes[..., 2:]).all(-1)
        if not inside.all():
            yield f"{name}, row {_first(~inside)}: not a box within the image"


def verify(file: Path) -> list[str]:
    """What is wrong with the pack's features; raises `BadData` if it can't be opened at all."""
    return list(Pack(file).feature_faults())


def info(file: Path) -> dict[str, Any]:
    """What `ttabench pack info` shows."""
    pack = Pack(file)
    return {
        "file": str(file),
        "fingerprint": pack.fingerprint,
        "dataset": pack.dataset,
        "backbone": pack.backbone,
        "images": len(pack),
        "classes": len(pack.class_names),
        "positives": int((pack.labels == 1).sum()),
        "ignored": int((pack.labels == -1).sum()),
        "features": pack.embed_dim,
        "logit_scale": pack.logit_scale,
        "logit_bias": pack.logit_bias,
        "views": {name: pack.shapes[f"views/{name}"][1] for name in pack.recipes},
        "prompts": {name: pack.shapes[f"text/{name}"][1] for name in pack.prompts},
        "provenance": pack.provenance,
    }


# ---------------------------------------------------------------------------------------------------------- small parts


def _open(file: Path) -> Any:
    if not file.is_file():
        raise UsageError(f"{file}: no such feature pack")
    try:
        return safe_open(file, "pt")
    except (SafetensorError, OSError, ValueError) as error:
        raise BadData(f"{file} is not a whole safetensors file: {_in_short(str(error))}") from error


def _in_short(text: str) -> str:
    """On one line: names in a damaged file may be as long as the file."""
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_FAULT else f"{line[:LONGEST_FAULT]} …"


def _metadata_faults(metadata: Mapping[str, str]) -> Iterator[str]:
    if "ttabench_pack" not in metadata:
        yield "its metadata has no ttabench_pack, so it is some other safetensors file"
        return
    if metadata["ttabench_pack"] != FORMAT:
        yield f"it is of format {metadata['ttabench_pack'][:40]}, and this ttabench reads format {FORMAT}"
        return
    absent = [key for key in ("ids", "class_names", "dataset", "backbone", "logit_scale") if key not in metadata]
    if absent:
        yield f"its metadata lacks {', '.join(absent)}"
        return
    for key in ("ids", "class_names"):
        names = _json(metadata[key], None)
        if not (isinstance(names, list) and names and all(isinstance(name, str) for name in names)):
            yield f"its metadata `{key}` is not a JSON list of names"
        elif not all(map(is_text, names)):
            yield f"its metadata `{key}` holds half a character (a lone surrogate)"
    if not 0 < _number(metadata["logit_scale"]) <= LARGEST_SCALE:
        yield f"its metadata `logit_scale` can't be {metadata['logit_scale'][:40]}"
    if not math.isfinite(_number(metadata.get("logit_bias", "0"))):
        yield f"its metadata `logit_bias` can't be {metadata['logit_bias'][:40]}"
    if not isinstance(_json(metadata.get("provenance"), {}), dict):
        yield "its metadata `provenance` is not a JSON object"
    yield from _text_faults(_json(metadata.get("prompt_texts"), {}))


def _text_faults(texts: Any) -> Iterator[str]:
    def strings(values: Any) -> bool:
        return isinstance(values, list) and all(isinstance(value, str) for value in values)

    sound = isinstance(texts, dict) and all(isinstance(v, list) and all(map(strings, v)) for v in texts.values())
    if not sound:
        yield "its metadata `prompt_texts` is not a JSON object of lists of texts"
    elif not all(is_text(text) for by_class in texts.values() for own in by_class for text in own):
        yield "its metadata `prompt_texts` holds half a character (a lone surrogate)"


def _missing_tensors(shapes: Mapping[str, Any]) -> Iterator[str]:
    absent = [name for name in ("labels", "image") if name not in shapes]
    if not _names(shapes, "text/"):
        absent.append("text/PROMPT (any)")
    if absent:
        yield f"it lacks the tensors {', '.join(absent)}"


def _json(text: str | None, otherwise: Any) -> Any:
    """`otherwise` for what is not there; None for what is no JSON."""
    if text is None:
        return otherwise
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _number(text: str) -> float:
    """Not a number, if it isn't one."""
    try:
        return float(text)
    except ValueError:
        return math.nan


def _names(shapes: Mapping[str, Any], prefix: str) -> tuple[str, ...]:
    return tuple(sorted(name.removeprefix(prefix) for name in shapes if name.startswith(prefix)))


def of_ours(recipe: str) -> ViewRecipe | None:
    """Our recipe of that name, if there is one."""
    try:
        return parse_recipe(recipe)
    except UsageError:
        return None


def _family(recipe: str) -> tuple[str, int]:
    """ "crops50@0.4-0.9" -> ("crops@0.4-0.9", 50): what the views are, and how many."""
    parts = re.fullmatch(r"(\D+)(\d+)(@.*)?", recipe)
    return (parts[1] + (parts[3] or ""), int(parts[2])) if parts else (recipe, 0)


def _first(wrong: Tensor) -> int:
    """The first row with anything wrong."""
    return int(wrong.flatten(1).any(1).nonzero()[0]) if wrong.dim() > 1 else int(wrong.nonzero()[0])
