"""The three doors for plugins: `Method`, `Dataset` and `Backbone`, and the data that passes through them.

Labels take the short way from the dataset to the metrics. Nothing that a method receives holds them.
"""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    Literal,
    Protocol,
    Self,
    get_args,
    get_origin,
    get_type_hints,
    runtime_checkable,
)

import torch
from torch import Tensor

from tta_bench.errors import UsageError

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
class Views(Protocol):
    """A view recipe: what to cut from an image and how to augment it. A frozen dataclass, because its `repr` is part
    of the feature store's key; what the recipe draws may depend on nothing but its fields, the seed and the image."""

    @property
    def name(self) -> str: ...  # as typed on the command line, e.g. "augmix63"

    @property
    def count(self) -> int: ...  # number of views per image

    @property
    def seeded(self) -> bool: ...  # False when the views don't depend on the seed

    def render(self, image: Image.Image, image_id: str, seed: int, preprocess: Preprocess) -> Tensor:
        """Float pixels in [0, 1], [count, 3, size, size]."""
        ...


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
    protocol by themselves, so that two label protocols share their features."""

    @classmethod
    def open(cls, root: Path, protocol: str = "default") -> Self:
        """Raises `DataMissing` with the recipe to get the data, `UsageError` for an unknown protocol."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, i: int) -> Sample: ...


# ------------------------------------------------------------------------------------------------------ backbones


class Backbone(Protocol):
    """An image and a text encoder with a common space. All features are unit-norm float32."""

    name: ClassVar[str]
    fingerprint: str  # digest of weights, preprocessing (mean and std included) and precision
    preprocess: Preprocess
    image_size: int
    embed_dim: int
    logit_scale: float
    logit_bias: float

    @classmethod
    def load(cls, device: str, checkpoint: Path | None = None, precision: str = "fp32") -> Self:
        """Raises `WeightsMissing` within seconds when the weights are not here."""
        ...

    def encode_images(self, pixels: Tensor) -> Tensor:
        """[B, 3, S, S] in [0, 1] -> [B, D]."""
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


# -------------------------------------------------------------------------------------------------------- methods


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
    captions: tuple[Tensor, Tensor] | None = None  # embeddings [M, D] and label-list lengths [M], for ML-TTA


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


@dataclass
class Method(ABC):
    """A test-time adaptation method. Fields are its hyper-parameters; whatever `start` sets is its state."""

    name: ClassVar[str]
    version: ClassVar[str] = "1"  # raise it when the method's numbers change: part of the config identity
    recipes: ClassVar[Mapping[str, Views]] = {}  # role -> views, e.g. {"views": AugMix(63), "regions": RandomCrops(50)}
    tunes_prompts: ClassVar[bool] = False

    def __post_init__(self) -> None:
        """Refuses a word that a field's `Literal` does not have: it would fall through to some branch in silence."""
        hints = get_type_hints(type(self))
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

    def digests(self) -> Mapping[str, str]:
        """Digests of files that the method reads, by name: part of the config identity."""
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
        self.__dict__.setdefault("_report", {}).update(values)

    def take_report(self) -> dict[str, float]:
        """The diagnostics reported since the last call, as numbers."""
        return {key: float(value) for key, value in self.__dict__.pop("_report", {}).items()}

    def state_dict(self) -> State:
        """A copy of every attribute set in `start()` or `step()` that is data. Override it for other state."""
        hyper_parameters = {f.name for f in dataclasses.fields(self)}
        state: State = {}
        for key, value in vars(self).items():
            if key in hyper_parameters or key == "_report" or isinstance(value, Task) or callable(value):
                continue
            if isinstance(value, torch.Generator):
                raise TypeError(f"{self.name}: draw from task.rng, which is checkpointed, not from your own")
            state[key] = _copy(value, f"{self.name}.{key}")
        return state

    def load_state_dict(self, state: State) -> None:
        """Continue from `state`; called after `start`."""
        for key, value in state.items():
            setattr(self, key, _copy(value, f"{self.name}.{key}"))


def _copy(value: Any, where: str) -> Any:
    """A deep copy of plain data, device kept; anything else can't be put into a checkpoint."""
    if isinstance(value, Tensor):
        return value.detach().clone()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return type(value)(_copy(v, where) for v in value)
    if isinstance(value, dict):
        return {k: _copy(v, where) for k, v in value.items()}
    raise TypeError(
        f"{where} is a {type(value).__name__}: state must be tensors, numbers, strings, lists or dicts, "
        "or override state_dict() and load_state_dict()"
    )
