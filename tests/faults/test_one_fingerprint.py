"""Datasets and backbones of others that have one fingerprint for several things: the numbers are right all the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.conftest import TOY, Invoke
from tta_bench.errors import UsageError
from tta_bench.features.pack import Pack
from tta_bench.features.store_usage import entries, usage
from tta_bench.plugins import Registry
from tta_bench.records import RunRecord, load_all
from tta_bench.runs.bench import Bench
from tta_bench.runs.spec import RunSpec
from tta_bench.system.progress import Silent

EDITS = {
    'f"toy/{variant}"': '"toy"',
    'raise BadData("toy-007.png: the image is truncated")': "return Image.new('RGB', (24, 20))",
    "        return cls()\n": "        made = cls()\n"
    "        said = {} if weights is None else eval(weights.read_text())\n"
    "        made.projection = made.projection.roll(said.get('roll', 0))\n"
    "        made.logit_scale = said.get('scale', 20.0)\n        return made\n",
}


@pytest.fixture
def careless(tmp_path: Path) -> Path:
    """The toy plugin: its variants share a fingerprint, and so do backbones with other weights or another scale."""
    text = TOY.read_text()
    for old, new in EDITS.items():
        assert text.count(old) == 1
        text = text.replace(old, new)
    file = tmp_path / "careless.py"
    file.write_text(text)
    return file


def bench(careless: Path, home: Path) -> Bench:
    return Bench(home, home / "data", registry=Registry([careless]), progress=Silent())


def unused(home: Path) -> int:
    return sum(not one.runs for one in usage(entries(home / "store"), load_all(home / "runs")[0]))


def test_variants_of_one_fingerprint_share_no_features(careless: Path, home: Path, tmp_path: Path) -> None:
    shared = bench(careless, home)
    plain, other = (shared.run(RunSpec("clip", name, "toyclip")).record for name in ("toy", "toy:corrupt"))
    alone = bench(careless, tmp_path / "alone").run(RunSpec("clip", "toy:corrupt", "toyclip")).record
    assert np.array_equal(other.scores(), alone.scores())
    assert not np.array_equal(other.scores(), plain.scores())
    assert unused(home) == 0


def test_a_pack_has_the_features_of_its_variant(careless: Path, home: Path, invoke: Invoke, tmp_path: Path) -> None:
    """They are found in the store under the key of a run."""
    toys = ("--plugin", str(careless), "-d", "toy:corrupt", "-b", "toyclip")
    weights = tmp_path / "a.weights"
    weights.write_text("{'roll': 1}")
    files = [tmp_path / f"{name}.safetensors" for name in ("plain", "rolled")]
    for file, given in zip(files, ([], ["--weights", str(weights)]), strict=True):
        assert invoke("run", "-m", "clip", *toys, *given, "--workers", "0").code == 0
        before = len(entries(home / "store"))
        made = invoke("pack", "export", str(file), *toys, *given, "--recipe", "plain1")
        assert made.code == 0, made.err
        assert len(entries(home / "store")) == before + 1  # the recipe's; the images' were there
    assert not np.array_equal(Pack(files[0]).image(0), Pack(files[1]).image(0))


def runs_with(careless: Path, home: Path, weights: Path, *contents: str) -> list[RunRecord]:
    """With one file of weights that is written anew each time, in one session."""
    shared, found = bench(careless, home), []
    for content in contents:
        weights.write_text(content)
        found.append(shared.run(RunSpec("clip", "toy", "toyclip", weights=weights)).record)
    return found


def test_other_weights_are_another_protocol_and_other_features(careless: Path, home: Path, tmp_path: Path) -> None:
    weights = tmp_path / "some.weights"
    first, second = runs_with(careless, home, weights, "{'roll': 1}", "{'roll': 22}")
    (alone,) = runs_with(careless, tmp_path / "alone", weights, "{'roll': 22}")
    assert len({run.protocol.digest for run in (first, second)}) == 2
    assert alone.run_id == second.run_id
    assert np.array_equal(second.scores(), alone.scores())
    assert not np.array_equal(second.scores(), first.scores())
    assert unused(home) == 0


def test_another_scale_is_another_protocol(careless: Path, home: Path, tmp_path: Path) -> None:
    first, second = runs_with(careless, home, tmp_path / "some.weights", "{'scale': 20.0}", "{'scale': 2.0}")
    assert [run.protocol.parts["logit_scale"] for run in (first, second)] == [20.0, 2.0]
    assert first.metrics["mAP_softmax"] != second.metrics["mAP_softmax"]


def test_the_scale_of_a_second_backbone_counts(careless: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shared, found = bench(careless, home), []
    for scale in (20.0, 2.0):
        monkeypatch.setattr(shared.backbone("toyreward"), "logit_scale", scale)
        found.append(shared.run(RunSpec("secondeyes", "toy", "toyclip", limit=3)).record)
    assert [run.config.parts["second_backbone"]["logit_scale"] for run in found] == [20.0, 2.0]


def test_a_folder_of_weights_counts_by_its_files(careless: Path, home: Path, tmp_path: Path) -> None:
    folder = tmp_path / "weights"
    (folder / "inner").mkdir(parents=True)
    found = set()
    for text in ("a", "bc"):
        (folder / "inner" / "tensors").write_text(text)
        found.add(bench(careless, home).unknown_weights("toyclip", folder))
    assert len(found) == 2


def test_weights_that_are_not_there_are_one_line(careless: Path, home: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none.weights can't be read: No such file"):
        bench(careless, home).run(RunSpec("clip", "toy", "toyclip", weights=tmp_path / "none.weights"))
