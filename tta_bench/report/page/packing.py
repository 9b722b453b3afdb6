"""Numbers -> text that takes little room in a page: 16 bits each, in base64. assets/numbers.js reads them.

Differences (of mAP) are kept to a hundredth of a point, as they are shown, and widths of intervals, which those of a
few photos exceed; p is kept as its logarithm, to less than a tenth of a percent. Points that the page itself subtracts
from each other have 24 bits, or the last digit shown would be another one; where there are many, 16, and one digit is
shown. What is undefined is MISSING.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterable, Sequence

MISSING = 0xFFFF
WIDE = 0xFFFE  # an interval of which half is more than the others can say, 655.33 points
SHIFT = 20_000  # hundredths of a point: from -200 to 200 points
P_STEPS = 4096  # per decade: p down to 1e-15
FINE, COARSE = 10_000, 500  # to a point
ROUGH = "~"  # begins a text of coarse ones
SIGNS = ("", "+", "-")  # of which three go into a letter


def points(value: float | None) -> int:
    """Hundredths of a point, shifted."""
    if value is None or not math.isfinite(value) or abs(value) > SHIFT / 100:
        return MISSING
    return round(value * 100) + SHIFT


def width(value: float) -> int:
    """Hundredths of a point, of something that is never below nothing."""
    if math.isnan(value):
        return MISSING
    return WIDE if value * 100 >= WIDE - 0.5 else round(value * 100)


def probability(p: float) -> int:
    """Its logarithm; rounded up, so that nothing turns out more significant than it is."""
    if math.isnan(p):
        return MISSING
    return min(MISSING - 1, int(-math.log10(p) * P_STEPS)) if p > 0 else MISSING - 1


def packed(codes: Iterable[int]) -> str:
    return base64.b64encode(b"".join(code.to_bytes(2, "little") for code in codes)).decode()


def packed_points(values: Iterable[float | None], fine: bool) -> str:
    """Percentages, each in 24 bits or in 16."""
    scale, size = (FINE, 3) if fine else (COARSE, 2)
    codes = (round(v * scale) if v is not None and 0 <= v <= 100 else 256**size - 1 for v in values)
    return ("" if fine else ROUGH) + base64.b64encode(
        b"".join(code.to_bytes(size, "little") for code in codes)
    ).decode()


def packed_signs(signs: Sequence[str]) -> str:
    """Three classes to a letter, from "a" on; nothing where no class has a sign."""
    if not any(signs):
        return ""
    digits = [SIGNS.index(sign) for sign in signs] + [0, 0]  # the last letter may hold one or two
    return "".join(chr(ord("a") + digits[k] + 3 * digits[k + 1] + 9 * digits[k + 2]) for k in range(0, len(signs), 3))
