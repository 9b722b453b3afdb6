"""Where things live on this machine: `$TTABENCH_HOME/{store,runs,data}`, never the working tree.

The environment goes before `ttabench.toml`, and that before the user's cache folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from tta_bench.system import config


def absolute(path: Path | str) -> Path:
    """Where it is now: what a relative path means changes with the working folder."""
    return Path(path).expanduser().absolute()


def home() -> Path:
    variable = os.environ.get("TTABENCH_HOME")
    if variable:
        return absolute(variable)
    return config.load().home or Path(platformdirs.user_cache_dir("ttabench"))


def store() -> Path:
    return home() / "store"


def runs() -> Path:
    return home() / "runs"


def data() -> Path:
    variable = os.environ.get("TTABENCH_DATA")
    return absolute(variable) if variable else config.load().data_root or home() / "data"
