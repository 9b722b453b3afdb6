"""Records of runs: one run, its folder on disk, and many runs together."""

from tta_bench.records.files import damage, leads_nowhere, load, load_all, save
from tta_bench.records.plain import as_plain
from tta_bench.records.record import (
    CALLERS,
    CODE_PARTS,
    DATA_CODE,
    DIAGNOSTICS,
    OUTPUTS,
    SCHEMA,
    SCORES,
    Identity,
    RunRecord,
    author,
    load_diagnostics,
    load_in_dataset_order,
    load_scores,
    run_id,
)
from tta_bench.records.results import Results, one_of_each

__all__ = [
    "CALLERS",
    "CODE_PARTS",
    "DATA_CODE",
    "DIAGNOSTICS",
    "OUTPUTS",
    "SCHEMA",
    "SCORES",
    "Identity",
    "Results",
    "RunRecord",
    "as_plain",
    "author",
    "damage",
    "leads_nowhere",
    "load",
    "load_all",
    "load_diagnostics",
    "load_in_dataset_order",
    "load_scores",
    "one_of_each",
    "run_id",
    "save",
]
