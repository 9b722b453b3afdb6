"""Which of the runs a table is to show."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from tta_bench.errors import UnknownName
from tta_bench.records import CODE_PARTS, DATA_CODE, RunRecord
from tta_bench.report.frame import rules_of
from tta_bench.system.files import digest
from tta_bench.system.names import SHUFFLED, kind_of
from tta_bench.system.text import visible

FIELDS: Mapping[str, Callable[[RunRecord], Collection[str]]] = {  # filter -> the words that a run answers to
    "dataset": lambda run: (run.dataset,),
    "backbone": lambda run: (run.backbone,),
    "method": lambda run: (run.method,),
    "prompt": lambda run: (run.prompt,),
    "n": lambda run: (str(run.n),),
    "tag": lambda run: (run.tag,),
    "order": lambda run: (
        run.order,
        kind_of(run.order),
        *([f"{SHUFFLED}:{run.seed}"] if run.order == SHUFFLED else []),
    ),
}


ROWS = {"method", "tag"}  # filters that leave rows out, and not columns: who looks at fewer tests as many


class Selected(NamedTuple):
    runs: list[RunRecord]
    family: list[RunRecord]  # with the rows that are left out: what statistics are made over
    edited: int  # runs left out because their code was edited since


@dataclass(frozen=True)
class Selection:
    """Filters by name, and what to do with runs that a later one has replaced."""

    fields: Mapping[str, Sequence[str]]  # one of FIELDS, or `protocol` (the beginning of a digest) -> values
    latest: bool = False  # of runs alike in name, only the last
    edited: bool = False  # runs by code that was edited since, too

    def of(self, runs: Sequence[RunRecord]) -> Selected:
        found = list(runs)
        for field, values in self.fields.items():
            if field not in ROWS:
                found = _filtered(found, field, values)
        if self.latest:
            found = _last_of_each(found, _names, lambda run: run.run_id)
        family = shown = found if self.edited else without_edited(found)
        before = found
        for field in sorted(ROWS & self.fields.keys()):
            before, shown = (_filtered(those, field, self.fields[field]) for those in (before, shown))
        return Selected(shown, family, len(before) - len(shown))


def without_edited(runs: Sequence[RunRecord]) -> list[RunRecord]:
    """Of configurations that differ only in code, the runs of the last."""
    return _last_of_each(runs, _apart_from_code, lambda run: f"{run.config.digest} {run.protocol.digest}")


def _filtered(runs: Sequence[RunRecord], field: str, values: Sequence[str]) -> list[RunRecord]:
    answers = FIELDS.get(field)
    if answers is None:
        digests = {run.protocol.digest for run in runs}
        unknown = [value for value in values if not any(digest.startswith(value) for digest in digests)]
        _refuse_unknown(field, unknown, {digest[:12] for digest in digests})
        return [run for run in runs if run.protocol.digest.startswith(tuple(values))]
    known = {answer for run in runs for answer in answers(run)}
    _refuse_unknown(field, [value for value in values if value not in known], known)
    return [run for run in runs if not set(values).isdisjoint(answers(run))]


def _refuse_unknown(field: str, unknown: Sequence[str], known: Collection[str]) -> None:
    if unknown:
        shown = sorted(map(visible, known))
        raise UnknownName(f"{field} among the runs", unknown[0], shown, f"There are: {', '.join(shown)}.")


def _last_of_each(
    runs: Sequence[RunRecord], group: Callable[[RunRecord], Hashable], version: Callable[[RunRecord], str]
) -> list[RunRecord]:
    """In every group only the runs of that version to which the last one belongs."""
    last: dict[Hashable, RunRecord] = {}
    groups = [group(run) for run in runs]
    for key, run in zip(groups, runs, strict=True):
        last[key] = max(last.get(key, run), run, key=lambda r: (max(r.created, r.asked), r.run_id))
    return [run for key, run in zip(groups, runs, strict=True) if version(run) == version(last[key])]


def _names(run: RunRecord) -> Hashable:
    """What a user typed, so that what differs is what was behind the names."""
    changes = tuple(sorted((key, str(value)) for key, value in run.changes.items()))
    named = (run.method, run.dataset, run.backbone, run.prompt, run.n, run.seed, run.order, changes, run.random_weights)
    carried = str(run.config.parts.get("attributes"))  # arrays that only differ in the middle have the same words
    return (*named, rules_of(run), carried)


def _apart_from_code(run: RunRecord) -> Hashable:
    """Configurations that only differ in code, wherever they can be compared: under one protocol and kind of order."""
    code = set(CODE_PARTS) - {"replaced"}  # what a notebook has put in the place of ours is no later version of it
    parts = {name: value for name, value in run.config.parts.items() if name not in code}
    protocol = {name: value for name, value in run.protocol.parts.items() if name != DATA_CODE}
    # Where no code was recorded (version 0.1), two configurations with these parts are one.
    return digest(parts), digest(protocol), kind_of(run.order), run.author
