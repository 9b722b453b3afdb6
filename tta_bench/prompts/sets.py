"""Class names -> prompts -> text bank [C, P, D] and class prototypes [C, D].

A prompt is a set of sentences per class (templates, CuPL), or a context learned elsewhere (CoOp, MaPLe). From the
latter methods that tune prompts start, too: `PromptSet.adapt` gives them a backbone whose context is the learned one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor
from torch.nn.functional import normalize

from tta_bench.errors import BadData, UnknownName, UsageError
from tta_bench.interfaces import Backbone, BackboneExtras, PromptTunable
from tta_bench.prompts.encoded import refuse_odd_features
from tta_bench.prompts.files import Coop, Maple, check_exists, check_start, read_coop, read_cupl, read_maple
from tta_bench.system.files import digest, file_digest
from tta_bench.system.text import hides_something, is_text, visible

TEMPLATES: dict[str, tuple[str, ...]] = {
    "photo": ("a photo of a {}.",),
    "ensemble": (  # CLIP's published seven, which its authors selected from its eighty
        "itap of a {}.",
        "a bad photo of the {}.",
        "a origami {}.",
        "a photo of the large {}.",
        "a {} in a video game.",
        "art of the {}.",
        "a photo of the small {}.",
    ),
    "ensemble-photos": (
        "a photo of a {}.",
        "a photo of the {}.",
        "a blurry photo of a {}.",
        "a close-up photo of a {}.",
        "a photo of a small {}.",
        "a photo of a large {}.",
        "a drawing of a {}.",
    ),
}
LEARNED = ("coop", "maple")  # prompts that are vectors and no words
FILES = {"cupl": "cupl:FILE.json", "coop": "coop:FILE", "maple": "maple:FILE"}


@runtime_checkable
class DeepPromptable(Protocol):
    """A backbone that takes prompts inside both of its towers."""

    def with_deep_prompts(self, prompts: Maple) -> Backbone: ...


def check_name(prompt: str) -> None:
    """Raises `UsageError` for a prompt that does not exist, or whose file does not."""
    kind, _, path = prompt.partition(":")
    if prompt in TEMPLATES:
        return
    if kind not in FILES or not path:
        known = (*TEMPLATES, *FILES.values())
        raise UnknownName("prompt", prompt, known, f"There are: {', '.join(known)}.")
    if not is_text(path):  # it stands in records
        raise UsageError(f"--prompt {prompt}: the file's name is not UTF-8; rename it")
    check_exists(Path(path))


@dataclass(frozen=True)
class PromptSet:
    """The prompts of every class, and what they were learned with."""

    name: str  # for tables: a file's folder is left out
    texts: tuple[tuple[str, ...], ...]  # [C][P]; of a learned prompt the words that it replaces
    class_names: tuple[str, ...]
    file: str = ""  # digest of the file that they are from
    learned: Coop | Maple | None = field(default=None, compare=False)

    @classmethod
    def named(cls, name: str, class_names: Sequence[str]) -> PromptSet:
        """photo, ensemble, ensemble-photos, cupl:FILE.json, coop:FILE or maple:FILE."""
        check_name(name)
        names = tuple(class_names)
        odd = next((one for one in names if hides_something(one)), None)
        if odd is not None:
            raise BadData(
                f"class '{visible(odd)}' has a character that nobody sees, and that would go into the prompt: "
                "write it without"
            )
        kind, _, path = name.partition(":")
        if name in TEMPLATES:
            return cls(name, _filled(name, names), names)
        file = Path(path)
        if kind == "cupl":
            sentences = tuple(read_cupl(file, names))
            return cls(f"cupl:{file.name}", sentences, names, file_digest(file))
        learned = read_coop(file) if kind == "coop" else read_maple(file)
        return cls(f"{kind}:{file.name}", _filled("photo", names), names, learned.digest, learned)

    @property
    def count(self) -> int:
        return sum(len(texts) for texts in self.texts)

    @property
    def identity(self) -> dict[str, str]:
        """What stands for the prompts in a run's protocol."""
        parts = {"prompt": self.name, "prompt_texts": digest([list(texts) for texts in self.texts])}
        return parts | ({"prompt_file": self.file} if self.file else {})

    def adapt(self, backbone: Backbone) -> Backbone:
        """The backbone that a run with these prompts uses: itself, unless they were learned."""
        if self.learned is None:
            return backbone
        _check_fit(self.learned, backbone)
        if isinstance(self.learned, Coop):
            return cast(Backbone, WithContext(backbone, self.learned))
        if not isinstance(backbone, DeepPromptable):
            raise UsageError(
                f"backbone '{backbone.name}' takes no MaPLe prompts: they need a CLIP with two transformers"
            )
        return backbone.with_deep_prompts(self.learned)

    def too_long(self, backbone: Backbone) -> list[str]:
        """The prompts that the backbone can't read to their end, as far as it says so."""
        too_long = BackboneExtras.of(backbone).too_long
        if too_long is None:
            return []
        learned = self._learned_in(backbone)
        if learned is None:
            return list(too_long([text for texts in self.texts for text in texts]))
        words = "a " * len(learned.context)  # the word "a" keeps the place of a vector that is no word
        names = {f"{words}{name.replace('_', ' ')}.": f"<context> {name}." for name in self.class_names}
        return [names[text] for text in too_long(list(names))]

    def _learned_in(self, backbone: Backbone) -> Coop | Maple | None:
        """The learned context that the backbone puts before the names, if it is one that has these prompts."""
        return self.learned if BackboneExtras.of(backbone).prompts_from == self.file else None

    def encode(self, backbone: Backbone) -> tuple[Tensor, Tensor]:
        """Text bank [C, P, D] and prototypes [C, D], the unit mean of each class's prompts.

        A backbone that was not adapted, such as a reward model, encodes the words. Classes with fewer sentences than
        others repeat theirs in the bank, but not in the prototype.
        """
        with torch.no_grad():
            if self._learned_in(backbone) is not None:
                tunable = cast(PromptTunable, backbone)
                text = tunable.encode_context(tunable.init_context(""), self.class_names)
                return text[:, None], text
            texts = [text for of_class in self.texts for text in of_class]
            encoded = backbone.encode_texts(texts)
            refuse_odd_features(backbone, texts, encoded)
            features = encoded.float()
        by_class = torch.split(features, [len(texts) for texts in self.texts])  # C of [P_c, D]
        longest = max(len(texts) for texts in self.texts)
        bank = torch.stack([own[torch.arange(longest) % len(own)] for own in by_class])
        return bank, normalize(torch.stack([own.mean(0) for own in by_class]), dim=-1)


def _filled(templates: str, class_names: Sequence[str]) -> tuple[tuple[str, ...], ...]:
    readable = [class_name.replace("_", " ") for class_name in class_names]
    return tuple(tuple(t.format(class_name) for t in TEMPLATES[templates]) for class_name in readable)


def _check_fit(learned: Coop | Maple, backbone: Backbone) -> None:
    if not isinstance(backbone, PromptTunable):
        raise UsageError(f"{learned.file}: backbone '{backbone.name}' has no context that could be replaced")
    width = backbone.init_context("a").shape[1]
    if learned.context.shape[1] != width:
        raise BadData(
            f"{learned.file}: its context has width {learned.context.shape[1]}, "
            f"but the text tower of backbone '{backbone.name}' has {width}"
        )
    check_start(learned, backbone, backbone.name)


class WithContext:
    """A backbone whose context is a learned one. All else, its image features and fingerprint too, is its own."""

    encode_context: Callable[..., Tensor]

    def __init__(self, backbone: Any, learned: Coop) -> None:
        self.backbone, self.learned, self.prompts_from = backbone, learned, learned.digest
        self.encode_context = backbone.encode_context

    def init_context(self, words: str) -> Tensor:
        return self.learned.context.to(self.backbone.init_context("a").device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backbone, name)
