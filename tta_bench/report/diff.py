"""Two records -> every field in which they differ, in words: identities, hyper-parameters, versions, hardware."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from tta_bench.records import RunRecord

SECTIONS = {
    "protocol": "protocol, what is measured: tables keep the two in different columns",
    "config": "config, what is run: tables keep the two in different rows",
    "hyper-parameters": "hyper-parameters",
    "replicate": "replicate: tables average over seeds and shuffled orders",
    "versions": "versions",
    "code": "code",
    "hardware": "hardware",
}
WORDS = {  # a field's name in a record -> what it means; others are shown as they are
    "image_ids": "which images",
    "images": "the dataset's images",
    "labels": "the labels",
    "n": "number of images",
    "class_names": "class names",
    "backbone_digest": "the backbone's weights, preprocessing or precision",
    "backbone_weights": "the backbone's file of weights",
    "features": "type of the stored features",
    "average_precision": "average precision",
    "empty_classes": "classes without positives",
    "recipes": "recipe of",
    "files": "content of the method's files",
    "source": "the method's code",
    "recipe_sources": "the code of the recipe of",
    "shared_sources": "the code of",
    "sources": "the code of",
    "git_commit": "commit",
    "git_dirty": "uncommitted changes",
}
DIGEST = re.compile(r"[0-9a-f]{40,}")
ABSENT = "nothing"
LONGEST = 60  # characters of a value


@dataclass(frozen=True)
class Difference:
    """One field, and what either run has there."""

    section: str
    field: str
    first: str
    second: str


def differences(first: RunRecord, second: RunRecord) -> list[Difference]:
    """In the order of SECTIONS; empty if the two are the same run, recorded alike."""
    parts = zip(_sections(first).items(), _sections(second).values(), strict=True)
    return [
        Difference(section, " ".join(WORDS.get(name, name) for name in path), *_texts(own, other))
        for (section, mine), theirs in parts
        for path, own, other in _unequal(mine, theirs)
    ]


def to_text(first: RunRecord, second: RunRecord) -> list[str]:
    """A heading per section and a line per field; two more lines where the values are long."""
    found = differences(first, second)
    lines = [f"A  {first.run_id}", f"B  {second.run_id}"]
    if not found:
        return [*lines, "", "No field of identities, hyper-parameters, versions, code or hardware differs."]
    for section, heading in SECTIONS.items():
        own = [difference for difference in found if difference.section == section]
        if own:
            lines += ["", heading]
        for difference in own:
            short = f"  {difference.field}: {difference.first} in A, {difference.second} in B"
            long = [f"  {difference.field}", f"    A  {difference.first}", f"    B  {difference.second}"]
            lines += [short] if len(short) <= LONGEST else long
    return lines


def _sections(run: RunRecord) -> dict[str, Mapping[str, Any]]:
    config = {name: value for name, value in run.config.parts.items() if name != "hyper_parameters"}
    code = {name: value for name, value in run.provenance.items() if name != "versions"}
    return {
        "protocol": run.protocol.parts,
        "config": config,
        "hyper-parameters": run.hyper_parameters,
        "replicate": run.replicate.parts,
        "versions": run.provenance.get("versions", {}),
        "code": code,
        "hardware": run.hardware,
    }


def _unequal(
    first: Mapping[str, Any], second: Mapping[str, Any], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any, Any]]:
    """Paths to what differs, mappings followed to their entries."""
    for name in dict.fromkeys([*first, *second]):
        own, other = first.get(name, ABSENT), second.get(name, ABSENT)
        path = (*above, str(name))
        if isinstance(own, Mapping) and isinstance(other, Mapping):
            yield from _unequal(own, other, path)
        elif own != other:
            yield path, own, other


def _texts(own: Any, other: Any) -> tuple[str, str]:
    """The two values; of lists the first entry that differs, for 80 class names would hide the one that matters."""
    if isinstance(own, list) and isinstance(other, list):
        if len(own) != len(other):
            return f"{len(own)} of them", f"{len(other)} of them"
        unequal = [place for place, pair in enumerate(zip(own, other, strict=True)) if pair[0] != pair[1]]
        more = f" (and {len(unequal) - 1} more)" if len(unequal) > 1 else ""
        return tuple(f"{_short(values[unequal[0]])}{more}" for values in (own, other))  # type: ignore[return-value]
    return _short(own), _short(other)


def _short(value: Any) -> str:
    text = str(value)
    if DIGEST.fullmatch(text):
        return f"#{text[:12]}"
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 1]}…"
