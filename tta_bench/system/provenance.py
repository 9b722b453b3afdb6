"""Where a number comes from: code, library versions, hardware."""

from __future__ import annotations

import functools
import importlib.metadata
import os
import platform
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

from tta_bench import __version__

LIBRARIES = ("torch", "torchvision", "open_clip_torch", "timm", "numpy", "pillow")


@functools.cache  # asked three times a run, and each time every library's metadata would be parsed
def versions() -> dict[str, str]:
    """Of ttabench, Python and the libraries that numbers depend on, as they were when first asked."""
    found = {"ttabench": __version__, "python": platform.python_version()}
    for library in LIBRARIES:
        try:
            found[library] = importlib.metadata.version(library)
        except importlib.metadata.PackageNotFoundError:
            found[library] = "not installed"
    return found


@functools.cache
@functools.cache
def git_state() -> dict[str, Any]:
    """Commit and dirty flag of the checkout that the code runs from; empty for an installed wheel."""
    root = Path(__file__).resolve().parents[2]
    if not (root / ".git").exists():
        return {}

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(root), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=10).stdout.strip()

    try:
        return {"git_commit": git("rev-parse", "HEAD"), "git_dirty": bool(git("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return {}


def hardware(device: str) -> dict[str, Any]:
    import torch

    found = {
        "device": device,
        "processor": _processor(),
        "instructions": torch.backends.cpu.get_cpu_capability(),  # which torch uses: one name may stand for several
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "system": platform.system(),
    }
    if device.startswith("cuda"):
        found["accelerator"] = torch.cuda.get_device_name(device)
    return found


def peak_memory_mb(device: str) -> float:
    """High-water mark of this process (on an accelerator: of its memory)."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / (2**20 if sys.platform == "darwin" else 2**10)  # bytes on macOS, kilobytes on Linux


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
