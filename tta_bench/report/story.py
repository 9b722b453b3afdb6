"""Board -> one sentence: who leads in which score space, by how much, whether that is significant, and whether the
methods that train and adapt nothing are beaten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tta_bench.report.cells import Board, Column, Row
from tta_bench.report.comparison import BASELINES
from tta_bench.report.frame import HEADINGS, SCORES
from tta_bench.report.standings import NONE
from tta_bench.system.text import counted

LEADS = " leads "
UNTESTED = "without statistics, so no difference is called significant"


def sentence(board: Board) -> str:
    """Empty where there is nothing to compare."""
    measured = [column for column in board.columns if column.protocol]
    headings = [HEADINGS[metric] for metric in board.metrics if metric in SCORES]
    if board.untrained or len(board.rows) < 2 or not headings:
        return ""
    if len(measured) == 1:
        (column,) = measured
        parts = [_leader(board, column, heading) for heading in headings]
        beaten = _beaten(board, column, headings[0])
    else:
        parts = [_leaders(board, measured, heading) for heading in headings]
        beaten = _beaten_in(board, measured, headings[0])
    told = "; ".join(_without_repeating(part for part in parts if part))
    if not told:
        return ""
    ends = [beaten] if beaten else []
    ends += [] if board.tested else [UNTESTED]
    return "; ".join([told, *ends]) + "."


def _without_repeating(parts: Iterable[str]) -> Iterator[str]:
    """Whoever leads in several score spaces is named once."""
    before = ""
    for part in parts:
        leader, leads, _ = part.partition(LEADS)
        yield part.removeprefix(f"{leader}{LEADS}") if leads and leader == before else part
        before = leader if leads else ""


def _ranked(board: Board, column: Column, heading: str) -> list[tuple[float, Row]]:
    """Best first; a number of another protocol takes no part."""
    found = [(cell.mean, row) for row in board.rows if (cell := board.cells.get((row, column, heading)))]
    own = [(mean, row) for mean, row in found if not board.cells[row, column, heading].mixed]
    return sorted(own, key=lambda pair: (-pair[0], pair[1].name))


def _named(board: Board, row: Row) -> str:
    """With its setting where the rows have several: leading with the whole test set at hand is another thing."""
    return f"{row.name} ({row.setting or 'setting unknown'})" if len(board.settings) > 1 else row.name


def _leader(board: Board, column: Column, heading: str) -> str:
    ranked = _ranked(board, column, heading)
    if len(ranked) < 2:
        return ""
    (best, leader), (next_best, second) = ranked[:2]
    if f"{best:.2f}" == f"{next_best:.2f}":
        *firsts, last = [_named(board, row) for mean, row in ranked if f"{mean:.2f}" == f"{best:.2f}"]
        return f"{', '.join(firsts)} and {last} are equal in {heading} with {best:.2f}"
    gap = f"{best - next_best:.2f} above {_named(board, second)}{_how_sure(board, column, heading, second, leader)}"
    return f"{_named(board, leader)}{LEADS}in {heading} with {best:.2f}, {gap}"


def _how_sure(board: Board, column: Column, heading: str, lower: Row, higher: Row) -> str:
    standings = board.standings.get((column, heading), NONE)
    apart = standings.told_apart(lower.config, higher.config)
    if apart is not None and not standings.on_equal_terms(lower.config, higher.config):
        return ", but over other seeds or orders"  # the gap is between these means, and p is not
    return {True: ", significantly", False: ", not significantly", None: ""}[apart]


def _beaten(board: Board, column: Column, heading: str) -> str:
    """Whether the best of the other methods is above each method that adapts nothing."""
    ranked = _ranked(board, column, heading)
    adapted = [(mean, row) for mean, row in ranked if row.method not in BASELINES]
    if not adapted:
        return ""
    best, leader = adapted[0]
    said = []
    for mean, row in ranked:
        if row.method not in BASELINES:
            continue
        how = _how_sure(board, column, heading, row, leader)
        how = f" by {leader.name} ({best - mean:.2f}{how})" if mean < best else ""
        said.append(f"{row.name} is {'beaten' if mean < best else 'not beaten'}{how}")
    return f"of the training-free baselines {' and '.join(said)} in {heading}" if said else ""


# ------------------------------------------------------------------------------------------------- several datasets


def _leaders(board: Board, columns: list[Column], heading: str) -> str:
    """Who leads in how many columns, and by how much."""
    wins: dict[Row, int] = {}
    gaps: list[float] = []
    significant = equal = unequal = 0
    for column in columns:
        ranked = _ranked(board, column, heading)
        if len(ranked) > 1:
            (best, leader), (next_best, second) = ranked[:2]
            standings = board.standings.get((column, heading), NONE)
            apart = standings.told_apart(second.config, leader.config)
            gaps.append(best - next_best)
            if f"{best:.2f}" == f"{next_best:.2f}":
                equal += 1
                continue
            wins[leader] = wins.get(leader, 0) + 1
            on_equal_terms = apart is None or standings.on_equal_terms(second.config, leader.config)
            unequal += not on_equal_terms  # the gap is between these means, and p is not
            significant += apart is True and on_equal_terms
    if not gaps:
        return ""
    if not wins:
        return f"in {heading} the best are equal in all {counted(len(gaps), 'column')}"
    most_first = sorted(wins.items(), key=lambda win: (-win[1], win[0].name))
    who = ", ".join(f"{_named(board, row)} in {count}" for row, count in most_first)
    who += f", nobody in {equal}" if equal else ""
    by = f"{min(gaps):.2f}" if len(gaps) == 1 else f"{min(gaps):.2f} to {max(gaps):.2f}"
    said = f", {significant} of {len(gaps) - unequal} significantly{_beside(unequal)}" if board.tested else ""
    return f"{heading} is led by {who} of {counted(len(gaps), 'column')}, by {by}{said}"


def _beside(unequal: int) -> str:
    return f" ({unequal} over other seeds or orders)" if unequal else ""


def _beaten_in(board: Board, columns: list[Column], heading: str) -> str:
    """In how many columns some method is significantly above each method that adapts nothing, or just above it."""
    said = []
    for baseline in BASELINES:
        beaten = compared = unequal = 0
        for column in columns:
            ranked = _ranked(board, column, heading)
            own = [(mean, row) for mean, row in ranked if row.method == baseline]
            adapted = [(mean, row) for mean, row in ranked if row.method not in BASELINES]
            if own and adapted:
                (value, row), standings = own[0], board.standings.get((column, heading), NONE)
                fair = [(mean, other) for mean, other in adapted if standings.on_equal_terms(row.config, other.config)]
                above = [other for mean, other in fair if mean > value]
                sure = any(standings.told_apart(row.config, other.config) is True for other in above)
                compared += bool(fair)
                unequal += not fair  # p would not be of these means
                beaten += sure if board.tested else bool(above)
        if compared or unequal:
            said.append(f"{baseline} in {beaten} of {compared}{_beside(unequal)}")
    how = "significantly " if board.tested else ""
    return f"training-free baselines {how}beaten by adapting methods in {heading}: {', '.join(said)}" if said else ""
