"""`ttabench.toml`, in the working folder or in the user's config folder: paths, and defaults of the commands' options.
TTABENCH_CONFIG names another file.

home = "~/ttabench"          # as TTABENCH_HOME, which goes before it
data_root = "~/data"         # as TTABENCH_DATA, which goes before it

[data]                       # datasets that lie elsewhere
coco2017 = "/mnt/coco"

[run]                        # defaults of `ttabench run`; likewise for every other command
backbone = "vit-b16"
device = "cuda"
"""

from __future__ import annotations

import functools
import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import platformdirs

from tta_bench.errors import UsageError
from tta_bench.system.files import read_utf8
from tta_bench.system.text import visible

NAME = "ttabench.toml"
PATHS = ("home", "data_root")


@dataclass(frozen=True)
class Config:
    """What the file says; all of it may be empty."""

    file: Path | None = None
    home: Path | None = None
    data_root: Path | None = None
    data: Mapping[str, Path] = field(default_factory=dict)  # dataset -> its own root
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # command -> option -> default


def load() -> Config:
    """TTABENCH_CONFIG's, or else the first file that is there. Options' names are checked where commands are known."""
    if named := os.environ.get("TTABENCH_CONFIG"):
        return _read(Path(named))
    for folder in (Path.cwd(), user_folder(platformdirs.user_config_dir)):
        if folder is not None and (folder / NAME).is_file():
            return _read(folder / NAME)
    return Config()


def user_folder(kind: Callable[[str], str]) -> Path | None:
    """None of a user whom the system does not know and who has no HOME, as in a container or a cluster's job."""
    try:
        folder = Path(kind("ttabench"))
    except RuntimeError:
        return None
    return folder if folder.is_absolute() else None  # older versions of platformdirs leave the ~ as it is


def _read(file: Path) -> Config:
    return _parsed(file, read_utf8(file))


@functools.lru_cache(maxsize=8)
def _parsed(file: Path, text: str) -> Config:
    try:
        content = tomllib.loads(text)
    except ValueError as error:
        raise UsageError(f"{file}: can't be read: {error}") from error
    except RecursionError:
        raise UsageError(f"{file}: can't be read: it is nested too deep") from None
    paths: dict[str, Path] = {}
    data: dict[str, Path] = {}
    options: dict[str, Mapping[str, Any]] = {}
    for key, value in content.items():
        if key in PATHS and isinstance(value, str):
            paths[key] = _path(value, file, key)
        elif key == "data" and isinstance(value, dict) and all(isinstance(path, str) for path in value.values()):
            data = {name: _path(path, file, f"data.{name}") for name, path in value.items()}
        elif key not in (*PATHS, "data") and isinstance(value, dict):
            options[key] = value
        else:
            raise UsageError(
                f"{file}: can't use `{key}`: it takes home and data_root (texts), a table [data] of dataset = path, "
                "and a table of options for each command, e.g. [run]"
            )
    return Config(file, paths.get("home"), paths.get("data_root"), data, options)


def _path(text: str, file: Path, key: str) -> Path:
    try:
        if text and "\0" not in text:
            return Path(text).expanduser()
    except RuntimeError:  # of somebody whom the system does not know
        pass
    raise UsageError(visible(f"{file}: `{key}` can't be a path: '{text}'"))
