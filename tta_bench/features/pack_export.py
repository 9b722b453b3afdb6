"""Writing a feature pack: what the store has of a dataset and a backbone, and what it lacks is encoded first.

Features are copied as the store keeps them, so that a run on the pack is bit-identical to one on the images. They are
written straight from the store's files: a pack may be larger than the memory.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from tta_bench import __version__
from tta_bench.errors import UsageError
from tta_bench.features.encoding import EncodedViews
from tta_bench.features.labels import ids_and_labels
from tta_bench.features.options import EncodingOptions
from tta_bench.features.pack import FORMAT, Pack
from tta_bench.features.store import Entry, FeatureStore
from tta_bench.interfaces import Backbone, BackboneExtras, Dataset, DatasetExtras, ViewRecipe
from tta_bench.prompts.files import Maple
from tta_bench.prompts.sets import PromptSet
from tta_bench.system.files import disk_errors
from tta_bench.system.outputs import has_metadata, refuse_others
from tta_bench.system.progress import Reporter
from tta_bench.system.text import counted
from tta_bench.views import Original

Array = np.ndarray[Any, Any]

SAFETENSORS_TYPES = {"float32": "F32", "float16": "F16", "int8": "I8"}


def export(
    file: Path,
    *,
    dataset: Dataset,
    backbone: Backbone,
    recipes: Sequence[ViewRecipe],
    prompts: Sequence[PromptSet],
    store: FeatureStore,
    encoding: EncodingOptions,
    reporter: Reporter,
    seed: int = 0,
    dataset_name: str = "",
    backbone_name: str = "",
    code: str = "",
    notes: Mapping[str, Any] | None = None,
) -> Pack:
    """Writes the pack and opens it.

    Args:
        file: where to; a pack that is there is replaced as a whole, anything else is not.
        recipes: views besides the original image.
        seed: of the recipes' draw.
        dataset_name: as on the command line, e.g. "voc2007:mltta"; the dataset's own name otherwise.
        backbone_name: likewise.
        code: digest of the code of dataset and backbone, as `code_of` has it.
        notes: more for the provenance, e.g. the precision.
    """
    refuse_others(file, "feature pack", lambda there: has_metadata(there, "ttabench_pack"))
    _check_prompts(prompts)
    ids, labels = ids_and_labels(dataset)
    entries: dict[str, Entry] = {}
    for recipe in (Original(), *recipes):
        encoded = EncodedViews(store, dataset, backbone, recipe, seed, encoding, code)
        encoded.ensure(range(len(dataset)), reporter)
        entries[recipe.name] = encoded.entry
    tensors: dict[str, Array | Stored] = {"labels": labels}
    for name, entry in entries.items():
        images, views, dim = entry.shape
        if name == Original().name:  # one view
            tensors["image"] = Stored(entry, (images, dim))
        else:
            tensors[f"views/{name}"] = Stored(entry, (images, views, dim))
    for prompt in prompts:
        tensors[f"text/{prompt.name}"] = prompt.encode(prompt.adapt(backbone))[0].cpu().numpy()  # [C, P, D]
    names = (dataset_name or dataset.name, backbone_name or backbone.name)
    metadata = {
        "ttabench_pack": FORMAT,
        "ids": json.dumps(ids),
        "class_names": json.dumps(dataset.class_names),
        "dataset": names[0],
        "backbone": names[1],
        "logit_scale": repr(backbone.logit_scale),
        "logit_bias": repr(backbone.logit_bias),
        "prompt_texts": json.dumps({prompt.name: prompt.texts for prompt in prompts}),
        "provenance": json.dumps(
            _provenance(dataset, backbone, encoding, seed)
            | {"warnings": _warnings(dataset, backbone, names, prompts)}
            | dict(notes or {})
        ),
    }
    _write(file, tensors, metadata, reporter)
    return Pack(file)


def _check_prompts(prompts: Sequence[PromptSet]) -> None:
    """Raises `UsageError` for those with which a run on the pack would not be the run on the images."""
    for place, prompt in enumerate(prompts):
        if prompt.name in [other.name for other in prompts[:place]]:
            raise UsageError(f"--prompt {prompt.name} is there twice: a pack knows a prompt by its name alone")
        if isinstance(prompt.learned, Maple):
            raise UsageError(f"--prompt {prompt.name}: MaPLe changes the image tower, too: run on the images")
        counts = {len(texts) for texts in prompt.texts}
        if prompt.learned is None and len(counts) > 1:
            raise UsageError(
                f"--prompt {prompt.name} has {min(counts)} texts for one class and {max(counts)} for another: a pack "
                "has as many for each; run on the images"
            )


def _warnings(dataset: Dataset, backbone: Backbone, names: tuple[str, str], prompts: Sequence[PromptSet]) -> list[str]:
    """What a run on the images would say of them: nobody who has the pack alone can find it out."""
    found, (dataset_name, name) = list(DatasetExtras.of(dataset).warnings), names
    made_for = BackboneExtras.of(backbone).made_for
    if made_for and dataset_name.partition(":")[0] not in made_for:
        found.append(f"{name} was made for {', '.join(made_for)} alone, so its numbers say nothing about a method")
    for prompt in prompts:
        if cut := prompt.too_long(prompt.adapt(backbone)):
            found.append(f"{counted(len(cut), 'text')} of prompt '{prompt.name}' longer than {name} reads, and cut")
    return found


def _provenance(dataset: Dataset, backbone: Backbone, encoding: EncodingOptions, seed: int) -> dict[str, Any]:
    return {
        "ttabench": __version__,
        "dataset_fingerprint": dataset.fingerprint,
        "backbone_fingerprint": backbone.fingerprint,
        "random_weights": BackboneExtras.of(backbone).random_weights,
        "features": encoding.dtype,
        "seed": seed,
        "dataset_size": DatasetExtras.of(dataset).full_size or len(dataset),
    }


@dataclass(frozen=True)
class Stored:
    """All features of an entry as they are on disk, which may be more than the memory holds."""

    entry: Entry
    shape: tuple[int, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        return np.dtype(self.entry.key.dtype)


def _write(file: Path, tensors: Mapping[str, Array | Stored], metadata: Mapping[str, str], reporter: Reporter) -> None:
    """A safetensors file: length of the header, header, the tensors' bytes without gaps."""
    ordered = sorted(tensors.items(), key=lambda item: (-item[1].dtype.itemsize, item[0]))  # so that all are aligned
    header: dict[str, Any] = {"__metadata__": metadata}
    end = 0
    for name, array in ordered:
        start, end = end, end + int(np.prod(array.shape)) * array.dtype.itemsize
        kind = SAFETENSORS_TYPES[array.dtype.name]
        header[name] = {"dtype": kind, "shape": array.shape, "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with disk_errors(file), _replacing(file, reporter) as output:
        output.write(len(text).to_bytes(8, "little") + text)
        for _, array in ordered:
            if isinstance(array, Stored):
                output.writelines(array.entry.stored())
            else:
                output.write(np.ascontiguousarray(array).data.cast("B"))


@contextmanager
def _replacing(file: Path, reporter: Reporter) -> Iterator[BinaryIO]:
    """A file that takes the place of `file` when it is complete. Until then it has one name, and the lock on it is
    its writer's: what a kill leaves, the next writer overwrites; a second writer waits."""
    file.parent.mkdir(parents=True, exist_ok=True)
    unfinished = file.with_name(f".{file.name}.unfinished")
    with _locked(unfinished, lambda: reporter.line(f"another process is writing {file}: waiting for it")) as output:
        try:
            output.truncate(0)
            yield output
            output.flush()
            os.fsync(output.fileno())
            Pack(unfinished)  # or an unsound pack would take the place of a sound one
            unfinished.replace(file)
        except BaseException:
            unfinished.unlink(missing_ok=True)
            raise


def _locked(path: Path, wait: Callable[[], None]) -> BinaryIO:
    """The file of that name, open for writing, and nobody else's as long as it is open."""
    while True:
        output = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT, 0o644), "wb")
        try:
            fcntl.flock(output, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            wait()
            fcntl.flock(output, fcntl.LOCK_EX)
        try:
            if os.path.samestat(os.fstat(output.fileno()), path.stat()):
                return output
        except FileNotFoundError:
            pass
        output.close()  # its writer has finished: the file has another name now, and must not be touched
