"""Small helpers for text that people read."""

from __future__ import annotations


def visible(text: object) -> str:
    r"""The text with everything that a terminal or a file would obey instead of showing written out: \x1b, \n, \u202e.

    >>> visible("a\nb")
    'a\\nb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))


def counted(count: int, thing: str) -> str:
    """`1 run`, `2 runs`, `1,200 images`.

    >>> counted(1, "run"), counted(2, "class")
    ('1 run', '2 classes')
    """
    plural = thing + ("es" if thing.endswith("s") else "s")
    return f"{count:,} {thing if count == 1 else plural}"
