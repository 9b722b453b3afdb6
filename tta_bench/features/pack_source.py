"""Runs on a feature pack: what stands in for the dataset, the backbone, the prompts and the encoded views.

Nothing is encoded here. What asks for pixels, or for a text that was not packed, is told so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, NoReturn, Self

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tta_bench.errors import UsageError
from tta_bench.features.pack import Pack
from tta_bench.interfaces import Backbone, Method, Preprocess, Sample, ViewRecipe
from tta_bench.prompts.sets import LEARNED, PromptSet
from tta_bench.system.record_form import LARGEST
from tta_bench.views import Original


class PackDataset:
    """The pack as a dataset: ids and labels; its images can't be had."""

    name: ClassVar[str] = "pack"

    def __init__(self, pack: Pack, official_size: int | None = None) -> None:
        """`official_size` is that of the dataset, for a pack that does not say how much of it it has."""
        self.pack = pack
        self.class_names = pack.class_names
        self.fingerprint = pack.fingerprint
        size = pack.provenance.get("dataset_size")
        said = pack.provenance.get("warnings", [])
        self.warnings = tuple(said) if isinstance(said, list) and all(isinstance(text, str) for text in said) else ()
        told = isinstance(size, int) and len(pack) <= size <= LARGEST
        self.full_size = size if told else max(len(pack), official_size or 0)

    @classmethod
    def open(cls, root: Path, variant: str = "default") -> Self:
        return cls(Pack(root))

    def __len__(self) -> int:
        return len(self.pack)

    def __getitem__(self, i: int) -> Sample:
        return Sample(self.pack.ids[i], self._no_image, self.pack.labels[i])

    def _no_image(self) -> NoReturn:
        raise UsageError(f"{self.pack.file} holds features, not images: this method or recipe needs the pixels")


class PackBackbone:
    """The pack as a backbone: its scale and the texts that were packed. It encodes nothing."""

    name: ClassVar[str] = "pack"
    preprocess = Preprocess(size=0)

    def __init__(self, pack: Pack) -> None:
        self.file, self.fingerprint = pack.file, pack.fingerprint  # not the pack itself: methods get to see this object
        self.random_weights = bool(pack.provenance.get("random_weights", False))
        self._known_texts = _known_texts(pack)
        self.embed_dim, self.logit_scale, self.logit_bias = pack.embed_dim, pack.logit_scale, pack.logit_bias

    @classmethod
    def load(cls, device: str, weights: Path | None = None, precision: str = "fp32") -> Self:
        if weights is None:
            raise UsageError("a pack is loaded from its file")
        return cls(Pack(weights))

    def encode_images(self, pixels: Tensor) -> NoReturn:
        raise UsageError(f"{self.file} holds features, not an image encoder")

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """Only texts that were packed, by the pack's own `prompt_texts`."""
        unknown = [text for text in texts if text not in self._known_texts]
        if unknown:
            raise UsageError(f"{self.file} holds no text encoder and no features of '{unknown[0]}'")
        return torch.stack([self._known_texts[text] for text in texts])


def _known_texts(pack: Pack) -> dict[str, Tensor]:
    """Features [D] of every text that was packed. Those of a learned prompt are of no text: what stands beside them are
    the words that it has taken the place of."""
    known: dict[str, Tensor] = {}
    for prompt, texts in pack.prompt_texts.items():
        if prompt in pack.prompts and prompt.partition(":")[0] not in LEARNED:
            features = pack.text(prompt).flatten(0, 1)  # [C * P, D]
            known |= dict(zip((t for of_class in texts for t in of_class), features, strict=True))
    return known


@dataclass(frozen=True)
class PackedPrompts(PromptSet):
    """A prompt of the pack: its features are there already."""

    bank: Tensor = field(default_factory=lambda: torch.empty(0), compare=False)  # [C, P, D]

    @classmethod
    def of(cls, pack: Pack, prompt: str) -> PackedPrompts:
        """`texts` are the pack's, or where it doesn't tell them, a name for each."""
        bank = pack.text(prompt)
        unnamed = [[f"{prompt}/{name}/{i}" for i in range(bank.shape[1])] for name in pack.class_names]
        texts = pack.prompt_texts.get(prompt, unnamed)
        return cls(prompt, tuple(tuple(of_class) for of_class in texts), pack.class_names, bank=bank)

    @property
    def count(self) -> int:
        """Texts that have to go through an encoder."""
        return 0

    def encode(self, backbone: Backbone) -> tuple[Tensor, Tensor]:
        """Text bank [C, P, D] and prototypes unit(mean) [C, D]; of a learned context the features themselves, which
        rounding would change in the last bit."""
        learned = self.name.startswith("coop:") and self.bank.shape[1] == 1
        return self.bank, self.bank[:, 0] if learned else normalize(self.bank.mean(1), dim=-1)


class PackedViews:
    """One recipe of a pack, where a run on images has `EncodedViews`."""

    def __init__(self, pack: Pack, recipe: ViewRecipe) -> None:
        self.pack, self.recipe, self.seed = pack, recipe, 0
        self.lends = False  # features to a method that is known not to change them: copying takes as long as reading
        self.dataset, self.backbone = PackDataset(pack), PackBackbone(pack)
        self._source = None if isinstance(recipe, Original) else pack.source_of(recipe)
        if self._source is None and not isinstance(recipe, Original):
            pack.require("the run", {"views": recipe})

    @property
    def preprocess(self) -> Preprocess:
        return self.backbone.preprocess

    def read(self, index: int) -> Tensor:
        """Unit-norm features [V, D] of image `index`."""
        if self._source is None:
            return self.pack.image(index, self.lends)
        return self.pack.views(self._source, index, self.recipe.count, self.lends)

    def expect(self, index: int) -> None:
        """Nothing to do: all of the file was read for its fingerprint."""


def check_method(pack: Pack, method: Method, recipes: Mapping[str, ViewRecipe]) -> None:
    """Raises `UsageError` with the reason why a method can't run on the pack."""
    if method.tunes_prompts:
        raise UsageError(f"{method.name} tunes prompts through the text encoder, which {pack.file} does not hold")
    second = method.second_backbone()
    if second is not None:
        raise UsageError(
            f"{method.name} needs features of a second backbone, {second}, which {pack.file} does not hold"
        )
    pack.require(method.name, recipes)
