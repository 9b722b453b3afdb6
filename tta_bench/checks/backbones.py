"""`ttabench check backbones.NAME`: are its features what the store and the methods take them for?

The kit encodes noise and a few texts on the processor; it needs the weights, or `--random-weights`.
"""

from __future__ import annotations

import inspect
import math
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args, get_type_hints

import torch
from torch import Tensor, nn

from tta_bench.checks.verdicts import CannotTell, Checks, Examination, blame
from tta_bench.errors import TTABenchError, UsageError, WeightsMissing
from tta_bench.interfaces import LARGEST_SCALE, Backbone, BackboneExtras, Preprocess, PromptTunable

DEVICE = "cpu"
TOLERANCE = 1e-4  # of a unit feature's entries: another batch adds up in another order
UNTRAINED = "untrained: the architecture with random weights"
SAVED_AT_MOST = 3 * 10**9  # bytes of weights that are written to a temporary file, to read them again with a change
TEXTS = (
    "a photo of a dog.",
    "a photo of a traffic light.",
    "",
    "ein Foto von einem Känguru, 一只猫的照片 🐈",
    "a very long text " * 100,
)
CONTEXT, NAMES = "a photo of a", ("dog", "umbrella", "traffic light")


@dataclass
class Loaded:
    """A backbone under examination, and how to load it again."""

    cls: type[Backbone]
    weights: Path | None
    random: Callable[..., Any] | None  # set where the untrained backbone is examined
    backbone: Backbone

    def again(self, precision: str = "fp32") -> Backbone:
        return load(self.cls, self.weights, self.random, precision)

    @property
    def pixels(self) -> Tensor:
        """Noise, black and white: [5, 3, S, S]."""
        size = self.backbone.preprocess.size
        noise = torch.rand(3, 3, size, size, generator=torch.Generator().manual_seed(0))
        return torch.cat([noise, torch.zeros_like(noise[:1]), torch.ones_like(noise[:1])])


def load(
    cls: type[Backbone], weights: Path | None, random: Callable[..., Any] | None, precision: str = "fp32"
) -> Backbone:
    backbone: Backbone = random(DEVICE, precision) if random else cls.load(DEVICE, weights, precision)
    return backbone


# --------------------------------------------------------------------------------------------------------- checks


def _preprocess(loaded: Loaded) -> str:
    found = loaded.backbone.preprocess
    if not isinstance(found, Preprocess):
        return f"preprocess is a {type(found).__name__}, not a Preprocess"
    if not isinstance(found.size, int) or found.size < 1:
        return f"preprocess.size is {found.size!r}, not a number of pixels"
    hints = get_type_hints(Preprocess)
    for name in ("interpolation", "resize"):
        value, words = getattr(found, name), get_args(hints[name])
        if value not in words:
            return f"preprocess.{name} is {value!r}, not one of {', '.join(words)}"
    return ""


def _logit_scale(loaded: Loaded) -> str:
    scale, bias = loaded.backbone.logit_scale, loaded.backbone.logit_bias
    for name, value in (("logit_scale", scale), ("logit_bias", bias)):
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return f"{name} is {value!r}, not a finite number"
    if scale > LARGEST_SCALE:
        return f"logit_scale is {scale:.4g}, more than any backbone's: was it exponentiated twice?"
    return "" if scale > 0 else f"logit_scale is {scale}: scores would be turned round or all alike"


def _features(features: Any, rows: int, loaded: Loaded) -> str:
    """What is wrong with features that should be unit-norm float32 [rows, D]."""
    dim = loaded.backbone.embed_dim
    if not isinstance(features, Tensor):
        return f"features are a {type(features).__name__}, not a tensor"
    if tuple(features.shape) != (rows, dim):
        return f"features have shape {list(features.shape)}, not [{rows}, {dim}] (embed_dim)"
    if features.dtype != torch.float32:
        return f"features are {str(features.dtype).removeprefix('torch.')}, not float32"
    if features.requires_grad:
        return "features require a gradient: a long run would keep every graph"
    if not torch.isfinite(features).all():
        row = int((~torch.isfinite(features)).any(dim=1).nonzero()[0])
        return f"features are not finite, first those of input {row}"
    off = float((features.norm(dim=1) - 1).abs().max())
    return "" if off <= TOLERANCE else f"features are not unit-norm: a norm is off by {off:.2g}"


def _image_features(loaded: Loaded) -> str:
    with torch.enable_grad():
        features = loaded.backbone.encode_images(loaded.pixels)
    return _features(features, len(loaded.pixels), loaded)


def _text_features(loaded: Loaded) -> str:
    with torch.enable_grad():
        for i, text in enumerate(TEXTS):
            wrong = _features(loaded.backbone.encode_texts([text]), 1, loaded)
            if wrong:
                what = ("a prompt", "a prompt", "an empty text", "a text beyond ASCII", "a very long text")[i]
                return f"{what}: {wrong}"
        return _features(loaded.backbone.encode_texts(list(TEXTS)), len(TEXTS), loaded)


@torch.no_grad()
def _batches(loaded: Loaded) -> str:
    backbone, pixels = loaded.backbone, loaded.pixels
    images, texts = backbone.encode_images(pixels), backbone.encode_texts(list(TEXTS))
    for i in range(len(pixels)):
        off = float((backbone.encode_images(pixels[i : i + 1])[0] - images[i]).abs().max())
        if not off <= TOLERANCE:
            return f"an image's features change by {off:.2g} when it is encoded alone"
    for i, text in enumerate(TEXTS):
        off = float((backbone.encode_texts([text])[0] - texts[i]).abs().max())
        if not off <= TOLERANCE:
            return f"a text's features change by {off:.2g} when it is encoded alone"
    return ""


def _deterministic(loaded: Loaded) -> str:
    backbone, pixels = loaded.backbone, loaded.pixels
    if not torch.equal(backbone.encode_images(pixels), backbone.encode_images(pixels)):
        return "the same images give other features the second time"
    same = torch.equal(backbone.encode_texts(list(TEXTS)), backbone.encode_texts(list(TEXTS)))
    return "" if same else "the same texts give other features the second time"


@torch.no_grad()
def _tells_apart(loaded: Loaded) -> str:
    images, texts = loaded.backbone.encode_images(loaded.pixels), loaded.backbone.encode_texts(list(TEXTS))
    for name, features in (("images", images), ("texts", texts)):
        if float((features[0] - features[1]).abs().max()) == 0:
            return f"two different {name} have the same features"
    return ""


def _inputs_untouched(loaded: Loaded) -> str:
    pixels = loaded.pixels
    loaded.backbone.encode_images(pixels)
    return "" if torch.equal(pixels, loaded.pixels) else "encode_images changes the pixels that it is given"


def _fingerprint_stable(loaded: Loaded) -> str:
    first = loaded.backbone.fingerprint
    if not isinstance(first, str) or not first:
        return f"the fingerprint must be a text, not {first!r}"
    same = loaded.again().fingerprint == first
    return "" if same else "loaded again it has another fingerprint: stored features would never be found again"


def _precision(loaded: Loaded) -> str:
    """Where a lower precision gives other features, the fingerprint must say so."""
    try:
        low = loaded.again("bf16")
    except UsageError as error:
        raise CannotTell(f"bf16: {error}") from error
    with _plain_kernels():
        features = low.encode_images(loaded.pixels[:1])
        reference = loaded.backbone.encode_images(loaded.pixels[:1])
    wrong = _features(features, 1, loaded)
    if wrong:
        return f"in bf16 {wrong}"
    if low.fingerprint != loaded.backbone.fingerprint:
        return ""
    if torch.equal(features, reference):
        raise CannotTell("bf16 gives the same features as fp32: it takes no notice of the precision")
    return "in bf16 the features are others but the fingerprint is the same"


@contextmanager
def _plain_kernels() -> Iterator[None]:
    """Without oneDNN: its bf16 kernels use AMX, and some machines offer AMX but stop a process that uses it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with torch.backends.mkldnn.flags(enabled=False):
            yield


def _fingerprint_and_weights(loaded: Loaded) -> str:
    """Saves the weights, loads them, changes one number in the same file, and loads them again."""
    state = _state(loaded)
    if state is None:
        return _fingerprint_and_seed(loaded)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "weights.safetensors")
        try:
            before = _load_saved(loaded.cls, state, file)
        except (TTABenchError, RuntimeError, KeyError, ValueError):  # its weights are not what its module holds
            return _fingerprint_and_seed(loaded)
        name = next(name for name, tensor in state.items() if _is_weight(tensor))
        state[name] = state[name].clone()
        state[name].view(-1)[0] += 1
        same = _load_saved(loaded.cls, state, file) == before
    changed = f"one number of '{name}' was changed in its weights file"
    return f"{changed}, and the fingerprint is still the same" if same else ""


def _load_saved(cls: type[Backbone], state: Mapping[str, Tensor], file: Path) -> str:
    """The fingerprint of the backbone with these weights."""
    from safetensors.torch import save_file

    save_file(dict(state), file)
    return cls.load(DEVICE, file).fingerprint


def _state(loaded: Loaded) -> dict[str, Tensor] | None:
    """The weights in the form in which the backbone reads them: from its file, or from the module that it holds."""
    sources = [loaded.weights] if loaded.weights else BackboneExtras.of(loaded.backbone).sources or []
    files = [Path(source) for source in sources if Path(source).suffix == ".safetensors"]
    if files and not loaded.random:
        from safetensors.torch import load_file

        return dict(load_file(files[0]))
    for value in vars(loaded.backbone).values():
        if isinstance(value, nn.Module):
            state = {name: tensor.detach().clone().contiguous() for name, tensor in value.state_dict().items()}
            size = sum(tensor.nbytes for tensor in state.values())
            if any(map(_is_weight, state.values())) and size <= SAVED_AT_MOST:
                return state
    return None


def _is_weight(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.dim() >= 2


def _fingerprint_and_seed(loaded: Loaded) -> str:
    random = BackboneExtras.of(loaded.cls).random
    if random is None or "seed" not in inspect.signature(random).parameters:
        raise CannotTell("it takes no weights file that could be written here, and random() takes no seed")
    seeded: Callable[..., Any] = random
    first, second = (seeded(DEVICE, "fp32", seed=seed).fingerprint for seed in (0, 1))
    return "random weights of two seeds have one fingerprint" if first == second else ""


def _context(loaded: Loaded) -> str:
    backbone = loaded.backbone
    if not isinstance(backbone, PromptTunable):
        raise CannotTell("its prompts can't be tuned")
    try:
        context = backbone.init_context(CONTEXT).detach().clone().requires_grad_()
    except UsageError as error:
        raise CannotTell(str(error)) from error
    with torch.enable_grad():
        features = backbone.encode_context(context, NAMES)
        if not features.requires_grad:
            return "encode_context is not differentiable in the context"
        (gradient,) = torch.autograd.grad(features[0, 0], context)
    if not torch.isfinite(gradient).all() or not gradient.abs().sum() > 0:
        return "the gradient with respect to the context is zero or not finite"
    words = backbone.encode_texts([f"{CONTEXT} {name}." for name in NAMES])
    off = float((features.detach() - words).abs().max())
    return "" if off <= TOLERANCE else f"the context of the words '{CONTEXT}' is off by {off:.2g} from the words"


def _says_untrained(loaded: Loaded) -> str:
    marked = BackboneExtras.of(loaded.backbone).random_weights
    if loaded.random and not marked:
        return "random() gives a backbone whose random_weights is not True: its numbers would pass for real ones"
    return "it has random_weights although it was loaded" if marked and not loaded.random else ""


CHECKS: Checks[Loaded] = {
    "preprocess makes sense": _preprocess,
    "logit scale and bias": _logit_scale,
    "image features": _image_features,
    "text features": _text_features,
    "the batch does not matter": _batches,
    "deterministic": _deterministic,
    "tells inputs apart": _tells_apart,
    "leaves its inputs alone": _inputs_untouched,
    "fingerprint is stable": _fingerprint_stable,
    "fingerprint knows the precision": _precision,
    "fingerprint knows the weights": _fingerprint_and_weights,
    "a context of words is the words": _context,
    "untrained says so": _says_untrained,
}


def examine(cls: type[Backbone], weights: Path | None = None, random_weights: bool = False) -> Examination:
    """All verdicts.

    Raises:
        UsageError: the weights are not here, or it can't be had untrained: that is no fault of the plugin.
    """
    random = BackboneExtras.of(cls).random if random_weights else None
    if random_weights and random is None:
        raise UsageError(f"backbone '{cls.name}' can't be had with random weights")
    examination = Examination(f"backbones.{cls.name}", UNTRAINED if random_weights else "")
    try:
        loaded = Loaded(cls, weights, random, load(cls, weights, random))
    except WeightsMissing as error:
        if BackboneExtras.of(cls).random is None:
            raise
        raise WeightsMissing(f"{error}\nOr check the architecture without them: --random-weights") from error
    except (UsageError, KeyboardInterrupt):
        raise
    except BaseException as error:
        examination.fail("it loads", blame(error, cls))
        return examination
    examination.judge(CHECKS, loaded, cls)
    return examination
