"""Records load for ever: every schema that was ever written has a specimen here."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from tta_bench import metrics, records
from tta_bench.errors import BadData, UsageError
from tta_bench.metrics import AP_CONVENTIONS
from tta_bench.report.formats import to_csv
from tta_bench.report.frame import long_form
from tta_bench.system.record_form import SEAL, seal

SPECIMENS = sorted(Path(__file__).parent.glob("record_v*"))


@pytest.mark.parametrize("folder", SPECIMENS, ids=lambda folder: folder.name)
def test_a_specimen_loads_and_can_be_scored_again(folder: Path) -> None:
    record = records.load(folder)
    assert record.run_id == folder.joinpath("name.txt").read_text().strip()
    scores, labels, ids = records.load_scores(record)
    assert len(ids) == record.n
    parts = record.protocol.parts
    ties = next(ties for ties, convention in AP_CONVENTIONS.items() if convention == parts["average_precision"])
    again = metrics.summary(scores, labels, parts["empty_classes"], ties=ties)
    assert again["mAP"] == pytest.approx(record.metrics["mAP"], abs=1e-9)
    assert record.method in to_csv(long_form([record]))
    assert np.isfinite(scores).all()


@pytest.mark.parametrize("folder", SPECIMENS, ids=lambda folder: folder.name)
def test_a_record_survives_the_round_trip(folder: Path) -> None:
    record = records.load(folder)
    again = records.RunRecord.from_json(json.loads(json.dumps(record.to_json())), folder)
    assert again == record


def test_the_current_schema_has_a_specimen() -> None:
    schemas = {json.loads((folder / "run.json").read_text())["schema"] for folder in SPECIMENS}
    assert records.SCHEMA in schemas


def test_a_newer_schema_is_refused_with_advice(tmp_path: Path) -> None:
    content = json.loads((SPECIMENS[-1] / "run.json").read_text())
    (tmp_path / "run.json").write_text(json.dumps({**content, "schema": records.SCHEMA + 1}))
    with pytest.raises(UsageError, match="upgrade"):
        records.load(tmp_path)


@pytest.mark.parametrize("folder", SPECIMENS, ids=lambda folder: folder.name)
def test_fields_of_the_future_are_left_out(folder: Path, tmp_path: Path) -> None:
    content = json.loads((folder / "run.json").read_text()) | {"carbon": 1.0}
    if SEAL in content:
        content[SEAL] = seal(content)
    (tmp_path / "run.json").write_text(json.dumps(content))
    assert records.load(tmp_path).method == content["method"]


def test_every_schema_but_the_first_is_sealed() -> None:
    assert {records.load(folder).sealed for folder in SPECIMENS[1:]} == {True}
    assert not records.load(SPECIMENS[0]).sealed


def test_a_field_that_is_missing_is_bad_data(tmp_path: Path) -> None:
    content = json.loads((SPECIMENS[0] / "run.json").read_text())
    del content["method"]
    (tmp_path / "run.json").write_text(json.dumps(content))
    with pytest.raises(BadData, match=r"run\.json"):
        records.load(tmp_path)
