"""What `ttabench reproduce --explain` adds: which single change comes nearest to a printed number."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tta_bench.cli.options import complain
from tta_bench.errors import TTABenchError

if TYPE_CHECKING:
    from tta_bench.report.explain import Change
    from tta_bench.report.reproduction import Line
    from tta_bench.runs.bench import Bench
    from tta_bench.runs.suites import Attempt


def explained(bench: Bench, lines: Sequence[Line], attempts: Sequence[Attempt], deep: bool) -> Iterator[str]:
    from tta_bench.report.explain import explanation
    from tta_bench.report.reproduction import DIFFERS

    by_place = {(a.cell.backbone, a.cell.prompt, a.cell.dataset, a.cell.row): a for a in attempts}
    differing = [line for line in lines if line.verdict == DIFFERS]
    if not differing:
        yield "nothing to explain: no number that can be compared differs"
    for line in differing:
        attempt = by_place.get((line.backbone, line.prompt, line.dataset, line.row))
        if attempt is not None and attempt.records:  # an average is explained by its datasets
            yield from explanation(line, _changes(bench, attempt, deep))


def _changes(bench: Bench, attempt: Attempt, deep: bool) -> list[Change]:
    """Of the first seed: the same scores counted otherwise, and if `deep` runs with one thing changed."""
    from tta_bench.report.explain import Change, OtherLabels, rescored
    from tta_bench.runs.explaining import other_labels, single_changes

    run, spec = attempt.records[0], attempt.cell.runs[0]
    variants = {name: OtherLabels(rows, labels) for name, rows, labels in other_labels(bench, run)}
    found = rescored(run, variants)
    for what, changed in single_changes(bench, spec) if deep else ():
        try:
            value = bench.run(changed).record.metrics["mAP"]
        except TTABenchError as error:
            complain(f"{what} can't be tried: {error}")
            continue
        found += [Change((what,), value)] if value is not None else []
    return found
