"""`ttabench run` as a user types it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from tests.conftest import Invoke
from tta_bench import records


def only_run(home: Path) -> Path:
    (folder,) = [file.parent for file in (home / "runs").glob("*/run.json")]
    return folder


def test_a_run_leaves_a_complete_record(toy_run: Invoke, home: Path) -> None:
    result = toy_run("twobranches")
    assert result.code == 0, result.err
    assert re.search(r"^twobranches on toy with toyclip, seed 0: mAP \d+\.\d\d", result.out)
    assert f"{24 * (1 + 5 + 3)} encoder forwards" in result.err
    folder = only_run(home)
    record = records.load(folder)
    assert record.n == 24
    assert record.tag == "default"
    assert (record.setting, record.status) == ("unstated", "unstated")
    assert record.hyper_parameters == {"weight": 0.5}
    counts = {"forwards_per_image": 9, "encoder_forwards": 216, "text_forwards": 4, "backward_passes": 0}
    assert counts.items() <= record.counts.items()
    assert set(record.per_class_ap) == {"red", "green", "blue", "grey"}
    assert record.protocol.parts["class_names"] == ["red", "green", "blue", "grey"]
    assert record.provenance["versions"]["torch"]
    assert record.speed["images_per_s"] > 0
    assert load_file(folder / "outputs.safetensors")["outputs"].shape == (24, 2, 4)
    assert load_file(folder / "scores.safetensors")["scores"].dtype == np.float32
    assert load_file(folder / "diagnostics.safetensors")["seen"].tolist() == list(range(1, 25))
    assert not (folder / "checkpoint.pt").exists()


def test_a_record_says_what_the_method_is(toy_run: Invoke, home: Path) -> None:
    toy_run("sparc", "--set", "mode=running", "--set", "compound=none")
    record = records.load(only_run(home))
    assert (record.setting, record.status) == ("online", "ours")


def test_the_same_run_is_not_repeated_unless_forced(toy_run: Invoke, home: Path) -> None:
    first = toy_run("twobranches")
    again = toy_run("twobranches")
    assert "done before" in again.out
    assert "encoder forwards" not in again.err
    forced = toy_run("twobranches", "--force")
    assert "done before" not in forced.out
    assert "0 encoder forwards" in forced.err
    assert re.search(r"mAP [\d.]+", forced.out)[0] == re.search(r"mAP [\d.]+", first.out)[0]  # type: ignore[index]


def test_a_second_method_on_the_same_views_encodes_nothing(toy_run: Invoke) -> None:
    assert "120 encoder forwards" in toy_run("prompttuner").err
    result = toy_run("secondeyes", "--set", "reward=toyclip")
    assert "\n0 encoder forwards" in f"\n{result.err}"


def test_prompt_tuning_counts_texts_and_gradients(toy_run: Invoke, home: Path) -> None:
    assert toy_run("prompttuner").code == 0
    counts = records.load(only_run(home)).counts
    assert counts["backward_passes"] == 24
    assert counts["text_forwards"] == 4 + 24 * 2 * 4


def test_a_second_backbone_is_encoded_and_identified(toy_run: Invoke, home: Path) -> None:
    result = toy_run("secondeyes")
    assert f"{2 * 24 * 5} encoder forwards" in result.err
    config = records.load(only_run(home)).config.parts
    second = config["second_backbone"]
    assert (second["name"], second["digest"]) == ("toyreward", "toyreward-1")
    assert len(second["backbone_source"]) == 64  # its author may forget to give other code another fingerprint


def test_a_grid_runs_every_combination(toy_run: Invoke, home: Path) -> None:
    result = toy_run("twobranches,prompttuner", "--seed", "0-1,5", "--limit", "6")
    assert result.code == 0
    assert len(list((home / "runs").glob("*/run.json"))) == 6
    assert result.out.count(" on toy with toyclip, seed ") == 6
    assert "* is the best of a column" in " ".join(result.out.split())  # and their table


@pytest.mark.slow
def test_settings_recipes_and_limit_are_part_of_the_identities(toy_run: Invoke, home: Path) -> None:
    base = ("twobranches",)
    variants = [
        base,
        (*base, "--set", "weight=0.25"),
        (*base, "--recipe", "views=plain5"),
        (*base, "--limit", "10"),
        (*base, "--order", "sequential"),
        (*base, "--empty-classes", "zero"),
        (*base, "--ties", "dataset"),
    ]
    for variant in variants:
        assert toy_run(*variant).code == 0
    runs, problems = records.load_all(home / "runs")
    assert not problems
    assert len({run.run_id for run in runs}) == len(variants)
    assert len({run.config.digest for run in runs}) == 3
    assert len({run.protocol.digest for run in runs}) == 4
    assert len({run.replicate.digest for run in runs}) == 2


@pytest.mark.slow
def test_stream_order_does_not_change_a_method_without_memory(toy_run: Invoke, home: Path) -> None:
    toy_run("secondeyes")
    toy_run("secondeyes", "--order", "sequential")
    toy_run("secondeyes", "--order", "shuffled:9")
    runs, _ = records.load_all(home / "runs")
    assert len({json.dumps(run.metrics, sort_keys=True) for run in runs}) == 1


def test_views_do_not_depend_on_workers(toy_run: Invoke, home: Path) -> None:
    toy_run("twobranches", "--results", str(home / "a"))
    features = {file.parent.name: file.read_bytes() for file in (home / "store").glob("*/*/features.bin")}
    for file in (home / "store").glob("*/*/journal.txt"):
        file.unlink()
    toy_run("twobranches", "--results", str(home / "b"), "--workers", "2")
    assert {f.parent.name: f.read_bytes() for f in (home / "store").glob("*/*/features.bin")} == features


def test_an_edited_loose_plugin_is_another_config(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    from tests.conftest import TOY

    plugin = tmp_path / "mine.py"
    arguments = ("run", "--method", "twobranches", "--dataset", "toy", "--backbone", "toyclip", "--plugin", str(plugin))
    plugin.write_text(TOY.read_text())
    assert invoke(*arguments, "--limit", "3").code == 0
    plugin.write_text(TOY.read_text() + "\n# edited\n")
    assert "done before" not in invoke(*arguments, "--limit", "3").out


@pytest.mark.parametrize("limit", [1, 24, 100])
def test_limits(toy_run: Invoke, home: Path, limit: int) -> None:
    result = toy_run("secondeyes", "--limit", str(limit))
    assert result.code == 0
    assert records.load(only_run(home)).n == min(limit, 24)
    assert (f", {limit} of 24 images, " if limit < 24 else ", 24 images, ") in result.out  # also where it is one


@pytest.mark.slow
def test_one_protocol_has_one_name(toy_run: Invoke, home: Path) -> None:
    for name in ("toy", "toy:", "toy:default"):
        assert toy_run("secondeyes", "--dataset", name, "--limit", "3").code == 0
    assert records.load(only_run(home)).dataset == "toy"


def test_a_preset_brings_its_recipes(invoke: Invoke, home: Path) -> None:
    from tests.conftest import TOY

    toy = ("--plugin", str(TOY), "--dataset", "toy", "--backbone", "toyclip", "--workers", "0", "--limit", "2")
    assert invoke("run", "--method", "purf", "--preset", "paper_text", *toy).code == 0
    record = records.load(only_run(home))
    assert record.tag == "paper"
    assert record.hyper_parameters["view_set"] == "V"
    assert record.config.parts["recipes"]["views"] == "Holistic(n=63)"
