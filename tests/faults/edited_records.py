"""Records that were edited after their run, and the one line that stands for them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tta_bench
from tests.conftest import Invoke


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Changes what run.json says; nobody seals it again."""
    content = json.loads((folder / "run.json").read_text())
    change(content)
    (folder / "run.json").write_text(json.dumps(content, indent=1))


def only_warning(invoke: Invoke, runs: Path, method: str) -> str:
    """The one line that stands for a bad record; no format has a number of `method`, all have those of `clip`."""
    warnings = set()
    for format_ in ("csv", "md"):
        result = invoke("leaderboard", "--results", str(runs), "--format", format_)
        assert result.code == 0, result.err
        assert "clip" in result.out
        assert method not in result.out
        (line,) = result.err.strip().splitlines()
        warnings.add(line)
    found = tta_bench.load_results(runs)
    assert [run.method for run in found] == ["clip"]
    assert len(found.problems) == 1
    (warning,) = warnings
    return warning
