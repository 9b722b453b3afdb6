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
    """Of all seeds the same scores counted otherwise, and if `deep` runs of the first with one thing changed."""
    from tta_bench.report.explain import OtherLabels, of_one_seed, over_seeds, rescored
    from tta_bench.runs.explaining import other_labels, single_changes

    runs = attempt.records
    spec = next(spec for spec in attempt.cell.runs if spec.seed == runs[0].seed)  # an earlier one may have failed
    # All seeds saw the same images: with a limit there is one.
    variants = {name: OtherLabels(rows, labels) for name, rows, labels in other_labels(bench, runs[0])}
    found = over_seeds([rescored(run, variants) for run in runs])
    for what, changed in single_changes(bench, spec) if deep else ():
        try:
            value = bench.run(changed).record.metrics["mAP"]
        except TTABenchError as error:
            complain(f"{what} can't be tried: {error}")
            continue
        change = None if value is None else of_one_seed(what, value, runs)
        found += [] if change is None else [change]
    return found
