"""The three doors for plugins: `Method`, `Dataset` and `Backbone`, and the data that passes through them.

Labels take the short way from the dataset to the metrics. Nothing that a method receives holds them.
"""

from __future__ import annotations

import dataclasses
import functools
import types
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    Protocol,
    Self,
    TypeVar,
    get_args,
    get_origin,
    runtime_checkable,
)

import torch
from torch import Tensor

from tta_bench.copies import Copies, keeps_state
from tta_bench.downloads import DataStatus as DataStatus  # public here: what a dataset class may be besides
from tta_bench.downloads import Downloadable as Downloadable
from tta_bench.errors import PluginError, UsageError
from tta_bench.system.fields import types_of

if TYPE_CHECKING:
    import numpy as np
    from PIL import Image


# ------------------------------------------------------------------------------------------------ images and views


@dataclass(frozen=True)
class Preprocess:
    """How a backbone wants its pixels. Mean and std belong to the backbone's fingerprint but are applied inside
    `Backbone.encode_images`, so that views can be mixed in [0, 1]."""

    size: int
    interpolation: Literal["bicubic", "bilinear"] = "bicubic"
    resize: Literal["shortest", "squash"] = "shortest"  # short side to `size` and centre crop, or both sides to `size`


@runtime_checkable
class ViewRecipe(Protocol):
    """A view recipe: what to cut from an image and how to augment it. A frozen dataclass, because its `repr` is part
    of the feature store's key; what the recipe draws may depend on nothing but its fields, the seed and the image."""

    @property
    def name(self) -> str: ...  # as typed on the command line, e.g. "augmix63"

    @property
    def count(self) -> int: ...  # number of views per image

    @property
    def seeded(self) -> bool: ...  # False when the views don't depend on the seed

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        """Pixels [count, 3, size, size]: levels as uint8, or floats in [0, 1]."""
        ...


Views = ViewRecipe  # its name in plugins written for version 0.1


# ------------------------------------------------------------------------------------------------------- datasets


@dataclass(frozen=True)
class Sample:
    """One test image. `load` decodes it to RGB when asked; `labels` holds 1, 0 and -1 (ignore)."""

    id: str
    load: Callable[[], Image.Image] = field(repr=False)
    labels: np.ndarray[Any, np.dtype[np.int8]] = field(repr=False)  # [C]

    @property
    def image(self) -> Image.Image:
        return self.load()


class Dataset(Protocol):
    """Test images with multi-label ground truth."""

    name: ClassVar[str]
    class_names: tuple[str, ...]
    fingerprint: str
    """Digest of what the images are: ids and content, or what stands for it. Labels are not in it: they enter the
    protocol by themselves, so that two label variants share their features."""

    @classmethod
    def open(cls, root: Path, variant: str = "default") -> Self:
        """Raises `DataMissing` with the recipe to get the data, `UsageError` for an unknown variant."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, i: int) -> Sample: ...


@dataclass(frozen=True)
class DatasetExtras:
    """What a dataset may have besides: the core reads these members where they exist, and the defaults elsewhere."""

    title: str = ""
    """Its name in print, e.g. in LaTeX tables: "COCO 2017". Tables read it from the source."""
    warnings: Sequence[str] = ()
    """Said in a line each when the dataset is opened, e.g. that images of the official list are missing."""
    variants: Sequence[str] = ()
    """The variants that `open` takes, for `ttabench list`; the first is the default."""
    full_size: int | None = None
    """How many images the complete dataset has, where `len` may be less (files are missing); None: as many as `len`."""
    sources: Sequence[Path] | None = None
    """Files and folders that ids, images and labels were read from, and those that would have been read, were they
    there: while all are unchanged, or still absent, a finished run is known without opening the dataset. A folder
    counts with all that is right in it. None: they can't be told, so it is always opened."""
    domains: Sequence[str] | None = None
    """The domain of each image, for streams that go from domain to domain."""

    @classmethod
    def of(cls, dataset: object) -> Self:
        """Raises `PluginError` for a size that is no number."""
        found = _extras(cls, dataset)
        if isinstance(dataset, type):  # of which some members are properties
            return found
        if found.full_size is not None and not hasattr(found.full_size, "__index__"):
            raise PluginError(
                f"dataset '{getattr(dataset, 'name', '')}': full_size is no whole number: {found.full_size!r}"
            )
        if isinstance(found.warnings, str | None):  # its letters would be as many lines
            found = dataclasses.replace(found, warnings=(found.warnings,) if found.warnings else ())
        if found.domains is not None:  # an array has no truth value
            found = dataclasses.replace(found, domains=tuple(map(str, found.domains)))
        return found


# ------------------------------------------------------------------------------------------------------ backbones


LARGEST_SCALE = 1000.0  # CLIP's is at most 100, SigLIP's near 110


class Backbone(Protocol):
    """An image and a text encoder with a common space. All features are unit-norm float32."""

    name: ClassVar[str]
    preprocess: Preprocess  # its size is the side of the images that `encode_images` takes
    embed_dim: int
    logit_scale: float  # the factor itself, whose logarithm weights files hold: above 0, and LARGEST_SCALE at most
    logit_bias: float

    @property
    def fingerprint(self) -> str:
        """Digest of weights, preprocessing (mean and std included) and precision; an attribute will do."""
        ...

    @classmethod
    def load(cls, device: str, weights: Path | None = None, precision: str = "fp32") -> Self:
        """Raises `WeightsMissing` within seconds when the weights are not here."""
        ...

    def encode_images(self, pixels: Tensor) -> Tensor:
        """[B, 3, S, S] in [0, 1] -> [B, D]. The pixels' memory holds the next batch when the features are returned."""
        ...

    def encode_texts(self, texts: Sequence[str]) -> Tensor:
        """T texts -> [T, D]."""
        ...


@runtime_checkable
class PromptTunable(Protocol):
    """What a backbone offers besides when its prompt's context vectors can be tuned."""

    def init_context(self, words: str) -> Tensor:
        """The words' own token embeddings, [M, E]."""
        ...

    def encode_context(self, context: Tensor, class_names: Sequence[str]) -> Tensor:
        """Class features [C, D] of "<context> <name>.", differentiable in the context [M, E]."""
        ...


@dataclass(frozen=True)
class BackboneExtras:
    """What a backbone may have besides: the core reads these members where they exist, and the defaults elsewhere."""

    title: str = ""
    """Its name in print, e.g. in LaTeX tables: "ViT-B/16". Tables read it from the source."""
    random: Callable[[str, str], Any] | None = None
    """`random(device, precision)`, a class method: the untrained backbone, for `--random-weights`."""
    precision: str = ""
    """What it was loaded with, for the record of a run that was given the loaded backbone."""
    random_weights: bool = False
    """True for an untrained backbone: every record and table then says so."""
    named: Callable[[str], Any] | None = None
    """`named(argument)`, a class method: the class that stands behind `--backbone NAME:ARGUMENT`."""
    made_for: Sequence[str] = ()
    """Names of the only datasets that the backbone can know, if it is no general one: on others a run says so."""
    start_embedding: Tensor | None = None
    """Embedding of the token that begins every text [E]: tells whether a learned context was made for this tower."""
    prompts_from: str = ""
    """Digest of the learned prompts that are in the backbone already."""
    too_long: Callable[[Sequence[str]], Sequence[str]] | None = None
    """`too_long(texts)`: those that are longer than the text encoder reads. A run says that its prompts were cut."""
    weights_here: Callable[[], bool] | None = None
    """`weights_here()`, a class method: whether loading would find the weights on this machine. Loads nothing."""
    sources: Sequence[Path] | None = None
    """Files that weights and settings were read from: while they are unchanged, a finished run is known without
    loading the backbone. None: they can't be told, so it is always loaded."""

    @classmethod
    def of(cls, backbone: object) -> Self:
        return _extras(cls, backbone)


# -------------------------------------------------------------------------------------------------------- methods


class TextEncoder:
    """Texts -> unit-norm features [T, D], counted. It holds the encoder of texts and nothing else of the run."""

    __slots__ = ("_device", "_encode", "_too_long", "count", "cut")

    def __init__(
        self,
        encode: Callable[[Sequence[str]], Tensor],
        device: str = "cpu",
        too_long: Callable[[Sequence[str]], Sequence[str]] | None = None,
    ) -> None:
        self._encode, self._device, self._too_long = encode, device, too_long
        self.count = 0  # texts so far
        self.cut: list[str] = []  # those of them that the encoder did not read to their end

    def __call__(self, texts: Sequence[str]) -> Tensor:
        if isinstance(texts, str):  # its letters would be as many texts
            raise TypeError(f"encode_texts takes a list of texts: [{texts!r}]")
        self.count += len(texts)
        self.cut += [] if self._too_long is None else self._too_long(texts)
        return self._encode(texts).to(
            self._device, torch.float32, copy=True
        )  # a backbone may give the same memory again


def _default_rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@dataclass
class Task:
    """What a method may know before the stream begins."""

    class_names: Sequence[str]
    text: Tensor  # [C, D] unit-norm class prototypes: unit(mean of the bank)
    text_bank: Tensor  # [C, P, D] unit-norm embeddings of the class's prompts
    scale: float  # the backbone's own: every literal 100 of the official codes
    bias: float = 0.0  # enters only where a sigmoid is taken
    encode_texts: Callable[[Sequence[str]], Tensor] | None = None
    prompts: PromptTunable | None = None  # set for methods with `tunes_prompts`
    rng: torch.Generator = field(default_factory=_default_rng)  # checkpointed by the runner
    device: str = "cpu"
    reward_text: Tensor | None = None  # [C, D'] of the second backbone, if the method asked for one


@dataclass
class Observation:
    """One test image as a method sees it: features, never labels."""

    index: int  # position in the stream, from 0
    image: Tensor  # [D] the original image (resized, centre crop)
    views: Mapping[str, Tensor] = field(default_factory=dict)  # role -> [V, D]; never contains the original
    load_pixels: Callable[[str], Tensor] | None = field(default=None, repr=False)

    def __getitem__(self, role: str) -> Tensor:
        return self.views[role]

    def pixels(self, role: str = "image") -> Tensor:
        """Pixels [V, 3, S, S] of the role's views, or of the original image: rendered again, only when asked for."""
        if self.load_pixels is None:
            raise RuntimeError("this stream carries features only: there are no pixels behind it")
        return self.load_pixels(role)


State = dict[str, Any]

Status = Literal["official code matched", "reading of the paper", "port", "ours", "unstated"]
Setting = Literal["episodic", "online", "transductive", "unstated"]


class Paper(NamedTuple):
    """Where a method was published; empty where it is not known."""

    title: str
    venue: str = ""
    url: str = ""


@dataclass(eq=False)  # two of a class without fields are not the same, and may stand in a dictionary
class Method(ABC):
    """A test-time adaptation method. Fields are its hyper-parameters; whatever `start` sets is its state.

    State is every attribute without a leading underscore that is data, or an object with its own `state_dict`.
    """

    name: ClassVar[str]
    version: ClassVar[str] = "1"  # raise it when the method's numbers change: part of the config identity
    recipes: ClassVar[Mapping[str, ViewRecipe]] = {}
    """Role -> views, e.g. {"views": AugMix(63), "regions": RandomCrops(50)}. It is read from the instance, so that a
    property may make it depend on fields."""
    title: ClassVar[str] = ""
    """Its name in print, e.g. in LaTeX tables: "PuRF". Tables read it from the source, so it is written out."""
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {}
    """Published values for `--preset NAME`: name -> field -> value."""
    preset_recipes: ClassVar[Mapping[str, Mapping[str, str]]] = {}
    """Views that a preset brings along: name -> role -> recipe name."""
    tunes_prompts: ClassVar[bool] = False
    finish_only: ClassVar[frozenset[str]] = frozenset()
    """Fields that `finish` alone reads: `ttabench score --set` repeats it with other values on the stored outputs."""
    status: ClassVar[Status] = "unstated"
    """What its numbers were held against. It is not inherited: a variant of a matched method is not matched."""
    setting: ClassVar[Setting] = "unstated"
    """What it may know when it scores an image: that image (episodic), those before it as well (online), or the whole
    test set (transductive). It is read from the instance, so that a property may make it depend on fields."""
    paper: ClassVar[Paper | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        if "status" not in vars(cls):
            cls.status = "unstated"

    def __post_init__(self) -> None:
        """Refuses a word that a field's `Literal` does not have: it would fall through to some branch in silence."""
        hints = types_of(type(self))
        for f in dataclasses.fields(self):
            words, value = get_args(hints[f.name]), getattr(self, f.name)
            if get_origin(hints[f.name]) is Literal and value not in words:
                raise UsageError(f"{self.name}.{f.name}={value}: choose one of {', '.join(map(str, words))}")

    def require(self, condition: bool, what: str) -> None:
        """For `__post_init__`: refuses hyper-parameters that make no sense, instead of a number that means nothing."""
        if not condition:
            raise UsageError(f"{self.name}: {what}")

    def second_backbone(self) -> str | None:
        """Name of a backbone whose features of the original and of recipes["views"] arrive as x["reward"] [1+V, D']
        and whose class prototypes arrive as task.reward_text [C, D']."""
        return None

    def validate(self) -> None:  # noqa: B027  # most methods need nothing
        """Called before anything is encoded: raises `UsageError` when something is missing that the method needs."""

    def digests(self) -> Mapping[str, str]:
        """Digests of files that the method reads, by the field that names the file: part of the config identity."""
        return {}

    @abstractmethod
    def start(self, task: Task) -> None:
        """Forget everything and get ready for a new stream."""

    @abstractmethod
    def step(self, x: Observation) -> Tensor:
        """Adapt on one image and return its scores [C], or several branches [B, C] for `finish` to fuse."""

    def finish(self, outputs: Tensor) -> Tensor:
        """All outputs [N, B, C] -> scores [N, C]."""
        return outputs[:, 0]

    def report(self, values: Mapping[str, float | Tensor]) -> None:
        """Diagnostics of this step; the runner keeps them in the run's folder."""
        for key, value in values.items():  # here and not when they are taken: the author's own line is at hand
            single = value.numel() == 1 if isinstance(value, Tensor) else hasattr(value, "__float__")
            if not single:
                raise TypeError(f"report({key!r}): a number is wanted, or a tensor of one, not {_kind(value)}")
        self.__dict__.setdefault("_report", {}).update(values)

    def take_report(self) -> dict[str, float]:
        """The diagnostics reported since the last call, as numbers."""
        return {key: float(value) for key, value in self.__dict__.pop("_report", {}).items()}

    def state_dict(self) -> State:
        """A copy of the method's state: see the class. Override it for state of another kind."""
        hyper_parameters = {f.name for f in dataclasses.fields(self)}
        state: State = {}
        copies = Copies(vars(self))
        for key, value in vars(self).items():
            if key in hyper_parameters or key.startswith("_") or isinstance(value, NOT_STATE):
                continue
            if isinstance(value, torch.Generator):
                raise TypeError(f"{self.name}: draw from task.rng, which is checkpointed, not from your own")
            state[key] = value.state_dict() if keeps_state(value) else copies.of(value, f"{self.name}.{key}")
        return state

    def load_state_dict(self, state: State) -> None:
        """Continue from `state`; called after `start`, so that objects with a state of their own are there."""
        copies = Copies(state)
        for key, value in state.items():
            own: Any = vars(self).get(key)
            if keeps_state(own):
                own.load_state_dict(value)
            else:
                setattr(self, key, copies.of(value, f"{self.name}.{key}"))


FUNCTIONS = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, functools.partial, type)
NOT_STATE = (Task, TextEncoder, PromptTunable, *FUNCTIONS)  # what was handed in, and code: `start` has them again


def _kind(value: object) -> str:
    return f"one of shape {list(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"


Extras = TypeVar("Extras")


def _extras(kind: type[Extras], thing: object) -> Extras:
    """The declared optional members that `thing` has."""
    found = {}
    for f in dataclasses.fields(kind):  # type: ignore[arg-type]  # only called with dataclasses
        try:
            found[f.name] = getattr(thing, f.name)
        except (AttributeError, UsageError):  # a property that refuses, e.g. for a tower whose prompts can't be tuned
            continue
    return kind(**found)
