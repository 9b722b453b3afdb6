"""Differences between methods as text: a sentence that says what they show, and a table, on a terminal or in markdown.

Names come from records, and records come from anywhere: everything is escaped, and a terminal gets `Text`, not markup.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

from rich.console import RenderableType
from rich.text import Text

from tta_bench.metrics.significance import LEVEL
from tta_bench.report.board import UNTRAINED, images
from tta_bench.report.comparison import EXPLORATORY, ClassDifference, Duel
from tta_bench.report.formats import markdown
from tta_bench.report.plain_table import console_table, markdown_table
from tta_bench.system.text import counted, signed, visible

Row = Mapping[str, object]  # by comparison.COLUMNS
SHOWN_CLASSES = 5  # of those that gain most, and of those that lose most
ADJUSTED = "adjusted for all statements made together"
UNCORRECTED = "of this one comparison, or of classes adjusted for their number"
HEADS = ("method", "Δ", "95 %", "p", "detectable", "classes")


def to_console(rows: Sequence[Row], width: int) -> list[RenderableType]:
    """A sentence and a table for each protocol and score space."""
    shown: list[RenderableType] = []
    for heading, group in _titled(_told_apart(rows)):
        shown += [Text(visible(heading), style="bold"), Text(visible(sentence(group)))]
        shown += [console_table(HEADS, cells(group), width), Text("")]
    return [*shown, Text(legend(ADJUSTED))] if shown else []


def to_markdown(rows: Sequence[Row]) -> str:
    parts = []
    for heading, group in _titled(_told_apart(rows)):
        parts += [f"### {markdown(heading)}", markdown(sentence(group))]
        parts.append(markdown_table(HEADS, cells(group)))
    return "\n\n".join([*parts, markdown(legend(ADJUSTED))]) + "\n"


def duels_to_console(duels: Sequence[Duel], width: int) -> list[RenderableType]:
    """As above for two that were named, and the classes that gain and lose most."""
    shown: list[RenderableType] = []
    for heading, duel in _titled_duels(duels):
        shown += [Text(visible(heading), style="bold"), Text(visible(sentence([duel.row])))]
        shown += [console_table(HEADS, cells([duel.row]), width), Text("")]
        shown.append(Text(visible(_which_classes(duel))))
        shown += [console_table(("class", "Δ AP", "95 %", "p"), map(_class_cells, _extremes(duel)), width), Text("")]
    return [*shown, Text(legend(UNCORRECTED))] if shown else []


def duels_to_markdown(duels: Sequence[Duel]) -> str:
    parts = []
    for heading, duel in _titled_duels(duels):
        parts += [f"### {markdown(heading)}", markdown(sentence([duel.row]))]
        parts.append(markdown_table(HEADS, cells([duel.row])))
        parts += [markdown(_which_classes(duel)), markdown_table(("class", "Δ AP", "95 %", "p"), _class_rows(duel))]
    return "\n\n".join([*parts, markdown(legend(UNCORRECTED))]) + "\n"


# --------------------------------------------------------------------------------------------------------------- words


def legend(p: str) -> str:
    """What the columns are."""
    return (
        f"95 %: interval of the difference. p: {p} (docs/statistics.md). detectable: the smallest difference that this "
        "stream would have shown with a chance of 80 %. classes: helped/harmed/significantly harmed."
    )


def title(rows: Sequence[Row]) -> str:
    """What all rows of a table have in common."""
    row = rows[0]
    against = "every two methods" if is_exploratory(rows) else f"against {_common_baseline(rows)}"
    backbone = f"{row['backbone']} ({UNTRAINED})" if row["untrained"] else row["backbone"]
    order = "" if row["order"] == "shuffled" else f", order {row['order']}"
    rules = f", {row['rules']}" if row["rules"] else ""
    where = f"{row['dataset']} × {backbone}, prompt '{row['prompt']}'{order}{rules}"
    runs = {_whole(row["replicates"]) for row in rows}
    each = f", {counted(max(runs), 'run')} each" if len(runs) == 1 else ""
    part = images(_whole(row["n"]), None if row["dataset_size"] is None else _whole(row["dataset_size"]))
    seen = f"{part} images" if " of " in part else counted(_whole(row["n"]), "image")
    return f"{row['metric']} {against}: {where}, {seen}{each}"


def sentence(rows: Sequence[Row]) -> str:
    """What the table shows."""
    sure = [row for row in rows if _number(row["p_adjusted"]) < LEVEL]
    if is_exploratory(rows):
        return (
            f"Exploratory: {len(sure)} of {counted(len(rows), 'pair')} differ (p < {LEVEL:g}, adjusted after "
            "Benjamini-Yekutieli). Who wants to test a pair names it before looking."
        )
    if len(rows) == 1:
        return _of_one(rows[0], bool(sure))
    better = sum(_number(row["delta"]) > 0 for row in sure)
    unsure = len(rows) - len(sure)
    told = f"{better} better, {len(sure) - better} worse, {unsure} that can't be told apart from it"
    detectable = [value for row in rows if (value := _number(row["detectable"])) > 0]  # 0 of two that are the same
    least = f" No difference below {min(detectable):.2f} could be expected to show." if detectable else ""
    several = len({row["baseline_config"] for row in rows})
    whom = f"{several} configurations of {rows[0]['baseline']}" if several > 1 else _baseline(rows[0])
    what = f"{len(rows)} pairs" if several > 1 else len(rows)
    return f"Of {what} set against {whom}: {told} (adjusted p < {LEVEL:g}).{least}"


def _of_one(row: Row, sure: bool) -> str:
    delta, name, baseline = _number(row["delta"]), _name(row), _baseline(row)
    if sure:
        kind = "better" if delta > 0 else "worse"
        p = "p" if row["correction"] == "none" else "adjusted p"
        return f"{name} is {kind} than {baseline} by {abs(delta):.2f} ({p} {_p(row['p_adjusted'])})."
    return (
        f"{name} and {baseline} can't be told apart: the difference is {signed(delta)}, and only one of "
        f"{_number(row['detectable']):.2f} or more would have shown with a chance of 80 %."
    )


def is_exploratory(rows: Sequence[Row]) -> bool:
    return rows[0]["correction"] == EXPLORATORY


def cells(rows: Sequence[Row]) -> list[tuple[str, ...]]:
    """What stands below HEADS. How many runs a row is of is said where that differs from row to row."""
    varied = len({row["replicates"] for row in rows}) > 1
    named = is_exploratory(rows) or len({row["baseline_config"] for row in rows}) > 1
    return [_cells(row, named, f" ({counted(_whole(row['replicates']), 'run')})" if varied else "") for row in rows]


def _cells(row: Row, named: bool, runs: str) -> tuple[str, ...]:
    """`named`: with the baseline, of which there are several."""
    name = f"{_name(row)} − {_baseline(row)}" if named else _name(row)
    classes = "/".join(str(row[kind]) for kind in ("helped", "harmed", "significantly_harmed"))
    return (
        name + runs,
        signed(_number(row["delta"])),
        _interval(row["low"], row["high"]),
        _p(row["p_adjusted"]),
        f"{_number(row['detectable']):.2f}",
        classes,
    )


def _name(row: Row) -> str:
    return f"{row['method']} {row['changes']}".rstrip()


def _baseline(row: Row) -> str:
    return f"{row['baseline']} {row['baseline_changes']}".rstrip()


def _told_apart(rows: Sequence[Row]) -> list[Row]:
    """Configurations that are alike in name have their digest beside it, as in the leaderboard."""
    sides = (("changes", "config", _name), ("baseline_changes", "baseline_config", _baseline))
    alike: dict[str, set[object]] = {}
    for row in rows:
        for _, config, name in sides:
            alike.setdefault(name(row), set()).add(row[config])
    return [
        {
            **row,
            **{
                changes: f"{row[changes]} #{str(row[config])[:6]}".lstrip()
                for changes, config, name in sides
                if len(alike[name(row)]) > 1
            },
        }
        for row in rows
    ]


def _common_baseline(rows: Sequence[Row]) -> object:
    """With what was changed of it, if all rows are against the same; otherwise each row names its own."""
    names = {_baseline(row) for row in rows}
    return names.pop() if len(names) == 1 else rows[0]["baseline"]


def _which_classes(duel: Duel) -> str:
    harmed = sum(change.significantly_harmed for change in duel.classes.values())
    most = len(duel.classes) > 2 * SHOWN_CLASSES
    which = f"The {SHOWN_CLASSES} that gain and lose most of {len(duel.classes)} classes" if most else "All classes"
    return f"{which}; {harmed} significantly harmed (Holm over the classes)."


def _extremes(duel: Duel) -> list[tuple[str, ClassDifference]]:
    ranked = sorted(duel.classes.items(), key=lambda item: -item[1].estimate.value)
    most = len(ranked) > 2 * SHOWN_CLASSES
    return [*ranked[:SHOWN_CLASSES], *ranked[-SHOWN_CLASSES:]] if most else ranked


def _class_cells(item: tuple[str, ClassDifference]) -> tuple[str, ...]:
    name, change = item
    found = change.estimate
    return name, signed(found.value), _interval(found.low, found.high), _p(change.p_adjusted)


def _class_rows(duel: Duel) -> list[tuple[str, ...]]:
    return [_class_cells(item) for item in _extremes(duel)]


def _interval(low: object, high: object) -> str:
    return f"{signed(_number(low))} to {signed(_number(high))}"


def _p(value: object) -> str:
    p = _number(value)
    return "<0.001" if p < 0.001 else f"{p:.3f}"


def _number(value: object) -> float:
    assert isinstance(value, int | float)
    return float(value)


def _whole(value: object) -> int:
    assert isinstance(value, int)
    return value


# -------------------------------------------------------------------------------------------------------------- layout


def _titled(rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Each table with its title."""
    groups = _groups(rows)
    return list(zip(_titles(groups), groups, strict=True))


def _titled_duels(duels: Sequence[Duel]) -> list[tuple[str, Duel]]:
    return list(zip(_titles([[duel.row] for duel in duels]), duels, strict=True))


def _titles(groups: Sequence[Sequence[Row]]) -> list[str]:
    """The protocol's digest tells apart what would be headed alike."""
    titles = [title(group) for group in groups]
    digests = [str(group[0]["protocol"])[:6] for group in groups]
    pairs = list(zip(titles, digests, strict=True))
    return [f"{head} #{own}" if len({d for t, d in pairs if t == head}) > 1 else head for head, own in pairs]


def _groups(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows of one table each: one protocol, kind of order and score space."""
    key: Callable[[Row], tuple[object, ...]] = lambda row: (row["protocol"], row["order"], row["metric"])  # noqa: E731
    return [list(group) for _, group in groupby(rows, key)]
