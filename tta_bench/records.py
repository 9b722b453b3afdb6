"""RunRecord <-> disk. One folder per run; run.json is written last, so a folder with one is complete.

run.json                   everything below, readable
scores.safetensors         scores [N, C] float32, labels [N, C] int8 and index [N] (the image's place in the dataset),
                           all in stream order; ids as metadata
outputs.safetensors        what `step` returned, [N, B, C]: `finish` and every metric can be repeated from it
diagnostics.safetensors    one column [N] per diagnostic that the method reported
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tta_bench.errors import BadData, UsageError
from tta_bench.system.files import digest, file_digest, write_atomically
from tta_bench.system.text import visible

if TYPE_CHECKING:
    import numpy as np

SCHEMA = 1


@dataclass(frozen=True)
class Identity:
    """A sha256 with readable parts."""

    parts: Mapping[str, Any]

    @property
    def digest(self) -> str:
        return digest(dict(self.parts))

    def to_json(self) -> dict[str, Any]:
        return {"digest": self.digest, "parts": dict(self.parts)}


@dataclass(frozen=True)
class RunRecord:
    """What a run was, on what, and what came out."""

    protocol: Identity  # what is measured: images, labels, names, prompts, backbone, metric. Tables never mix two.
    config: Identity  # what is run: method, version, hyper-parameters, views
    replicate: Identity  # seed and stream order: means and intervals run over these only
    method: str
    dataset: str
    backbone: str
    prompt: str
    seed: int
    order: str
    n: int
    hyper_parameters: Mapping[str, Any]
    tag: str  # paper | default | tuned
    changes: Mapping[str, str]  # what the user asked for beyond the defaults: settings, preset, recipes
    metrics: Mapping[str, float | None]  # None: undefined, for example without a single positive
    per_class_ap: Mapping[str, float | None]  # None: no positive image
    counts: Mapping[str, int]  # encoder_forwards, text_forwards, backward_passes
    speed: Mapping[str, float]  # images_per_s, seconds, peak_memory_mb
    hardware: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    files: Mapping[str, str] = field(default_factory=dict)  # sha256 of what lies beside run.json
    random_weights: bool = False  # the backbone was untrained: tables leave such runs out unless asked
    # Images of the complete dataset variant; None: not recorded, in records of version 0.1.
    dataset_size: int | None = None
    folder: Path | None = None  # where it was read from or written to; not in the file

    @property
    def run_id(self) -> str:
        return run_id(self.method, self.dataset, self.backbone, self.identities)

    @property
    def identities(self) -> dict[str, Identity]:
        return {"protocol": self.protocol, "config": self.config, "replicate": self.replicate}

    def to_json(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in (*self.identities, "folder")}
        identities = {name: identity.to_json() for name, identity in self.identities.items()}
        return {"schema": SCHEMA, "run_id": self.run_id, "identities": identities, **plain}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], folder: Path | None = None) -> RunRecord:
        """Fields that a later version added are left out; a later schema is refused."""
        if content["schema"] > SCHEMA:
            raise UsageError(f"{visible(folder)}: written by a newer ttabench (schema {content['schema']}): upgrade to read it")
        identities = {name: Identity(value["parts"]) for name, value in content["identities"].items()}
        known = {f.name for f in fields(cls)} - {"folder", *identities}
        values: dict[str, Any] = {k: v for k, v in content.items() if k in known}
        return cls(**values, **identities, folder=folder)  # type: ignore[arg-type]  # mypy takes ** for all fields


def run_id(method: str, dataset: str, backbone: str, identities: Mapping[str, Identity]) -> str:
    """A folder name: readable in front, unique behind."""
    parts = {name: identity.digest for name, identity in identities.items()}
    readable = f"{method}-{dataset}-{backbone}"
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in readable)
    return f"{safe}-{digest(parts)[:12]}"


def save(
    record: RunRecord,
    folder: Path,
    outputs: np.ndarray[Any, Any],
    scores: np.ndarray[Any, Any],
    labels: np.ndarray[Any, Any],
    index: np.ndarray[Any, Any],
    ids: Sequence[str],
    diagnostics: Mapping[str, np.ndarray[Any, Any]],
) -> None:
    """Writes a finished run; whoever finds run.json finds the rest too."""
    from safetensors.numpy import save as pack

    metadata = {"ids": json.dumps(list(ids))}
    contents = {
        "outputs.safetensors": pack({"outputs": outputs}),
        "scores.safetensors": pack({"scores": scores, "labels": labels, "index": index}, metadata),
    }
    if diagnostics:
        contents["diagnostics.safetensors"] = pack(dict(diagnostics))
    for name, content in contents.items():
        write_atomically(folder / name, content)
    record = replace(record, files={name: digest(content) for name, content in contents.items()})
    text = json.dumps(record.to_json(), indent=1, ensure_ascii=False, default=str)
    write_atomically(folder / "run.json", text.encode())


def load(folder: Path) -> RunRecord:
    """The record in `folder`."""
    file = folder / "run.json"
    try:
        record = RunRecord.from_json(json.loads(file.read_text(encoding="utf-8")), folder)
        _ = record.run_id  # parts that can't be digested (half a character) fail here, and not a whole table later
        return record
    except FileNotFoundError:
        raise UsageError(f"{visible(folder)}: no run.json there: not a run, or one that did not finish") from None
    except (ValueError, KeyError, TypeError) as error:
        raise BadData(visible(f"{file}: not a run record ({type(error).__name__}: {error})")) from error


def damage(folder: Path) -> str:
    """What is wrong with a finished run's files; empty when they are as they were written."""
    try:
        record = load(folder)
    except BadData as error:
        return str(error)
    for name, written in record.files.items():
        try:
            if file_digest(folder / name) != written:
                return f"{folder / name} is not what was written"
        except OSError as error:
            return f"{folder / name} can't be read: {error.strerror}"
    return ""


def load_scores(record: RunRecord) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[str]]:
    """Scores [N, C], labels [N, C] and ids, in stream order."""
    from safetensors import safe_open

    if record.folder is None:
        raise ValueError("the record was not read from disk")
    file = record.folder / "scores.safetensors"
    try:
        with safe_open(file, framework="np") as content:
            ids = json.loads(content.metadata()["ids"])
            return content.get_tensor("scores"), content.get_tensor("labels"), ids
    except Exception as error:  # safetensors raises its own type, which is not exported
        raise BadData(f"{file}: can't be read ({error})") from error


def load_all(root: Path) -> tuple[list[RunRecord], list[str]]:
    """Every readable record under `root`, and one line for each that is not."""
    found: list[RunRecord] = []
    problems: list[str] = []
    for file in sorted(root.glob("*/run.json")):
        try:
            found.append(load(file.parent))
        except (BadData, UsageError) as error:
            problems.append(str(error))
    return found, problems


def as_plain(value: Any) -> Any:
    """As JSON would give it back, so that an identity is the same before and after a round trip."""
    if hasattr(value, "__dataclass_fields__"):
        value = asdict(value)
    return json.loads(json.dumps(value, default=str))
