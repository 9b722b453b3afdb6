"""Small helpers for text that people read."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence


def visible(text: object) -> str:
    r"""The text with everything that a terminal or a file would obey instead of showing written out: \x1b, \n, \u202e.

    >>> visible("a\nb")
    'a\\nb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def is_text(value: str) -> bool:
    """Whether it can be written: JSON may spell half a character (a lone surrogate), and paths may not be UTF-8.

    >>> is_text("café"), is_text("caf" + chr(0xDCE9))
    (True, False)
    """
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def plain_name(name: str) -> str:
    """A class's name as tokenizers read it: capitals, underscores and further spaces make no difference.

    >>> plain_name("Hot_dog "), plain_name("hot  dog")
    ('hot dog', 'hot dog')
    """
    return " ".join(name.replace("_", " ").lower().split())


def first_alike(names: Sequence[str]) -> tuple[str, str] | None:
    """The first two classes that a prompt, or whoever reads it, can't tell apart; None if there are none.

    >>> first_alike(["dog", "cat", "Dog"])
    ('dog', 'Dog')
    """
    seen: dict[str, str] = {}
    for name in names:
        shown = plain_name(_one_spelling(name))
        if shown in seen:
            return seen[shown], name
        seen[shown] = name
    return None


def hides_something(name: str) -> bool:
    """Whether it has a character that nobody sees (Cf) beside one of ASCII; some scripts join letters with them.

    >>> hides_something("dog" + chr(0x200B)), hides_something("dog")
    (True, False)
    """
    beside = zip(f" {name[:-1]}", name, f"{name[1:]} ", strict=True)
    return any(unicodedata.category(c) == "Cf" and min(left, right) < "\x80" for left, c, right in beside)


def _one_spelling(text: str) -> str:
    """Unicode writes an accent as one character or as two, has ligatures, and characters that nobody sees (Cf)."""
    return unicodedata.normalize("NFKC", "".join(c for c in text if unicodedata.category(c) != "Cf"))


def counted(count: int, thing: str) -> str:
    """`1 run`, `2 runs`, `1,200 images`.

    >>> counted(1, "run"), counted(2, "class")
    ('1 run', '2 classes')
    """
    plural = thing + ("es" if thing.endswith("s") else "s")
    return f"{count:,} {thing if count == 1 else plural}"


def signed(value: float) -> str:
    """A difference in points. Nothing has no sign of its own: -0.00 would read as a loss."""
    return f"{round(value, 2) + 0.0:+.2f}"
