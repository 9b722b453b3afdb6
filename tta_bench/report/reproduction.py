"""Runs of a suite beside the paper's numbers: measured with its interval, published, difference and a verdict.

*agrees*: within AGREES points of the published number, or the published number lies between our lowest and our highest
seed. The interval is no excuse: it says what other images would have given, and the paper's are the same. Half a point
is what other random views, another order or half precision may move; docs/reproduce.md has the figures.
*other protocol*: the two are not of the same thing, and which fields differ is said; then nothing is agreed or not.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from tta_bench.records import RunRecord
from tta_bench.report.comparison import ProtocolStatistics
from tta_bench.runs.suites import Attempt, Obstacle, Suite, SuiteCell
from tta_bench.system.published import PublishedCell, cells, of_table

AGREES = 0.5  # points of mAP
SAME_SPEED = 0.1  # share of the published speed or memory that hardware of one name may differ by
AVERAGE = "avg"
METRIC = "mAP"
DIFFERS, PENDING = "differs", "to run"
RATE, MEMORY = "images/s", "memory in GB"


@dataclass(frozen=True)
class Line:
    """One number of a table."""

    suite: Suite
    backbone: str
    prompt: str
    dataset: str  # or the average
    row: str  # as in the published file
    verdict: str
    metric: str = METRIC
    value: float | None = None
    half: float | None = None  # of the 95 % interval
    runs: int = 0
    published: float | None = None
    instead: str = ""  # in place of a published number
    note: str = ""  # the paper's slip
    reasons: Sequence[str] = ()  # what there is to say about the verdict: why it was not run, what would help
    images: str = ""  # "60 of 600 images"; empty for all
    seeds: str = ""  # "2 of 3 seeds"; empty for all

    @property
    def label(self) -> str:
        return self.suite.rows.get(self.row, self.row)

    @property
    def said(self) -> str:
        """The verdict with what it is not over."""
        return f"{self.verdict} ({self.seeds})" if self.seeds else self.verdict

    @property
    def difference(self) -> float | None:
        return None if self.value is None or self.published is None else self.value - self.published


def lines(attempts: Sequence[Attempt], published: Iterable[PublishedCell], resamples: int = 1000) -> list[Line]:
    """Of one suite, in its order; averages stand behind the last dataset."""
    if not attempts:
        return []
    suite = attempts[0].cell.suite
    known = of_table(published, suite.paper, suite.name)
    single = [_line(attempt, known, resamples) for attempt in attempts]
    averages = _averages(suite, single, known) if suite.average else []
    if averages and suite.average_only:
        return averages
    return _in_order(single, averages)


def _in_order(single: Sequence[Line], averages: Sequence[Line]) -> list[Line]:
    """Averages behind the lines of their backbone and prompt."""
    groups = dict.fromkeys((line.backbone, line.prompt) for line in single)
    both = [*single, *averages]
    return [line for group in groups for line in both if (line.backbone, line.prompt) == group]


def _line(attempt: Attempt, known: Mapping[tuple[str, str], PublishedCell], resamples: int) -> Line:
    cell, records = attempt.cell, attempt.records
    line = _beside(Line(cell.suite, cell.backbone, cell.prompt, cell.dataset, cell.row, PENDING), cell, known)
    if not records:
        return _not_run(line, attempt.obstacles)
    values = [value for run in records if (value := run.metrics.get(METRIC)) is not None]
    if not values:
        return replace(line, verdict="undefined: no image has a label", runs=len(records), seeds=attempt.seeds)
    line = replace(line, value=math.fsum(values) / len(values), half=_half(records, resamples), runs=len(records))
    part = records[0].dataset_size is not None and records[0].n < records[0].dataset_size
    images = f"{records[0].n:,} of {records[0].dataset_size:,} images" if part else ""
    other = [*(_strange(line) if line.published is None else []), *cell.unlike]
    other += ["images"] if part else []
    other += ["weights (untrained)"] if records[0].random_weights else []
    verdict = _verdict(values, line.published, other)
    why_not_all = [obstacle.how for obstacle in attempt.obstacles]
    why_not_all += ["the other seeds are to run"] if attempt.seeds and not why_not_all else []
    reasons = [*cell.unlike.values(), *why_not_all]
    return replace(line, verdict=verdict, reasons=reasons, images=images, seeds=attempt.seeds)


def _not_run(line: Line, obstacles: Sequence[Obstacle]) -> Line:
    if not obstacles:
        return line
    kinds = ", ".join(dict.fromkeys(obstacle.kind for obstacle in obstacles))
    return replace(line, verdict=f"not run: {kinds}", reasons=[obstacle.how for obstacle in obstacles])


def _beside(line: Line, cell: SuiteCell, known: Mapping[tuple[str, str], PublishedCell]) -> Line:
    """The line with what the paper has in its place. Papers don't say which labels they count, so a variant is held
    against what they print for the dataset; in a file of one's own a name is that of a variant, too."""
    found = known.get((cell.published_row, f"{line.dataset} {line.metric}"))
    if found is None:
        whole = known.get((cell.published_row, f"{line.dataset.partition(':')[0]} {line.metric}"))
        found = whole if whole in cells() else None
    if found is not None:
        return replace(line, published=found.value, note=found.note)
    strange = _strange(line) if known else []  # a figure prints no numbers at all
    return replace(line, instead=f"other {strange[0]}" if strange else "not printed")


def _strange(line: Line) -> list[str]:
    """What of the line the suite does not know."""
    known = {"dataset": [*line.suite.datasets, AVERAGE], "backbone": line.suite.backbones}
    names = {"dataset": line.dataset.partition(":")[0], "backbone": line.backbone}
    return [what for what, name in names.items() if name not in known[what]]


def _verdict(values: Sequence[float], published: float | None, other: Sequence[str]) -> str:
    if other:
        return f"other protocol: {', '.join(other)}"
    if published is None:
        return "nothing to compare with"
    mean = math.fsum(values) / len(values)
    near = round(abs(mean - published), 2) <= AGREES or min(values) <= published <= max(values)
    return "agrees" if near else DIFFERS


def _half(records: Sequence[RunRecord], resamples: int) -> float | None:
    """Half of the interval; None where the scores are gone, or each seed saw other images (with a limit)."""
    if len({run.protocol.digest for run in records}) > 1:
        return None
    found = next(iter(ProtocolStatistics(records, METRIC, resamples).cells().values()), None)
    return None if found is None else found.estimate.high - found.estimate.value


def _averages(suite: Suite, single: Sequence[Line], known: Mapping[tuple[str, str], PublishedCell]) -> list[Line]:
    """The mean over the suite's datasets, if all of them are wanted; images of two datasets are independent."""
    found = []
    for backbone, prompt, row in dict.fromkeys((line.backbone, line.prompt, line.row) for line in single):
        own = [line for line in single if (line.backbone, line.prompt, line.row) == (backbone, prompt, row)]
        names = [line.dataset.partition(":")[0] for line in own]
        if set(names) != set(suite.datasets):
            continue
        cell = SuiteCell(suite, row, backbone, prompt, AVERAGE)
        line = _beside(Line(suite, backbone, prompt, AVERAGE, row, PENDING), cell, known)
        several = next((name for name in names if names.count(name) > 1), "")
        found.append(replace(line, verdict=f"not averaged: {several} twice") if several else _averaged(line, own))
    return found


def _averaged(line: Line, own: Sequence[Line]) -> Line:
    values = [part.value for part in own if part.value is not None]
    if len(values) < len(own):
        missing = [part for part in own if part.value is None]
        if all(part.verdict == PENDING for part in missing):
            return line
        return replace(line, verdict=f"not run: {len(missing)} of {len(own)} datasets")
    halves = [part.half for part in own if part.half is not None]
    half = math.sqrt(math.fsum(h * h for h in halves)) / len(own) if len(halves) == len(own) else None
    others = [part.verdict for part in own if part.verdict.startswith("other protocol")]
    mean = math.fsum(values) / len(values)
    verdict = others[0] if others else _verdict([mean], line.published, [])
    fewest = min(own, key=lambda part: (not part.seeds, part.runs))  # one that lacks some speaks for all
    return replace(line, value=mean, half=half, runs=fewest.runs, verdict=verdict, seeds=fewest.seeds)


def speed_lines(
    cell: SuiteCell,
    published: Iterable[PublishedCell],
    measured: Mapping[str, float],  # RATE and MEMORY; empty: not measured
    hardware: str,
    obstacles: Sequence[Obstacle] = (),
) -> list[Line]:
    """What a method costs on this machine, beside what it cost on the paper's."""
    suite = cell.suite
    assert suite.speed is not None  # whoever asks for them has seen it
    known = of_table(published, suite.paper, suite.name)
    found = []
    for metric, column in ((RATE, suite.speed.rate), (MEMORY, suite.speed.memory)):
        there = known.get((cell.published_row, f"{AVERAGE} {column}"))
        line = Line(suite, cell.backbone, cell.prompt, "this machine", cell.row, PENDING, metric)
        line = replace(line, published=there.value) if there else replace(line, instead="other backbone")
        if metric not in measured:
            found.append(_not_run(line, obstacles))
            continue
        value = measured[metric]
        other = [] if suite.speed.hardware in hardware else ["hardware"]
        other += ["backbone"] if there is None else []
        same = there is not None and abs(value - there.value) <= SAME_SPEED * there.value
        verdict = f"other protocol: {', '.join(other)}" if other else ("agrees" if same else DIFFERS)
        reason = (
            f"measured on {hardware}, from decoding the image to the method's step; the paper: {suite.speed.hardware}"
        )
        found.append(replace(line, value=value, runs=1, verdict=verdict, reasons=[reason]))
    return found
