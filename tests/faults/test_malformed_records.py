"""A record is checked by type and range when it is read: a bad one is one line that names the field."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Invoke
from tests.faults.edited_records import edit, only_warning
from tests.record_fixtures import record, write
from tta_bench import records

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


@pytest.mark.parametrize("what", MALFORMED)
def test_a_malformed_record_is_one_line_that_names_the_field(what: str, invoke: Invoke, tmp_path: Path) -> None:
    field, value = MALFORMED[what]
    write(tmp_path, record("clip"), record("tda"))
    folder = tmp_path / record("tda").run_id
    edit(folder, lambda content: content.update({field: value}))
    line = only_warning(invoke, tmp_path, "tda")
    assert str(folder / "run.json") in line
    assert f"'{field}'" in line


@pytest.mark.parametrize("field", ["method", "metrics", "identities", "n", "speed"])
def test_a_missing_field_is_named(field: str, invoke: Invoke, tmp_path: Path) -> None:
    write(tmp_path, record("clip"), record("tda"))
    edit(tmp_path / record("tda").run_id, lambda content: content.pop(field))
    assert f"'{field}' is missing" in only_warning(invoke, tmp_path, "tda")


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"null", b"3", b"\xff\xfe", b"[" * 100_000, b'{"schema": 1}', b"1" * 9999]
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
