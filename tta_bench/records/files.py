"""RunRecord <-> disk. One folder per run; run.json is written last, so a folder with one is complete.

run.json                   everything that a record holds, readable
scores.safetensors         scores [N, C] float32, labels [N, C] int8 and index [N] (the image's place in the dataset),
                           all in stream order; ids as metadata
outputs.safetensors        what `step` returned, [N, B, C]: `finish` and every metric can be repeated from it
diagnostics.safetensors    one column [N] per diagnostic that the method reported
"""

from __future__ import annotations

import errno
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tta_bench.errors import BadData, UsageError
from tta_bench.records import record as one
from tta_bench.records.record import DIAGNOSTICS, OUTPUTS, SCHEMA, SCORES, RunRecord, check
from tta_bench.system import record_form as form
from tta_bench.system.files import digest, file_digest, write_atomically
from tta_bench.system.sound_records import SoundRecords
from tta_bench.system.tensors import as_safetensors
from tta_bench.system.text import visible

if TYPE_CHECKING:
    import numpy as np

CHECKED_BY = (Path(one.__file__), Path(form.__file__))  # the sources of all that `check` asks for


def save(
    record: RunRecord,
    folder: Path,
    outputs: np.ndarray[Any, Any],
    scores: np.ndarray[Any, Any],
    labels: np.ndarray[Any, Any],
    index: np.ndarray[Any, Any],
    ids: Sequence[str],
    diagnostics: Mapping[str, np.ndarray[Any, Any]],
) -> RunRecord:
    """Writes a finished run; whoever finds run.json finds the rest too. Returns the record with its files' digests."""
    metadata = {"ids": json.dumps(list(ids))}
    contents = {
        OUTPUTS: as_safetensors({"outputs": outputs}),
        SCORES: as_safetensors({"scores": scores, "labels": labels, "index": index}, metadata),
    }
    if diagnostics:
        contents[DIAGNOSTICS] = as_safetensors({_encodable(name): column for name, column in diagnostics.items()})
    for name, content in contents.items():
        write_atomically(folder / name, content)
    record = replace(record, files={name: digest(content) for name, content in contents.items()})
    content = json.loads(json.dumps({**record.to_json(), "schema": SCHEMA}, default=str))
    text = json.dumps({**content, form.SEAL: form.seal(content)}, indent=1, ensure_ascii=False)
    write_atomically(folder / "run.json", text.encode(errors="backslashreplace"))  # half a character: JSON's own escape
    return replace(record, sealed=True)


def _encodable(name: str) -> str:
    """A name that a method gave, with half a character written out."""
    return name.encode(errors="backslashreplace").decode()


def load(folder: Path, named: bool = False, sound: SoundRecords | None = None) -> RunRecord:
    """The record in `folder`; with `named` only if the folder's name is that of the run, as among other runs.

    What is known to be `sound` is not checked again.
    """
    file = folder / "run.json"
    try:
        if not file.is_file() and file.exists():
            raise ValueError("it is no file")
        written = file.read_bytes()
        content = json.loads(written.decode())
        key = "" if sound is None else digest(written)
        if sound is None or key not in sound:
            check(content, folder)
            if sound is not None:
                sound.add(key)
        record = RunRecord.of_checked(content, folder)
    except FileNotFoundError:
        raise UsageError(f"{visible(folder)}: no run.json there: not a run, or one that did not finish") from None
    except OSError as error:
        raise BadData(visible(f"{file}: can't be read: {error.strerror or error}")) from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:  # half a character in an identity too
        why = f"{type(error).__name__}: {error}" if type(error) is not ValueError else str(error)
        raise BadData(visible(f"{file}: not a run record ({why})")) from error
    if named and folder.name != record.run_id:
        raise BadData(visible(f"{folder} holds the run {record.run_id}: a copy, or under another run's name"))
    return record


def damage(folder: Path) -> str:
    """What is wrong with a finished run's files; empty when they are as they were written."""
    try:
        record = load(folder, named=True)
    except BadData as error:
        return str(error)
    for name, written in record.files.items():
        try:
            if file_digest(folder / name) != written:
                return f"{folder / name} is not what was written"
        except OSError as error:
            return f"{folder / name} can't be read: {error.strerror}"
    return ""


def load_all(root: Path) -> tuple[list[RunRecord], list[str]]:
    """Every sound record under `root`, each run once, and one line for each that is not."""
    found: list[RunRecord] = []
    problems: list[str] = []
    sound = SoundRecords(CHECKED_BY)
    for folder in _folders_of_runs(root, problems):
        try:
            found.append(load(folder, named=True, sound=sound))
        except (BadData, UsageError) as error:
            problems.append(str(error))
    sound.keep()
    return found, problems


def _folders_of_runs(root: Path, problems: list[str]) -> Iterator[Path]:
    """Those that have a record. One that may not be entered is a problem: a table would lack a run without a word."""
    try:
        folders = sorted(root.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return
    except OSError as error:
        raise BadData(visible(f"{root} can't be read: {error.strerror or error}")) from error
    for folder in folders:
        try:
            (folder / "run.json").stat()
            yield folder
        except (FileNotFoundError, NotADirectoryError):
            problems += leads_nowhere(folder)
        except OSError as error:
            looping = error.errno == errno.ELOOP
            said = leads_nowhere(folder) if looping else [f"{folder} can't be read: {error.strerror or error}"]
            problems += [] if folder.name.startswith(".") else map(visible, said)


def leads_nowhere(folder: Path) -> list[str]:
    """What to say of a run that is a link, or whose record is one, to what is not there: a disk that is not mounted, a
    content that was not fetched. It has not just not finished."""
    if folder.name.startswith("."):
        return []
    links = [path for path in (folder, folder / "run.json") if path.is_symlink()]
    return [
        visible(f"{link} leads nowhere: it is a link to {link.readlink()}, which is not there") for link in links[:1]
    ]
