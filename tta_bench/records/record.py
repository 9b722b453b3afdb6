"""What is known of one run: its identities, its numbers, and where its scores lie."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from tta_bench.errors import BadData, UsageError
from tta_bench.system import asked, outcome
from tta_bench.system import record_form as form
from tta_bench.system.code import BUILT_IN
from tta_bench.system.files import digest
from tta_bench.system.tensors import read_tensors
from tta_bench.system.text import visible

if TYPE_CHECKING:
    import numpy as np

SCHEMA = 2  # what `save` writes: as 1, but never without a seal
UNSEALED = 1  # in memory, and on disk in version 0.1
NOT_IN_FILE = ("folder", "sealed", "verified", "asked")
LONGEST_NAME = 160  # bytes of a run's name that can be read, below a file system's 255
# Of a config: what changes when somebody edits a file, or puts other code in the place of ours.
CODE_PARTS = ("source", "recipe_sources", "shared_sources", "replaced")
DATA_CODE = "sources"  # of a protocol: the code from images to features
CALLERS = "the caller's"  # process, as a provenance says it of an instance
SCORES, OUTPUTS, DIAGNOSTICS = "scores.safetensors", "outputs.safetensors", "diagnostics.safetensors"


@dataclass(frozen=True)
class Identity:
    """A sha256 with readable parts."""

    parts: Mapping[str, Any]

    @classmethod
    def checked(cls, content: Mapping[str, Any]) -> Identity:
        """From a record whose digests are known to be those of their parts."""
        identity = _alive.get(content["digest"])
        if identity is None:
            identity = _alive[content["digest"]] = cls(content["parts"])
            identity.__dict__["digest"] = content["digest"]  # where `cached_property` looks first
        return identity

    @cached_property
    def digest(self) -> str:
        return digest(dict(self.parts))

    def to_json(self) -> dict[str, Any]:
        return {"digest": self.digest, "parts": dict(self.parts)}


# By digest. The runs of a protocol share one: class names and prompts would be most of what 1,000 records take.
_alive: WeakValueDictionary[str, Identity] = WeakValueDictionary()


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
    counts: Mapping[str, int]  # what it cost whatever the hardware: see `Run._counts`
    speed: Mapping[str, float]  # images_per_s, seconds, peak_memory_mb
    hardware: Mapping[str, Any] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)
    created: str = ""
    files: Mapping[str, str] = field(default_factory=dict)  # sha256 of what lies beside run.json
    random_weights: bool = False  # the backbone was untrained: tables leave such runs out unless asked
    dataset_size: int | None = None  # images of the complete dataset variant; None: not recorded, in version 0.1
    setting: str = ""  # episodic | online | transductive | unstated; empty: not recorded, in version 0.1
    status: str = ""  # what the method's code was held against, in the words of `Method.status`; empty as above
    notes: Sequence[str] = field(default_factory=list)  # what makes the numbers mean less than they seem to
    along: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)  # mAP of halves and domains alone
    folder: Path | None = None  # where it was read from or written to; not in the file
    sealed: bool = field(default=False, compare=False)  # read from a file that vouched for itself; not in the file
    verified: str = field(default="", compare=False)  # "replay" or "blind": run again, the same came out; as above
    asked: str = field(default="", compare=False)  # when somebody last asked for it and it was done; as above

    @cached_property
    def run_id(self) -> str:
        return run_id(self.method, self.dataset, self.backbone, self.identities)

    @property
    def author(self) -> str:
        """Whose code the method is, of whatever version; version 0.1 had recorded nothing of it."""
        code = self.provenance.get("code")
        return author(str(code.get("method", BUILT_IN) if isinstance(code, Mapping) else BUILT_IN))

    @property
    def identities(self) -> dict[str, Identity]:
        return {"protocol": self.protocol, "config": self.config, "replicate": self.replicate}

    def to_json(self) -> dict[str, Any]:
        plain = {f.name: getattr(self, f.name) for f in fields(self) if f.name not in (*self.identities, *NOT_IN_FILE)}
        identities = {name: identity.to_json() for name, identity in self.identities.items()}
        return {"schema": UNSEALED, "run_id": self.run_id, "identities": identities, **plain}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], folder: Path | None = None) -> RunRecord:
        """Fields that a later version added are left out; a later schema is refused, and whatever is not as a run
        writes it: a seal that does not match, a field of another type or out of range, identities unlike their parts.
        """
        check(content, folder)
        return cls.of_checked(content, folder)

    @classmethod
    def of_checked(cls, content: Mapping[str, Any], folder: Path | None) -> RunRecord:
        values: dict[str, Any] = {name: content[name] for name in IN_FILE if name in content}
        values |= {name: Identity.checked(value) for name, value in content["identities"].items()}
        verified = "" if folder is None else outcome.kind_of(folder, content.get("files", {}))
        last = "" if folder is None else asked.read(folder)
        record = cls(**values, folder=folder, sealed=form.SEAL in content, verified=verified, asked=last)
        if "run_id" in content:
            record.__dict__["run_id"] = content["run_id"]  # as in `Identity.checked`
        return record

    def scores(self) -> np.ndarray[Any, Any]:
        """What the method gave for every image and class: [N, C] float32 in stream order, from the run's folder.

        >>> run.scores().shape == (run.n, len(run.per_class_ap))
        True
        """
        return load_scores(self)[0]

    def labels(self) -> np.ndarray[Any, Any]:
        """[N, C] int8 in stream order: 1, 0, or -1 where the image takes no part in the class."""
        return load_scores(self)[1]

    def ids(self) -> tuple[str, ...]:
        """The images' ids, in stream order."""
        return tuple(load_scores(self)[2])

    def index(self) -> np.ndarray[Any, Any]:
        """[N] the images' places in the dataset, in stream order."""
        return _score_file(self)[0]["index"]

    def diagnostics(self) -> dict[str, np.ndarray[Any, Any]]:
        """What the method reported of its own accord: a column [N] per name, in stream order; empty if nothing."""
        return load_diagnostics(self)


IN_FILE = tuple(f.name for f in fields(RunRecord) if f.name not in ("protocol", "config", "replicate", *NOT_IN_FILE))


def check(content: Any, folder: Path | None) -> None:
    """Raises unless it is what a run writes. `SoundRecords` remembers what passed: nothing else may be looked at."""
    if not isinstance(content, Mapping):
        raise ValueError("it is no mapping")
    schema = content.get("schema")
    if isinstance(schema, int) and schema > SCHEMA:
        raise UsageError(f"{visible(folder)}: written by a newer ttabench (schema {schema}): upgrade to read it")
    if form.SEAL not in content and schema == SCHEMA:
        raise ValueError("it is not what was written: its seal is missing")
    if form.SEAL in content and content[form.SEAL] != form.seal(content):
        raise ValueError("it is not what was written: its seal does not match")
    if why := form.fault(content):
        raise ValueError(why)
    identities = {name: Identity.checked(value) for name, value in content["identities"].items()}
    expected = run_id(content["method"], content["dataset"], content["backbone"], identities)
    if content.get("run_id", expected) != expected:
        raise ValueError(f"'run_id' is not that of its identities, {expected}")


def author(label: str) -> str:
    """A distribution without its version, or a loose file: two people may give one name to their methods."""
    return label if label.endswith(".py") else label.partition(" ")[0]


def run_id(method: str, dataset: str, backbone: str, identities: Mapping[str, Identity]) -> str:
    """A folder name: readable in front, unique behind."""
    parts = {name: identity.digest for name, identity in identities.items()}
    readable = f"{method}-{dataset}-{backbone}"
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in readable)
    short = safe.encode()[:LONGEST_NAME].decode(errors="ignore")  # file systems count bytes
    return f"{short}-{digest(parts)[:12]}"


def load_scores(record: RunRecord) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], list[str]]:
    """Scores [N, C], labels [N, C] and ids, in stream order."""
    tensors, ids = _score_file(record)
    return tensors["scores"], tensors["labels"], ids


def _score_file(record: RunRecord) -> tuple[dict[str, np.ndarray[Any, Any]], list[str]]:
    tensors, metadata = read_tensors(_folder(record) / SCORES, record.files.get(SCORES))
    try:
        found = {name: tensors[name] for name in ("scores", "labels", "index")}
        if found["labels"].min(initial=0) < -1 or found["labels"].max(initial=0) > 1:
            raise ValueError("labels are 1, 0 or -1")
        return found, list(json.loads(metadata["ids"]))
    except (KeyError, ValueError) as error:
        raise BadData(f"{_folder(record) / SCORES}: not what a run writes ({type(error).__name__}: {error})") from error


def load_in_dataset_order(record: RunRecord) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Scores [N, C] and labels [N, C] with the images as the dataset has them: alike for all runs of a protocol."""
    tensors, _ = _score_file(record)
    try:
        order = tensors["index"].argsort(kind="stable")
        return tensors["scores"][order], tensors["labels"][order]
    except IndexError as error:
        raise BadData(f"{_folder(record) / SCORES}: not what a run writes ({error})") from error


def load_diagnostics(record: RunRecord) -> dict[str, np.ndarray[Any, Any]]:
    """One column [N] per diagnostic that the method reported."""
    if DIAGNOSTICS not in record.files and not (_folder(record) / DIAGNOSTICS).exists():
        return {}
    return read_tensors(_folder(record) / DIAGNOSTICS, record.files.get(DIAGNOSTICS))[0]


def _folder(record: RunRecord) -> Path:
    if record.folder is None:
        raise UsageError(f"{record.run_id} was not read from a folder, so its scores are not at hand")
    if not record.folder.is_dir():
        raise BadData(f"{record.folder}: the run's folder is gone, and its scores with it")
    return record.folder
