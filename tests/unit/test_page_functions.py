"""The page's pure functions, in node where there is one; its packed numbers are read as they were written."""

from __future__ import annotations

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import pytest

from tta_bench.report.page.packing import MISSING, WIDE, packed, packed_points, points, probability, width

NODE = shutil.which("node")
ASSETS = str(resources.files("tta_bench.report.page") / "assets")
pytestmark = pytest.mark.skipif(NODE is None, reason="no node here; the browser tests of `make test-slow` see the same")


def test_every_function() -> None:
    script = Path(__file__).with_name("page_functions.js")
    done = subprocess.run([str(NODE), str(script), ASSETS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("ok: ") == 19


def test_numbers_survive_the_way() -> None:
    text = packed(
        [points(-12.345), points(99.99), points(None), probability(0.0499), probability(1.0), probability(0.0)]
    )
    code = (
        f"const s = require('fs').readFileSync({ASSETS!r} + '/numbers.js', 'utf8');"
        "const p = new Function(s + '; return { unpack, fromPoints, fromProbability }')();"
        f"const c = p.unpack({text!r});"
        "console.log(JSON.stringify([...c.slice(0, 3).map(p.fromPoints), ...c.slice(3).map(p.fromProbability)]))"
    )
    low, high, missing, p, one, least = json.loads(subprocess.check_output([str(NODE), "-e", code], text=True))
    assert (low, high, missing) == (pytest.approx(-12.34, abs=0.006), 99.99, None)
    assert 0.0499 <= p < 0.05
    assert one == 1
    assert least < 1e-15


def test_points_keep_the_digits_that_a_difference_shows() -> None:
    """A class went from 61.234 to 57.729 and was shown with -3.51 here and -3.50 there."""
    text, rough = (packed_points([61.2344, None, 0.0, 100.0, float("nan")], fine) for fine in (True, False))
    code = (
        f"const s = require('fs').readFileSync({ASSETS!r} + '/numbers.js', 'utf8');"
        "const p = new Function(s + '; return { unpackPoints }')();"
        f"console.log(JSON.stringify([{text!r}, {rough!r}].map(p.unpackPoints)))"
    )
    kept = json.loads(subprocess.check_output([str(NODE), "-e", code], text=True))
    assert kept == [[61.2344, None, 0, 100, None], [61.234, None, 0, 100, None]]


def test_what_can_not_be_kept_is_missing() -> None:
    assert [points(v) for v in (None, float("nan"), float("inf"), 1e308, -201.0)] == [MISSING] * 5
    assert probability(float("nan")) == MISSING
    assert [width(v) for v in (float("nan"), float("inf"), 655.34, 655.33, 0.0)] == [MISSING, WIDE, WIDE, 65533, 0]
