"""What an entry of the feature store says of itself in meta.json, and what becomes of one that says something else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tta_bench.system.files import disk_errors

MAKERS = "made_by.txt"
FILES = ("meta.json", "journal.txt", "features.bin", MAKERS)


class Grid(NamedTuple):
    """What was encoded together: last bits depend on it."""

    images_per_block: int
    views_at_once: int

    @classmethod
    def of(cls, meta: Mapping[str, Any]) -> Grid:
        """Raises `ValueError` or `KeyError` if it is none."""
        grid = cls(meta["images_per_block"], meta["views_at_once"])
        if any(type(count) is not int or count <= 0 for count in grid):
            raise ValueError(grid)
        return grid


def read_meta(folder: Path, wanted: Mapping[str, Any], any_grid: bool) -> tuple[Grid | None, str]:
    """The grid of the entry that is in the folder; None and a reason if it is not the one that is wanted, None and no
    reason if there is none."""
    try:
        meta = json.loads((folder / "meta.json").read_bytes())
        if meta["key"] != wanted["key"] or meta["shape"] != wanted["shape"]:
            return None, "is that of another entry"
        grid = Grid.of(meta)
        return (grid, "") if any_grid or grid == Grid.of(wanted) else (None, "is that of another grid")
    except FileNotFoundError:
        return None, "is missing" if any((folder / name).exists() for name in FILES) else ""
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None, "can't be read"


def set_aside(folder: Path) -> Path:
    """Moves an entry's files out of the way; their folder and its lock stay where others look for them."""
    number = 1
    while (aside := folder.with_name(f"{folder.name}.set-aside-{number}")).exists():
        number += 1
    with disk_errors(aside):
        aside.mkdir()
        for name in FILES:
            if (folder / name).exists():
                (folder / name).rename(aside / name)
    return aside
