"""SPARC's compound texts: all pairs of classes, or those of a file, and which classes each of them names.

The texts that SPARC's authors released were chosen by the labels of the training split. All pairs know no label.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tta_bench.errors import BadData
from tta_bench.system.files import read_utf8

IRREGULAR = {
    "person": "people",
    "child": "children",
    "man": "men",
    "woman": "women",
    "foot": "feet",
    "goose": "geese",
    "mouse": "mice",
    "tooth": "teeth",
    "leaf": "leaves",
    "wolf": "wolves",
    "knife": "knives",
    "shelf": "shelves",
    "calf": "calves",
}
JOINED = ("potted plant", "dining table", "tv monitor")  # VOC's own ids are one word each
ALSO = {"food bowl": "bowl", "motor bike": "motorcycle", "aeroplane": "airplane"}  # COCO's names in other lists


class Compounds(NamedTuple):
    """Compound texts, and for each class the indices of those that name it."""

    texts: tuple[str, ...]
    mentions: tuple[tuple[int, ...], ...]


def all_pairs(class_names: Sequence[str]) -> Compounds:
    """ "{a} and {b}" of any two classes."""
    pairs = list(itertools.combinations(range(len(class_names)), 2))
    texts = tuple(f"{class_names[i]} and {class_names[j]}" for i, j in pairs)
    return _indexed(texts, [set(pair) for pair in pairs], len(class_names))


def read(file: Path, class_names: Sequence[str]) -> Compounds:
    """One text per line; those that name no class are left out."""
    patterns = _patterns(class_names)
    found = [(text, _named(text, patterns)) for text in filter(None, map(str.strip, read_utf8(file).splitlines()))]
    kept = [(text, classes) for text, classes in found if classes]
    if not kept:
        raise BadData(f"{file}: no text names a class of the dataset")
    return _indexed(tuple(text for text, _ in kept), [classes for _, classes in kept], len(class_names))


def _indexed(texts: tuple[str, ...], classes: Sequence[set[int]], n_classes: int) -> Compounds:
    mentions = (tuple(p for p, named in enumerate(classes) if c in named) for c in range(n_classes))
    return Compounds(texts, tuple(mentions))


def named_classes(text: str, class_names: Sequence[str]) -> set[int]:
    """Indices of the classes whose names are in the text as whole words, in the singular or the plural.

    Longer names go first, and what matched is blanked out: a "hot dog" is no dog.
    """
    return _named(text, _patterns(class_names))


def _named(text: str, patterns: Sequence[tuple[int, re.Pattern[str]]]) -> set[int]:
    words, found = _words(text), set()
    for c, pattern in patterns:
        words, count = pattern.subn(" ", words)
        if count:
            found.add(c)
    return found


def _patterns(class_names: Sequence[str]) -> list[tuple[int, re.Pattern[str]]]:
    """Class and pattern, the longest name first."""
    names = [_words(name) for name in class_names]
    odd = next((original for original, name in zip(class_names, names, strict=True) if not name), None)
    if odd is not None:
        raise BadData(f"compound texts can't be searched for the class '{odd}': its name has no letters")
    first: dict[str, int] = {}
    for c, name in enumerate(names):
        if (other := first.setdefault(name, c)) != c:
            raise BadData(
                f"compound texts can't be searched for the classes '{class_names[other]}' and '{class_names[c]}': only "
                f"letters count, and both are '{name}'"
            )
    order = sorted(range(len(names)), key=lambda c: -len(names[c]))
    return [(c, re.compile(rf"\b(?:{'|'.join(_forms(names[c]))})\b")) for c in order]


def _words(text: str) -> str:
    """Lower-case letters and single spaces."""
    words = " ".join(re.sub(r"[^a-z]", " ", text.lower()).split())
    for pair in JOINED:
        words = re.sub(rf"\b{pair}", pair.replace(" ", ""), words)  # a spotted plant is none in a pot
    return words


def _forms(name: str) -> list[str]:
    """The name as it is, with and without a final s, with es, and with an irregular plural of its last word."""
    forms = set()
    for one in filter(None, (name, ALSO.get(name))):
        first, last = one[: one.rfind(" ") + 1], one[one.rfind(" ") + 1 :]
        singular = last.removesuffix("s") or last  # of the class "s" nothing would be left, which is in every text
        forms |= {one, f"{one}s", f"{one}es", first + singular, first + IRREGULAR.get(last, last)}
    return sorted(forms)
