"""What runs of one cell come to, in the tables that `run --sweep` and `suite` print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tta_bench.cli.executors import show_table

if TYPE_CHECKING:
    from tta_bench.records import RunRecord


def mean_map(records: Sequence[RunRecord]) -> str:
    """Of runs of one cell; those over different images have no mean but a smallest and a largest."""
    values = [value for record in records if (value := record.metrics["mAP"]) is not None]
    if not values:
        return "–"
    if len({record.protocol.digest for record in records}) > 1:
        return f"{min(values):.2f} to {max(values):.2f}, other images"
    return f"{sum(values) / len(values):.2f}"


def images(record: RunRecord) -> str:
    """As in "40 of 600"."""
    partial = record.dataset_size is not None and record.n < record.dataset_size
    return f"{record.n:,} of {record.dataset_size:,}" if partial else f"{record.n:,}"


def show_sweep(done: Sequence[RunRecord], keys: Sequence[str]) -> None:
    """The mean mAP of every combination over seeds and shuffles."""
    asked = [key.rpartition(".") for key in keys]  # METHOD.FIELD, or a field of all
    groups: dict[tuple[str, ...], dict[str, RunRecord]] = {}
    for record in done:
        own = record.hyper_parameters
        values = (str(own.get(field, "-")) if method in ("", record.method) else "-" for method, _, field in asked)
        row = (record.method, _dataset(record), record.backbone, *values)
        groups.setdefault(row, {})[record.run_id] = record  # two values may be one: 100 and 1e2
    rows = [("method", "dataset", "backbone", *keys, "mAP", "runs")]
    rows += [(*row, mean_map(list(found.values())), str(len(found))) for row, found in groups.items()]
    print()
    show_table(rows)


def _dataset(record: RunRecord) -> str:
    """With all that keeps numbers apart which are not of the same thing."""
    from tta_bench.system.names import SHUFFLED, kind_of

    seen, order = images(record), kind_of(record.order)
    said = [f"{seen} images"] if " of " in seen else []
    said += [f"order {order}"] if order != SHUFFLED else []
    said += ["untrained"] if record.random_weights else []
    return f"{record.dataset} ({', '.join(said)})" if said else record.dataset
