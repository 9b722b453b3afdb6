"""`ttabench doctor`: is this installation fit to run, and if not, what is wrong?"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tta_bench.errors import TTABenchError
from tta_bench.plugins import Registry
from tta_bench.system import paths, provenance


@dataclass(frozen=True)
class Finding:
    topic: str
    value: str
    ok: bool = True


def examine(registry: Registry, as_json: bool, backbones: Sequence[str] = ("tiny",)) -> None:
    """Prints what was found; exits with 1 if something is wrong."""
    findings = [*_versions(), *_plugins(registry), *_folders(), _device()]
    findings += [_backbone(registry, name) for name in backbones]
    if as_json:
        print(json.dumps([vars(f) for f in findings], indent=1))
    else:
        from rich.console import Console

        console = Console(highlight=False, soft_wrap=True)
        for finding in findings:
            mark = "[green]ok[/]  " if finding.ok else "[red]BAD[/] "
            console.print(mark, end="")
            console.print(f"{finding.topic:<22} {finding.value}", markup=False)
    if not all(f.ok for f in findings):
        sys.exit(1)


def _versions() -> list[Finding]:
    return [Finding(name, version, version != "not installed") for name, version in provenance.versions().items()]


def _plugins(registry: Registry) -> list[Finding]:
    failures = registry.failures()
    findings = [
        Finding(plugin.entry_point, failures.get(plugin, plugin.origin), plugin not in failures)
        for plugin in registry.plugins()
    ]
    return findings + [Finding("plugin", warning, False) for warning in registry.warnings]


def _folders() -> list[Finding]:
    return [
        _folder("store", paths.store(), must_write=True),
        _folder("runs", paths.runs(), must_write=True),
        _folder("data", paths.data(), must_write=False),
    ]


def _folder(topic: str, path: Path, must_write: bool) -> Finding:
    existing = next(p for p in (path, *path.parents) if p.exists())
    if must_write and not (existing.is_dir() and os.access(existing, os.W_OK)):
        return Finding(topic, f"{path} can't be written: set TTABENCH_HOME to a folder that can", False)
    free = shutil.disk_usage(existing).free
    state = "" if path.exists() else " (not there yet)"
    return Finding(topic, f"{path}{state}, {free / 1e9:,.1f} GB free", not must_write or free > 1e9)


def _device() -> Finding:
    import torch

    name = "cuda" if torch.cuda.is_available() else "cpu"
    found = provenance.hardware(name)
    return Finding("device", f"{name}: {found.get('accelerator', found['processor'])}, {found['threads']} threads")


def _backbone(registry: Registry, name: str) -> Finding:
    """Encodes bundled images and texts and compares with what they should give."""
    from tta_bench.checks import fidelity as reference

    topic = f"features of {name}"
    cls = registry.backbone(name)
    try:
        deviation = reference.deviation(cls.load("cpu"), registry)
    except TTABenchError as error:
        return Finding(topic, str(error), False)
    if deviation is None:
        return Finding(topic, "weights load; no reference similarities are stored for it")
    verdict = "as they should be" if deviation <= reference.TOLERANCE else "NOT what they should be"
    return Finding(topic, f"{verdict} (largest deviation {deviation:.1e})", deviation <= reference.TOLERANCE)
