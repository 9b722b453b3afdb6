"""`ttabench doctor`: is this installation fit to run, and if not, what is wrong?"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tta_bench.checks.verdicts import blame
from tta_bench.errors import TTABenchError
from tta_bench.plugins import Registry
from tta_bench.system import paths, provenance
from tta_bench.system.text import counted


@dataclass(frozen=True)
class Finding:
    topic: str
    value: str
    ok: bool = True
    group: Literal["versions", "plugins", "machine"] = "machine"

    @property
    def as_json(self) -> dict[str, str | bool]:
        return {"topic": self.topic, "value": self.value, "ok": self.ok}


def examine(registry: Registry, backbones: Sequence[str] = ("tiny",)) -> list[Finding]:
    """Everything that was looked at."""
    findings = [*_versions(), *_plugins(registry), *_folders(), _device()]
    return findings + [_backbone(registry, name) for name in backbones]


def _versions() -> list[Finding]:
    found = provenance.versions().items()
    return [Finding(name, version, version != "not installed", "versions") for name, version in found]


def _plugins(registry: Registry) -> list[Finding]:
    failures = registry.failures()
    findings = [
        Finding(plugin.entry_point, failures.get(plugin, plugin.origin), plugin not in failures, "plugins")
        for plugin in registry.plugins()
    ]
    return findings + [Finding("plugin", warning, False, "plugins") for warning in registry.warnings]


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
    chip = found.get("accelerator", found["processor"])
    return Finding("device", f"{name}: {chip}, {counted(found['threads'], 'thread')}")


def _backbone(registry: Registry, name: str) -> Finding:
    """Encodes bundled images and texts and compares with what they should give."""
    from tta_bench.checks import fidelity as reference

    topic = f"features of {name}"
    cls = registry.backbone(name)
    try:
        deviation = reference.deviation(cls.load("cpu"), registry)
    except TTABenchError as error:
        return Finding(topic, " ".join(str(error).split()), False)
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # a plugin may raise anything
        return Finding(topic, blame(error, cls), False)
    if deviation is None:
        return Finding(topic, "weights load; no reference similarities are stored for it")
    verdict = "as they should be" if deviation <= reference.TOLERANCE else "NOT what they should be"
    return Finding(topic, f"{verdict} (largest deviation {deviation:.1e})", deviation <= reference.TOLERANCE)
