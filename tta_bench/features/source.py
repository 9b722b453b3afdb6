"""Where a run's features come from: images through a backbone and the store, or a feature pack."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

from torch import Tensor

from tta_bench.errors import UsageError
from tta_bench.features.encoding import EncodedViews
from tta_bench.features.options import EncodingOptions
from tta_bench.features.pack import Pack
from tta_bench.features.pack_source import PackBackbone, PackDataset, PackedPrompts, PackedViews, check_method
from tta_bench.features.store import FeatureStore
from tta_bench.interfaces import (
    Backbone,
    Dataset,
    Method,
    Preprocess,
    PromptTunable,
    ViewRecipe,
)
from tta_bench.prompts.sets import PromptSet
from tta_bench.system.code import Origin
from tta_bench.system.described import described
from tta_bench.system.files import digest
from tta_bench.system.live import making_features
from tta_bench.system.progress import Reporter
from tta_bench.system.sources import OURS, own_source
from tta_bench.system.stamps import Read


class StoredViews(Protocol):
    """The features of one recipe, ready to be read."""

    @property
    def dataset(self) -> Dataset: ...

    @property
    def recipe(self) -> ViewRecipe: ...

    @property
    def seed(self) -> int: ...

    @property
    def preprocess(self) -> Preprocess: ...

    def read(self, index: int) -> Tensor:
        """Unit-norm features [V, D] of image `index`."""
        ...

    def expect(self, index: int) -> None:
        """Image `index` will be read soon."""
        ...


class Source(Protocol):
    """A dataset as one backbone sees it."""

    @property
    def dataset(self) -> Dataset: ...

    @property
    def backbone(self) -> Backbone: ...

    @property
    def prompts(self) -> PromptSet: ...

    @property
    def dataset_name(self) -> str: ...  # as in tables

    @property
    def backbone_name(self) -> str: ...

    @property
    def precision(self) -> str: ...  # of the encoder

    @property
    def features(self) -> str: ...  # the stored features' type

    @property
    def origins(self) -> Mapping[str, Origin]: ...  # whose code the dataset and the backbone are

    @property
    def weights(self) -> str: ...  # digest of the file that the backbone was given, unless its fingerprint knows it

    @property
    def packed(self) -> Mapping[str, str]: ...  # of a pack, the fingerprints of what it was made from, if it says so

    @property
    def replaced(self) -> Mapping[str, Any]: ...  # what somebody has put in the place of ours, or of a library's own

    @property
    def read_from(self) -> Read | None: ...  # the files that all of this was read from; None: that can't be told

    def check(self, method: Method, recipes: dict[str, ViewRecipe]) -> None:
        """Raises `UsageError` if the method can't run on this source."""
        ...

    def views(self, recipe: ViewRecipe, indices: Sequence[int]) -> tuple[StoredViews, int]:
        """The features of these images, and how many encoder forwards (views) it took to have them."""
        ...


def code_of(origins: Mapping[str, Origin], dataset_name: str, weights: str, replaced: Mapping[str, Any]) -> str:
    """Digest of what features come out of besides the fingerprints: the code of dataset and backbone, and that which
    brings the one to the other, or stands in its place here. An author's fingerprint may be the same for two variants
    or two files of weights, so these count as well."""
    parts = {role: origin.source for role, origin in origins.items()} | {"encoding": encoding_source()}
    if "dataset" in origins and not origins["dataset"].built_in:
        parts["dataset_name"] = dataset_name
    optimized = {"optimize": str(sys.flags.optimize)} if sys.flags.optimize else {}  # no `assert` is executed
    return digest(parts | replaced_part(replaced) | ({"weights": weights} if weights else {}) | optimized)


def replaced_part(replaced: Mapping[str, Any]) -> dict[str, str]:
    """What stands in the place of the code that makes features, as part of a key or an identity; mostly nothing."""
    changed = making_features(replaced)
    return {"replaced": digest(described(changed, [OURS]))} if changed else {}


def encoding_source() -> str:
    return digest([own_source(f"tta_bench.features.{module}") for module in ("encoder", "rendering")])


@dataclass
class ImageSource:
    """Images through a backbone. What the store lacks is encoded."""

    dataset: Dataset
    backbone: Backbone
    prompts: PromptSet
    dataset_name: str
    backbone_name: str
    precision: str
    store: FeatureStore
    encoding: EncodingOptions
    seed: int
    reporter: Reporter
    origins: Mapping[str, Origin]
    weights: str
    read_from: Read | None
    replaced: Mapping[str, Any]

    packed: ClassVar[Mapping[str, str]] = {}

    @property
    def features(self) -> str:
        return self.encoding.dtype

    def check(self, method: Method, recipes: dict[str, ViewRecipe]) -> None:
        if method.tunes_prompts and not isinstance(self.backbone, PromptTunable):
            raise UsageError(f"{method.name} tunes prompts, which backbone '{self.backbone_name}' does not offer")

    def views(self, recipe: ViewRecipe, indices: Sequence[int]) -> tuple[EncodedViews, int]:
        code = code_of(self.origins, self.dataset_name, self.weights, self.replaced)
        encoded = EncodedViews(self.store, self.dataset, self.backbone, recipe, self.seed, self.encoding, code)
        return encoded, encoded.ensure(indices, self.reporter)


class PackSource:
    """A feature pack: everything is there, nothing is encoded."""

    def __init__(
        self,
        pack: Pack,
        prompt: str,
        read_from: Read | None,
        replaced: Mapping[str, Any],
        official_size: int | None = None,
    ) -> None:
        self.pack, self.read_from, self.replaced = pack, read_from, replaced
        self.dataset, self.backbone = PackDataset(pack, official_size), PackBackbone(pack)
        self.prompts = PackedPrompts.of(pack, prompt)
        self.dataset_name, self.backbone_name = pack.dataset, pack.backbone
        self.precision = str(pack.provenance.get("precision", "as packed"))
        self.features = str(pack.provenance.get("features", "as packed"))
        made_from = {"packed_images": "dataset_fingerprint", "packed_backbone": "backbone_fingerprint"}
        self.packed = {part: str(pack.provenance[own]) for part, own in made_from.items() if own in pack.provenance}
        self.origins: Mapping[str, Origin] = {}
        self.weights = ""

    def check(self, method: Method, recipes: dict[str, ViewRecipe]) -> None:
        check_method(self.pack, method, recipes)

    def views(self, recipe: ViewRecipe, indices: Sequence[int]) -> tuple[PackedViews, int]:
        return PackedViews(self.pack, recipe), 0
