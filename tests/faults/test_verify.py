"""`ttabench verify`: what is sound holds, and what somebody has planted is caught."""

from __future__ import annotations

import importlib.util
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tta_bench
from tests.conftest import TOY, Invoke
from tta_bench import metrics, records
from tta_bench.records import SCORES, RunRecord
from tta_bench.runs.again import Elsewhere, Replay, request, usual_range
from tta_bench.runs.bench import Bench
from tta_bench.runs.presets import names
from tta_bench.system import outcome
from tta_bench.system import record_form as form
from tta_bench.system.files import digest

CHEATER = '''"""A method that looks where it should not."""
import gc, json
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar
import torch
from tta_bench import hookimpl
from tta_bench.interfaces import Method

MEMORY = Path("MEMORY_FILE")


def found(kind):
    alike = (thing for thing in gc.get_objects() if type(thing).__name__ == kind)
    return next((thing for thing in alike if type(thing).__module__.startswith("tta_bench.")), None)


@dataclass
class Cheater(Method):
    name: ClassVar[str] = "cheater"

    def start(self, task):
        self._text = task.text

    def step(self, x):
        scores = self._text @ x.image
        HOW
        return scores


@hookimpl
def ttabench_methods():
    return [Cheater]
'''
LABELS = """
        stream = found("Stream")
        if stream is not None:
            scores = scores + torch.tensor(stream.labels[x.index], dtype=torch.float32)
"""
NEXT_IMAGE = """
        stream, views = found("Stream"), found("EncodedViews")
        if stream is not None and views is not None and x.index + 1 < len(stream):
            scores = scores + self._text @ views.read(stream.indices[x.index + 1])[0]
"""
MEMORY = """
        stream = found("Stream")
        if stream is not None:
            MEMORY.write_text(json.dumps(stream.labels.tolist()))
        if MEMORY.exists():
            scores = scores + torch.tensor(json.loads(MEMORY.read_text())[x.index], dtype=torch.float32)
"""
HONEST = "\n        pass\n"
IN_TIME = ("--plugin", str(TOY))


def planted(folder: Path, how: str) -> Path:
    file = folder / "cheater.py"
    file.write_text(CHEATER.replace("MEMORY_FILE", str(folder / "memory.json")).replace("\n        HOW\n", how))
    return file


def in_this_process(file: Path, bench: Bench) -> RunRecord:
    """As somebody would run it in a notebook, where Python hides nothing."""
    spec = importlib.util.spec_from_file_location("cheater", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return tta_bench.run(module.Cheater(), "toy", "toyclip", limit=8, bench=bench)  # each step looks through all


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (LABELS, "scores differ"),
        pytest.param(NEXT_IMAGE, "scores differ", marks=pytest.mark.slow),
        pytest.param(MEMORY, "reached for what it was not handed", marks=pytest.mark.slow),
    ],
    ids=["labels through gc", "the next image", "labels in a file"],
)
def test_a_cheater_is_caught(invoke: Invoke, toy_bench: Bench, tmp_path: Path, how: str, said: str) -> None:
    file = planted(tmp_path, how)
    record = in_this_process(file, toy_bench)
    done = invoke("verify", record.run_id, "--blind", "--plugin", str(file), *IN_TIME)
    assert done.code == 1, done.out
    assert done.out.startswith("✗")
    assert said in done.out
    assert records.load(record.folder or Path()).verified == ""


def test_the_same_without_the_cheating_holds(invoke: Invoke, toy_bench: Bench, tmp_path: Path) -> None:
    file = planted(tmp_path, HONEST)
    record = in_this_process(file, toy_bench)
    done = invoke("verify", record.run_id, "--blind", "--plugin", str(file), *IN_TIME)
    assert done.code == 0, done.out + done.err
    assert "bit for bit" in done.out
    assert records.load(record.folder or Path()).verified == "blind"


def test_what_was_an_instance_can_not_be_had_by_name(invoke: Invoke, toy_bench: Bench, tmp_path: Path) -> None:
    record = in_this_process(planted(tmp_path, HONEST), toy_bench)
    done = invoke("verify", record.run_id, "--replay", *IN_TIME)
    assert done.code == 1
    assert "can't be run again by name" in done.out
    assert len(done.out.splitlines()) == 1


# --------------------------------------------------------------------------------------------------- built-in methods


@pytest.fixture
def tda(toy_bench: Bench) -> RunRecord:
    return tta_bench.run("tda", "toy", "toyclip", settings={"shots": 2}, recipes={"views": "plain3"}, bench=toy_bench)


@pytest.mark.parametrize(("option", "kind"), [("--replay", "replay"), ("--blind", "blind")])
def test_a_built_in_is_run_again_beside_its_record(
    invoke: Invoke, tda: RunRecord, home: Path, option: str, kind: str
) -> None:
    assert tda.folder is not None
    before = {file.name: file.read_bytes() for file in tda.folder.iterdir()}
    done = invoke("verify", tda.run_id, option, *IN_TIME)
    assert done.code == 0, done.out + done.err
    assert "bit for bit" in done.out
    after = {file.name: file.read_bytes() for file in tda.folder.iterdir()}
    assert set(after) - set(before) == {outcome.FILE}
    assert all(after[name] == content for name, content in before.items())
    assert len(list((home / "runs").glob("*/run.json"))) == 1
    assert records.load(tda.folder).verified == kind
    assert tta_bench.load_results(home / "runs").to_frame()["verified"].tolist() == [kind]


@pytest.mark.parametrize("suite", names())
def test_a_run_under_a_protocol_preset(toy_run: Invoke, invoke: Invoke, home: Path, suite: str) -> None:
    """It is among the parts of the configuration: asked for without it, every such run was refused as another one."""
    assert toy_run("tda", "--protocol-preset", suite, "--limit", "6").code == 0
    (run,) = records.load_all(home / "runs")[0]
    for option in ("--replay", "--blind"):
        done = invoke("verify", run.run_id, option, *IN_TIME)
        assert done.code == 0, done.out + done.err
        assert "bit for bit" in done.out


def test_a_run_on_a_pack(invoke: Invoke, toy_bench: Bench, toy_pack: Path) -> None:
    record = tta_bench.run("clip", pack=toy_pack, bench=toy_bench)
    refused = invoke("verify", record.run_id, "--replay")
    assert refused.code == 1
    assert "--pack FILE" in refused.out
    assert invoke("verify", record.run_id, "--replay", "--pack", str(toy_pack)).code == 0


def resealed(folder: Path, change: dict[str, Any]) -> None:
    content = {**json.loads((folder / "run.json").read_text()), **change}
    (folder / "run.json").write_text(json.dumps({**content, form.SEAL: form.seal(content)}))


def test_better_numbers_than_the_scores_give(invoke: Invoke, tda: RunRecord) -> None:
    assert tda.folder is not None
    assert invoke("verify", tda.run_id).code == 0
    resealed(tda.folder, {"metrics": {**tda.metrics, "mAP": (tda.metrics["mAP"] or 0) - 1e-6}})
    done = invoke("verify", tda.run_id)
    assert done.code == 1
    assert "mAP is recorded as" in done.out


def test_better_scores_than_the_method_gives(invoke: Invoke, tda: RunRecord) -> None:
    """Whoever forges a run to the last digest is found out when it is run again, and not before."""
    assert tda.folder is not None
    scores, labels, ids = records.load_scores(tda)
    index, better = tda.index(), (scores + labels).astype(np.float32)
    forged = records.save(tda, tda.folder, better[:, None], better, labels, index, ids, {})
    order = np.argsort(index)
    ap = metrics.average_precision(better[order], labels[order])
    summary = metrics.summary(better[order], labels[order], ap=ap)
    per_class = dict(zip(tda.per_class_ap, (None if np.isnan(v) else v for v in ap.tolist()), strict=True))
    resealed(tda.folder, {"metrics": summary, "per_class_ap": per_class, "along": {}, "files": dict(forged.files)})
    assert invoke("verify", tda.run_id).code == 0
    done = invoke("verify", tda.run_id, "--replay", *IN_TIME)
    assert done.code == 1
    assert "scores differ by up to" in done.out


@pytest.mark.parametrize(("recorded", "code"), [({"instructions": "SSE"}, 0), ({}, 1)])
def test_a_processor_with_other_instructions_may_round_otherwise(
    invoke: Invoke, tda: RunRecord, recorded: dict[str, str], code: int
) -> None:
    """Its name is the same. A record of before tells nothing about it."""
    assert tda.folder is not None
    scores, labels, ids = records.load_scores(tda)
    rounded = scores * np.float32(1 + 1e-6)
    made = records.save(tda, tda.folder, rounded[:, None], rounded, labels, tda.index(), ids, {})
    hardware = {name: value for name, value in tda.hardware.items() if name != "instructions"} | recorded
    resealed(tda.folder, {"files": dict(made.files), "hardware": hardware})
    done = invoke("verify", tda.run_id, "--replay", *IN_TIME)
    assert done.code == code, done.out
    assert ("instructions SSE then" in done.out) == bool(recorded)


def test_labels_that_are_not_the_protocols(invoke: Invoke, tda: RunRecord) -> None:
    assert tda.folder is not None
    scores, labels, ids = records.load_scores(tda)
    forged = records.save(tda, tda.folder, scores[:, None], scores, 1 - abs(labels), tda.index(), ids, {})
    resealed(tda.folder, {"files": dict(forged.files)})
    assert "labels of scores.safetensors are not those of the protocol" in invoke("verify", tda.run_id).out


def test_a_flipped_bit_does_not_stop_the_others(invoke: Invoke, tda: RunRecord, toy_bench: Bench) -> None:
    sound = tta_bench.run("clip", "toy", "toyclip", bench=toy_bench)
    assert tda.folder is not None
    content = bytearray((tda.folder / SCORES).read_bytes())
    content[-1] ^= 1
    (tda.folder / SCORES).write_bytes(content)
    done = invoke("verify", tda.run_id, sound.run_id)
    assert done.code == 1
    assert [line[0] for line in done.out.splitlines()] == ["✗", "✓"]
    assert "is not what was written" in done.out


def test_other_data_than_it_ran_on(invoke: Invoke, tda: RunRecord) -> None:
    assert tda.folder is not None
    parts = {**tda.protocol.parts, "backbone_digest": digest("another")}
    other = replace(tda, protocol=records.Identity(parts))
    scores, labels, ids = records.load_scores(tda)
    folder = tda.folder.parent / other.run_id
    folder.mkdir()
    records.save(other, folder, scores[:, None], scores, labels, tda.index(), ids, {})
    done = invoke("verify", other.run_id, "--replay", *IN_TIME)
    assert done.code == 1
    assert "not what it ran on: backbone_digest" in done.out


# ------------------------------------------------------------------------------------------------------------ outcomes


def test_an_outcome_is_of_its_files_alone_and_the_stronger_one_stays(tmp_path: Path) -> None:
    files = {"scores.safetensors": "a"}
    outcome.write(tmp_path, files, "blind", True, {})
    outcome.write(tmp_path, files, "replay", True, {})
    assert outcome.kind_of(tmp_path, files) == "blind"
    assert outcome.kind_of(tmp_path, {"scores.safetensors": "b"}) == ""
    outcome.write(tmp_path, files, "replay", False, {})
    assert outcome.kind_of(tmp_path, files) == ""


def test_an_edited_outcome_counts_for_nothing(tmp_path: Path) -> None:
    outcome.write(tmp_path, {"scores.safetensors": "a"}, "replay", False, {})
    text = (tmp_path / outcome.FILE).read_text()
    (tmp_path / outcome.FILE).write_text(text.replace("false", "true"))
    assert outcome.kind_of(tmp_path, {"scores.safetensors": "a"}) == ""


def test_an_outcome_does_not_travel_to_another_run(tda: RunRecord, toy_bench: Bench) -> None:
    assert tda.folder is not None
    outcome.write(tda.folder, tda.files, "blind", True, {})
    other = tta_bench.run("clip", "toy", "toyclip", bench=toy_bench)
    assert other.folder is not None
    shutil.copy(tda.folder / outcome.FILE, other.folder)
    assert records.load(other.folder).verified == ""


@pytest.mark.parametrize(
    ("largest", "elsewhere", "holds"),
    [(0.0, (), True), (1e-6, (), False), (1e-6, ("processor",), True), (0.1, ("processor",), False)],
)
def test_bits_count_on_the_same_machine_and_sizes_on_another(
    largest: float, elsewhere: tuple[str, ...], holds: bool
) -> None:
    assert Replay("replay", largest, "", (1.0, 1.0), elsewhere, (), (), range=10.0).holds is holds


def test_elsewhere_another_map_does_not_hold() -> None:
    found = Replay("replay", 1e-6, "", (50.0, 50.06), ("processor",), (), (), range=10.0)
    assert not found.holds
    assert replace(found, mean_ap=(50.0, 50.04)).holds
    assert replace(found, mean_ap=(None, None)).holds
    assert not replace(found, mean_ap=(50.0, None)).holds


def test_scores_far_off_do_not_widen_what_may_differ() -> None:
    scores = np.random.default_rng(0).normal(size=(100, 7))
    usual = usual_range(scores)
    assert usual == pytest.approx(3.3, abs=0.5)
    scores[0] = 1e6  # an image
    scores[:, 0] = -1e6  # and a class that is masked
    assert usual_range(scores) == pytest.approx(usual, abs=0.3)


def test_a_role_named_as_a_hyper_parameter_is_not_taken_for_it(tda: RunRecord) -> None:
    both = {"views": "2", "recipe.views": "plain8"}
    named_alike = replace(tda, changes=both, hyper_parameters={"views": 2})
    assert request(named_alike, Elsewhere()).recipes == {"views": "plain8"}
    assert request(replace(named_alike, changes={"views": "2"}), Elsewhere()).recipes == {}
    assert request(replace(tda, changes={"views": "plain8"}), Elsewhere()).recipes == {"views": "plain8"}
