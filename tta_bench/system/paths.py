"""Where things live on this machine: `$TTABENCH_HOME/{store,runs,data}`, never the working tree.

The environment goes before `ttabench.toml`, and that before the user's cache folder.
"""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs

from tta_bench.errors import UsageError
from tta_bench.system import config
from tta_bench.system.files import expanded


def absolute(path: Path | str) -> Path:
    """Where it is now: what a relative path means changes with the working folder."""
    return expanded(path).absolute()


def user() -> str:
    """What a ~ means; itself where nobody knows."""
    return os.path.expanduser("~")  # noqa: PTH111  # Path's raises an error then


def home() -> Path:
    variable = os.environ.get("TTABENCH_HOME")
    if variable:
        return absolute(variable)
    found = config.load().home or config.user_folder(platformdirs.user_cache_dir)
    if found is None:
        raise UsageError("this user has no home folder: set TTABENCH_HOME to a folder for runs, features and data")
    return found


def store() -> Path:
    return home() / "store"


def runs() -> Path:
    return home() / "runs"


def data() -> Path:
    variable = os.environ.get("TTABENCH_DATA")
    return absolute(variable) if variable else config.load().data_root or home() / "data"
