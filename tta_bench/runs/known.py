"""What was asked for before: from a request to its run, without torch, weights or images.

A run's name is made of its identities, and to have them a backbone is loaded and a dataset opened. Both give the same
identities as long as the code, the libraries and the files that they were read from are the same. So after a run we
note, under a digest of the request and of all code, which run it was and what its files looked like. A request that is
found there, all files unchanged, is that run; anything else takes the long way, which is always right.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tta_bench
from tta_bench import records
from tta_bench.errors import StoreError, TTABenchError
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord
from tta_bench.runs.spec import RunSpec
from tta_bench.system import paths, provenance
from tta_bench.system.code import BUILT_IN
from tta_bench.system.files import digest, write_atomically
from tta_bench.system.live import replaced
from tta_bench.system.seal import opened, sealed
from tta_bench.system.stamps import Read, stamp

CACHES = ("HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "XDG_CACHE_HOME")  # where weights are looked for


@dataclass(frozen=True)
class Surroundings:
    """What beside the request decides which run it is."""

    registry: Registry
    data_root: Path
    features: str  # type of the stored features


def find(home: Path, runs: Path, spec: RunSpec, around: Surroundings) -> RunRecord | None:
    """The record of the run that this request is known to be; None if it is not known, changed or damaged."""
    file = _note(home, spec, around)
    if file is None:
        return None
    try:
        note = json.loads(opened(file.read_bytes(), file.stem))
        unchanged = all(stamp(Path(path)) == seen for path, seen in note["files"])
        folder = runs / str(note["run"])
        if not unchanged or not (folder / "run.json").is_file() or records.damage(folder):
            return None
        record = records.load(folder)
    except (OSError, ValueError, KeyError, TypeError, TTABenchError):
        return None
    return record if record.run_id == folder.name else None


def remember(home: Path, spec: RunSpec, around: Surroundings, run_id: str, read: Read | None) -> None:
    """Notes which run the request is, if that can be told again without opening anything."""
    file = _note(home, spec, around)
    if file is not None and read is not None and read.settled:
        note = {"run": run_id, "files": [(str(path), seen) for path, seen in read.stamps]}
        with contextlib.suppress(StoreError):  # it would only have saved time
            write_atomically(file, sealed(json.dumps(note).encode(), file.stem))


# ------------------------------------------------------------------------------------------------------- the request


def can_be_told(spec: RunSpec, around: Surroundings) -> bool:
    """Whether the request will be the same run next time, if its files have not changed."""
    named = {"methods": spec.method, "datasets": spec.dataset, "backbones": spec.backbone}
    if spec.pack is not None:
        named = {"methods": spec.method}
    # What code an outsider's module runs is known only when it is loaded.
    ours = all(_is_built_in(around.registry, kind, name) for kind, name in named.items())
    return ours and _plain(spec) is not None and not replaced()


def _note(home: Path, spec: RunSpec, around: Surroundings) -> Path | None:
    """The note's file; None for a request that could mean another run next time."""
    request = _plain(spec)
    if request is None or not can_be_told(spec, around):
        return None
    parts = {
        "request": request,
        "data_root": str(around.data_root.absolute()),
        "home": paths.user(),  # a request may have a ~ in it, and caches lie below it
        "caches": [os.environ.get(name) for name in CACHES],
        "features": around.features,
        "code": code_digest(),
        "versions": provenance.versions(),
        "optimize": sys.flags.optimize,  # it is part of a configuration
    }
    key = digest(parts)
    return home / "known" / key[:2] / f"{key}.note"


def _is_built_in(registry: Registry, kind: Any, name: object) -> bool:
    try:
        return isinstance(name, str) and registry.find(kind, name.partition(":")[0]).distribution == BUILT_IN
    except TTABenchError:
        return False


def _plain(spec: RunSpec) -> dict[str, Any] | None:
    """The request as JSON has it; None if it holds objects, or settings that name files of the method's own."""
    values = {f.name: getattr(spec, f.name) for f in dataclasses.fields(spec)}
    for value in (*spec.settings.values(), *spec.recipes.values()):
        if not isinstance(value, str | int | float | bool | list | tuple) or _names_a_file(value):
            return None
    files = {name: str(file) for name, file in files_of(spec).items()}
    return values | files | ({} if spec.pack else {"prompt": spec.prompt.partition(":")[0]})


def files_of(spec: RunSpec) -> dict[str, Path]:
    """The files that a request names, wherever it is made from."""
    prompt = "" if spec.pack is not None else spec.prompt.partition(":")[2]  # of a pack the name counts
    named = {"weights": spec.weights, "pack": spec.pack, "prompt_file": Path(prompt) if prompt else None}
    named |= {f"setting {key}": Path(value) for key, value in spec.settings.items() if _names_a_file(value)}
    return {name: Path(file).absolute() for name, file in named.items() if file is not None}


def _names_a_file(value: object) -> bool:
    try:
        return isinstance(value, str) and value != "" and Path(value).exists()
    except OSError:  # too long for a name
        return False


@functools.cache
def code_digest() -> str:
    """Of every file of the package, plugins and data that come with it included: what is computed may depend on any."""
    whole = hashlib.sha256()
    for file in sorted(_files(Path(tta_bench.__file__).parent)):
        whole.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return whole.hexdigest()


def version() -> str:
    """Of ttabench with its code: a checkout may be edited, and has the same number."""
    return f"{tta_bench.__version__}+{code_digest()[:7]}"


def _files(root: Path) -> Iterator[Path]:
    for folder, _, files in os.walk(root, followlinks=True):  # methods, datasets and backbones are links in a checkout
        if Path(folder).name != "__pycache__":
            yield from (Path(folder, name) for name in files)
