"""Which ttabench recorded a run: of code that all methods share, not everything is in a configuration's identity."""

from __future__ import annotations

from collections.abc import Iterable

from tta_bench.records import RunRecord


def version_of(run: RunRecord) -> str:
    return str(run.provenance.get("versions", {}).get("ttabench", ""))


def several(versions: Iterable[str]) -> str:
    """What is to be said of runs that are compared with each other; empty if one version recorded them all."""
    found = sorted(set(versions))
    if len(found) < 2:
        return ""
    named = ", ".join(version or "unknown" for version in found)
    return f"recorded by {len(found)} versions of ttabench ({named}): part of the differences may be theirs"
