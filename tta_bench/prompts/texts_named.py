"""Whether texts are in the order of their classes, as far as they name them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from tta_bench.system.text import plain_name


def texts_of_another(class_names: Sequence[str], texts: Sequence[Sequence[str]]) -> tuple[str, str] | None:
    """The first class whose own texts all leave out its name and name another one, which its own leave out, too; None
    if there is none. `texts` are [C][P]. Takes time in proportion to them, however many classes there are."""
    spelt = [_words(name) for name in class_names]
    said = [[_words(text) for text in of_class] for of_class in texts]
    unnamed = {
        name: i for i, (name, own) in enumerate(zip(spelt, said, strict=True)) if not any(name in t for t in own)
    }
    longest = max((len(name.split()) for name in unnamed), default=0)
    for name, place in unnamed.items():
        named = [set(_phrases(text, longest)) & unnamed.keys() - {name} for text in said[place]]
        if named and (others := set.intersection(*named)):
            return class_names[place], class_names[min(unnamed[other] for other in others)]
    return None


def _words(text: str) -> str:
    return " ".join(re.findall(r"[^\W_]+", plain_name(text)))


def _phrases(text: str, longest: int) -> Iterator[str]:
    words = text.split()
    for size in range(1, longest + 1):
        yield from (" ".join(words[i : i + size]) for i in range(len(words) - size + 1))
