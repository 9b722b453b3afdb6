"""What has to be said below a board: what its columns are over, what stands apart, what its marks mean."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pandas as pd

from tta_bench.records import CALLERS
from tta_bench.report.cells import INTERVAL, MIXED, RANK, Board, Column
from tta_bench.report.comparison import BASELINES
from tta_bench.report.draws import SPACES
from tta_bench.report.frame import BETWEEN_NOTES, OF_LOGITS, SCORES, THREADS, VERSIONS
from tta_bench.report.versions import several
from tta_bench.system.names import SHUFFLED
from tta_bench.system.text import counted

CELL = [
    "label",
    "config",
    "dataset",
    "protocol",
    "n",
    "stream",
]  # what makes a cell, in a frame with labels and streams

ROW = CELL[:2]

CORRECTIONS = f"Holm against {' and '.join(BASELINES)}, Benjamini-Yekutieli between others"


SPREAD = "±"

NAMED = {"encoded_by": "features by"}  # columns by the words of a sentence
UNMATCHED = "Not held against official code"
# What `Method.status` means for a reader of the table; a method whose code was matched needs no word.
STATUS = {
    "ours": "ours",
    "port": "a third party's port",
    "reading of the paper": "an unverified reading of the paper",
    "unstated": "unstated",
}


def legend(board: Board, bold: str = "Bold", close: str = "underlined", without: Collection[str] = ()) -> str:
    """What the marks mean; a layout that has neither bold nor underlined says what it has instead, and one that leaves
    kinds of number out (or the SPREAD) names them in `without`."""
    said = []
    if {"mAP_centered", "mAP_softmax"} & set(board.metrics):
        said.append(
            "mAP ranks raw scores; centred and softmax rank the same scores after a per-image shift or softmax."
        )
    several = len(board.settings) > 1
    best = "the best of a column and of each setting in it" if several else "the best of a column"
    if board.tested:
        best += f"; {close} is not significantly below the best{' of its setting' if several else ''}"
        best += f" (p < 0.05; {CORRECTIONS})"
    said.append(f"{bold} is {best}.")
    shown = [kind for kind in board.kinds if kind not in without]
    if RANK in shown:
        said.append("Ranks are a range where rows can't be told apart, over all rows.")
    if INTERVAL in shown:
        said.append("95 % is an interval of the mean.")
    if board.difference in shown:
        said.append(f"Δ is the gain over {board.baseline} on the same images; ns: not significant (Holm).")
    if SPREAD not in without and any(cell.deviation is not None for cell in board.cells.values()):
        said.append("± is the standard deviation over runs with other seeds or orders.")
    return " ".join(said)


def marks(columns: Sequence[Column], untrained: bool) -> list[str]:
    """What the names of columns and backbone say in short."""
    said = ["The backbone is untrained: its numbers only show that the pipeline runs."] if untrained else []
    measured = [column for column in columns if column.protocol]
    if any(column.size is not None and not column.complete for column in measured):
        said.append("A column headed (n of N) saw n of the dataset's N images: compare within it only.")
    if any(column.size is None for column in measured):
        said.append("A column headed (n=…) comes from records that don't say how many images the dataset has.")
    return said


def of_metrics(metrics: Collection[str]) -> list[str]:
    """What some of them can't say of every method."""
    found = [name for name in metrics if name in OF_LOGITS]
    why = "takes scores for logits of the backbone's scale, and some methods return votes, shares or standard scores"
    return [f"{name} {why}: no row is marked best in it." for name in found]


def notes(frame: pd.DataFrame, mixed: bool = False) -> list[str]:
    counts = sorted(frame.groupby(CELL).size().unique())
    few, many = int(counts[0]), int(counts[-1])
    said = [f"{counted(few, 'run')} per cell." if few == many else f"{few} to {counted(many, 'run')} per cell."]
    for dataset, protocols in frame.groupby("dataset")["protocol"].nunique().items():
        if protocols > 1:
            how = "in one column" if mixed else "kept apart"
            said.append(f"{dataset}: {protocols} protocols, {how} (ttabench show RUN has the parts).")
    if bool(frame["mAP"].isna().any()):
        said.append("Where a run has a speed but no mAP, it is undefined: no image of its stream has a label.")
    for label, states in frame.groupby("label")["code"].nunique().items():
        if states > 1:
            said.append(f"{label}: {states} rows by other code, told apart by the digest of their config.")
    for part in (_one_stream, _mixed_versions, _other_code, _machines, _encoders, _unmatched, _unfenced, _warned):
        said += part(frame)
    tags = sorted(set(frame["tag"]) - {"default"})
    if tags:
        said.append(f"Hyper-parameters are the defaults except where the row says otherwise ({', '.join(tags)}).")
    return said


def _one_stream(frame: pd.DataFrame) -> list[str]:
    """Shuffles go by the run's seed or by a number of their own, so that one stream may have two names."""
    shuffles = frame[frame["stream"] == SHUFFLED]
    named = zip(shuffles["order"], shuffles["seed"], strict=True)
    numbers = [order.partition(":")[2] or str(seed) for order, seed in named]
    again = shuffles.assign(number=numbers).duplicated([*CELL, "number"])
    if not again.any():
        return []
    first = shuffles[again].iloc[0]
    count = int(again.sum())
    whose = "1 run repeats the stream of another run of its cell" if count == 1 else f"{count} runs repeat streams"
    return [f"{whose} under another name ({first['run']}): less differs between them than between others."]


def left_out(edited: int) -> list[str]:
    """A table that is handed on stands without the words that its maker saw."""
    if not edited:
        return []
    whose = "code of the same name that was edited since, or is somebody else's"
    return [f"{counted(edited, 'run')} by {whose}, left out (--all)."]


def _machines(frame: pd.DataFrame) -> list[str]:
    """A processor that ran with several sets of instructions counts once with each."""
    known = _instructions(frame)
    apart = known.groupby(frame["hardware"]).transform("nunique") > 1
    named = frame["hardware"].mask(apart, frame["hardware"] + " with " + frame["instructions"])
    kinds = sorted(set(named[~apart | known.notna()]) - {""})
    if len(kinds) > 1:
        return [f"Runs of {len(kinds)} kinds of machine ({'; '.join(kinds)}): compare no img/s."]
    threads = sorted(set(frame[THREADS]) - {""}, key=lambda text: (len(text), text))
    return [f"Runs with {' and '.join(threads)} threads: compare no img/s."] if len(threads) > 1 else []


def _instructions(frame: pd.DataFrame) -> pd.Series[str]:
    """Records of before don't have them: those may be of any machine of their name."""
    return frame["instructions"].where(frame["instructions"] != "")


def _encoders(frame: pd.DataFrame) -> list[str]:
    """Weights or prompt files that have one name and are not the same."""
    found = frame.loc[frame["encoder"] != ""].groupby("dataset")["encoder"].agg(lambda digests: sorted(set(digests)))
    if len({each for digests in found for each in digests}) < 2:
        return []
    alike: dict[tuple[str, ...], list[str]] = {}
    for dataset, digests in found.items():
        alike.setdefault(tuple(digests), []).append(str(dataset))
    named = "; ".join(", ".join(datasets) for datasets in alike.values())
    return [f"Backbone or prompt file are not the same in all columns, though their names are ({named})."]


def _unmatched(frame: pd.DataFrame) -> list[str]:
    """Rows whose numbers nobody's official code vouches for, by what they are instead."""
    named = {words: sorted(set(frame.loc[frame["status"] == status, "label"])) for status, words in STATUS.items()}
    said = [f"{', '.join(labels)} ({words})" for words, labels in named.items() if labels]
    return [f"{UNMATCHED}: {'; '.join(said)}."] if said else []


def _unfenced(frame: pd.DataFrame) -> list[str]:
    """Instances, which share a process with everything else that a notebook has done."""
    labels = sorted(set(frame.loc[frame["process"].str.startswith(CALLERS), "label"]))
    return (
        [f"Run in a notebook's or script's own process, where nothing is fenced off: {', '.join(labels)}."]
        if labels
        else []
    )


def _warned(frame: pd.DataFrame) -> list[str]:
    """What all runs on a dataset say of it, and the rows of which some run says more that makes its number suspect."""
    said, labels = [], set()
    for dataset, runs in frame.groupby("dataset"):
        found = [set(text.split(BETWEEN_NOTES)) - {""} for text in runs["notes"]]
        common = set.intersection(*found) if len(set(runs["label"])) > 1 else set()
        said += [f"{dataset}: {note}." for note in sorted(common)]
        labels |= {label for label, own in zip(runs["label"], found, strict=True) if own - common}
    if labels:
        named = ", ".join(sorted(labels))
        said.append(f"Recorded with a warning, which `ttabench show RUN` repeats: {named}.")
    return said


def other_protocols(columns: Sequence[Column], hidden: int) -> list[str]:
    """Of columns that took in what belongs to others, and of runs whose cells are another protocol's."""
    names = ", ".join(column.name for column in columns)
    marked = f"{MIXED} is of another protocol than the rest of its column ({names}): not to be compared with it."
    unseen = f"{counted(hidden, 'run')} of other protocols not shown: their cells have a number."
    return [marked] * bool(columns) + [unseen] * bool(hidden)


def _mixed_versions(frame: pd.DataFrame) -> list[str]:
    """Replicates stand in one cell whoever recorded them, but their spread is then not only that of seeds."""
    recorded_by = [*VERSIONS, "hardware", "instructions", "encoded_by"]
    known = {name: frame[name].where(frame[name] != "") for name in ("instructions", "encoded_by")}
    frame = frame.assign(**known)  # records of before don't have them
    by_cell = frame.groupby(CELL)[recorded_by]
    apart = by_cell.transform("nunique") > 1  # for each run: whether those of its cell differ
    found = {name: set(frame.loc[apart[name], name].dropna()) for name in recorded_by if apart[name].any()}
    if not found:
        return []
    named = [
        f"{NAMED.get(name, name)} {', '.join(v or 'unknown' for v in sorted(versions))}"
        for name, versions in found.items()
    ]
    cells = int((by_cell.nunique() > 1).any(axis=1).sum())
    which = f"{counted(cells, 'cell')} with runs recorded by different versions or machines ({'; '.join(named)})"
    return [f"{which}: part of their ± may be theirs."]


def _other_code(frame: pd.DataFrame) -> list[str]:
    """Within a column: differences, ranks and p are between its rows."""
    by_cell = frame.groupby(CELL)["ttabench"].agg(lambda versions: " ".join(sorted(set(versions))))
    apart = by_cell.groupby([name for name in CELL if name not in ROW]).transform("nunique") > 1
    said = several(frame.set_index(CELL).loc[apart[apart].index, "ttabench"]) if apart.any() else ""
    return [f"Rows {said}."] if said else []


def statistics(board: Board) -> list[str]:
    """What statistics are of, and what they leave out."""
    if not board.standings:
        return []
    lost = dict.fromkeys(note for standings in board.standings.values() for note in standings.notes)
    said = [f"Without statistics: {counted(len(lost), 'run')}, first {next(iter(lost))}."] if lost else []
    without = [
        metric for metric in board.metrics if metric not in SPACES and metric not in SCORES and "_per_s" not in metric
    ]
    if without:
        said.append(f"No statistics for {', '.join(without)}: they are made for {', '.join(SPACES)}.")
    everyone = {config for standings in board.standings.values() for config in standings.intervals}
    defined = {row for row, _, kind in board.cells if kind in SCORES.values()}
    lacking = [row.name for row in board.rows if row.config not in everyone and row in defined]
    if lacking:
        said.append(f"Ranks, p and intervals leave out {', '.join(lacking)}, whose scores are not at hand.")
    hidden = len(everyone - {row.config for row in board.rows})
    if hidden:
        said.append(f"Ranks and p are among {len(everyone)} rows, {hidden} of which are not shown.")
    if any(standings.partial for standings in board.standings.values()):
        said.append("Rows have other seeds or orders: differences, p and ranks rest on those that two rows share.")
    apart = dict.fromkeys(row.name for row, column, kind in board.cells if board.is_untested(row, column, kind))
    if apart:
        said.append(f"Without a seed in common with the best of their setting, so not marked: {', '.join(apart)}.")
    facing = {standings.facing for standings in board.standings.values() if standings.deltas}
    named = [row.name for row in board.rows if row.config in facing and row.name != board.baseline]
    if named:
        said.append(f"Δ {board.baseline} is the gain over {' or '.join(named)}.")
    lonely = defined and not any(s.deltas for s in board.standings.values()) and board.baseline
    if lonely and board.baseline not in lacking and any(row.method not in BASELINES for row in board.rows):
        said.append(f"No differences: no run of {board.baseline} with the same images, seeds and order.")
    return said
