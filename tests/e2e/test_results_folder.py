"""`ttabench results add` and results/refresh.py: what a repository keeps is checked, compact and shown as it is."""

from __future__ import annotations

import dataclasses
import runpy
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from torch import Tensor

import tta_bench
from tests.conftest import Invoke
from tests.e2e.test_runs_housekeeping import sealed_again
from tta_bench.interfaces import Method, Observation, Task
from tta_bench.records import SCORES, Identity, RunRecord, load, load_all
from tta_bench.report.selection import Selection
from tta_bench.runs.bench import Bench
from tta_bench.runs.committed import Committed
from tta_bench.runs.exchange import checked
from tta_bench.runs.spec import RunSpec

ROOT = Path(__file__).parents[2]
REFRESH = ROOT / "results" / "refresh.py"


@dataclasses.dataclass
class Weighted(Method):
    """Holds an array, as an instance of a notebook may."""

    name: ClassVar[str] = "weighted"
    weights: Any = None

    def start(self, task: Task) -> None:
        self._text = task.text

    def step(self, x: Observation) -> Tensor:
        return float(self.weights[1000]) * self._text @ x.image


@pytest.fixture
def made(toy_bench: Bench) -> RunRecord:
    return toy_bench.run(RunSpec("clip", "toy", "toyclip")).record


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A repository's results/."""
    (tmp_path / "results").mkdir()
    return tmp_path / "results"


def refresh(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(REFRESH), str(folder), *more], capture_output=True, text=True, check=False
    )


def names(folder: Path) -> list[str]:
    runs, problems = load_all(folder / "runs")
    assert problems == []
    return [run.run_id for run in runs]


def test_a_run_is_added_once_and_in_its_compact_form(invoke: Invoke, made: RunRecord, folder: Path) -> None:
    into = ("--into", str(folder / "runs"))
    result = invoke("results", "add", "clip", *into)
    assert result.code == 0, result.err
    assert "1 run added" in result.out
    assert sorted(file.name for file in (folder / "runs" / made.run_id).iterdir()) == ["run.json", SCORES]
    assert [file.name for file in (folder / "runs").iterdir()] == [made.run_id]  # no locks: all of it is committed
    assert "there already" in invoke("results", "add", str(made.folder), *into).out
    assert names(folder) == [made.run_id]


def test_one_that_did_not_finish_does_not_keep_the_others_out(invoke: Invoke, made: RunRecord, folder: Path) -> None:
    assert made.folder is not None
    half = made.folder.with_name("half")
    half.mkdir()
    result = invoke("results", "add", str(half), str(made.folder), "--into", str(folder / "runs"))
    assert result.code == 1
    assert "did not finish" in result.err
    assert names(folder) == [made.run_id]


def test_without_a_checkout_it_says_where_to_go(
    invoke: Invoke, made: RunRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke("results", "add", made.run_id)
    assert result.code == 2
    assert "checkout" in result.err
    assert invoke("results", "add", "nonsense", "--into", str(tmp_path / "runs")).code == 2


def newer(run: RunRecord, folder: Path, created: str) -> Path:
    """The same cell by other code, at another time."""
    return altered(run, folder, config={"source": created}, created=created)


def altered(run: RunRecord, folder: Path, config: Mapping[str, Any], **changes: Any) -> Path:
    """The run as one with other parts of its configuration, and other fields."""
    other = dataclasses.replace(run, config=Identity({**run.config.parts, **config}), **changes)
    assert run.folder is not None
    shutil.copytree(run.folder, folder / other.run_id)
    sealed_again(
        folder / other.run_id, lambda content: content.update(other.to_json() | {"schema": 2, "files": dict(run.files)})
    )
    return folder / other.run_id


def test_of_two_runs_of_a_cell_the_newer_stays(made: RunRecord, folder: Path, tmp_path: Path) -> None:
    kept = Committed(folder / "runs")
    assert made.folder is not None
    assert kept.add(checked(made.folder)).added
    later = newer(made, tmp_path, "2999-01-01T00:00:00+00:00")
    earlier = newer(made, tmp_path, "1999-01-01T00:00:00+00:00")
    said = Committed(folder / "runs").add(checked(later))
    assert said.added
    assert "in place of" in said.lines[0]
    assert names(folder) == [later.name]
    for old in (earlier, made.folder):
        assert not Committed(folder / "runs").add(checked(old)).added
    assert names(folder) == [later.name]


@pytest.mark.parametrize(
    ("parts", "whose"),
    [
        ({"files": {"captions": "1" * 64}}, ""),
        ({"second_backbone": {"name": "toyclip", "digest": "1" * 64}}, ""),
        ({"attributes": "1" * 64}, ""),
        ({"source": "1" * 64}, "another-package 1.0"),
        ({"source": "1" * 64}, "another.py"),
    ],
)
def test_other_files_backbones_and_authors_are_other_cells(
    made: RunRecord, folder: Path, tmp_path: Path, parts: dict[str, Any], whose: str
) -> None:
    """As the leaderboard has them in rows of their own."""
    code = {**made.provenance["code"], **({"method": whose} if whose else {})}
    other = altered(made, tmp_path, parts, provenance={**made.provenance, "code": code})
    kept = Committed(folder / "runs")
    assert made.folder is not None
    assert [kept.add(checked(run)).lines for run in (made.folder, other)] == [[made.run_id], [other.name]]
    assert sorted(names(folder)) == sorted([made.run_id, other.name])


def test_arrays_that_differ_where_their_words_do_not_are_two_configurations(toy_bench: Bench, folder: Path) -> None:
    """The second was put in place of the first: of a long array, numpy's words have both ends."""
    weights = [np.ones(2000), np.ones(2000)]
    weights[1][1000] = -1.0
    runs = [tta_bench.run(Weighted(array), "toy", "toyclip", limit=3, bench=toy_bench) for array in weights]
    assert runs[0].changes == runs[1].changes
    assert Selection({}, latest=True).of(runs).runs == runs
    kept = Committed(folder / "runs")
    assert [kept.add(checked(run.folder)).lines for run in runs if run.folder] == [[run.run_id] for run in runs]


def test_the_code_of_what_carries_an_array_may_change(made: RunRecord, folder: Path, tmp_path: Path) -> None:
    array = {"attributes": "1" * 64}
    before = load(altered(made, tmp_path, array))
    later = load(newer(before, tmp_path, "2999-01-01T00:00:00+00:00"))
    assert Selection({}, latest=True).of([before, later]).runs == [later]
    kept = Committed(folder / "runs")
    lines = [kept.add(checked(run.folder)).lines for run in (before, later) if run.folder]
    assert lines == [[before.run_id], [f"{later.run_id}: in place of {before.run_id}"]]


def test_two_states_of_a_loose_file_both_stay(made: RunRecord, folder: Path, tmp_path: Path) -> None:
    """Two people may call theirs mine.py, and nothing tells them from one who has edited his."""
    provenance = {**made.provenance, "code": {**made.provenance["code"], "method": "mine.py"}}
    runs = [altered(made, tmp_path, {"source": text * 64}, provenance=provenance) for text in "12"]
    kept = Committed(folder / "runs")
    assert [kept.add(checked(run)).lines for run in runs] == [[run.name] for run in runs]


def test_a_file_that_was_moved_and_a_package_of_another_version_are_the_same_cell(
    made: RunRecord, folder: Path, tmp_path: Path
) -> None:
    runs = []
    for version, path in (("1.0", "a.safetensors"), ("1.1", "b/a.safetensors")):
        code = {**made.provenance["code"], "method": f"a-package {version}"}
        parts = {"files": {"captions": "1" * 64}, "source": version}
        provenance = {**made.provenance, "code": code}
        created = f"2999-01-01T00:00:00.{version[-1]}+00:00"
        changes = {"captions": path}
        runs.append(altered(made, tmp_path, parts, provenance=provenance, changes=changes, created=created))
    kept = Committed(folder / "runs")
    assert [kept.add(checked(run)).added for run in runs] == [True, True]
    assert names(folder) == [runs[1].name]


def test_other_seeds_are_other_cells(invoke: Invoke, toy_bench: Bench, folder: Path) -> None:
    for seed in (0, 1):
        toy_bench.run(RunSpec("clip", "toy", "toyclip", seed))
    assert "2 runs added" in invoke("results", "add", "clip", "--into", str(folder / "runs")).out
    assert len(names(folder)) == 2


def test_what_is_no_result_is_refused(invoke: Invoke, made: RunRecord, folder: Path) -> None:
    assert made.folder is not None
    sealed_again(made.folder, lambda content: content.update(random_weights=True))
    result = invoke("results", "add", made.run_id, "--into", str(folder / "runs"))
    assert result.code == 1
    assert "untrained" in result.err
    sealed_again(made.folder, lambda content: content["metrics"].update(mAP=99.0))
    assert "says mAP 99.00" in invoke("results", "add", made.run_id, "--into", str(folder / "runs")).err
    assert not (folder / "runs").exists()


def test_a_record_without_a_seal_is_refused(invoke: Invoke, folder: Path, tmp_path: Path) -> None:
    golden = ROOT / "tests" / "golden" / "record_v1"
    old = tmp_path / (golden / "name.txt").read_text().strip()
    shutil.copytree(golden, old)
    assert "without a seal" in invoke("results", "add", str(old), "--into", str(folder / "runs")).err


@pytest.mark.slow
def test_the_table_is_written_and_held_against_the_runs(invoke: Invoke, made: RunRecord, folder: Path) -> None:
    assert refresh(folder, "--check").returncode == 1
    assert refresh(folder).returncode == 0
    assert "No run is committed yet" in (folder / "LEADERBOARD.md").read_text()
    assert refresh(folder, "--check").returncode == 0
    invoke("results", "add", "clip", "--into", str(folder / "runs"))
    stale = refresh(folder, "--check")
    assert stale.returncode == 1
    assert "LEADERBOARD.md is stale: `make results`" in stale.stdout
    assert "leaderboard.html is stale: `make results`" in stale.stdout
    assert refresh(folder).returncode == 0
    for name in ("LEADERBOARD.md", "leaderboard.html"):
        assert f"{made.metrics['mAP']:.2f}" in (folder / name).read_text()
    assert refresh(folder, "--check").returncode == 0


@pytest.mark.slow
def test_an_edited_run_or_a_stray_file_fails_the_check(invoke: Invoke, made: RunRecord, folder: Path) -> None:
    invoke("results", "add", "clip", "--into", str(folder / "runs"))
    refresh(folder)
    run = folder / "runs" / made.run_id
    (run / "notes.txt").write_text("mine")
    assert "no file of the run" in refresh(folder, "--check").stdout
    (run / "notes.txt").unlink()
    sealed_again(run, lambda content: content["metrics"].update(mAP=99.0))
    before = (folder / "LEADERBOARD.md").read_text()
    for more in ((), ("--check",)):
        result = refresh(folder, *more)
        assert result.returncode == 1
        assert "says mAP 99.00" in result.stdout
    assert (folder / "LEADERBOARD.md").read_text() == before


def test_too_large_is_not_committed(
    invoke: Invoke, made: RunRecord, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    invoke("results", "add", "clip", "--into", str(folder / "runs"))
    script = runpy.run_path(str(REFRESH))
    assert script["unsound"](folder / "runs") == []
    monkeypatch.setitem(script["unsound"].__globals__, "BYTES_AT_MOST", 1000)
    (fault,) = script["unsound"](folder / "runs")
    assert "is the most" in fault


@pytest.mark.slow
def test_the_committed_results_are_sound_and_their_table_is_not_stale() -> None:
    result = refresh(ROOT / "results", "--check")
    assert result.returncode == 0, result.stdout + result.stderr
