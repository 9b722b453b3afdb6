"""A record is checked by type and range when it is read: a bad one is one line that names the field."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conftest import Invoke, some_slow
from tests.faults.edited_records import edit, only_warning
from tests.faults.toy_runs import TOY_RUN
from tests.record_fixtures import record, write
from tta_bench import metrics, records
from tta_bench.errors import BadData
from tta_bench.metrics import single_label
from tta_bench.records import Identity
from tta_bench.runs.bench import Bench
from tta_bench.runs.exchange import disagreements
from tta_bench.runs.soundness import faults
from tta_bench.system import record_form

MALFORMED: dict[str, tuple[str, Any]] = {
    "metrics: a list": ("metrics", [50.0]),
    "metrics: a text": ("metrics", {"mAP": "50"}),
    "metrics: NaN": ("metrics", {"mAP": float("nan")}),
    "metrics: infinite": ("metrics", {"mAP": float("inf")}),
    "metrics: 150": ("metrics", {"mAP": 150}),
    "metrics: negative": ("metrics", {"mAP": -1.0}),
    "metrics: true": ("metrics", {"mAP": True}),
    "metrics: enormous": ("metrics", {"mAP": 10**400}),
    "metrics: half a class": ("metrics", {"mAP": 50.0, "classes_without_positives": 0.5}),
    "metrics: too many for a table": ("metrics", {f"m{i}": 50.0 for i in range(2000)}),
    "per_class_ap: 101": ("per_class_ap", {"a": 101.0}),
    "per_class_ap: nested": ("per_class_ap", {"a": {"b": 1.0}}),
    "n: none": ("n", 0),
    "n: a text": ("n", "10"),
    "n: a float": ("n", 10.0),
    "n: enormous": ("n", 10**30),
    "seed: a text": ("seed", "0"),
    "seed: null": ("seed", None),
    "method: a number": ("method", 3),
    "method: a list": ("method", ["tda"]),
    "dataset: null": ("dataset", None),
    "changes: a text": ("changes", "shots=3"),
    "changes: null": ("changes", None),
    "tag: a mapping": ("tag", {}),
    "speed: a text": ("speed", {"images_per_s": "fast"}),
    "speed: 1e308": ("speed", {"images_per_s": 1e308}),
    "speed: a list": ("speed", []),
    "counts: negative": ("counts", {"encoder_forwards": -1}),
    "dataset_size: a text": ("dataset_size", "all"),
    "dataset_size: fewer than seen": ("dataset_size", 3),
    "random_weights: a text": ("random_weights", "no"),
    "notes: a text": ("notes", "note"),
    "files: elsewhere": ("files", {"../other/scores.safetensors": "0" * 64}),
    "provenance: a text": ("provenance", {"versions": "2.0"}),
    "identities: a list": ("identities", []),
    "identities: no parts": ("identities", {"protocol": {}, "config": {}, "replicate": {}}),
    "identities: two": ("identities", {"protocol": {"parts": {}}, "config": {"parts": {}}}),
    "schema: a text": ("schema", "1"),
    "schema: null": ("schema", None),
}


SOME = list(MALFORMED)[::4]


@pytest.mark.parametrize("what", some_slow(SOME, [what for what in MALFORMED if what not in SOME]))
def test_a_malformed_record_is_one_line_that_names_the_field(what: str, invoke: Invoke, tmp_path: Path) -> None:
    field, value = MALFORMED[what]
    write(tmp_path, record("clip"), record("tda"))
    folder = tmp_path / record("tda").run_id
    edit(folder, lambda content: content.update({field: value}))
    line = only_warning(invoke, tmp_path, "tda")
    assert str(folder / "run.json") in line
    assert f"'{field}'" in line


@pytest.mark.parametrize("field", some_slow(["metrics", "identities"], ["method", "n", "speed"]))
def test_a_missing_field_is_named(field: str, invoke: Invoke, tmp_path: Path) -> None:
    write(tmp_path, record("clip"), record("tda"))
    edit(tmp_path / record("tda").run_id, lambda content: content.pop(field))
    assert f"'{field}' is missing" in only_warning(invoke, tmp_path, "tda")


@pytest.mark.parametrize(
    "content", some_slow([b"", b'{"schema": 1}'], [b"[]", b"null", b"3", b"\xff\xfe", b"[" * 100_000, b"1" * 9999])
)
def test_what_is_no_record_at_all(content: bytes, invoke: Invoke, tmp_path: Path) -> None:
    write(tmp_path, record("clip"), record("tda"))
    (tmp_path / record("tda").run_id / "run.json").write_bytes(content)
    only_warning(invoke, tmp_path, "tda")


def test_a_folder_or_a_pipe_in_the_place_of_a_record(tmp_path: Path) -> None:
    write(tmp_path, record("clip"))
    (tmp_path / "a" / "run.json").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    os.mkfifo(tmp_path / "b" / "run.json")
    found, problems = records.load_all(tmp_path)
    assert len(found) == 1
    assert [line.endswith("not a run record (it is no file)") for line in problems] == [True, True]


SEALED_AGAIN: dict[str, tuple[str, Any]] = {
    "seed": ("seed", 7),
    "order": ("order", "sequential"),
    "n": ("n", 5),
    "dataset": ("dataset", "coco2014"),
    "backbone": ("backbone", "vit-l14"),
    "prompt": ("prompt", "ensemble"),
    "method": ("method", "ours"),
    "hyper_parameters": ("hyper_parameters", {"shots": 7}),
    "files": ("files", {}),
}


@pytest.mark.parametrize("what", some_slow(list(SEALED_AGAIN)[:2], list(SEALED_AGAIN)[2:]))
def test_what_a_table_shows_is_what_the_identities_are_made_of(what: str, toy_bench: Bench) -> None:
    """Also in a record whose editor knows how to seal it."""
    folder = toy_bench.run(TOY_RUN).record.folder
    assert folder is not None
    field, value = SEALED_AGAIN[what]
    content = json.loads((folder / "run.json").read_text()) | {field: value}
    (folder / "run.json").write_text(json.dumps(content | {"seal": record_form.seal(content)}))
    with pytest.raises(BadData, match=f"'{field}' "):
        records.load(folder)


def test_single_label_numbers_follow_from_the_scores_too(tmp_path: Path) -> None:
    scores, labels = np.eye(6, dtype=np.float32), np.eye(6, dtype=np.int8)
    ap, names = metrics.average_precision(scores, labels), [f"class {c}" for c in range(6)]
    numbers = metrics.summary(scores, labels, ap=ap) | single_label.summary(scores, labels)
    made = record(n=6, dataset_size=6, metrics=numbers, per_class_ap=dict(zip(names, ap.tolist(), strict=True)))
    made = dataclasses.replace(made, protocol=Identity({"dataset": "toy", "n": 6, "class_names": names}))
    index = np.arange(6)
    records.save(made, tmp_path / made.run_id, scores[:, None], scores, labels, index, names, {})
    made = records.load(tmp_path / made.run_id)
    assert faults(made) == list(disagreements(made)) == []
    edited = dataclasses.replace(made, metrics={**made.metrics, "top1": 99.0})
    assert faults(edited) == ["top1 is recorded as 99.0 and is 100.000000 by the scores"]
    assert list(disagreements(edited)) == ["'metrics' says top1 99.00, its scores 100.00"]
    assert faults(dataclasses.replace(made, metrics={"top2": 99.0})) == ["top2 does not follow from the scores"]
