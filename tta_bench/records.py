"""RunRecord <-> disk. One folder per run; run.json is written last, so a folder with one is complete.

run.json                   everything below, readable
scores.safetensors         scores [N, C] float32, labels [N, C] int8 and index [N] (the image's place in the dataset),
                           all in stream order; ids as metadata
outputs.safetensors        what `step` returned, [N, B, C]: `finish` and every metric can be repeated from it
diagnostics.safetensors    one column [N] per diagnostic that the method reported
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload
from weakref import WeakValueDictionary

from tta_bench.errors import BadData, UsageError
from tta_bench.system import outcome
from tta_bench.system import record_form as form
from tta_bench.system.described import described
from tta_bench.system.files import digest, file_digest, write_atomically
from tta_bench.system.sound_records import SoundRecords
from tta_bench.system.tensors import read_tensors
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd

SCHEMA = 2  # what `save` writes: as 1, but never without a seal
UNSEALED = 1  # in memory, and on disk in version 0.1
CHECKED_BY = (Path(__file__), Path(form.__file__))  # the sources of all that `_check` asks for
NOT_IN_FILE = ("folder", "sealed", "verified")
LONGEST_NAME = 160  # bytes of a run's name that can be read, below a file system's 255
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

    @cached_property
    def run_id(self) -> str:
        return run_id(self.method, self.dataset, self.backbone, self.identities)

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
        _check(content, folder)
        return cls._of_checked(content, folder)

    @classmethod
    def _of_checked(cls, content: Mapping[str, Any], folder: Path | None) -> RunRecord:
        values: dict[str, Any] = {name: content[name] for name in IN_FILE if name in content}
        values |= {name: Identity.checked(value) for name, value in content["identities"].items()}
        verified = "" if folder is None else outcome.kind_of(folder, content.get("files", {}))
        record = cls(**values, folder=folder, sealed=form.SEAL in content, verified=verified)
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


def _check(content: Any, folder: Path | None) -> None:
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


def run_id(method: str, dataset: str, backbone: str, identities: Mapping[str, Identity]) -> str:
    """A folder name: readable in front, unique behind."""
    parts = {name: identity.digest for name, identity in identities.items()}
    readable = f"{method}-{dataset}-{backbone}"
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in readable)
    short = safe.encode()[:LONGEST_NAME].decode(errors="ignore")  # file systems count bytes
    return f"{short}-{digest(parts)[:12]}"


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
    from safetensors.numpy import save as pack

    metadata = {"ids": json.dumps(list(ids))}
    contents = {
        OUTPUTS: pack({"outputs": outputs}),
        SCORES: pack({"scores": scores, "labels": labels, "index": index}, metadata),
    }
    if diagnostics:
        contents[DIAGNOSTICS] = pack({_encodable(name): column for name, column in diagnostics.items()})
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
            _check(content, folder)
            if sound is not None:
                sound.add(key)
        record = RunRecord._of_checked(content, folder)
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


def load_all(root: Path) -> tuple[list[RunRecord], list[str]]:
    """Every sound record under `root`, each run once, and one line for each that is not."""
    found: list[RunRecord] = []
    problems: list[str] = []
    sound = SoundRecords(CHECKED_BY)
    for file in sorted(root.glob("*/run.json")):
        try:
            found.append(load(file.parent, named=True, sound=sound))
        except (BadData, UsageError) as error:
            problems.append(str(error))
    sound.keep()
    return found, problems


def as_plain(value: Any) -> Any:
    """As JSON would give it back, so that an identity is the same before and after a round trip."""
    if hasattr(value, "__dataclass_fields__"):
        value = asdict(value)
    return json.loads(json.dumps(_keyed_by_text(value), default=_stated))


def _keyed_by_text(value: Any) -> Any:
    """JSON makes one key of 1 and "1"."""
    if isinstance(value, list | tuple):
        return [_keyed_by_text(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    return {
        key if isinstance(key, str) else f"{type(key).__name__} {key}": _keyed_by_text(inner)
        for key, inner in value.items()
    }


def _stated(value: object) -> str:
    """What JSON can't hold, by its content: the text of an array leaves its middle out, a function's is an address."""
    return str(value) if isinstance(value, Path) else f"{type(value).__name__} {digest(described(value))[:16]}"


# ---------------------------------------------------------------------------------------------------------- many runs


@dataclass(frozen=True, repr=False, init=False)
class Results(Sequence[RunRecord]):
    """Runs, as a sequence that does not change. `Results(*load_all(folder))` holds all of a folder.

    >>> len(results), results[0].method, [run.seed for run in results]
    (3, 'clip', [0, 0, 1])
    >>> results
    Results(3 runs: 2 methods, 1 dataset, 1 backbone)
    """

    runs: tuple[RunRecord, ...]
    problems: tuple[str, ...]  # one line for each record that can't be read
    failures: tuple[str, ...]  # one line for each cell of a grid that failed

    def __init__(
        self, runs: Iterable[RunRecord] = (), problems: Iterable[str] = (), failures: Iterable[str] = ()
    ) -> None:
        for name, values in (("runs", runs), ("problems", problems), ("failures", failures)):
            object.__setattr__(self, name, tuple(values))  # a caller's list may go on to change

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, index: int) -> RunRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> RunRecord | Results:
        return replace(self, runs=self.runs[index]) if isinstance(index, slice) else self.runs[index]

    def filter(
        self,
        *,
        method: str | Collection[str] | None = None,
        dataset: str | Collection[str] | None = None,
        backbone: str | Collection[str] | None = None,
        prompt: str | Collection[str] | None = None,
        seed: int | Collection[int] | None = None,
        order: str | Collection[str] | None = None,
        tag: str | Collection[str] | None = None,
        untrained: bool | None = None,
    ) -> Results:
        """The runs whose fields are as asked: equal to a value, or among several. What nobody has gives no runs.

        >>> len(results.filter(method="clip")), len(results.filter(method=["clip", "tda"], seed=range(1)))
        (2, 2)
        """
        wanted = (method, dataset, backbone, prompt, seed, order, tag, untrained)
        names = ("method", "dataset", "backbone", "prompt", "seed", "order", "tag", "random_weights")
        asked = {name: _several(value) for name, value in zip(names, wanted, strict=True) if value is not None}
        kept = [run for run in self.runs if all(getattr(run, name) in values for name, values in asked.items())]
        return replace(self, runs=tuple(kept))

    # `report` makes tables from records and so stands above this module; those below only save a notebook the way
    # there. They import it when they are called, and nothing here depends on it.

    def to_frame(self) -> pd.DataFrame:
        """One row per run, with the columns of `ttabench leaderboard --format csv`.

        >>> list(results.to_frame().columns[:7])
        ['method', 'dataset', 'backbone', 'prompt', 'seed', 'order', 'n']
        """
        from tta_bench.report.frame import long_form

        return long_form(self.runs)

    def leaderboard(
        self,
        format: Literal["console", "md", "csv", "latex", "json", "html"] = "console",
        width: int = 100,
        *,
        metric: str | Collection[str] = (),
        sort: str = "",
        baseline: str = "clip",
        fast: bool = False,
        mixed: bool = False,
        columns: Literal["wide", "narrow"] = "wide",
    ) -> str:
        """All runs as text, with the options and the statistics of `ttabench leaderboard`: intervals, ranks, Δ to a
        baseline. `fast` leaves statistics out; runs that are not in a folder have none.

        Untrained backbones are among them, and marked; `filter(untrained=False)` leaves them out.

        >>> print(results.leaderboard("md").splitlines()[0])
        ### tiny, prompt 'photo'
        """
        from tta_bench.report.board import Wanted
        from tta_bench.report.leaderboard import Leaderboard, metrics_of

        wanted = Wanted(metrics_of(format, tuple(_several(metric))), sort, baseline, mixed)
        return Leaderboard(self.runs, wanted, fast, columns).text(format, width)

    def compare(
        self, baseline: str | None = "clip", metric: str | Collection[str] = "mAP", resamples: int = 1000
    ) -> pd.DataFrame:
        """What every method gains over `baseline` on the same images, with 95 % intervals and p: docs/statistics.md.

        One row per protocol, method and metric, the largest difference first. Without a baseline every two methods are
        compared, which is for exploring. Reads the runs' scores; `attrs["notes"]` says what was left out.
        """
        from tta_bench.report.comparison import compare

        return compare(self.runs, baseline, _several(metric), resamples).to_frame()

    def orders(self, metric: str = "mAP") -> pd.DataFrame:
        """How much a method depends on the stream's order: the mean over runs, the worst and the spread.

        One row per method and kind of order; all shuffles are of one kind.

        >>> list(results.orders().columns[-5:])
        ['runs', 'mean', 'worst', 'spread', 'worst_run']
        """
        from tta_bench.report.orders import over_orders

        return over_orders(self.to_frame(), metric)

    def along(self, points: int = 20, window: int | None = None) -> pd.DataFrame:
        """mAP along the stream of each run, beside that of frozen CLIP on the same images where such a run is here.

        One row per run and point: `images` seen so far, `mAP` of all of them and `mAP_window` of the last `window` (by
        default a tenth of the stream), and as much of `clip` and `clip_window`. It needs the runs' stored scores.
        """
        from tta_bench.report.along import curves

        return curves(self.runs, points, window)

    def diagnostics(self) -> pd.DataFrame:
        """What methods reported of their own accord: a row per run and image in stream order, a column per name."""
        from tta_bench.report.along import reported

        return reported(self.runs)

    def _repr_html_(self) -> str:
        from tta_bench.report.formats import html_text
        from tta_bench.report.page import tables

        missing = "".join(f"<p>{html_text(line)}</p>" for line in (*self.problems, *self.failures))
        return tables(self.runs) + missing

    def __repr__(self) -> str:
        kinds = [
            counted(len({getattr(run, kind) for run in self.runs}), kind) for kind in ("method", "dataset", "backbone")
        ]
        parts = [counted(len(self.runs), "run") + (f": {', '.join(kinds)}" if self.runs else "")]
        parts += [counted(len(self.problems), "unreadable record")] if self.problems else []
        parts += [counted(len(self.failures), "failure")] if self.failures else []
        return f"Results({'; '.join(parts)})"


def _several(value: Any) -> Collection[Any]:
    return value if isinstance(value, Collection) and not isinstance(value, str) else (value,)
