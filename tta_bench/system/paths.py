"""Where things live on this machine: `$TTABENCH_HOME/{store,runs,data}`, never the working tree."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def home() -> Path:
    configured = os.environ.get("TTABENCH_HOME")
    return Path(configured).expanduser() if configured else Path(platformdirs.user_cache_dir("ttabench"))


def store() -> Path:
    return home() / "store"


def runs() -> Path:
    return home() / "runs"


def data() -> Path:
    configured = os.environ.get("TTABENCH_DATA")
    return Path(configured).expanduser() if configured else home() / "data"
