"""Long form -> what the order of a stream does to a method: mean, worst and spread over the runs of a kind of order."""

from __future__ import annotations

import pandas as pd

from tta_bench.errors import UnknownName
from tta_bench.report.board import images, told_apart
from tta_bench.report.frame import OF_LOGITS
from tta_bench.system.names import kind_of

# A row is one configuration on one protocol, as in the leaderboard: only seeds and orders may differ within it.
ROW = ["dataset", "backbone", "prompt", "untrained", "n", "protocol", "method", "changes", "config", "order"]
COLUMNS = [*ROW, "dataset_size", "runs", "mean", "worst", "spread", "worst_run"]


def over_orders(frame: pd.DataFrame, metric: str = "mAP") -> pd.DataFrame:
    """`spread` lies between the best run and the worst, in points of the metric, and is NaN for a single run;
    `worst_run` names the run to look at. Of an error the largest is the worst."""
    if metric not in frame.columns:
        numbers = [name for name in frame.columns if pd.api.types.is_float_dtype(frame[name])]
        raise UnknownName("metric", metric, numbers, f"There are: {', '.join(numbers)}.")
    defined = frame.assign(order=frame["order"].map(kind_of)).dropna(subset=[metric])
    rows = []
    for key, runs in defined.groupby(ROW, sort=True):
        values = runs[metric]
        place = int(values.argmax() if metric in OF_LOGITS else values.argmin())
        worst, worst_run = float(values.iloc[place]), str(runs["run"].iloc[place])
        spread = float(values.max() - values.min()) if len(runs) > 1 else float("nan")
        size = runs["dataset_size"].max()  # NA: of records of version 0.1, which don't know it
        rows.append((*key, size, len(runs), float(values.mean()), worst, spread, worst_run))
    return pd.DataFrame(rows, columns=COLUMNS).astype({"dataset_size": "Int64"})


def to_text(table: pd.DataFrame) -> list[str]:
    """Lines for a terminal of any width from 60 columns on: a heading per dataset as far as it was seen, named as the
    leaderboard's columns are, and backbone; a line per method."""
    lines: list[str] = []
    for (dataset, backbone, prompt), under in table.groupby(["dataset", "backbone", "prompt"]):
        protocols = list(under.groupby("protocol", sort=False))
        seen = [images(int(part["n"].iloc[0]), _size(part)) for _, part in protocols]
        columns = [f"{dataset} ({mark})" if mark else str(dataset) for mark in seen]
        columns = told_apart(columns, [str(protocol) for protocol, _ in protocols])
        for place, (column, (_, part)) in enumerate(zip(columns, protocols, strict=True)):
            lines.append(f"mAP over orders: {column} with {backbone}, prompt '{prompt}'")
            if place == 0 and len(protocols) > 1:
                lines.append("(not on the same images, labels or prompts as below: compare within a heading only)")
            lines += _rows(part)
    return lines


def _rows(part: pd.DataFrame) -> list[str]:
    """Of one protocol, with what they are called."""
    names = [f"{method} [{changes}]" if changes else str(method) for method, changes in _pairs(part)]
    untrained = part["untrained"].tolist()
    names = [f"{name} (untrained)" if mark else name for name, mark in zip(names, untrained, strict=True)]
    keys = list(zip(names, part["config"], strict=True))
    once = list(dict.fromkeys(keys))  # in another order it is the same row
    shown = dict(zip(once, told_apart([name for name, _ in once], [config for _, config in once]), strict=True))
    widths = [max(map(len, ["method", *shown.values()])), max(map(len, ["order", *part["order"]]))]
    lines = [f"{'method':<{widths[0]}}  {'order':<{widths[1]}}  runs   mean  worst  spread"]
    for key, row in zip(keys, part.to_dict("records"), strict=True):
        spread = f"{row['spread']:.2f}" if row["runs"] > 1 else "–"
        numbers = f"{row['runs']:>4}  {row['mean']:5.2f}  {row['worst']:5.2f}  {spread:>6}"
        lines.append(f"{shown[key]:<{widths[0]}}  {row['order']:<{widths[1]}}  {numbers}")
    return lines


def _size(part: pd.DataFrame) -> int | None:
    sizes = part["dataset_size"].dropna()
    return None if sizes.empty else int(sizes.max())


def _pairs(part: pd.DataFrame) -> zip[tuple[str, str]]:
    return zip(part["method"], part["changes"], strict=True)
