"""Results: what a notebook holds in its hands; and the arrays behind a record."""

from __future__ import annotations

import doctest
import json
import subprocess
import sys
from dataclasses import FrozenInstanceError, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.record_fixtures import on, record, write
from tta_bench import records
from tta_bench.errors import BadData, UsageError
from tta_bench.records import Identity, Results, RunRecord


@pytest.fixture
def results() -> Results:
    again = record("clip", 52.0, seed=1, replicate=Identity({"seed": 1}))
    return Results((record("clip"), record("tda"), again))


@pytest.fixture
def saved(tmp_path: Path) -> RunRecord:
    """A run of two images and three classes on disk."""
    folder = tmp_path / "run"
    scores = np.arange(6, dtype=np.float32).reshape(2, 3)
    labels = np.array([[1, 0, -1], [0, 1, 0]], dtype=np.int8)
    made = record(n=2, per_class_ap={"a": 1.0, "b": 1.0, "c": None})
    drift = {"drift": np.array([0.5, 1.5])}
    records.save(made, folder, scores[:, None], scores, labels, np.arange(2), ["x", "y"], drift)
    return records.load(folder)


def test_a_sequence_that_does_not_change(results: Results) -> None:
    assert len(results) == 3
    assert [run.method for run in results] == ["clip", "tda", "clip"]
    assert results[-1].seed == 1
    assert isinstance(results[:2], Results)
    assert len(results[:2]) == 2
    assert results[1] in results
    runs = [record()]
    held = Results(runs)
    runs.clear()
    assert len(held) == 1
    with pytest.raises(FrozenInstanceError):
        held.runs = ()  # type: ignore[misc]


def test_filter_takes_a_value_or_several(results: Results) -> None:
    assert [run.seed for run in results.filter(method="clip")] == [0, 1]
    assert len(results.filter(method=["clip", "tda"], seed=range(1))) == 2
    assert len(results.filter(seed=0)) == 2  # 0 is a value, None is none
    assert len(results.filter()) == 3
    assert len(results.filter(dataset="cl")) == 0  # a text is one value, not its letters
    mixed = Results((*results, record("clip", random_weights=True, protocol=Identity({"backbone": "untrained"}))))
    assert (len(mixed.filter(untrained=False)), len(mixed.filter(untrained=True))) == (3, 1)
    with pytest.raises(TypeError, match="metod"):
        results.filter(metod="clip")  # type: ignore[call-arg]


def test_filter_takes_the_names_that_run_takes(results: Results) -> None:
    """A run has one name for its order and its dataset, and may be asked for under others."""
    assert [run.seed for run in results.filter(order="shuffled:0")] == [0, 0]
    assert [run.seed for run in results.filter(order=["shuffled:01", "sequential"])] == [1]
    assert len(results.filter(dataset="toy:default")) == len(results.filter(dataset=["voc2007", "toy:"])) == 3
    assert len(results.filter(dataset="toy:other")) == len(results.filter(order="shuffled:2")) == 0
    with pytest.raises(UsageError, match="--order shufled: choose"):
        results.filter(order="shufled")


def test_what_went_wrong_stays_with_the_results(tmp_path: Path) -> None:
    write(tmp_path, record("clip"), record("tda"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "run.json").write_text("{")
    loaded = replace(Results(*records.load_all(tmp_path)), failures=("purf on toy: ValueError",))
    assert "broken" in loaded.problems[0]
    few = loaded.filter(method="clip")
    assert repr(few) == "Results(1 run: 1 method, 1 dataset, 1 backbone; 1 unreadable record; 1 failure)"
    assert "purf on toy" in few._repr_html_()
    assert repr(Results()) == "Results(0 runs)"


def test_the_frame_has_the_columns_of_the_csv(results: Results) -> None:
    frame = results.to_frame()
    assert list(frame.columns) == results.leaderboard("csv").splitlines()[0].split(",")
    assert frame["mAP"].tolist() == [50.0, 50.0, 52.0]
    empty = Results().to_frame()
    assert list(empty.columns) == list(frame.columns)
    assert len(empty) == 0


def test_the_frame_has_the_order_of_the_results(results: Results) -> None:
    assert results.to_frame()["run"].tolist() == [run.run_id for run in results]
    lines = results.leaderboard("csv").splitlines()[1:]
    assert [line.split(",")[0] for line in lines] == ["clip", "clip", "tda"]  # tables are sorted


def test_counts_stay_whole_numbers() -> None:
    text = Results((record(metrics={"mAP": 1.0, "classes_without_positives": 3}),)).leaderboard("csv")
    assert text.splitlines()[1].startswith("tda,toy,tiny,photo,0,shuffled,10,1.0,,,3,")


def test_metrics_of_some_runs_only(results: Results) -> None:
    odd = record("new", metrics={"mAP": 1.0, "R@1": 2.0, "seed": 99.0, "never": None})
    frame = Results((*results, odd)).to_frame()
    assert "None" not in Results((odd,)).leaderboard("csv")
    assert list(frame.columns).index("R@1") < list(frame.columns).index("images_per_s")
    assert frame["seed"].max() == 1  # a metric can't take a column's name


@pytest.mark.parametrize("format_", ["console", "md", "csv", "latex", "json"])
def test_leaderboard_is_text_in_every_format(results: Results, format_: Any) -> None:
    text = results.leaderboard(format_)
    assert "clip" in text
    assert text.endswith("\n")
    assert "\x1b" not in text
    assert max(map(len, results.leaderboard("console").splitlines())) <= 100
    assert isinstance(Results().leaderboard(format_), str)


def test_a_format_that_nobody_knows(results: Results) -> None:
    with pytest.raises(UsageError, match="Did you mean latex"):
        results.leaderboard("latx")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="Did you mean narrow"):
        results.leaderboard("latex", columns="narow")  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="baseline 'tpt'"):
        results.leaderboard(baseline="tpt")


def test_html_is_escaped_and_marked() -> None:
    nasty = '<script>alert("1")</script>'
    fields = {"dataset": nasty, "backbone": nasty, "prompt": nasty, "tag": nasty, "changes": {nasty: nasty}}
    html = Results((record(nasty, **fields), on("toy", n=5)), (nasty,), (nasty,))._repr_html_()  # type: ignore[arg-type]
    assert "<script" not in html
    assert '"1"' not in html
    assert "toy (5 of 10)" in html
    assert "untrained" in Results((record(random_weights=True),))._repr_html_()
    assert "No runs" in Results()._repr_html_()


def test_tables_are_made_without_torch(tmp_path: Path) -> None:
    write(tmp_path, record())
    script = f"""
import sys, pathlib
from tta_bench import records
results = records.Results(*records.load_all(pathlib.Path({str(tmp_path)!r})))
assert "pandas" not in sys.modules
results.leaderboard(), results.leaderboard("md"), results._repr_html_()
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True)


# ------------------------------------------------------------------------------------------------ what lies on disk


def test_a_record_reads_its_arrays(saved: RunRecord) -> None:
    assert saved.scores().dtype == np.float32
    assert saved.scores().tolist() == [[0, 1, 2], [3, 4, 5]]
    assert saved.labels().tolist() == [[1, 0, -1], [0, 1, 0]]
    assert saved.ids() == ("x", "y")
    assert saved.diagnostics()["drift"].tolist() == [0.5, 1.5]


def test_a_run_without_diagnostics(saved: RunRecord, tmp_path: Path) -> None:
    folder = tmp_path / "quiet"
    arrays = (saved.scores()[:, None], saved.scores(), saved.labels(), np.arange(2), ["x", "y"])
    records.save(saved, folder, *arrays, {})
    assert records.load(folder).diagnostics() == {}


def test_a_record_without_its_folder_says_so(saved: RunRecord, tmp_path: Path) -> None:
    for read in (RunRecord.scores, RunRecord.labels, RunRecord.ids, RunRecord.diagnostics):
        with pytest.raises(UsageError, match="not read from a folder"):
            read(record())
        with pytest.raises(BadData, match="folder is gone"):
            read(replace(saved, folder=tmp_path / "elsewhere"))


@pytest.mark.parametrize("name", ["scores", "diagnostics"])
@pytest.mark.parametrize("known", [True, False], ids=["with digests", "without"])
def test_damage_is_named(saved: RunRecord, name: str, known: bool) -> None:
    assert saved.folder is not None
    file = saved.folder / f"{name}.safetensors"
    run = saved if known else replace(saved, files={})
    file.write_bytes(file.read_bytes()[:20])
    with pytest.raises(BadData, match=name):
        getattr(run, name)()
    file.unlink()
    if name == "scores" or known:
        with pytest.raises(BadData, match="can't be read"):
            getattr(run, name)()


def test_a_changed_digit_is_noticed(saved: RunRecord) -> None:
    assert saved.folder is not None
    file = saved.folder / "scores.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    with pytest.raises(BadData, match="not what was written"):
        saved.scores()


def test_the_size_of_the_dataset_is_kept_and_changes_no_identity(tmp_path: Path) -> None:
    with_size, without = record(dataset_size=5000), record(dataset_size=None)
    assert with_size.run_id == without.run_id
    again = RunRecord.from_json(json.loads(json.dumps(with_size.to_json())))
    assert again.dataset_size == 5000


def test_the_examples_of_the_docstrings(results: Results, saved: RunRecord) -> None:
    given = {**vars(records), "results": results, "run": saved}
    finder, modules = doctest.DocTestFinder(), (records.record, records.results)
    tests = [test for module in modules for test in finder.find(module, globs=given) if test.examples]
    assert len(tests) >= 4
    runner = doctest.DocTestRunner()
    for test in tests:
        runner.run(test)
    assert runner.failures == 0
