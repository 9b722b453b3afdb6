"""`ttabench score`: stored outputs under other labels, rules and metrics, while the record stays as it is."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.conftest import TOY, Invoke
from tests.dataset_fixtures import build
from tta_bench import metrics, records
from tta_bench.plugins import get_dataset
from tta_bench.records import RunRecord

TOYS = ("--plugin", str(TOY))
FUSING = '''"""Two branches, and how much of each."""
from dataclasses import dataclass
from typing import ClassVar
import torch
from tta_bench import hookimpl
from tta_bench.interfaces import Method


@dataclass
class Fusing(Method):
    name: ClassVar[str] = "fusing"
    finish_only: ClassVar[frozenset[str]] = frozenset({"weight"})
    weight: float = 0.5  # of the second branch
    power: float = 2.0

    def start(self, task):
        self._text, self.seen = task.text, 0

    def step(self, x):
        self.seen += 1
        cosine = self._text @ x.image
        return torch.stack([cosine, cosine.roll(1) ** self.power])

    def finish(self, outputs):
        return (1 - self.weight) * outputs[:, 0] + self.weight * outputs[:, 1]MORE


@hookimpl
def ttabench_methods():
    return [Fusing]
'''


def only_run(home: Path, method: str, **wanted: float) -> RunRecord:
    found = [run for run in records.load_all(home / "runs")[0] if run.method == method]
    (run,) = [run for run in found if all(run.hyper_parameters[key] == value for key, value in wanted.items())]
    return run


def values(text: str) -> dict[str, float]:
    return {row["metric"]: float(row["value"]) for row in csv.DictReader(io.StringIO(text))}


def test_the_recorded_rules_give_the_recorded_numbers(toy_run: Invoke, invoke: Invoke, home: Path) -> None:
    toy_run("clip")
    run = only_run(home, "clip")
    assert run.folder is not None
    before = {file.name: file.read_bytes() for file in run.folder.iterdir()}
    again = values(invoke("score", run.run_id, "--metric", "mAP,CF1,OF1@3", "--format", "csv").out)
    assert again == {name: run.metrics[name] for name in ("mAP", "CF1", "OF1@3")}
    assert {file.name: file.read_bytes() for file in run.folder.iterdir()} == before


def test_other_rules(toy_run: Invoke, invoke: Invoke, home: Path) -> None:
    toy_run("clip", "--limit", "1")  # some classes have no positive
    run = only_run(home, "clip")
    assert run.metrics["classes_without_positives"]
    done = invoke("score", run.run_id, "--empty-classes", "zero", "--format", "csv")
    ap = np.array([value or 0.0 for value in run.per_class_ap.values()])
    assert values(done.out)["mAP"] == pytest.approx(ap.mean())
    assert "counted as 0" in invoke("score", run.run_id, "--empty-classes", "zero", "--ties", "dataset").out


def test_labels_of_another_variant(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    """mltta writes classes without spaces, and leaves out an image that has nothing but a difficult object."""
    build("voc2007", tmp_path)
    where = ("--data-root", str(tmp_path), *TOYS)
    assert invoke("run", "-m", "clip", "-d", "voc2007", "-b", "toyclip", "--workers", "0", *where).code == 0
    run = only_run(home, "clip")
    done = invoke("score", run.run_id, "--variant", "voc2007:mltta", "--format", "csv", *where)
    assert done.code == 0, done.err
    dataset = get_dataset("voc2007").open(tmp_path, "mltta")
    place = {image: i for i, image in enumerate(run.ids())}
    samples = [dataset[i] for i in range(len(dataset))]
    assert 0 < len(samples) < run.n
    scores = run.scores()[[place[sample.id] for sample in samples]]
    wanted = metrics.summary(scores, np.stack([sample.labels for sample in samples]))
    assert values(done.out)["mAP"] == pytest.approx(wanted["mAP"], abs=1e-12)
    assert wanted["mAP"] != run.metrics["mAP"]
    assert "also calls classes by other names" in " ".join(done.err.split())
    assert f"{len(samples)} of {run.n} images" in invoke("score", run.run_id, "--variant", "voc2007:mltta", *where).out
    (marks,) = tmp_path.rglob("dog_test.txt")
    marks.write_text(marks.read_text().replace(" 1\n", " -1\n"))
    refused = invoke("score", run.run_id, "--variant", "voc2007:mltta", *where)
    assert refused.code == 2
    assert "the voc2007 that is here has other images, labels or class names than" in refused.err


def test_other_pictures_of_the_same_names_are_another_dataset(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    for folder, color in (("a", 0), ("b", 200)):
        for name in "xyz":
            photo = tmp_path / folder / f"{name}.png"
            photo.parent.mkdir(exist_ok=True)
            Image.new("RGB", (40, 40), (color, 40, 40)).save(photo)
        lines = [f"{name}.png,{int(name == 'x')},1" for name in ("xyz" if folder == "a" else "xy")]
        (tmp_path / folder / "labels.csv").write_text("\n".join(["image,cat,dog", *lines]))
    where = ("--data-root", str(tmp_path), *TOYS)
    assert invoke("run", "-m", "clip", "-d", "folder:a", "-b", "toyclip", "--workers", "0", *where).code == 0
    result = invoke("score", only_run(home, "clip").run_id, "--variant", "folder:b", *where)
    assert result.code == 2
    assert "other images under the same ids" in result.err


def test_what_finish_has_no_use_for_at_the_recorded_value(
    invoke: Invoke, toy_run: Invoke, home: Path, tmp_path: Path
) -> None:
    """With a weight of 0 what was learnt does not show, so that the stored scores prove nothing of another weight."""
    file = tmp_path / "fusing.py"
    file.write_text(FUSING.replace("MORE", " * self.seen"))
    assert toy_run("fusing", "--plugin", f"{TOY},{file}", "--set", "weight=0").code == 0
    refused = invoke("score", only_run(home, "fusing").run_id, "--plugin", str(file), *TOYS, "--set", "weight=0.5")
    assert refused.code == 2
    assert "with these settings `finish` needs what the steps left behind" in refused.err


def test_a_setting_that_steps_use_as_well(invoke: Invoke, toy_run: Invoke, home: Path, tmp_path: Path) -> None:
    """Against its own word: `finish_only` names it."""
    file = tmp_path / "fusing.py"
    used = FUSING.replace("MORE", "").replace("cosine.roll(1) **", "self.weight * cosine.roll(1) **")
    file.write_text(used)
    assert toy_run("fusing", "--plugin", f"{TOY},{file}").code == 0
    refused = invoke("score", only_run(home, "fusing").run_id, "--plugin", str(file), *TOYS, "--set", "weight=0.9")
    assert refused.code == 2
    assert "`step` gives something else with these settings, too" in refused.err


def test_a_setting_that_small_steps_use_as_well(invoke: Invoke, toy_run: Invoke, home: Path, tmp_path: Path) -> None:
    """Cosines of a hundredth differed by less than a fixed tolerance: 48.54 in place of 47.82."""
    file = tmp_path / "fusing.py"
    uneven = "cosine = 1e-3 * cosine * (1 + 0.2 * self.weight * (self.seen % 5)); return torch"
    file.write_text(FUSING.replace("MORE", "").replace("return torch", uneven))
    assert toy_run("fusing", "--plugin", f"{TOY},{file}").code == 0
    refused = invoke("score", only_run(home, "fusing").run_id, "--plugin", str(file), *TOYS, "--set", "weight=0.9")
    assert refused.code == 2
    assert "`step` gives something else with these settings, too" in refused.err


WARMED_UP = "(self.seen > 20)"  # of the 24 images that there are
LATE = {
    "finish": (FUSING.replace("MORE", f" * (1 + {WARMED_UP})"), "`finish` needs what the steps left behind"),
    "step": (
        FUSING.replace("MORE", "").replace("return torch", f"cosine += self.weight * {WARMED_UP}; return torch"),
        "`step` gives something else with these settings, too",
    ),
}


@pytest.mark.parametrize("where", LATE)
def test_what_is_learnt_late_in_the_stream_counts(
    invoke: Invoke, toy_run: Invoke, home: Path, tmp_path: Path, where: str
) -> None:
    """For the first images it looks as if `finish` alone used the weight."""
    code, complaint = LATE[where]
    file = tmp_path / "fusing.py"
    file.write_text(code)
    assert toy_run("fusing", "--plugin", f"{TOY},{file}", "--set", "weight=0").code == 0
    refused = invoke("score", only_run(home, "fusing").run_id, "--plugin", str(file), *TOYS, "--set", "weight=0.9")
    assert refused.code == 2
    assert complaint in refused.err


def test_class_names_that_changed_places_are_other_labels(invoke: Invoke, home: Path, tmp_path: Path) -> None:
    build("folder", tmp_path)
    (labels,) = tmp_path.rglob("labels.csv")
    where = ("--data", f"folder={labels.parent}", *TOYS)
    assert invoke("run", "-m", "clip", "-d", "folder", "-b", "toyclip", "--workers", "0", *where).code == 0
    head, _, rows = labels.read_text().partition("\n")
    first, *names = head.split(",")
    labels.write_text(",".join([first, *names[::-1]]) + "\n" + rows)
    refused = invoke("score", only_run(home, "clip").run_id, "--variant", "folder", *where)
    assert refused.code == 2
    assert "other images, labels or class names" in refused.err


@pytest.mark.slow
@pytest.mark.parametrize("suite", [(), ("--protocol-preset", "mltta")], ids=["", "under a protocol preset"])
def test_finish_alone_is_repeated(
    invoke: Invoke, toy_run: Invoke, home: Path, tmp_path: Path, suite: tuple[str, ...]
) -> None:
    file = tmp_path / "fusing.py"
    file.write_text(FUSING.replace("MORE", ""))
    for weight in ("0.5", "0.9"):
        done = toy_run("fusing", "--plugin", f"{TOY},{file}", "--set", f"weight={weight}", *suite)
        assert done.code == 0, done.err
    run, other = only_run(home, "fusing", weight=0.5), only_run(home, "fusing", weight=0.9)
    again = ("score", run.run_id, "--format", "csv", "--plugin", str(file), *TOYS)
    done = invoke(*again, "--set", "weight=0.9")
    assert done.code == 0, done.err
    assert values(done.out)["mAP"] == other.metrics["mAP"] != run.metrics["mAP"]
    refused = invoke(*again, "--set", "power=3")
    assert refused.code == 2
    assert "has to run again with it (`finish` alone uses weight)" in refused.err


def test_a_finish_that_needs_the_steps_is_refused(invoke: Invoke, toy_run: Invoke, home: Path, tmp_path: Path) -> None:
    file = tmp_path / "fusing.py"
    file.write_text(FUSING.replace("MORE", " + self.seen * outputs[:, 0]"))
    toy_run("fusing", "--plugin", f"{TOY},{file}")
    run = only_run(home, "fusing")
    done = invoke("score", run.run_id, "--set", "weight=0.9", "--plugin", str(file), *TOYS)
    assert done.code == 2
    assert "needs what the steps left behind" in done.err


def test_what_is_refused_is_refused_in_a_line(toy_run: Invoke, invoke: Invoke, home: Path) -> None:
    toy_run("tda")
    for options, said in {
        ("--metric", "map"): "Did you mean mAP",
        ("--variant", "voc2007:mltta"): "write toy:VARIANT",
        ("--variant", "toy:corrupt", *TOYS): "other images under the same ids",
        ("--ties", "random"): "--ties",
        ("--set", "shotz=3", *TOYS): "Did you mean shots",
        ("--set", "shots=3", *TOYS): "has to run again",
    }.items():
        done = invoke("score", only_run(home, "tda").run_id, *options)
        assert done.code == 2
        assert said in done.err
        assert len(done.err.strip().splitlines()) == 1


def test_a_pack_has_its_own_labels_only(invoke: Invoke, toy_pack: Path, home: Path) -> None:
    assert invoke("run", "-m", "clip", "--pack", str(toy_pack)).code == 0
    done = invoke("score", "clip-toy", "--variant", "toy:default", *TOYS)
    assert done.code == 2
    assert "feature pack" in done.err
