"""What is in many files: each is read once, and again only when it looks otherwise.

Digests are kept under `$TTABENCH_HOME/contents`, one note for each folder, with what the files looked like from
outside. Whoever opens forty thousand photos again takes a look at each, and reads none.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from time import time_ns
from typing import Any

from tta_bench.errors import BadData, StoreError
from tta_bench.system import paths
from tta_bench.system.files import digest, file_digest, write_atomically
from tta_bench.system.seal import opened, sealed
from tta_bench.system.stamps import CLOCK_TICK, stamp

Seen = tuple[Any, str]  # what a file looked like, and its digest
UNKNOWN: Seen = (None, "")


def digests(files: Sequence[Path]) -> list[str]:
    """sha256 of each file."""
    if not files:
        return []
    folder = Path(os.path.commonpath({file.parent.absolute() for file in files}))
    note = paths.home() / "contents" / f"{digest(str(folder))}.note"
    kept = _read(note)
    names = [os.path.relpath(file.absolute(), folder) for file in files]
    found = {name: _look_into(file, kept.get(name, UNKNOWN)) for name, file in zip(names, files, strict=True)}
    if any(kept.get(name) != value for name, value in found.items()):
        lasting = {name: value for name, value in (kept | found).items() if value[0]}
        with contextlib.suppress(StoreError):  # it would only have saved time
            write_atomically(note, sealed(json.dumps(lasting).encode(), note.stem), durable=False)
    return [found[name][1] for name in names]


def _look_into(file: Path, kept: Seen) -> Seen:
    """What a file looks like, and its digest. Of one that was changed just now the look is None: it could be changed
    again without looking otherwise."""
    began, look = time_ns(), stamp(file)
    if look and look == kept[0]:
        return kept
    try:
        if file.exists() and not file.is_file() and not file.is_dir():
            raise BadData(f"{file}: not a regular file")  # a FIFO would let us wait for ever, and a device has no end
        own = file_digest(file)
    except OSError as error:
        raise BadData(f"{file}: can't be read: {error.strerror or error}") from error
    changed = look[2] if look else began
    return (look if stamp(file) == look and changed < began - CLOCK_TICK else None), own


def _read(note: Path) -> dict[str, Seen]:
    try:
        kept = json.loads(opened(note.read_bytes(), note.stem))
        return {name: (look, own) for name, (look, own) in kept.items()}
    except (OSError, ValueError, AttributeError, TypeError, BadData):
        return {}
