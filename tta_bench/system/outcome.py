"""verified.json beside a run: what came out when it was run again. Sealed, and only good for the files it was made of.

run.json itself is sealed when the run ends and never changes, so what is found out later stands beside it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tta_bench.system import record_form as form
from tta_bench.system.files import write_atomically

FILE = "verified.json"
KINDS = ("replay", "blind")  # from the weaker to the stronger


def read(folder: Path, files: Mapping[str, str]) -> dict[str, Any]:
    """What was found out about these files (name -> digest); empty if nothing, or about others."""
    try:
        if not (folder / FILE).is_file():  # a pipe would never end
            return {}
        content = json.loads((folder / FILE).read_text(encoding="utf-8"))
        sound = content[form.SEAL] == form.seal(content) and content["kind"] in KINDS
        return content if sound and content["files"] == dict(files) and files else {}
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return {}


def kind_of(folder: Path, files: Mapping[str, str]) -> str:
    """How the run was verified: "replay", "blind", or "" if it was not, or did not hold."""
    found = read(folder, files)
    return str(found["kind"]) if found.get("holds") is True else ""


def write(folder: Path, files: Mapping[str, str], kind: str, holds: bool, details: Mapping[str, Any]) -> None:
    """A weaker outcome does not take the place of a stronger one, unless it is bad news."""
    before = read(folder, files)
    if holds and before and KINDS.index(kind) < KINDS.index(before["kind"]):
        return
    content = {"kind": kind, "holds": holds, "files": dict(files), **details}
    text = json.dumps({**content, form.SEAL: form.seal(content)}, indent=1, ensure_ascii=False)
    write_atomically(folder / FILE, text.encode(errors="backslashreplace"))
