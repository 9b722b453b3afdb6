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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import tta_bench
from tta_bench import records
from tta_bench.errors import StoreError, TTABenchError
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord
from tta_bench.runs.spec import RunSpec
from tta_bench.system import provenance
from tta_bench.system.code import BUILT_IN
from tta_bench.system.files import digest, write_atomically

if TYPE_CHECKING:
    from tta_bench.runs.run import Run


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
        note = json.loads(file.read_bytes())
        unchanged = all(_stamp(Path(path)) == stamp for path, stamp in note["files"])
        folder = runs / str(note["run"])
        if not unchanged or not (folder / "run.json").is_file() or records.damage(folder):
            return None
        record = records.load(folder)
    except (OSError, ValueError, KeyError, TypeError, TTABenchError):
        return None
    return record if record.run_id == folder.name else None


Stamps = list[tuple[str, Any]]
CLOCK_TICK = 20_000_000  # ns by which a file system's clock may lag behind


def stamps(spec: RunSpec, run: Run, began: int) -> Stamps | None:
    """What the files look like that the identities were read from since `began` (ns); None if that can't be told, or
    if one has changed since then: it may have been read before or after."""
    files = _files(spec, run)
    if files is None or any(_changed(path) >= began - CLOCK_TICK for path in files):
        return None
    return [(str(path), _stamp(path)) for path in files]


def remember(home: Path, spec: RunSpec, around: Surroundings, run_id: str, stamps: Stamps | None) -> None:
    """Notes which run the request is, if that can be told again without opening anything."""
    file = _note(home, spec, around)
    if file is not None and stamps is not None:
        with contextlib.suppress(StoreError):  # it would only have saved time
            write_atomically(file, json.dumps({"run": run_id, "files": stamps}).encode())


def _files(spec: RunSpec, run: Run) -> list[Path] | None:
    """Everything that the identities were read from."""
    sources = [run.source] + ([] if run.reward is None else [run.reward])
    found: list[Path] = []
    for source in sources:
        if source.files is None:
            return None
        found += source.files
    prompt = Path(spec.prompt.partition(":")[2])
    return [path.absolute() for path in found + ([prompt] if spec.prompt.partition(":")[2] else [])]


# ------------------------------------------------------------------------------------------------------- the request


def _note(home: Path, spec: RunSpec, around: Surroundings) -> Path | None:
    """The note's file; None for a request that could mean another run next time."""
    named = {"methods": spec.method, "datasets": spec.dataset, "backbones": spec.backbone}
    if spec.pack is not None:
        named = {"methods": spec.method}
    request = _plain(spec)
    if request is None:
        return None
    for kind, name in named.items():
        if not _is_built_in(around.registry, kind, name):
            return None  # what code an outsider's module runs is known only when it is loaded
    parts = {
        "request": request,
        "data_root": str(around.data_root.absolute()),
        "features": around.features,
        "code": code_digest(),
        "versions": provenance.versions(),
    }
    key = digest(parts)
    return home / "known" / key[:2] / f"{key}.json"


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
    for name in ("weights", "pack"):
        values[name] = None if values[name] is None else str(Path(values[name]).absolute())
    kind, _, file = spec.prompt.partition(":")
    return values | {"prompt": [kind, str(Path(file).absolute()) if file else ""]}


def _names_a_file(value: object) -> bool:
    try:
        return isinstance(value, str) and value != "" and Path(value).exists()
    except OSError:  # too long for a name
        return False


@functools.cache
def code_digest() -> str:
    """Of every source file of the package, plugins that come with it included: what is computed may depend on any."""
    whole = hashlib.sha256()
    for file in sorted(_sources(Path(tta_bench.__file__).parent)):
        whole.update(f"{file.name}\0".encode() + file.read_bytes() + b"\0")
    return whole.hexdigest()


def _sources(root: Path) -> Iterator[Path]:
    for folder, _, files in os.walk(root, followlinks=True):  # methods, datasets and backbones are links in a checkout
        yield from (Path(folder, name) for name in files if name.endswith(".py"))


# ---------------------------------------------------------------------------------------------------------- the files


def _stamp(path: Path) -> Any:
    """What a file or folder looks like from outside; a file can't change without its change time changing."""
    try:
        if path.is_dir():
            return _listing(os.scandir(path))
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns, status.st_ino]


def _changed(path: Path) -> int:
    """When a file, a folder or anything in it was last changed, in ns."""
    try:
        inside = [e.stat(follow_symlinks=False).st_ctime_ns for e in os.scandir(path)] if path.is_dir() else []
        return max(path.stat().st_ctime_ns, *inside, 0)
    except OSError:
        return 0


def _listing(entries: Iterable[os.DirEntry[str]]) -> str:
    lines = []
    for entry in entries:
        try:
            status = entry.stat()
            lines.append(f"{entry.name}\t{status.st_size}\t{status.st_mtime_ns}\t{status.st_ctime_ns}")
        except OSError:
            lines.append(f"{entry.name}\tgone")  # a link that leads nowhere
    return digest("\n".join(sorted(lines)))
