"""Any text -> LaTeX that compiles under every engine and encoding, without a package."""

from __future__ import annotations

import unicodedata

from tta_bench.system.text import visible

COMMANDS = {
    "\\": "textbackslash",
    "~": "textasciitilde",
    "^": "textasciicircum",
    "<": "textless",
    ">": "textgreater",
    "|": "textbar",
    "†": "textdagger",
    "…": "dots",
    "ß": "ss",
    **dict(zip("æÆœŒøØłŁı", ("ae", "AE", "oe", "OE", "o", "O", "l", "L", "i"), strict=True)),
}
PLAIN = {"–": "--", "—": "---", "‘": "`", "’": "'", "“": "``", "”": "''", **{c: rf"\{c}" for c in "&%$#_{}"}}
SIGNS = "pm times cdot rightarrow infty leq geq neq approx mu"
GREEK = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma varsigma tau upsilon phi "
    "chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega"
)
MATHS = {
    **dict(zip("±×·→∞≤≥≠≈µ", SIGNS.split(), strict=True)),
    **dict(zip("αβγδεζηθικλμνξπρσςτυφχψωΓΔΘΛΞΠΣΥΦΨΩ", GREEK.split(), strict=True)),
}
AS_IN_LATIN = dict(zip("οΑΒΕΖΗΙΚΜΝΟΡΤΧ", "oABEZHIKMNOPTX", strict=True))  # on the left they are Greek
ACCENTS = dict(  # combining mark -> command that takes the letter; marks that are not here are left out
    zip("\u0300\u0301\u0302\u0303\u0308\u0304\u0307\u0306\u030a\u030b\u030c\u0323\u0327", "`'^~\"=.urHvdc", strict=True)
)


def latex(text: str) -> str:
    """What `shown` gives, as LaTeX's source."""
    escaped = "".join(map(_source, shown(text)))
    return f"{{}}{escaped}" if escaped[:1] in ("[", "*") else escaped  # else the row break before it would take it


def shown(text: str) -> str:
    r"""As a reader will see it: what LaTeX has no letter for (CJK, emoji, control) is written out, as in \u4e2d."""
    found = (_letter(c) for c in unicodedata.normalize("NFC", visible(text)))
    return "".join(c if letter else c.encode("unicode_escape").decode() for c, letter in found)


def _letter(c: str) -> tuple[str, bool]:
    """The character, and whether there is a source for it."""
    letter = AS_IN_LATIN.get(c, c)
    base = unicodedata.normalize("NFD", letter)[0]
    known = base.isascii() or letter in COMMANDS or letter in PLAIN or base in MATHS or base in AS_IN_LATIN
    return letter, known


def _source(c: str) -> str:
    if c in COMMANDS:
        return rf"\{COMMANDS[c]}{{}}"
    if c in PLAIN:
        return PLAIN[c]
    base, *marks = list(unicodedata.normalize("NFD", c))
    if base in MATHS:
        return rf"$\{MATHS[base]}$"
    base = AS_IN_LATIN.get(base, base)
    for mark in marks:
        base = rf"\{ACCENTS[mark]}{{{base}}}" if mark in ACCENTS else base
    return base
