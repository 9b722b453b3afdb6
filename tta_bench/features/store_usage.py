"""What the feature store takes, and which of its entries no run needs. Imports no torch.

Records and entries say the same things in other words: a record has the digests of the dataset, of the backbone and of
all code from outside, the recipes and the seed, and an entry's key is made of them (`EncodedViews`). So the keys that a
record needs can be written down again. Where a record does not say enough, more is kept, never less.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import filelock

from tta_bench.errors import StoreError
from tta_bench.features.entry_locks import any_claimed, entry_lock, is_lock
from tta_bench.records import RunRecord
from tta_bench.system.files import bytes_on_disk, digest, disk_errors
from tta_bench.system.locks import lock_on
from tta_bench.system.text import visible

ORIGINAL = "Original()"  # the image itself, which every run encodes
ASIDE = ".set-aside-"


@dataclass(frozen=True)
class StoredEntry:
    """One folder of the store."""

    folder: Path
    key: Mapping[str, Any] | None  # None: set aside, or not what its folder's name says
    shape: tuple[int, ...] = ()
    encoded: int = 0  # images, as far as the journal says

    @cached_property
    def size(self) -> int:
        return bytes_on_disk(self.folder)


def entries(store: Path) -> list[StoredEntry]:
    """All that the store holds, the largest first."""
    folders = (folder for folder in store.glob("??/*") if folder.is_dir() and not folder.is_symlink())
    found = (_entry(folder) for folder in folders if not all(map(is_lock, folder.iterdir())))
    return sorted(found, key=lambda entry: (-entry.size, entry.folder.name))


def _entry(folder: Path) -> StoredEntry:
    try:
        meta = json.loads((folder / "meta.json").read_bytes())
        key, shape, images = meta["key"], tuple(map(int, meta["shape"])), int(meta["images_per_block"])
        if ASIDE in folder.name or digest(key) != folder.name.partition(".")[0]:
            return StoredEntry(folder, None)
        if not all(isinstance(key[name], kind) for name, kind in TYPES.items()) or len(shape) != 3:
            return StoredEntry(folder, None)
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return StoredEntry(folder, None)
    blocks: set[bytes] = set()
    with suppress(OSError):
        blocks = {line.split(b" ")[0] for line in (folder / "journal.txt").read_bytes().splitlines() if line}
    return StoredEntry(folder, key, shape, min(shape[0], len(blocks) * images))


TYPES: Mapping[str, type] = {"dataset": str, "backbone": str, "recipe": str, "seed": int, "dtype": str}


# ------------------------------------------------------------------------------------------------- who needs what


class Need(NamedTuple):
    """Features that a run was made from."""

    dataset: str | None  # None: of any dataset, because the record does not tell which code was in the key
    backbone: str
    recipe: str
    seed: int


def needs(record: RunRecord) -> Iterator[Need]:
    """The entries of the run's own backbone and of its second one, if it has one."""
    protocol, config = record.protocol.parts, record.config.parts
    recipes = _mapping(config.get("recipes"))
    sources = config.get("recipe_sources")
    for role, recipe in {**recipes, "image": ORIGINAL}.items():
        images = None
        if isinstance(sources, Mapping):  # records of version 0.1 have none
            images = _images(protocol, _mapping(protocol.get("sources")), str(sources.get(role) or ""))
        yield Need(images, str(protocol.get("backbone_digest")), str(recipe), record.seed)
    second = _mapping(config.get("second_backbone"))
    if second:
        for recipe in (ORIGINAL, *recipes.values()):
            yield Need(None, str(second.get("digest")), str(recipe), record.seed)


def _images(protocol: Mapping[str, Any], built_in: Mapping[str, Any], recipe_source: str) -> str:
    """As `code_of` and `EncodedViews` put it: the dataset's digest, with the code that made the features."""
    roles = {role: protocol[f"{role}_source"] for role in ("dataset", "backbone") if f"{role}_source" in protocol}
    roles |= {role: built_in[role] for role in ("dataset", "backbone", "encoding") if role in built_in}
    roles |= {"dataset_name": protocol.get("dataset")} if "dataset_source" in protocol else {}
    roles |= {"weights": protocol["backbone_weights"]} if "backbone_weights" in protocol else {}
    roles |= {"replaced": protocol["replaced"]} if "replaced" in protocol else {}
    codes = [part for part in (digest(roles) if roles else "", recipe_source) if part]
    return digest([protocol.get("images"), *codes]) if codes else str(protocol.get("images"))


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


class Usage(NamedTuple):
    """An entry and the runs that were made from it."""

    entry: StoredEntry
    runs: tuple[RunRecord, ...]


def usage(stored: Iterable[StoredEntry], runs: Iterable[RunRecord]) -> list[Usage]:
    stored = list(stored)
    by_views: dict[tuple[str, str], list[StoredEntry]] = {}
    for entry in stored:
        if entry.key is not None:
            by_views.setdefault((entry.key["backbone"], entry.key["recipe"]), []).append(entry)
    users: dict[Path, list[RunRecord]] = {}
    for run in runs:
        folders = {
            e.folder for need in needs(run) for e in _meant(need, by_views.get((need.backbone, need.recipe), ()))
        }
        for folder in folders:
            users.setdefault(folder, []).append(run)
    return [Usage(entry, tuple(users.get(entry.folder, ()))) for entry in stored]


def _meant(need: Need, alike: Sequence[StoredEntry]) -> list[StoredEntry]:
    """Views without chance are stored under seed 0, and a record does not say which are: without an entry of the run's
    own seed it is that one."""
    of_dataset = [e for e in alike if e.key is not None and need.dataset in (None, e.key["dataset"])]
    own = [e for e in of_dataset if e.key is not None and e.key["seed"] == need.seed]
    return own or [e for e in of_dataset if e.key is not None and e.key["seed"] == 0]


# ------------------------------------------------------------------------------------------------------- deleting


def remove(entry: StoredEntry) -> None:
    """Deletes an entry's files. Raises `StoreError` if another process is writing it."""
    if ASIDE in entry.folder.name:  # nobody writes there, and nobody waits for its lock
        with disk_errors(entry.folder):
            shutil.rmtree(entry.folder)
        return
    try:
        with entry_lock(entry.folder, timeout=0):
            if any_claimed(entry.folder):
                raise filelock.Timeout(str(entry.folder))
            with disk_errors(entry.folder):
                journal = entry.folder / "journal.txt"
                journal.unlink(missing_ok=True)  # first: no reader believes features that are going
                for file in sorted(entry.folder.iterdir()):
                    if not is_lock(file):  # they and their folder stay: somebody may be waiting for them
                        shutil.rmtree(file) if file.is_dir() and not file.is_symlink() else file.unlink(missing_ok=True)
    except filelock.Timeout:
        raise StoreError(f"{visible(entry.folder)}: another process is writing it, so it is left alone") from None


def runs_going_on(runs: Path) -> list[str]:
    """Names of the runs that some process is running now: what they read has no record yet."""
    found = []
    for file in sorted(runs.glob(".*.lock")):
        lock = lock_on(file)
        try:
            lock.acquire(timeout=0)
            lock.release()
        except filelock.Timeout:
            found.append(file.name.removeprefix(".").removesuffix(".lock"))
        except OSError:  # of a folder that is not ours to write in, and so not ours to run in
            continue
    return found
