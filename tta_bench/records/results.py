"""Many runs, and the doors to their tables."""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, overload

from tta_bench.errors import UnknownName, UsageError
from tta_bench.records.record import RunRecord
from tta_bench.system.names import dataset_name, order_name
from tta_bench.system.text import counted, visible

if TYPE_CHECKING:
    import pandas as pd

ROWS = ("method", "tag")  # filters that leave rows out: whoever looks at fewer has tested as many


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
    family: tuple[RunRecord, ...] | None = field(default=None, compare=False)  # with the rows that `filter` left out

    def __init__(
        self,
        runs: Iterable[RunRecord] = (),
        problems: Iterable[str] = (),
        failures: Iterable[str] = (),
        family: Iterable[RunRecord] | None = None,
    ) -> None:
        kept, doubled = _sound(list(runs))
        object.__setattr__(self, "family", None if family is None else tuple(family))
        for name, values in (("runs", kept), ("problems", [*problems, *doubled]), ("failures", failures)):
            object.__setattr__(self, name, tuple(values))  # a caller's list may go on to change

    def __len__(self) -> int:
        return len(self.runs)

    @overload
    def __getitem__(self, index: int) -> RunRecord: ...
    @overload
    def __getitem__(self, index: slice) -> Results: ...
    def __getitem__(self, index: int | slice) -> RunRecord | Results:
        return replace(self, runs=self.runs[index], family=None) if isinstance(index, slice) else self.runs[index]

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

        A dataset or an order may have any name that `run` takes for it, "scenes:default" or, of seed 0, "shuffled:0".

        >>> len(results.filter(method="clip")), len(results.filter(method=["clip", "tda"], seed=range(1)))
        (2, 2)
        """
        wanted = (method, dataset, backbone, prompt, seed, order, tag, untrained)
        names = ("method", "dataset", "backbone", "prompt", "seed", "order", "tag", "random_weights")
        asked = {name: _several(value) for name, value in zip(names, wanted, strict=True) if value is not None}
        kept = [run for run in self.runs if all(_is_among(run, name, asked[name]) for name in asked)]
        columns = [name for name in asked if name not in ROWS]
        family = [run for run in self.family or self.runs if all(_is_among(run, name, asked[name]) for name in columns)]
        return replace(self, runs=tuple(kept), family=tuple(family))

    # `report` makes tables from records and so stands above this module; those below only save a notebook the way
    # there. They import it when they are called, and nothing here depends on it.

    def to_frame(self) -> pd.DataFrame:
        """One row per run, in their order here, with the columns of `ttabench leaderboard --format csv`.

        >>> list(results.to_frame().columns[:7])
        ['method', 'dataset', 'backbone', 'prompt', 'seed', 'order', 'n']
        """
        from tta_bench.report.frame import in_order

        return in_order(self.runs)

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
        from tta_bench.report.formats import FORMATS
        from tta_bench.report.leaderboard import Leaderboard, metrics_of, opening_of

        known = (*FORMATS, "html")
        if format not in known:
            raise UnknownName("format", str(format), known, f"Choose one of {', '.join(known)}.")
        _refuse_no_name(baseline)
        asked = tuple(_several(metric))
        wanted = Wanted(metrics_of(format, asked), sort, baseline, mixed)
        own = replace(wanted, metrics=asked, baseline="" if baseline == Wanted.baseline else baseline)
        opening = opening_of(self.runs, own, fast) if format == "html" else None
        board = Leaderboard(self.runs, wanted, fast, columns, opening=opening, family=self.family)
        return board.text(format, width)

    def compare(
        self, baseline: str | None = "clip", metric: str | Collection[str] = "mAP", resamples: int = 1000
    ) -> pd.DataFrame:
        """What every method gains over `baseline` on the same images, with 95 % intervals and p: docs/statistics.md.

        One row per protocol, method and metric, the largest difference first. Without a baseline every two methods are
        compared, which is for exploring. Reads the runs' scores; `attrs["notes"]` says what was left out.
        """
        from tta_bench.report.comparison import compare

        if baseline is not None:
            _refuse_no_name(baseline)
        shown = {run.config.digest for run in self.runs}
        return compare(self.family or self.runs, baseline, _several(metric), resamples, shown).to_frame()

    def orders(self, metric: str = "mAP") -> pd.DataFrame:
        """How much a method depends on the stream's order: the mean over runs, the worst and the spread.

        One row per method and kind of order; all shuffles are of one kind.

        >>> list(results.orders().columns[-5:])
        ['runs', 'mean', 'worst', 'spread', 'worst_run']
        """
        from tta_bench.report.frame import long_form
        from tta_bench.report.orders import over_orders

        return over_orders(long_form(self.runs), metric)

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
        return tables(self.runs, self.family) + missing

    def __repr__(self) -> str:
        kinds = [
            counted(len({getattr(run, kind) for run in self.runs}), kind) for kind in ("method", "dataset", "backbone")
        ]
        parts = [counted(len(self.runs), "run") + (f": {', '.join(kinds)}" if self.runs else "")]
        parts += [counted(len(self.problems), "unreadable record")] if self.problems else []
        parts += [counted(len(self.failures), "failure")] if self.failures else []
        return f"Results({'; '.join(parts)})"


def _refuse_no_name(baseline: object) -> None:
    if not isinstance(baseline, str):
        raise UsageError(f"baseline {visible(reprlib.repr(baseline))}: a method's name is wanted, such as 'clip'")


def one_of_each(runs: Iterable[RunRecord]) -> list[RunRecord]:
    """Each run once, the first of those with one name."""
    found: dict[str, RunRecord] = {}
    for run in runs:
        found.setdefault(run.run_id, run)
    return list(found.values())


def _sound(runs: Sequence[RunRecord]) -> tuple[list[RunRecord], list[str]]:
    """Each run once; of two that say they are one run and have other numbers neither, and a line."""
    first = {run.run_id: run for run in one_of_each(runs)}
    odd = dict.fromkeys(run.run_id for run in runs if run.metrics != first[run.run_id].metrics)
    lines = [f"{name}: two records of one run with other numbers, so neither is shown" for name in odd]
    return [run for name, run in first.items() if name not in odd], lines


def _is_among(run: RunRecord, field: str, values: Collection[Any]) -> bool:
    """Whether a field has one of the values, under whichever name."""
    own = getattr(run, field)
    if own in values:
        return True
    if field == "order":
        return any(order_name(value, run.seed) == own for value in values)
    return field == "dataset" and any(dataset_name(str(value)) == own for value in values)


def _several(value: Any) -> list[Any]:
    """A list, because a column of pandas looks for `in` among its labels."""
    alone = isinstance(value, str) or not isinstance(value, Iterable) or getattr(value, "ndim", None) == 0
    return [value] if alone else list(value)
